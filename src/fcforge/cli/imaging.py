"""Commands from scans to FC."""

import typer

from fcforge.cli._console import progress_of, say
from fcforge.cli._options import IMAGING, takes
from fcforge.imaging.options import FCRequest, PreprocessRequest


def mount(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (fc, preprocess):
        app.command(rich_help_panel=IMAGING)(command)


@takes(FCRequest)
def fc(request: FCRequest) -> int:
    """Make FC of every subject from the output of fMRIPrep, XCP-D, C-PAC, DPABI or your own."""
    from fcforge.imaging.app import fc_folder
    from fcforge.report import quality

    return fc_folder(request, say=say, progress=progress_of, pages=quality).code


@takes(PreprocessRequest)
def preprocess(request: PreprocessRequest) -> int:
    """Bring raw scans to MNI space: basic. T1w images are not used; prefer fMRIPrep."""
    from fcforge.imaging.raw.pipeline import preprocess_folder
    from fcforge.report import quality

    return preprocess_folder(request, say=say, progress=progress_of, pages=quality).code
