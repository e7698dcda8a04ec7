"""Commands that make data files: ``fc``, ``preprocess`` and ``data``."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from fcforge.cli.messages import at_work, say
from fcforge.cli.options import takes
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


def data(
    name: Annotated[
        str, Argument(help="abide-529, abide-871, abide-871-cc200 or abide-1098.")
    ],
    out: Annotated[Path, Argument(help="File to write (.npz).")],
) -> None:
    """Rebuild a data file of the published tables from public series; needs a network."""
    from fcforge.data.abide import PUBLISHED, rebuild

    with at_work("fetching and correlating"):
        different = rebuild(name, out)
    for line in different:
        say(line, style="red")
    if different:
        raise typer.Exit(1)
    say(f"wrote {out}: {PUBLISHED[name].people} subjects, those of the published file")


COMMANDS = (fc, preprocess, data)
