"""What a consortium's head says about scans, and how good either kind of capsule is on people.

The consortium abstains from a scan that is unlike the public people's, and from one that lacks a
covariate which the start removes: a guess there would look like an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fcforge.capsule import prediction
from fcforge.capsule.contents import Capsule
from fcforge.capsule.contract import require_classes, require_rois
from fcforge.capsule.home import Home, Threshold, fingerprints
from fcforge.capsule.opening import Trust, open_capsule
from fcforge.capsule.prediction import Judged, Prediction, Predictor, own_odds, probability
from fcforge.consortium.files import is_consortium, read_consortium
from fcforge.consortium.learning import scores
from fcforge.consortium.members import Consortium
from fcforge.consortium.public import beyond_public
from fcforge.errors import DataError
from fcforge.sites.check import require_valid
from fcforge.sites.cohort import Cohort
from fcforge.sites.confounds import as_numbers
from fcforge.sites.harmonise import Unseen
from fcforge.sites.reading import Kind
from fcforge.sites.scans import Where
from fcforge.stats.model import Measured, measure


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


def predictor(
    model: Capsule | Consortium, site: str | Sequence[str] | None = None, unseen: Unseen = "refuse"
) -> Predictor:
    """Either kind of capsule as what it predicts with; a harmonised one is told the site."""
    if isinstance(model, Capsule):
        return prediction.predictor(model, site, unseen)
    return Predictor(
        model.digest,
        model.sites or tuple(model.start.papers["sites"]),
        model.start.papers["classes"],
        float(model.start.arrays.temperature),
        model.start.n_rois,
        model.start.wrong_rois,
        lambda fc, covariates: judge(model, fc, covariates),
        model.start.removes,
    )


def open_either(path: str | Path, trust: Trust) -> Capsule | Consortium:
    """Open a capsule of either kind, everything checked."""
    if is_consortium(path):
        return read_consortium(path, trust)
    return open_capsule(path, trusted=trust)


def predict(
    group: Consortium, where: Where, threshold: Threshold | None = None, kind: Kind = "auto"
) -> list[Prediction]:
    """Predict with a consortium's head; see `fcforge.capsule.prediction.predict_scans`."""
    return prediction.predict_scans(predictor(group), where, kind, threshold)


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a capsule on one group of people.

    Attributes
    ----------
    people, patients, abstained : int
        Predicted people, patients among them, people it abstained from.
    learned : int
        Of the people, how many are in a release of this hospital (its home file says so).
    majority : float
        Share of the larger class: what guessing reaches.
    rows : mapping of title to mapping of metric to Measured
        The capsule, the public head alone, the own threshold where it was given.
    notes : tuple of str
    warning : str
        Said where the diagnoses seem to be turned round; else empty.
    """

    people: int
    patients: int
    abstained: int
    learned: int
    majority: float
    rows: Mapping[str, Mapping[str, Measured]]
    notes: tuple[str, ...] = ()
    warning: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain dict."""
        rows = {
            t: {m: [v.value, v.low, v.high] for m, v in found.items()}
            for t, found in self.rows.items()
        }
        return {**self.__dict__, "rows": rows, "notes": list(self.notes)}


def evaluate(
    model: Capsule | Consortium,
    cohort: Cohort,
    home: Home = Home(),  # noqa: B008 (frozen)
) -> Evaluation:
    """Evaluate a capsule on people whose diagnoses are known; nothing is learned or written.

    People who are in a release are counted and told: a model that has seen them flatters.
    """
    asked = predictor(model, cohort.site.tolist())
    require_valid(cohort, n_rois=asked.n_rois)
    require_rois(asked.wrong_rois(cohort.roi_names), "the data")
    require_classes(asked.classes, cohort.classes, "the data")
    odds = asked.judge(cohort.fc, cohort.covariates).odds
    if isinstance(model, Capsule):
        return _summed(cohort, {"the capsule": odds}, 0, [])
    rows, notes = {"consortium": odds}, list[str]()
    if model.releases:
        alone = Consortium(model.start)
        rows["public head alone"] = judge(alone, cohort.fc, cohort.covariates).odds
    if home.threshold is not None:
        rows["own threshold"] = own_odds(odds, home.threshold)
        notes += home.threshold.stale(model.digest)
    ids = cohort.subject_id.tolist()
    seen = len(home.seen(fingerprints(cohort.fc, ids, cohort.y)))
    for n, where in ((len(model.start.public_among(ids)), "among the public ones"),
                     (seen, "in a release")):  # fmt: skip
        notes += [f"{n} of these people are {where}: the numbers flatter."] if n else []
    return _summed(cohort, rows, seen, notes)


def _summed(
    cohort: Cohort, rows: Mapping[str, np.ndarray], learned: int, notes: list[str]
) -> Evaluation:
    """Metrics of log odds (n,) per row, over the people nobody abstained from."""
    here = np.all([np.isfinite(odds) for odds in rows.values()], axis=0)
    if not here.any():
        raise DataError(
            "the capsule abstains from every one of these people.",
            do="See why, one by one, with `fcforge predict`.",
        )
    kept = cohort.select(here)
    ids = [f"{s}/{i}" for s, i in zip(kept.site, kept.subject_id, strict=True)]
    found = {title: measure(probability(odds[here]), kept.y, ids) for title, odds in rows.items()}
    patients = int(kept.y.sum())
    majority = max(patients, len(kept) - patients) / len(kept)
    abstained = int((~here).sum())
    return Evaluation(
        len(kept), patients, abstained, learned, majority, found, tuple(notes), _turned(found)
    )


def _turned(rows: Mapping[str, Mapping[str, Measured]]) -> str:
    """What to say where the capsule's AUROC is below chance with all of its interval."""
    auroc = next(iter(rows.values()))["auroc"]
    if not auroc.high < 0.5:  # NaN where it abstained from a whole class
        return ""
    return (
        f"WARNING: the diagnoses seem to be turned round. The AUROC is {auroc.value:.2f}, and all "
        f"of its interval ({auroc.low:.2f} to {auroc.high:.2f}) is below chance (0.5): the capsule "
        "calls the controls of these data patients. Check which diagnosis means patient in the "
        "data (1, or --positive VALUE). If it is right, do not use this capsule for these people."
    )
