"""File layouts of fMRIPrep, XCP-D, C-PAC, DPABI, HALFpipe, the HCP and plain folders; choice of runs.

`LAYOUTS` lists the file names of each tool. `find_sources` turns a folder into `Source` records, one per run.
Entities are the parts ``key-value`` of a BIDS file name, such as ``task-rest``. A sidecar is the JSON file of
the same name beside a data file; only sidecars are opened here.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcforge.core.console import say
from fcforge.core.errors import DataError
from fcforge.core.files import read_plain
from fcforge.core.formatting import abbreviated, printable
from fcforge.core.names import check_names
from fcforge.imaging import cifti
from fcforge.imaging.matrix_files import SUFFIXES
from fcforge.imaging.options import FCRequest, Kind

# Entities that distinguish scans, in the order of BIDS.
ENTITIES = (
    "sub",
    "ses",
    "task",
    "acq",
    "ce",
    "rec",
    "dir",
    "run",
    "echo",
    "part",
    "space",
)
MAX_BYTES = 1 << 26  # of a sidecar
_ENTITY = re.compile(r"([a-zA-Z]+)-([a-zA-Z0-9+]+)")


@dataclass(frozen=True)
class Source:
    """Input file of one run of one subject.

    Attributes
    ----------
    path : Path
        4D scan, dense CIFTI series, ROI time series or connectivity matrix.
    kind : {"scan", "series", "matrix"}
        A dense CIFTI series is a scan, too.
    tool : str
        Layout in which it was found, a key of `LAYOUTS`.
    entities : mapping
        Entities by their short BIDS names. ``sub``, without the prefix ``sub-``, is always there.
    motion : Path or None
        Table with framewise displacement; None if there is none.
    """

    path: Path
    kind: Kind
    tool: str
    entities: Mapping[str, str]
    motion: Path | None = None

    @property
    def subject(self) -> str:
        """Name of the subject without the prefix ``sub-``."""
        return self.entities["sub"]

    def entity_values(self, *keys: str) -> tuple[str, ...]:
        """Return values of some entities, "" where the name has none."""
        return tuple(self.entities.get(key, "") for key in keys)

    @property
    def denoised(self) -> bool:
        """Whether the tool has regressed confounds and filtered; fcforge then does neither."""
        return self.tool not in ("fmriprep", "hcp", "nifti")

    @property
    def has_confounds(self) -> bool:
        """Whether the tool writes a table of confounds beside the scan, as fMRIPrep does."""
        return self.tool == "fmriprep"

    @property
    def expects_motion(self) -> bool:
        """Whether the tool writes a table with framewise displacement."""
        return any(files.motion for files in LAYOUTS.get(self.tool, ()))

    @property
    def is_dense(self) -> bool:
        """Whether it is a dense CIFTI series, whose ROIs are parcels of grayordinates."""
        return cifti.ending_of(self.path) == cifti.DENSE

    @property
    def mask(self) -> Path | None:
        """Brain mask beside the scan, if fMRIPrep wrote one."""
        name = re.sub(r"_desc-\w+_bold", "_desc-brain_mask", self.path.name)
        mask = self.path.with_name(name)
        if self.is_dense:
            return None
        return mask if self.has_confounds and mask.exists() else None

    @property
    def sidecar_tr(self) -> float | None:
        """``RepetitionTime`` of the sidecar, None where the sidecar has none."""
        value = read_json(sidecar_of(self.path)).get("RepetitionTime")
        if not value:
            return None
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            message = f"RepetitionTime {value!r:.40} is not a number of seconds."
            raise DataError(message, where=sidecar_of(self.path), do="Correct it.")
        return float(value)


def entities(name: str) -> dict[str, str]:
    """Return BIDS entities of a file name: ``{"sub": "01", "task": "rest", ...}``."""
    matches = map(_ENTITY.search, stem_of(name).split("_"))
    return {match[1]: match[2] for match in matches if match}


def stem_of(name: str) -> str:
    """Return the file name up to its first dot, which removes ``.nii.gz`` as a whole."""
    return name.split(".")[0]


def sidecar_of(path: Path) -> Path:
    """Return the JSON file of the same name."""
    return path.with_name(f"{stem_of(path.name)}.json")


def read_json(path: Path) -> dict[str, Any]:
    """Return names and values of a JSON file; an empty dictionary if it does not exist.

    Raises
    ------
    DataError
        If the file is not JSON, or not an object of names and values.
    """
    if not path.exists():
        return {}
    try:
        content = json.loads(read_plain(path, MAX_BYTES))
    except (
        ValueError,
        RecursionError,
    ) as error:  # no text, too deeply nested, too long a number
        raise DataError(f"not JSON ({error}).", where=path) from None
    if not isinstance(content, dict):
        raise DataError(
            "the file holds no names and values, which a BIDS sidecar has.", where=path
        )
    return content


def is_nifti(path: Path) -> bool:
    """Return whether a path has the ending of a NIfTI volume and not of a CIFTI or other file."""
    volume = path.name.endswith((".nii", ".nii.gz"))
    return volume and not re.search(r"[.][a-z]+[.]nii$", path.name)


def nifti_files(root: Path, pattern: str) -> Iterator[Path]:
    """Return files ``PATTERN.nii.gz`` and ``PATTERN.nii`` below `root`."""
    return filter(is_nifti, root.glob(f"{pattern}.nii*"))


# parts of the name of the tool that made a folder, and the layout of each
TOOLS = {"halfpipe": "halfpipe", "xcp": "xcpd", "cpac": "cpac", "fmriprep": "fmriprep"}
TO_MNI = (
    "Raw scans: `fcforge preprocess` first. fMRIPrep: --output-spaces MNI152NLin2009cAsym. "
    "If it is in MNI space after all: --layout nifti."
)
# Names of files that are neither a scan of the brain's activity nor a time series.
_NOT_SCAN = re.compile(
    "mask|dseg|^atlas-|_(T1w|T2w|FLAIR|PDw|dwi|epi|sbref|magnitude1|phasediff)$"
)
_NOT_SERIES = re.compile(
    "^(participants|phenotyp|atlas-|readme|license|changes)"
    "|desc-confounds|desc-correlation|relmat|_motion[.]|_coverage"
)


@dataclass(frozen=True)
class Files:
    """Names of one kind of input file in a tool's folder.

    Attributes
    ----------
    pattern : str
        Glob pattern of the files, relative to the folder.
    kind : {"scan", "series", "matrix"}
    run : str
        Regular expression for the parts of the file name that do not belong to the name of the run.
    motion : tuple of str
        Glob patterns of the motion table, with ``{}`` for the name of the run, newest version of the tool
        first; empty for tools that write none.
    motion_folder : callable
        Takes the path of a file and returns the folder of its motion table; by default the file's folder.
    of_atlas : bool
        Whether the file name must contain the requested atlas.
    about : callable
        Takes a path and the request. Returns entities that the file name lacks, or None if the file is not of
        this kind.
    """

    pattern: str
    kind: Kind
    run: str = "$"
    motion: tuple[str, ...] = ()
    motion_folder: Callable[[Path], Path] = lambda path: path.parent
    of_atlas: bool = False
    about: Callable[[Path, FCRequest], dict[str, str] | None] = lambda path, request: {}

    def takes(self, path: Path, request: FCRequest) -> bool:
        """Return whether a file can be of this kind, by the ending and the atlas in its name."""
        if self.kind == "scan":
            dense = cifti.ending_of(path) == cifti.DENSE
            return dense if request.dense else is_nifti(path)
        if request.dense and self.of_atlas:  # the user's own parcels, not the tool's
            return False
        return not self.of_atlas or _names_atlas(path, request.atlas)

    def motion_of(self, path: Path) -> Path | None:
        """Return the motion table of a file, if there is one."""
        run = re.sub(self.run, "", stem_of(path.name))
        folder = self.motion_folder(path)
        for name in self.motion:
            for table in sorted(folder.glob(name.format(run))):
                return table
        return None


def _of_fmriprep(path: Path) -> Path:
    """Return the folder of fMRIPrep's confounds for a file of HALFpipe.

    fMRIPrep's folder lies beside HALFpipe's: it is ``fmriprep/sub-1/func`` for a file below
    ``halfpipe/sub-1/func``.
    """
    func = next(p for p in path.parents if p.name == "func")
    halfpipe = next(p for p in path.parents if p.name.startswith("sub-")).parent
    return halfpipe.parent / "fmriprep" / func.relative_to(halfpipe)


def _fmriprep(path: Path, request: FCRequest) -> dict[str, str] | None:
    """Accept preprocessed scans in MNI space, or those denoised by ICA-AROMA if it is requested.

    Like all functions of `Files.about`, it returns missing entities, or None for a file to leave out.
    """
    named = entities(path.name)
    wanted = "smoothAROMAnonaggr" if request.aroma else "preproc"
    if request.dense:  # their names may lack desc
        return {} if named.get("desc", "preproc") == "preproc" else None
    in_mni = named.get("space", "").startswith("MNI")
    return {} if in_mni and named.get("desc") == wanted else None


def _hcp(path: Path, request: FCRequest) -> dict[str, str] | None:
    """Accept scans in the folders of the Human Connectome Project, whose names have no entities.

    A volume is called like its folder, ``SUBJECT/MNINonLinear/Results/RUN/RUN.nii.gz`` with a RUN such as
    ``rfMRI_REST1_LR``; a dense series begins with ``RUN_Atlas``.
    """
    stem = stem_of(path.name)
    run = path.parent.name
    is_volume = stem == run and path.name.startswith(f"{stem}.nii")
    if not is_volume and not (request.dense and stem.startswith(f"{run}_Atlas")):
        return None
    return {
        "sub": path.parents[3].name,
        "space": "fsLR" if request.dense else "MNI152NLin6Asym",
        "task": "rest" if "REST" in stem else run.split("_")[1].lower(),
        "run": run.replace("_", ""),
    }


def _dpabi(path: Path, request: FCRequest) -> dict[str, str] | None:
    """Accept DPABI's time series, ``ROISignals_SUBJECT.txt`` or ``.mat``."""
    if path.suffix not in (".mat", ".txt"):
        return None
    if path.suffix == ".mat" and path.with_suffix(".txt").exists():
        return None  # both are written; one is enough
    subject = path.stem.removeprefix("ROISignals_").removeprefix("sub-")
    return {"sub": subject, "task": "rest"}


def _scan(path: Path, request: FCRequest) -> dict[str, str] | None:
    """Accept scans in a plain folder; raise `DataError` for one whose name states another space."""
    name = stem_of(path.name)
    if _NOT_SCAN.search(name) or path.name.endswith("series.nii"):
        return None
    named = entities(path.name)
    space = named.get("space", "scanner")
    if request.dense:
        return {"sub": re.sub(r"_(bold|timeseries)$", "", name), "task": "rest"}
    # raw and native-space scans would give FC of the wrong places
    if request.layout == "auto" and "sub" in named and not space.startswith("MNI"):
        message = f"{path.name} is in {space} space, FC needs MNI space."
        raise DataError(message, where=request.source, do=TO_MNI)
    return {"sub": name, "task": "rest", "space": "MNI152"}


def _series(path: Path, request: FCRequest) -> dict[str, str] | None:
    """Accept time series in a plain folder, unless their names state another atlas."""
    other_atlas = _atlas_of(path) and not _names_atlas(path, request.atlas)
    excluded = other_atlas or _NOT_SERIES.search(path.name.lower())
    known = path.suffix.lower() in SUFFIXES or path.name.endswith(cifti.SERIES)
    if excluded or not known:
        return None
    name = stem_of(path.name) if path.suffix == ".nii" else path.stem
    stem = re.sub(r"_(rois_[a-z0-9]+|timeseries|ts|bold)$", "", name)
    return {"sub": stem.removeprefix("ROISignals_"), "task": "rest"}


def _matrix(path: Path, request: FCRequest) -> dict[str, str] | None:
    """Accept connectivity matrices in a plain folder, unless their names state another atlas."""
    if _atlas_of(path) and not _names_atlas(path, request.atlas):
        return None
    stem = re.sub(r"_(correlation|boldmap|conmat|fc)$", "", stem_of(path.name))
    return {"sub": stem, "task": "rest"}


def _xcpd_matrix(path: Path, request: FCRequest) -> dict[str, str] | None:
    """Accept XCP-D's matrices of Pearson correlations.

    Older versions have the entity ``measure``, newer ones ``stat``.
    """
    named = entities(path.name)
    statistic = named.get("stat", named.get("measure", "pearsoncorrelation"))
    return {} if statistic == "pearsoncorrelation" else None


def _xcpd_series(path: Path, request: FCRequest) -> dict[str, str] | None:
    """Accept XCP-D's time series of means.

    Series of HALFpipe in the same folder have a feature and no space in their names.
    """
    named = entities(path.name)
    of_means = named.get("stat", "mean").startswith("mean")
    return {} if of_means and "space" in named and "feature" not in named else None


_XCPD_RUN = r"_(space|seg|atlas|res|den|stat|desc)-.*$"
_XCPD_MOTION = ("{}_motion.tsv", "{}_desc-filtered_motion.tsv")
# fMRIPrep before 20.2 wrote _regressors.
_FMRIPREP_MOTION = (
    "{}_desc-confounds_timeseries.tsv",
    "{}_desc-confounds_regressors.tsv",
)
# Where a tool writes files of several kinds, the first kind that has a run is used for it.
LAYOUTS: dict[str, tuple[Files, ...]] = {
    "fmriprep": (
        Files(
            "sub-*/**/*_space-*_bold*.nii*",
            "scan",
            r"_space-[^_]+|_res-[^_]+|_den-[^_]+|_desc-.*$|_bold$",
            _FMRIPREP_MOTION,
            about=_fmriprep,
        ),
    ),
    "xcpd": (
        *(
            Files(
                f"sub-*/**/*_timeseries{ending}",
                "series",
                _XCPD_RUN,
                _XCPD_MOTION,
                of_atlas=True,
                about=_xcpd_series,
            )
            for ending in (".tsv", cifti.SERIES)
        ),
        Files("sub-*/**/*_desc-denoised_bold*.nii*", "scan", _XCPD_RUN, _XCPD_MOTION),
        Files(
            f"sub-*/**/*{cifti.MATRIX}",
            "matrix",
            _XCPD_RUN,
            _XCPD_MOTION,
            of_atlas=True,
            about=_xcpd_matrix,
        ),
    ),
    "cpac": (
        Files(
            "**/func/**/*_desc-Mean*_timeseries.1D",
            "series",
            r"_(space|reg|atlas|res|desc)-.*$",
            ("{}*framewise-displacement-power.1D",),
            of_atlas=True,
        ),
    ),
    "dpabi": (
        Files(
            "**/ROISignals_*/ROISignals_*.*",
            "series",
            "^ROISignals_",
            (
                "../../RealignParameter/{0}/FD_Power_{0}.txt",
                "../../RealignParameter/{0}/FD_Jenkinson_{0}.txt",
            ),
            about=_dpabi,
        ),
    ),
    "halfpipe": (
        Files(
            "**/sub-*/func/**/*_feature-*_atlas-*_timeseries.tsv",
            "series",
            r"_feature-.*$",
            _FMRIPREP_MOTION,
            _of_fmriprep,
            of_atlas=True,
        ),
    ),
    "hcp": (
        Files(
            "**/MNINonLinear/Results/*/*fMRI*.nii*",
            "scan",
            ".*",
            ("Movement_RelativeRMS.txt",),
            about=_hcp,
        ),
    ),
    "nifti": (Files("**/*.nii*", "scan", about=_scan),),
    "series": (
        Files("**/*", "series", about=_series),
        Files(f"**/*{cifti.MATRIX}", "matrix", about=_matrix),
    ),
}


def find_sources(request: FCRequest) -> list[Source]:
    """Find all requested runs below ``request.source``.

    Returns
    -------
    list of Source
        Sorted by subject and name.

    Raises
    ------
    DataError
        If nothing is found, or only scans that are not in MNI space.
    """
    root = request.source
    if not root.is_dir():
        raise DataError("no such folder.", where=root)
    auto = request.layout == "auto"
    tool = re.sub(r"[^a-z]", "", made_by(root).lower()) if auto else ""
    recognised = [layout for word, layout in TOOLS.items() if word in tool][:1]
    layouts = (recognised or list(LAYOUTS)) if auto else [request.layout]
    # The layouts are tried in turn until one has runs.
    attempts = (_runs_of_layout(name, request) for name in layouts)
    sources = next(filter(None, attempts), [])
    _require_aroma(sources, request)
    wanted = [source for source in sources if request.takes(source)]
    if not wanted:
        raise _nothing_found(request, sources)
    known = {source.entities.get("ses", "") for source in sources} - {""}
    check_names("session label", request.sessions, known, where=str(root))
    if not request.skip_bids_validation:
        _require_own_folders(wanted, root)
    wanted = _one_task(wanted, request)

    return sorted(wanted, key=lambda source: (source.subject, source.path.name))


def _runs_of_layout(layout: str, request: FCRequest) -> list[Source]:
    """Find every run of a layout, except files in the output folder and the table of participants."""
    skip = {request.out, request.participants}
    runs = dict[tuple[str, ...], list[Source]]()
    for files in LAYOUTS[layout]:
        runs_of_kind: dict[tuple[str, ...], list[Source]] = {}
        for source in _sources(layout, files, request):
            if skip.isdisjoint({source.path, *source.path.parents}):
                run = source.entity_values("sub", "ses", "task", "run")
                runs_of_kind.setdefault(run, []).append(source)
        runs = {**runs_of_kind, **runs}  # a run of an earlier kind stays
    return [source for sources in runs.values() for source in sources]


def _sources(layout: str, files: Files, request: FCRequest) -> Iterator[Source]:
    """Yield the input files of one kind; raise `DataError` for one that names no subject.

    Parameters
    ----------
    layout : str
        Key of `LAYOUTS`.
    files : Files
        The kind, one of this layout's.
    request : FCRequest
    """
    for path in request.source.glob(files.pattern):
        if not files.takes(path, request):
            continue
        assumed = files.about(path, request)
        if assumed is not None:
            known = {**assumed, **entities(path.name)}
            if "sub" not in known:
                do = "Name it sub-LABEL_..., the label of letters and digits alone."
                raise DataError("its name contains no subject.", where=path, do=do)
            yield Source(path, files.kind, layout, known, files.motion_of(path))


def _require_aroma(sources: Sequence[Source], request: FCRequest) -> None:
    """Raise `DataError` if ICA-AROMA is requested and there are no scans of fMRIPrep denoised by it.

    Without them nothing would be removed.
    """
    of_aroma = any(source.tool == "fmriprep" for source in sources)
    if request.aroma and not of_aroma:
        raise DataError(
            "ica_aroma needs fMRIPrep's scans desc-smoothAROMAnonaggr, and there are none.",
            where=request.source,
            do="fMRIPrep writes them with --use-aroma (before 23.1); or choose another --denoise.",
        )


def _require_own_folders(sources: Sequence[Source], root: Path) -> None:
    """Raise `DataError` for a file that lies in the folder of another subject or session."""
    for source in sources:
        for part in source.path.relative_to(root).parts[:-1]:
            for key, label in entities(part).items():  # C-PAC: sub-01_ses-1
                named = entities(source.path.name).get(key, label)
                if key in ("sub", "ses") and named != label:
                    raise DataError(
                        f"is named {key}-{named}, but lies in the folder {part}.",
                        where=source.path,
                        do="Rename or move it; --skip-bids-validation uses the file name.",
                    )


def _one_task(sources: list[Source], request: FCRequest) -> list[Source]:
    """Return the files of the resting state; all files if a task is requested or there is only one.

    Raises
    ------
    DataError
        If there are several tasks and none of them is the resting state.
    """
    tasks = sorted(
        {task for source in sources for task in source.entity_values("task")}
    )
    if request.task or len(tasks) == 1:
        return sources
    if "rest" not in tasks:
        raise DataError(
            f"several tasks: {', '.join(tasks)}.",
            where=request.source,
            do=f"Name the one to use: --task {tasks[0]}.",
        )
    others = ", ".join(task or "without a task" for task in tasks if task != "rest")
    say(f"took task rest and left out: {others}; choose another with --task")
    return [source for source in sources if source.entity_values("task") == ("rest",)]


def _nothing_found(request: FCRequest, sources: list[Source]) -> DataError:
    """Return the error that explains why no run was accepted, with the alternatives in the folder.

    Parameters
    ----------
    request : FCRequest
    sources : list of Source
        Runs that were found and did not fit the request.
    """
    root = request.source
    tasks_and_sessions = {
        "task-{} ses-{}".format(*s.entity_values("task", "ses")) for s in sources
    }
    if surface_error := _surface_error(root, request):
        return surface_error
    named = [entities(path.name) for path in nifti_files(root, "sub-*/**/*_bold")]
    spaces = {names.get("space") or "scanner" for names in named}
    in_mni = (names for names in named if names.get("space", "").startswith("MNI"))
    contents = {f"desc-{names.get('desc', '')}" for names in in_mni}
    patterns = ("**/*_timeseries.*", f"**/*{cifti.MATRIX}")
    tables = (path for pattern in patterns for path in root.glob(pattern))
    series = {_atlas_of(path) for path in tables} - {""}
    wrong_atlas = f"nothing for atlas {request.atlas}. Time series there are of"
    # What the folder has instead, the problem, and advice; nearest to the request first.
    reasons = (
        (
            tasks_and_sessions,
            "nothing with this task, session and name; there is",
            "See --task, --session-label, --select and --bids-filter-file.",
        ),
        (series, wrong_atlas, "Name one of them: --atlas NAME."),
        (
            contents,
            "no scan of the kind asked for in MNI space; there is",
            "--denoise ica_aroma takes desc-smoothAROMAnonaggr; --layout nifti takes any.",
        ),
        (spaces, "no scan in MNI space, which FC needs; there is", TO_MNI),
    )
    for alternatives, problem, hint in reasons:
        if alternatives:
            return DataError(
                f"{problem}: {abbreviated(sorted(alternatives))}.", where=root, do=hint
            )
    hint = f"Looked for the layouts {', '.join(LAYOUTS)}; name one with --layout."
    return DataError("no scan and no time series found.", where=root, do=hint)


def other_spaces(root: Path, subject: str) -> list[str]:
    """Return the spaces of a subject's scans if none of them is MNI space."""
    scans = nifti_files(root / f"sub-{subject}", "**/*_bold")
    spaces = {entities(path.name).get("space", "scanner") for path in scans}
    in_mni = any(space.startswith("MNI") for space in spaces)
    return [] if in_mni else sorted(spaces)


def _surface_error(root: Path, request: FCRequest) -> DataError | None:
    """Return the error that explains what to do with dense CIFTI or GIFTI files; None for others."""
    dense = next(root.glob(f"**/*{cifti.DENSE}"), None)
    volume = next(nifti_files(root, "**/*_bold"), None)
    gifti = next(root.glob("**/*.func.gii"), None) or next(root.glob("**/*.gii"), None)
    if dense is not None and not request.dense:
        return DataError(
            f"{dense.name} is a dense CIFTI series, and atlas {request.atlas} is one of volumes.",
            where=root,
            do="Pass a CIFTI parcellation: --atlas FILE.dlabel.nii.",
        )
    if request.dense:
        return DataError(
            f"no dense CIFTI series (*{cifti.DENSE}) for {Path(request.atlas).name}.",
            where=root,
            do="fMRIPrep writes them with --cifti-output 91k; for volumes pass a volume as --atlas.",
        )
    if gifti is not None and volume is None:
        return DataError(
            f"{gifti.name} is a GIFTI surface file, which is not read.",
            where=root,
            do="Let fMRIPrep write --cifti-output 91k (and pass --atlas FILE.dlabel.nii) or "
            "--output-spaces MNI152NLin2009cAsym.",
        )
    return None


def made_by(root: Path) -> str:
    """Return the tool and version that dataset_description.json names, "" where it names none."""
    info = read_json(root / "dataset_description.json")
    generated_by = info.get("GeneratedBy")
    tools = generated_by if isinstance(generated_by, list) else []
    objects = (tool for tool in tools if tool and isinstance(tool, dict))
    words = (
        f"{tool.get('Name', '')} {tool.get('Version', '')}".strip() for tool in objects
    )
    return ", ".join(printable(word) for word in words)


def _atlas_of(path: Path) -> str:
    """Return the value of ``seg-`` or ``atlas-`` in a file name, "" where it has neither."""
    named = entities(path.name)
    return named.get("seg") or named.get("atlas") or ""


def _names_atlas(path: Path, atlas: str) -> bool:
    """Return whether the ``atlas-`` or ``seg-`` entity is `atlas` (AAL, AAL116 and aal are one)."""
    names = (_atlas_of(path), stem_of(Path(atlas).name))
    spellings = {re.sub(r"[^a-z0-9]", "", name.lower()) for name in names}
    return len(spellings) == 1 or spellings <= {"aal", "aal116", "aalmaskpad"}
