"""Folder conventions: where fMRIPrep, XCP-D, C-PAC, DPABI and plain folders keep their files.

Every finder turns a folder into `Source` records, one per run; nothing is read here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fcforge.errors import DataError, unknown_name
from fcforge.imaging.series import SUFFIXES

_ENTITY = re.compile(r"([a-zA-Z]+)-([a-zA-Z0-9+]+)")
_DPABI_NAMES = re.compile(r"ROISignals_(?P<id>.+)\.(mat|txt)$")


@dataclass(frozen=True)
class Source:
    """One run of one subject, as a tool left it.

    Attributes
    ----------
    subject : str
        Without the ``sub-`` prefix.
    path : Path
        4D scan or ROI time series.
    kind : {"scan", "series"}
    tool : str
        Layout it was found in.
    session, task, run, space : str
        BIDS entities, "" where the name has none.
    denoised : bool
        The tool has already regressed and filtered; nothing more is taken out.
    motion, mask, sidecar : Path or None
        Table with framewise displacement, brain mask, JSON with the TR.
    """

    subject: str
    path: Path
    kind: Literal["scan", "series"]
    tool: str
    session: str = ""
    task: str = ""
    run: str = ""
    space: str = ""
    denoised: bool = False
    motion: Path | None = None
    mask: Path | None = None
    sidecar: Path | None = None


@dataclass(frozen=True)
class Choice:
    """Which of the files found are wanted; an empty string takes any."""

    atlas: str = "AAL116"
    task: str = ""
    session: str = ""
    space: str = ""
    select: str = ""
    aroma: bool = False

    def takes(self, source: Source) -> bool:
        """Whether `source` is wanted."""
        return (
            (not self.task or source.task == self.task)
            and (not self.session or source.session == self.session.removeprefix("ses-"))
            and (not self.space or source.space == self.space)
            and self.select in source.path.name
        )


def entities(name: str) -> dict[str, str]:
    """BIDS entities of a file name: ``{"sub": "01", "task": "rest", ...}``."""
    stem = name.split(".")[0]
    return {k: v for part in stem.split("_") for k, v in _ENTITY.findall(part)[:1]}


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
    elif layout not in FINDERS:
        raise unknown_name("layout", layout, [*FINDERS, "auto"])
    found = [
        source
        for source in FINDERS[layout](root, choice)
        if choice.takes(source) and not _inside(source.path, skip)
    ]
    return sorted(found, key=lambda s: (s.subject, s.session, s.run, s.path.name))


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


def _bids(path: Path, **fields: Any) -> Source:
    found = entities(path.name)
    session = found.get("ses", "")
    subject = found.get("sub", "")
    return Source(
        subject=subject,
        path=path,
        session=session,
        task=found.get("task", ""),
        run=found.get("run", ""),
        space=found.get("space", ""),
        **fields,
    )


def _nifti(root: Path, pattern: str) -> Iterator[Path]:
    for ending in (".nii.gz", ".nii"):
        yield from root.glob(pattern + ending)


def _is_volume_space(source: Source) -> bool:
    return source.space.startswith("MNI")


def _fmriprep(root: Path, choice: Choice) -> Iterator[Source]:
    description = "smoothAROMAnonaggr" if choice.aroma else "preproc"
    for path in _nifti(root, f"sub-*/**/*_desc-{description}_bold"):
        stem = path.name.split(".")[0]
        run = re.sub(r"_space-[^_]+|_res-[^_]+|_desc-.*$", "", stem)
        source = _bids(
            path,
            kind="scan",
            tool="fmriprep",
            motion=_existing(  # fMRIPrep before 20.2 wrote _regressors
                path.with_name(f"{run}_desc-confounds_timeseries.tsv"),
                path.with_name(f"{run}_desc-confounds_regressors.tsv"),
            ),
            mask=_existing(path.with_name(path.name.replace(f"desc-{description}_bold", _MASK))),
            sidecar=path.with_name(f"{stem}.json"),
        )
        if _is_volume_space(source):
            yield source


_MASK = "desc-brain_mask"
_NOT_SERIES = ("participants", "phenotyp", "atlas-", "readme", "license", "changes")


def _xcpd(root: Path, choice: Choice) -> Iterator[Source]:
    made = [
        _bids(path, kind="series", tool="xcpd", denoised=True, motion=_xcpd_motion(path))
        for path in root.glob("sub-*/**/*_timeseries.tsv")
        if _names_atlas(path, choice.atlas) and "stat-mean" in path.name
    ]
    have = {(s.subject, s.session, s.task, s.run) for s in made}
    yield from made
    for path in _nifti(root, "sub-*/**/*_desc-denoised_bold"):  # parcellate it ourselves
        source = _bids(
            path,
            kind="scan",
            tool="xcpd",
            denoised=True,
            motion=_xcpd_motion(path),
            sidecar=path.with_name(path.name.split(".")[0] + ".json"),
        )
        if (source.subject, source.session, source.task, source.run) not in have:
            yield source


def _xcpd_motion(path: Path) -> Path | None:
    run = re.sub(r"_(space|seg|atlas|res|den|stat|desc)-.*$", "", path.name)
    names = (f"{run}_motion.tsv", f"{run}_desc-filtered_motion.tsv")
    return next((path.with_name(n) for n in names if path.with_name(n).exists()), None)


def _cpac(root: Path, choice: Choice) -> Iterator[Source]:
    for path in root.glob("**/func/**/*_timeseries.1D"):
        if _names_atlas(path, choice.atlas) and "desc-Mean" in path.name:
            yield _bids(path, kind="series", tool="cpac", denoised=True, motion=_cpac_motion(path))


def _cpac_motion(path: Path) -> Path | None:
    run = re.sub(r"_(space|reg|atlas|res|desc)-.*$", "", path.name)
    found = sorted(path.parent.glob(f"{run}*framewise-displacement-power.1D"))
    return found[0] if found else None


def _dpabi(root: Path, choice: Choice) -> Iterator[Source]:
    del choice
    for path in root.glob("**/ROISignals_*/ROISignals_*"):
        match = _DPABI_NAMES.match(path.name)
        if not match:
            continue
        subject = match["id"]
        top = next(p for p in path.parents if p.name.startswith("ROISignals_")).parent
        second = re.match(r"S(\d+)_", top.name)  # S2_Results holds the second session
        base = top.parent if top.name.endswith("Results") else top
        text = path.with_suffix(".txt")
        if path.suffix == ".txt" or not text.exists():  # both are written; one is enough
            yield Source(
                subject=subject.removeprefix("sub-"),
                path=path,
                kind="series",
                tool="dpabi",
                session=second[1] if second else "",
                task="rest",
                denoised=True,
                motion=_existing(
                    base / "RealignParameter" / subject / f"FD_Power_{subject}.txt",
                    base / "RealignParameter" / subject / f"FD_Jenkinson_{subject}.txt",
                ),
            )


def _scans(root: Path, choice: Choice) -> Iterator[Source]:
    del choice
    for path in _nifti(root, "**/*"):
        found = entities(path.name)
        if "mask" in path.name or "dseg" in path.name or path.name.startswith("atlas-"):
            continue
        yield Source(
            subject=found.get("sub", path.name.split(".")[0]),
            path=path,
            kind="scan",
            tool="nifti",
            session=found.get("ses", ""),
            task=found.get("task", "rest"),
            run=found.get("run", ""),
            space=found.get("space", "MNI152"),
            sidecar=path.with_name(path.name.split(".")[0] + ".json"),
        )


def _series(root: Path, choice: Choice) -> Iterator[Source]:
    del choice
    for path in root.glob("**/*"):
        if path.suffix not in SUFFIXES or path.name.lower().startswith(_NOT_SERIES):
            continue
        found = entities(path.name)
        stem = re.sub(r"_(rois_[a-z0-9]+|timeseries|ts|bold)$", "", path.stem)
        yield Source(
            subject=found.get("sub", stem.removeprefix("ROISignals_")),
            path=path,
            kind="series",
            tool="series",
            session=found.get("ses", ""),
            task=found.get("task", "rest"),
            run=found.get("run", ""),
            denoised=True,
        )


def _names_atlas(path: Path, atlas: str) -> bool:
    """Whether the ``atlas-`` or ``seg-`` entity is `atlas` (AAL, AAL116 and aal are one)."""
    found = entities(path.name)
    tag = found.get("seg") or found.get("atlas") or ""
    return _plain(tag) == _plain(Path(atlas).name.split(".")[0])


def _plain(name: str) -> str:
    text = re.sub(r"[^a-z0-9]", "", name.lower())
    return "aal" if text in {"aal", "aal116", "aalmaskpad"} else text


def _existing(*paths: Path) -> Path | None:
    return next((path for path in paths if path.exists()), None)


FINDERS: dict[str, Callable[[Path, Choice], Iterable[Source]]] = {
    "fmriprep": _fmriprep,
    "xcpd": _xcpd,
    "cpac": _cpac,
    "dpabi": _dpabi,
    "nifti": _scans,
    "series": _series,
}
