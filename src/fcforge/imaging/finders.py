"""Where fMRIPrep, XCP-D, C-PAC, DPABI and plain folders keep their files, tool by tool.

Every finder turns a folder into `Source` records, one per run; nothing is read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from fcforge.imaging.matrix_files import SUFFIXES
from fcforge.imaging.sources import Choice, Source, entities, loose_source

_DPABI_NAMES = re.compile(r"ROISignals_(?P<id>.+)\.(mat|txt)$")


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
        if "mask" in path.name or "dseg" in path.name or path.name.startswith("atlas-"):
            continue
        stem = path.name.split(".")[0]
        yield loose_source(
            path,
            stem,
            kind="scan",
            tool="nifti",
            space=entities(path.name).get("space", "MNI152"),
            sidecar=path.with_name(f"{stem}.json"),
        )


def _series(root: Path, choice: Choice) -> Iterator[Source]:
    del choice
    for path in root.glob("**/*"):
        if path.suffix.lower() not in SUFFIXES or path.name.lower().startswith(_NOT_SERIES):
            continue
        stem = re.sub(r"_(rois_[a-z0-9]+|timeseries|ts|bold)$", "", path.stem)
        subject = stem.removeprefix("ROISignals_")
        yield loose_source(path, subject, kind="series", tool="series", denoised=True)


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
