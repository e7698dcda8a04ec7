"""Probabilities for new scans from a capsule; it abstains where a scan is unlike anything seen."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from fcforge.capsule.contents import Capsule
from fcforge.capsule.judging import Known, Reference, scores, strangeness
from fcforge.capsule.ledger import learned
from fcforge.runner.learners import build_learner
from fcforge.sites.reading import Kind
from fcforge.sites.scans import Where, find_scans
from fcforge.speed import one_thread
from fcforge.text import no_formula, printable


@dataclass(frozen=True)
class Prediction:
    """One scan.

    Attributes
    ----------
    subject : str
        File name, or the subject's id in a dataset file or in the table of `fcforge fc`.
    status : {"ok", "unlike anything seen", "abstained", "cannot be used"}
    probability : float or None
        Calibrated P(patient); None unless the status is ok.
    own : float or None
        The same by the hospital's own threshold, where it was given.
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
    own: float | None = None

    @property
    def usable(self) -> bool:
        """Whether the scan could be read and has the capsule's ROIs."""
        return self.status != "cannot be used"


@dataclass(frozen=True)
class Predictions:
    """Predictions of several scans, and by which capsule.

    Attributes
    ----------
    rows : list of Prediction
    capsule : str
        Its id.
    sites : tuple of str
        It has learned.
    positive : str
        The class whose probability is given.
    temperature : float
    notes : tuple of str
        What the reader should know.
    """

    rows: list[Prediction]
    capsule: str
    sites: tuple[str, ...]
    temperature: float
    positive: str = "1"
    notes: tuple[str, ...] = ()


def predict_fc(capsule: Capsule, fc: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Calibrated P(patient), strangeness (NaN without held-out sets) and what decided it."""
    learner = build_learner(capsule.settings.learner, capsule.settings.n_rois, has_start=False)
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


def predict(capsule: Capsule, where: Where, kind: Kind = "auto") -> list[Prediction]:
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
    for scan in find_scans(where, kind, capsule.settings.n_rois):
        problem = scan.problem or capsule.settings.wrong_rois(scan.roi_names)
        if scan.fc is None or problem:
            rows.append(Prediction(scan.subject, "cannot be used", note=problem))
        else:
            waiting.append((len(rows), scan.subject, scan.fc))
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


def as_csv(rows: Sequence[Prediction], sites: Sequence[str]) -> str:
    """Predictions as CSV, with the sites the capsule has learned in the last column.

    `own_probability` is there where a hospital's own threshold was given.
    """
    own = any(row.own is not None for row in rows)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    extra = ["own_probability"] if own else []
    names = ["subject", "status", "probability", *extra, "strangeness", "note", "sites_learned"]
    writer.writerow(names)
    for row in rows:
        shown = [row.probability, *([row.own] if own else []), row.strangeness]
        numbers = ["" if v is None else v for v in shown]
        subject, note, learned_at = (
            no_formula(printable(text)) for text in (row.subject, row.note, " ".join(sites))
        )
        writer.writerow([subject, row.status, *numbers, note, learned_at])
    return out.getvalue()


def as_json(found: Predictions) -> str:
    """Predictions as JSON with the capsule's id, sites and temperature."""
    return json.dumps(
        {
            "capsule": found.capsule,
            "sites_learned": list(found.sites),
            "probability_of": found.positive,
            "temperature": round(found.temperature, 4),
            "predictions": [asdict(row) for row in found.rows],
        },
        indent=1,
    )
