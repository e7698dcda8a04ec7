"""Probabilities for new scans from a capsule, and silence where a scan is unlike anything seen."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from fcforge.capsule.contents import Capsule
from fcforge.capsule.judging import Known, Reference, scores, strangeness
from fcforge.capsule.ledger import learned
from fcforge.errors import DataError
from fcforge.imaging.matrix_files import SUFFIXES, read_npz
from fcforge.imaging.people import read_people
from fcforge.runner.learners import build_learner
from fcforge.sites.check import TOLERANCE
from fcforge.sites.cohort import fc_from_upper
from fcforge.sites.reading import Kind, read_matrix, to_fc
from fcforge.speed import one_thread


@dataclass(frozen=True)
class Prediction:
    """One scan.

    Attributes
    ----------
    subject : str
        File name, or the subject's id in a dataset file or in the table of `fcforge fc`.
    status : {"ok", "unlike anything seen", "cannot be used"}
    probability : float or None
        Calibrated P(patient); None unless the status is ok.
    strangeness : float or None
        Distance from what was seen; the limit is 1. None for a capsule without held-out sets.
    note : str
        What is wrong with a scan that cannot be used, or which distance made it strange.
    """

    subject: str
    status: str
    probability: float | None = None
    strangeness: float | None = None
    note: str = ""

    @property
    def usable(self) -> bool:
        """Whether the scan could be read and has the capsule's ROIs."""
        return self.status != "cannot be used"


def predict_fc(capsule: Capsule, fc: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Calibrated P(patient), strangeness (NaN without held-out sets) and what decided it."""
    learner = build_learner(capsule.settings.learner, capsule.settings.n_rois)
    x = torch.from_numpy(np.array(fc, dtype=np.float32))
    with one_thread():
        u = scores(learner, capsule.lane, x) / capsule.temperature
        p = torch.softmax(u, -1)[:, 1].numpy()
        known = references(capsule)
        if not known:
            return p, np.full(len(p), np.nan), [""] * len(p)
        odd, why = strangeness(known, x)
    return p, odd.numpy(), why


def references(capsule: Capsule) -> Known:
    """Axes and limits of every site that has them."""
    found: Known = []
    for place, entry in enumerate(learned(capsule.entries)):
        batch = capsule.held_out.of_site(place)
        if entry["reference"]["inside"] is not None and len(batch) >= 4:
            found.append((entry["site"], Reference.of(batch.fc), entry["reference"]))
    return found


def predict(
    capsule: Capsule, where: str | Path | Sequence[str | Path], kind: Kind = "auto"
) -> list[Prediction]:
    """Predict one file, several files or all files of a folder (that of `fcforge fc`, too).

    A file holds one scan (FC or ROI time series: .npy .npz .csv .tsv .txt .1D .mat) or a dataset
    (.npz with ``fc_upper`` or ``fc`` of many subjects). A scan that cannot be used is reported
    in its place and does not stop the others.

    Parameters
    ----------
    capsule : Capsule
    where : path or sequence of paths
    kind : {"auto", "fc", "timeseries"}
    """
    rows: list[Prediction | None] = []
    waiting: list[tuple[int, str, np.ndarray]] = []
    for subject, found in _scans(where, kind, capsule.settings.n_rois):
        if isinstance(found, DataError):
            rows.append(Prediction(subject, "cannot be used", note=found.what))
        else:
            waiting.append((len(rows), subject, found))
            rows.append(None)
    if waiting:
        all_p, all_odd, reasons = predict_fc(capsule, np.stack([fc for _, _, fc in waiting]))
        for (place, subject, _), p, odd, why in zip(waiting, all_p, all_odd, reasons, strict=True):
            rows[place] = _row(subject, float(p), float(odd), why)
    return [row for row in rows if row is not None]


def _row(subject: str, p: float, odd: float, why: str) -> Prediction:
    shown = None if np.isnan(odd) else round(odd, 3)
    if shown is not None and odd > 1:
        return Prediction(subject, "unlike anything seen", None, shown, why)
    return Prediction(subject, "ok", round(p, 4), shown)


def _scans(
    where: str | Path | Sequence[str | Path], kind: Kind, n_rois: int
) -> Iterator[tuple[str, np.ndarray | DataError]]:
    """Subject and FC (R, R), or what is wrong with it."""
    for name, path in _files(where):
        try:
            many = _dataset(path)
            if many is None:
                yield name, _usable(to_fc(read_matrix(path), kind, str(path)), n_rois)
                continue
        except DataError as error:
            yield name, error
            continue
        for subject, fc in many:
            try:
                yield subject, _usable(fc, n_rois)
            except DataError as error:
                yield subject, error


def _files(where: str | Path | Sequence[str | Path]) -> list[tuple[str, Path]]:
    """Name and path of every file."""
    paths = [Path(where)] if isinstance(where, (str, Path)) else [Path(p) for p in where]
    found: list[tuple[str, Path]] = []
    for path in paths:
        if path.is_dir():
            found += _in_folder(path)
        elif path.exists():
            found.append((path.name, path))
        else:
            raise DataError("no such file or folder.", where=str(path), do="Check the path.")
    if not found:
        raise DataError(
            "holds no scan.", where=str(paths[0]), do=f"Known types: {', '.join(SUFFIXES)}."
        )
    return found


def _in_folder(folder: Path) -> list[tuple[str, Path]]:
    """Scans in a folder; else those its table lists (as `fcforge fc` writes it), else all below."""
    inside = [p for p in sorted(folder.iterdir()) if _may_be_a_scan(p)]
    table = folder / "participants.tsv"
    if not inside and table.is_file():
        rows = read_people(table).rows
        files = {who: row.get("file", "n/a") for who, row in rows.items()}
        listed = [(f"sub-{who}", folder / file) for who, file in files.items() if file != "n/a"]
        if listed:
            return listed
    below = inside or [p for p in sorted(folder.rglob("*")) if _may_be_a_scan(p)]
    return [(p.relative_to(folder).as_posix(), p) for p in below]


def _may_be_a_scan(path: Path) -> bool:
    known = path.suffix.lower() in SUFFIXES and not path.name.startswith("participants")
    return known and path.is_file()


def _dataset(path: Path) -> list[tuple[str, np.ndarray]] | None:
    """Subjects of an .npz dataset; None when the file is one scan."""
    if path.suffix.lower() != ".npz":
        return None
    arrays = read_npz(path)
    if "fc_upper" in arrays and arrays["fc_upper"].ndim == 2:
        fc = fc_from_upper(arrays["fc_upper"], str(path))
    elif "fc" in arrays and arrays["fc"].ndim == 3:
        fc = arrays["fc"]
    else:
        return None
    ids = arrays.get("subject_id", np.arange(len(fc)))
    if len(ids) != len(fc):
        raise DataError(f"has {len(fc)} matrices but {len(ids)} subject ids.", where=str(path))
    return list(zip(map(str, ids.tolist()), fc, strict=True))


def _usable(fc: np.ndarray, n_rois: int) -> np.ndarray:
    """FC (R, R) of a scan, or `DataError`."""
    if fc.shape != (n_rois, n_rois):
        raise DataError(f"has {fc.shape[0]} ROIs, the capsule {n_rois}.")
    if not np.isfinite(fc).all():
        raise DataError("holds NaN or infinity.")
    if np.abs(fc - fc.T).max() > TOLERANCE or np.abs(fc).max() > 1 + TOLERANCE:
        raise DataError("is no correlation matrix (not symmetric, or beyond 1).")
    if np.abs(np.diagonal(fc) - 1).max() > TOLERANCE:
        raise DataError("is no correlation matrix (its diagonal is not 1).")
    return fc.astype(np.float32)


def as_csv(rows: Sequence[Prediction], sites: Sequence[str]) -> str:
    """Predictions as CSV, with the sites the capsule has learned in the last column."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["subject", "status", "probability", "strangeness", "note", "sites_learned"])
    for row in rows:
        # a leading = + - @ would be run as a formula by a spreadsheet
        subject = f"'{row.subject}" if row.subject[:1] in "=+-@" else row.subject
        values = [row.status, row.probability, row.strangeness, row.note, " ".join(sites)]
        writer.writerow([subject, *("" if v is None else v for v in values)])
    return out.getvalue()


def as_json(rows: Sequence[Prediction], capsule: Capsule) -> str:
    """Predictions as JSON with the capsule's id, sites and temperature."""
    return json.dumps(
        {
            "capsule": capsule.id,
            "sites_learned": list(capsule.sites),
            "temperature": round(capsule.temperature, 4),
            "predictions": [asdict(row) for row in rows],
        },
        indent=1,
    )
