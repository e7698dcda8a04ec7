"""Probabilities for new scans from a consortium's head, with the hospital's own threshold beside.

The consortium abstains from a scan that is unlike the public people's, and from one that lacks a
covariate which the start removes: a guess there would look like an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fcforge.capsule.prediction import Prediction
from fcforge.consortium.home import Threshold
from fcforge.consortium.learning import scores
from fcforge.consortium.members import Consortium
from fcforge.consortium.public import beyond_public
from fcforge.sites.confounds import as_numbers
from fcforge.sites.reading import Kind
from fcforge.sites.scans import Scan, Where, find_scans


@dataclass(frozen=True)
class Judged:
    """What the consortium says about n people.

    Attributes
    ----------
    odds : ndarray of shape (n,)
        Calibrated log odds of "patient"; NaN where it abstains.
    strangeness : ndarray of shape (n,)
        Distance from the public people, limit 1; NaN where a covariate is missing.
    why : tuple of str
        Why it abstains; empty where it does not.
    """

    odds: np.ndarray
    strangeness: np.ndarray
    why: tuple[str, ...]


def judge(group: Consortium, fc: np.ndarray, covariates: Mapping[str, np.ndarray]) -> Judged:
    """Log odds of scans (n, R, R) with their covariates, each (n,).

    Parameters
    ----------
    group : Consortium
    fc : ndarray of shape (n, R, R)
    covariates : mapping of name to ndarray of shape (n,)
        NaN where a value is missing.
    """
    n = len(fc)
    known = {k: as_numbers(k, covariates[k]) for k in group.start.removes if k in covariates}
    every = {k: known.get(k, np.full(n, np.nan)) for k in group.start.removes}
    why = [_lacks(group, every, i) for i in range(n)]
    here = np.array([not reason for reason in why], dtype=bool)
    odds, strange = np.full(n, np.nan), np.full(n, np.nan)
    if here.any():
        x = group.start.features(torch.from_numpy(fc[here]), {k: v[here] for k, v in every.items()})
        apart = group.start.strangeness(x)
        strange[here], worst = (part.numpy() for part in torch.stack([*apart.values()]).max(0))
        odds[here] = scores(group, x)
        for i, which in zip(np.flatnonzero(here), worst, strict=True):
            if strange[i] > 1:
                why[i], odds[i] = [*apart][which], np.nan
    return Judged(odds, strange, tuple(why))


def _lacks(group: Consortium, covariates: Mapping[str, np.ndarray], i: int) -> str:
    """Which covariate of person i is missing or far outside the public people's."""
    own = {name: values[i : i + 1] for name, values in covariates.items()}
    lost = [name for name, value in own.items() if not np.isfinite(value[0])]
    if lost:
        return f"has no {' or '.join(lost)}, which the start removes"
    far = [name for name, out in beyond_public(group.start, own, 1).items() if out[0]]
    return f"its {far[0]} {own[far[0]][0]:.4g} is far outside the public people's" if far else ""


def own_odds(odds: np.ndarray, threshold: Threshold) -> np.ndarray:
    """The hospital's own log odds from the consortium's."""
    return threshold.intercept + threshold.slope * odds


def probability(odds: np.ndarray) -> np.ndarray:
    """P(patient) of log odds; no overflow for any size."""
    return 0.5 * (1.0 + np.tanh(0.5 * odds))


def predict(
    group: Consortium, where: Where, threshold: Threshold | None = None, kind: Kind = "auto"
) -> list[Prediction]:
    """Predict every scan of a file, several files or folders; see `find_scans`.

    Parameters
    ----------
    group : Consortium
    where : path or sequence of paths
    threshold : Threshold, optional
        The hospital's own (`Home.threshold`); its probability is reported beside.
    kind : {"auto", "fc", "timeseries"}
    """
    scans = [_named(group, scan) for scan in find_scans(where, kind, group.start.n_rois)]
    usable = [scan for scan in scans if scan.fc is not None]
    judged = iter(_rows(group, usable, threshold))
    return [
        Prediction(scan.subject, "cannot be used", note=scan.problem)
        if scan.fc is None
        else next(judged)
        for scan in scans
    ]


def _named(group: Consortium, scan: Scan) -> Scan:
    """The scan, or why it cannot be used where its ROIs are others."""
    wrong = group.start.wrong_rois(scan.roi_names)
    return Scan(scan.subject, None, wrong) if wrong and scan.fc is not None else scan


def _rows(
    group: Consortium, scans: Sequence[Scan], threshold: Threshold | None
) -> list[Prediction]:
    if not scans:
        return []
    covariates = {
        name: np.array([scan.covariates.get(name, np.nan) for scan in scans])
        for name in group.start.removes
    }
    found = judge(group, np.stack([s.fc for s in scans if s.fc is not None]), covariates)
    p = probability(found.odds)
    own = probability(own_odds(found.odds, threshold)) if threshold else np.full(len(p), np.nan)
    return [
        Prediction(
            scan.subject,
            _status(found, i),
            _shown(p[i], 4),
            _shown(found.strangeness[i], 3),
            found.why[i],
            _shown(own[i], 4),
        )
        for i, scan in enumerate(scans)
    ]


def _status(found: Judged, i: int) -> str:
    if not found.why[i]:
        return "ok"
    return "abstained" if np.isnan(found.strangeness[i]) else "unlike anything seen"


def _shown(value: float, digits: int) -> float | None:
    return None if np.isnan(value) else round(float(value), digits)
