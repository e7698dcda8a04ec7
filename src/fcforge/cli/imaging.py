"""Commands from scans to FC."""

from fcforge.cli.commands import takes
from fcforge.imaging.options import FCRequest, PreprocessRequest


@takes
def fc(request: FCRequest) -> int:
    """Make FC of every subject from the output of fMRIPrep, XCP-D, C-PAC, DPABI or your own."""
    from fcforge.imaging.app import fc_folder
    from fcforge.report import quality

    return fc_folder(request, quality).code


@takes
def preprocess(request: PreprocessRequest) -> int:
    """Bring raw scans to MNI space in basic steps, without T1w images; prefer fMRIPrep."""
    from fcforge.imaging.raw.pipeline import preprocess_folder
    from fcforge.report import quality

    return preprocess_folder(request, quality).code


COMMANDS = (fc, preprocess)
PANEL = "Imaging"
