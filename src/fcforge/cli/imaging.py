"""Commands from scans to FC."""

from fcforge.cli._options import IMAGING, Room, imaging, report, takes
from fcforge.imaging.options import FCRequest, PreprocessRequest
from fcforge.progress import progress_of, say


@takes(FCRequest)
def fc(request: FCRequest) -> int:
    """Make FC of every subject from the output of fMRIPrep, XCP-D, C-PAC, DPABI or your own."""
    told = {"say": say, "progress": progress_of, "pages": report.quality}
    return imaging.app.fc_folder(request, **told).code


@takes(PreprocessRequest)
def preprocess(request: PreprocessRequest) -> int:
    """Bring raw scans to MNI space in basic steps, without T1w images; prefer fMRIPrep."""
    told = {"say": say, "progress": progress_of, "pages": report.quality}
    return Room("fcforge.imaging.raw").pipeline.preprocess_folder(request, **told).code


COMMANDS, PANEL = (fc, preprocess), IMAGING
