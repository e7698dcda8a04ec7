"""Probabilities for new scans from a capsule; it abstains where a scan is unlike anything seen."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from fcforge.capsule.contents import Capsule, Sites, wrong_rois
from fcforge.capsule.home import Threshold
from fcforge.capsule.judging import Known, Reference, probability, scores, strangeness
from fcforge.capsule.ledger import learned, rounded
from fcforge.sites.harmonise import Unseen
from fcforge.sites.reading import Kind, Scan, Where, find_scans
from fcforge.speed import one_thread
from fcforge.text import no_formula, printable


@dataclass(frozen=True)
class Judged:
    """What a capsule says about n people.

    Attributes
    ----------
    odds : ndarray of shape (n,)
        Calibrated log odds of "patient"; NaN where it abstains.
    strangeness : ndarray of shape (n,)
        Distance from what was seen, limit 1; NaN where it cannot be measured.
    why : tuple of str
        Why it abstains; empty where it does not.
    """

    odds: np.ndarray
    strangeness: np.ndarray
    why: tuple[str, ...]

    @property
    def probability(self) -> np.ndarray:
        """P(patient), (n,)."""
        return probability(self.odds)


@dataclass(frozen=True)
class Predictor:
    """What either kind of capsule is to those who predict with it.

    Attributes
    ----------
    id : str
    sites : tuple of str
        It has learned.
    classes : sequence of two
    temperature : float
    n_rois : int
    roi_names : sequence of str
        Empty where they are not known.
    judge : callable
        From scans (n, R, R) and covariates to `Judged`.
    removes : tuple of str
        Covariates it needs.
    site : str
        Whose people the scans are moved as; empty without harmonisation.
    """

    id: str
    sites: tuple[str, ...]
    classes: Sequence[Any]
    temperature: float
    n_rois: int
    roi_names: Sequence[str]
    judge: Callable[[np.ndarray, Mapping[str, np.ndarray]], Judged]
    removes: tuple[str, ...] = ()
    site: str = ""

    def wrong(self, scan: Scan) -> str:
        """Why a scan cannot be used; empty where it can.

        A file may say another learned site than whoever asks: its people would be moved wrongly.
        """
        if self.site and scan.site in self.sites and scan.site != self.site:
            return f"is of site '{scan.site}' by its file, not of '{self.site}'"
        return scan.problem or wrong_rois(scan.roi_names, self.roi_names)


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
    strangeness : float or None
        Distance from what was seen; the limit is 1. None for a capsule without held-out sets.
    note : str
        What is wrong with a scan that cannot be used, or what made it strange.
    own : float or None
        The probability by the hospital's own threshold, where it was given.
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


def judge(
    model: Capsule, fc: np.ndarray, site: Sites = None, unseen: Unseen = "refuse"
) -> Judged:
    """What a chained capsule says about scans (n, R, R); `site` and `unseen` as in `predictor`."""
    fc = np.array(fc, dtype=np.float32)
    x = torch.from_numpy(model.moved(fc, site, unseen))
    # an effect that is estimated from strange scans makes them look ordinary
    known_effect: Unseen = "leave" if unseen == "estimate" else unseen
    seen = torch.from_numpy(model.moved(fc, site, known_effect)) if model.harmony else x
    known, n = references(model), len(x)
    odd, why = torch.full((n,), torch.nan), [""] * n
    with one_thread():
        u = scores(model.settings.build(), model.lane, x).double() / model.temperature
        if known:
            odd, why = strangeness(known, seen)
    strange = odd > 1
    odds = torch.where(strange, torch.nan, u[:, 1] - u[:, 0])
    told = tuple(
        text if far else "" for text, far in zip(why, strange.tolist(), strict=True)
    )
    return Judged(odds.numpy(), odd.numpy(), told)


def references(capsule: Capsule) -> Known:
    """Axes and limits of every site that has them."""
    found: Known = []
    for place, entry in enumerate(learned(capsule.entries)):
        batch = capsule.held_out.of_site(place)
        if entry["reference"]["inside"] is not None and len(batch) >= 4:
            found.append((entry["site"], Reference.of(batch.fc), entry["reference"]))
    return found


def predictor(
    capsule: Capsule, site: Sites = None, unseen: Unseen = "refuse"
) -> Predictor:
    """A chained capsule as what it predicts with.

    A harmonised one must be told the site of the scans (or of each of them), and what to do with
    people of a site it has not learned (`fcforge.sites.harmonise.by_site`).
    """
    settings, classes = capsule.settings, capsule.settings.classes
    return Predictor(
        capsule.id,
        capsule.sites,
        classes,
        capsule.temperature,
        settings.n_rois,
        settings.roi_names,
        lambda fc, covariates: judge(capsule, fc, site, unseen),
        site=site if isinstance(site, str) and capsule.harmony is not None else "",
    )


def predict(
    capsule: Capsule, where: Where, kind: Kind = "auto", site: str | None = None
) -> list[Prediction]:
    """Predict with a chained capsule; see `predictor` and `predict_scans`."""
    return predict_scans(predictor(capsule, site), where, kind)


def predict_scans(
    model: Predictor,
    where: Where,
    kind: Kind = "auto",
    threshold: Threshold | None = None,
) -> list[Prediction]:
    """Predict one file, several files or all files of a folder (that of `fcforge fc`, too).

    A file holds one scan (FC or ROI time series: .npy .npz .csv .tsv .txt .1D .mat) or a dataset
    (.npz with ``fc_upper`` or ``fc`` of many subjects). A scan that cannot be used is reported
    in its place and does not stop the others.

    Parameters
    ----------
    model : Predictor
    where : path or sequence of paths
    kind : {"auto", "fc", "timeseries"}
    threshold : Threshold, optional
        The hospital's own (`Home.threshold`); its probability is reported beside.
    """
    scans = find_scans(where, kind, model.n_rois)
    wrong = [model.wrong(scan) for scan in scans]
    if threshold is not None:
        threshold.require_site(scan.site for scan in scans)
    usable = [scan for scan, problem in zip(scans, wrong, strict=True) if not problem]
    judged = iter(_rows(model, usable, threshold) if usable else ())
    return [
        Prediction(scan.subject, "cannot be used", note=problem)
        if problem
        else next(judged)
        for scan, problem in zip(scans, wrong, strict=True)
    ]


def _rows(
    model: Predictor, scans: Sequence[Scan], own: Threshold | None
) -> list[Prediction]:
    known = {
        k: np.array([s.covariates.get(k, np.nan) for s in scans]) for k in model.removes
    }
    found = model.judge(np.stack([s.fc for s in scans if s.fc is not None]), known)
    p, odd = found.probability, found.strangeness
    home = probability(own.odds(found.odds)) if own else np.full(len(p), np.nan)
    rows = []
    for i, scan in enumerate(scans):
        strange = "abstained" if np.isnan(odd[i]) else "unlike anything seen"
        status = strange if found.why[i] else "ok"
        said, far, own_p = rounded(p[i]), rounded(odd[i], 3), rounded(home[i])
        rows.append(Prediction(scan.subject, status, said, far, found.why[i], own_p))
    return rows


def as_csv(rows: Sequence[Prediction], model: Predictor) -> str:
    """Predictions as CSV, with the sites the capsule has learned in the last column.

    `own_probability` is there where a hospital's own threshold was given.
    """
    named = [{"own_probability": row.own, **asdict(row)} for row in rows]
    own = ["own_probability"] if any(row.own is not None for row in rows) else []
    names = ["subject", "status", "probability", *own, "strangeness", "note"]
    table = pd.DataFrame(named, columns=names).assign(
        sites_learned=" ".join(model.sites)
    )
    for name in ("subject", "note", "sites_learned"):
        table[name] = [no_formula(printable(text)) for text in table[name]]
    return table.to_csv(index=False, lineterminator="\n")


def as_json(rows: Sequence[Prediction], model: Predictor) -> str:
    """Predictions as JSON with the capsule's id, sites and temperature."""
    said = {
        "capsule": model.id,
        "sites_learned": list(model.sites),
        "probability_of": str(model.classes[1]),
        "temperature": round(model.temperature, 4),
        "predictions": [asdict(row) for row in rows],
    }
    return json.dumps(said, indent=1)
