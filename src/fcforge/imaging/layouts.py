"""Where fMRIPrep, XCP-D, C-PAC, DPABI and plain folders keep their files, and which are wanted.

Every finder turns a folder into `Source` records, one per run; nothing is read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from fcforge.errors import DataError
from fcforge.imaging.matrix_files import SUFFIXES
from fcforge.imaging.options import FCRequest
from fcforge.imaging.sources import Source, entities, nifti_files, read_json, source_of, stem_of
from fcforge.text import printable

_DPABI_NAMES = re.compile(r"ROISignals_(?P<id>.+)\.(mat|txt)$")
TO_MNI = (
    "Raw scans: `fcforge preprocess` first. fMRIPrep: --output-spaces MNI152NLin2009cAsym. "
    "If it is in MNI space after all: --layout nifti."
)
_ANATOMY = ("_T1w", "_T2w", "_FLAIR", "_PDw", "_dwi", "_epi", "_sbref", "_magnitude1", "_phasediff")
_OF_TOOLS = ("desc-confounds", "desc-correlation", "relmat", "_motion.", "_coverage")
_NOT_SERIES = ("participants", "phenotyp", "atlas-", "readme", "license", "changes")


def _fmriprep(root: Path, request: FCRequest) -> Iterator[Source]:
    description = "smoothAROMAnonaggr" if "ica_aroma" in request.denoise else "preproc"
    for path in nifti_files(root, f"sub-*/**/*_desc-{description}_bold"):
        run = re.sub(r"_space-[^_]+|_res-[^_]+|_desc-.*$", "", stem_of(path.name))
        source = source_of(
            path,
            "scan",
            "fmriprep",
            motion=_first(  # fMRIPrep before 20.2 wrote _regressors
                path.with_name(f"{run}_desc-confounds_timeseries.tsv"),
                path.with_name(f"{run}_desc-confounds_regressors.tsv"),
            ),
            mask=_first(
                path.with_name(path.name.replace(f"desc-{description}_bold", "desc-brain_mask"))
            ),
        )
        if source.space.startswith("MNI"):
            yield source


def _xcpd(root: Path, request: FCRequest) -> Iterator[Source]:
    have = set()
    for path in root.glob("sub-*/**/*_timeseries.tsv"):
        if _names_atlas(path, request.atlas) and "stat-mean" in path.name:
            source = source_of(path, "series", "xcpd", denoised=True, motion=_xcpd_motion(path))
            have.add(_run_of(source))
            yield source
    for path in nifti_files(root, "sub-*/**/*_desc-denoised_bold"):  # parcellate it ourselves
        source = source_of(path, "scan", "xcpd", denoised=True, motion=_xcpd_motion(path))
        if _run_of(source) not in have:
            yield source


def _run_of(source: Source) -> tuple[str, ...]:
    return source.subject, source.session, source.task, source.run


def _xcpd_motion(path: Path) -> Path | None:
    run = re.sub(r"_(space|seg|atlas|res|den|stat|desc)-.*$", "", path.name)
    names = (f"{run}_motion.tsv", f"{run}_desc-filtered_motion.tsv")
    return _first(*(path.with_name(name) for name in names))


def _cpac(root: Path, request: FCRequest) -> Iterator[Source]:
    for path in root.glob("**/func/**/*_timeseries.1D"):
        if _names_atlas(path, request.atlas) and "desc-Mean" in path.name:
            run = re.sub(r"_(space|reg|atlas|res|desc)-.*$", "", path.name)
            motion = _first(*sorted(path.parent.glob(f"{run}*framewise-displacement-power.1D")))
            yield source_of(path, "series", "cpac", denoised=True, motion=motion)


def _dpabi(root: Path, request: FCRequest) -> Iterator[Source]:
    for path in root.glob("**/ROISignals_*/ROISignals_*"):
        match = _DPABI_NAMES.match(path.name)
        if not match or (path.suffix == ".mat" and path.with_suffix(".txt").exists()):
            continue  # both are written; one is enough
        subject = match["id"]
        top = next(p for p in path.parents if p.name.startswith("ROISignals_")).parent
        second = re.match(r"S(\d+)_", top.name)  # S2_Results holds the second session
        base = top.parent if top.name.endswith("Results") else top
        folder = base / "RealignParameter" / subject
        yield Source(
            subject=subject.removeprefix("sub-"),
            path=path,
            kind="series",
            tool="dpabi",
            session=second[1] if second else "",
            task="rest",
            denoised=True,
            motion=_first(
                folder / f"FD_Power_{subject}.txt", folder / f"FD_Jenkinson_{subject}.txt"
            ),
        )


def _halfpipe(root: Path, request: FCRequest) -> Iterator[Source]:
    for path in root.glob("**/sub-*/func/**/*_feature-*_atlas-*_timeseries.tsv"):
        if _names_atlas(path, request.atlas):
            run = re.sub(r"_feature-.*$", "", path.name)
            func = next(p for p in path.parents if p.name == "func")
            top = next(p for p in path.parents if p.name.startswith("sub-")).parent
            folder = top.parent / "fmriprep" / func.relative_to(top)
            motion = _first(folder / f"{run}_desc-confounds_timeseries.tsv")
            yield source_of(path, "series", "halfpipe", denoised=True, motion=motion)


def _hcp(root: Path, request: FCRequest) -> Iterator[Source]:
    """The Human Connectome Project's own folders: runs with one name in every subject."""
    for path in nifti_files(root, "**/MNINonLinear/Results/*/*fMRI*"):
        stem = stem_of(path.name)
        if stem == path.parent.name and ".d" not in path.name:
            task = "rest" if "REST" in stem else stem.split("_")[1].lower()
            subject = path.parents[3].name
            run = "".join(c for c in stem if c.isalnum())
            about = {"space": "MNI152NLin6Asym", "task": task, "run": run}
            yield source_of(path, "scan", "hcp", subject=subject, **about)


def _scans(root: Path, request: FCRequest) -> Iterator[Source]:
    for path in nifti_files(root, "**/*"):
        name = stem_of(path.name)
        other = "mask" in name or "dseg" in name or name.endswith(_ANATOMY)
        if not (other or name.startswith("atlas-") or path.name.endswith("series.nii")):
            yield source_of(path, "scan", "nifti", subject=name, task="rest", space="MNI152")


def _series(root: Path, request: FCRequest) -> Iterator[Source]:
    for path in root.glob("**/*"):
        name = path.name.lower()
        other = name.startswith(_NOT_SERIES) or any(part in name for part in _OF_TOOLS)
        tagged = _atlas_of(path) and not _names_atlas(path, request.atlas)
        if path.suffix.lower() in SUFFIXES and not other and not tagged:
            stem = re.sub(r"_(rois_[a-z0-9]+|timeseries|ts|bold)$", "", path.stem)
            name = stem.removeprefix("ROISignals_")
            yield source_of(path, "series", "series", subject=name, task="rest", denoised=True)


FINDERS: dict[str, Callable[[Path, FCRequest], Iterable[Source]]] = {
    "fmriprep": _fmriprep,
    "xcpd": _xcpd,
    "cpac": _cpac,
    "dpabi": _dpabi,
    "halfpipe": _halfpipe,
    "hcp": _hcp,
    "nifti": _scans,
    "series": _series,
}


def find_sources(request: FCRequest, say: Callable[[str], None] = lambda _: None) -> list[Source]:
    """All wanted runs below ``request.source``, sorted by subject, session and run.

    Raises
    ------
    DataError
        Nothing found, or scans that are not in MNI space.
    """
    root = request.source
    if not root.is_dir():
        raise DataError("no such folder.", where=str(root))
    names = _layouts(request)
    tried = ((name, _found(name, request)) for name in names)
    layout, found = next((pair for pair in tried if pair[1]), ("", []))
    if layout == "nifti" and request.layout == "auto":
        _refuse_native(found, root)
    wanted = [source for source in found if request.takes(source)]
    if not wanted:
        raise _nothing_found(request, found)
    wanted = _one_task(wanted, request, say)
    return sorted(wanted, key=lambda s: (s.subject, s.session, s.run, s.path.name))


def _layouts(request: FCRequest) -> list[str]:
    """Layouts to look for, in this order."""
    if request.layout != "auto":
        return [request.layout]
    tool = _generated_by(request.source)
    return [tool] if tool else list(FINDERS)


def _found(layout: str, request: FCRequest) -> list[Source]:
    """Every run, but for the output folder and the people's table, which are not input."""
    skip = {request.out, request.participants}
    found = FINDERS[layout](request.source, request)
    return [s for s in found if skip.isdisjoint({s.path, *s.path.parents})]


def _refuse_native(sources: Iterable[Source], root: Path) -> None:
    """Raw and native-space BIDS scans would give FC of the wrong places; say so."""
    for source in sources:
        found = entities(source.path.name)
        space = found.get("space", "")
        if "sub" in found and not space.startswith("MNI"):
            raise DataError(
                f"{source.path.name} is in {space or 'scanner'} space, FC needs MNI space.",
                where=str(root),
                do=TO_MNI,
            )


def _one_task(
    sources: list[Source], request: FCRequest, say: Callable[[str], None]
) -> list[Source]:
    """Scans of the resting state, unless a task was asked for or there is one task only."""
    tasks = sorted({source.task for source in sources})
    if request.task or len(tasks) == 1:
        return sources
    if "rest" not in tasks:
        raise DataError(
            f"several tasks: {', '.join(tasks)}.",
            where=str(request.source),
            do=f"FC is made of one: --task {tasks[0]}.",
        )
    others = ", ".join(task or "without a task" for task in tasks if task != "rest")
    say(f"took task rest and left out: {others}; choose another with --task")
    return [source for source in sources if source.task == "rest"]


def _nothing_found(request: FCRequest, found: list[Source]) -> DataError:
    """Why nothing is wanted: what is there instead."""
    root = request.source
    if found:
        there = {f"task-{s.task} ses-{s.session} space-{s.space}" for s in found}
        what = f"nothing with this task, session, space and name; there is {_few(there)}."
        return DataError(what, where=str(root), do="See --task, --session, --space and --select.")
    bold = {entities(path.name).get("space", "") for path in nifti_files(root, "sub-*/**/*_bold")}
    series = {_atlas_of(path) for path in root.glob("**/*_timeseries.*")} - {""}
    if series:
        what = f"nothing for atlas {request.atlas}. Time series there are of: {_few(series)}."
        return DataError(what, where=str(root), do="Name one of them: --atlas NAME.")
    if bold:
        what = (
            f"scans in {_few(space or 'scanner' for space in bold)} space only, FC needs MNI space."
        )
        return DataError(what, where=str(root), do=TO_MNI)
    what = "no scan and no time series found."
    do = f"Looked for the layouts {', '.join(FINDERS)}; name one with --layout."
    if any(root.glob("**/*.d*series.nii")):
        what = "only CIFTI files (.dtseries.nii: surface data), which are not read."
        do = "Give the scans in MNI volume space, or series that another tool parcellated."
    elif any(nifti_files(root, "**/*_T[12]w")):
        what = "only anatomical images (T1w, T2w), no functional scan."
        do = "FC is made of *_bold scans."
    return DataError(what, where=str(root), do=do)


def _few(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:5]) + (", ..." if len(listed) > 5 else "")


def made_by(root: Path) -> str:
    """Tool and version that dataset_description.json names, "" where it names none."""
    info = read_json(root / "dataset_description.json")
    found = info.get("GeneratedBy") or info.get("PipelineDescription") or []
    tools = [tool for tool in (found if isinstance(found, list) else [found]) if tool]
    named = [tool for tool in tools if isinstance(tool, dict)]
    words = (f"{t.get('Name', '')} {t.get('Version', '')}".strip() for t in named)
    return ", ".join(printable(word) for word in words)


def _generated_by(root: Path) -> str:
    """Layout of the tool that made a folder, "" where it is none we know."""
    text = re.sub(r"[^a-z]", "", made_by(root).lower())
    known = {"halfpipe": "halfpipe", "xcp": "xcpd", "cpac": "cpac", "fmriprep": "fmriprep"}
    return next((layout for word, layout in known.items() if word in text), "")


def _atlas_of(path: Path) -> str:
    found = entities(path.name)
    return found.get("seg") or found.get("atlas") or ""


def _names_atlas(path: Path, atlas: str) -> bool:
    """Whether the ``atlas-`` or ``seg-`` entity is `atlas` (AAL, AAL116 and aal are one)."""
    return _plain(_atlas_of(path)) == _plain(stem_of(Path(atlas).name))


def _plain(name: str) -> str:
    text = re.sub(r"[^a-z0-9]", "", name.lower())
    return "aal" if text in {"aal", "aal116", "aalmaskpad"} else text


def _first(*paths: Path) -> Path | None:
    return next((path for path in paths if path.exists()), None)
