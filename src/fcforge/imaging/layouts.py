"""Which tool wrote a folder, and the runs in it that are wanted."""

from __future__ import annotations

import json
import re
from pathlib import Path

from fcforge.errors import DataError, unknown_name
from fcforge.imaging.finders import FINDERS
from fcforge.imaging.sources import Choice, Source, entities


def detect(root: Path, choice: Choice, skip: frozenset[Path] = frozenset()) -> str:
    """Name of the tool that wrote `root`, from dataset_description.json or the file names."""
    tool = _generated_by(root)
    if tool:
        return tool
    for name, finder in FINDERS.items():
        if any(not _inside(source.path, skip) for source in finder(root, choice)):
            return name
    raise DataError(
        "no scan and no time series found.",
        where=str(root),
        do=f"Looked for the layouts {', '.join(FINDERS)}; name one with --layout.",
    )


def find_sources(
    root: Path, choice: Choice, layout: str = "auto", skip: frozenset[Path] = frozenset()
) -> list[Source]:
    """All wanted runs below `root`, sorted by subject, session and run.

    Parameters
    ----------
    root : Path
    choice : Choice
    layout : str
        "auto" or one of `FINDERS`.
    skip : set of Path
        Files and folders below `root` that are no input: the output folder, the people's table.
    """
    if not root.is_dir():
        raise DataError("no such folder.", where=str(root))
    if layout == "auto":
        layout = detect(root, choice, skip)
        if layout == "nifti":
            _refuse_native(root, choice, skip)
    elif layout not in FINDERS:
        raise unknown_name("layout", layout, [*FINDERS, "auto"])
    found = [
        source
        for source in FINDERS[layout](root, choice)
        if choice.takes(source) and not _inside(source.path, skip)
    ]
    return sorted(found, key=lambda s: (s.subject, s.session, s.run, s.path.name))


def _refuse_native(root: Path, choice: Choice, skip: frozenset[Path]) -> None:
    """Raw and native-space BIDS scans would give FC of the wrong places; say so."""
    for source in FINDERS["nifti"](root, choice):
        found = entities(source.path.name)
        space = found.get("space", "")
        native = "sub" in found and not space.startswith("MNI")
        if native and not _inside(source.path, skip):
            raise DataError(
                f"{source.path.name} is in {space or 'scanner'} space, FC needs MNI space.",
                where=str(root),
                do="Raw scans: `fcforge preprocess` first. fMRIPrep: --output-spaces "
                "MNI152NLin2009cAsym. If it is in MNI space after all: --layout nifti.",
            )


def _inside(path: Path, skip: frozenset[Path]) -> bool:
    return not skip.isdisjoint({path, *path.parents})


def _generated_by(root: Path) -> str:
    file = root / "dataset_description.json"
    if not file.exists():
        return ""
    try:
        info = json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"not JSON ({error}).", where=str(file)) from None
    made_by = info.get("GeneratedBy") or info.get("PipelineDescription") or []
    made_by = made_by if isinstance(made_by, list) else [made_by]
    names = " ".join(str(tool.get("Name", "")) for tool in made_by if isinstance(tool, dict))
    text = re.sub(r"[^a-z]", "", names.lower())
    known = {"xcpd": "xcpd", "xcp": "xcpd", "cpac": "cpac", "fmriprep": "fmriprep"}
    return next((layout for word, layout in known.items() if word in text), "")
