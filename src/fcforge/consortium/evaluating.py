"""How good a capsule is on a hospital's own people, with the majority class beside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.capsule.contract import require_classes, require_rois
from fcforge.capsule.opening import open_trusted
from fcforge.capsule.prediction import predict_fc
from fcforge.capsule.receipts import fingerprints
from fcforge.consortium.files import is_consortium
from fcforge.consortium.home import Home
from fcforge.consortium.members import Consortium
from fcforge.consortium.predicting import judge, own_odds, probability
from fcforge.consortium.trusting import open_group
from fcforge.errors import DataError
from fcforge.sites.check import require_valid
from fcforge.sites.cohort import Cohort
from fcforge.stats.model import Measured, measure


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
        The consortium's head, the public head alone, the own threshold where it was given.
    notes : tuple of str
    """

    people: int
    patients: int
    abstained: int
    learned: int
    majority: float
    rows: Mapping[str, Mapping[str, Measured]]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain dict."""
        rows = {t: {m: list(v) for m, v in found.items()} for t, found in self.rows.items()}
        return {**self.__dict__, "rows": rows, "notes": list(self.notes)}


def evaluate_file(
    capsule: str | Path, cohort: Cohort, home: Home, trust: tuple[Path, ...] = ()
) -> Evaluation:
    """Evaluate either kind of capsule; nothing is learned and nothing is written."""
    if is_consortium(capsule):
        return evaluate(open_group(capsule, trust), cohort, home)
    opened = open_trusted(capsule, trust)
    require_valid(cohort, n_rois=opened.settings.n_rois)
    require_rois(opened.settings, cohort.roi_names, "the data")
    require_classes(opened.settings, cohort.classes, "the data")
    p, odd, _ = predict_fc(opened, cohort.fc)
    odds = np.where(odd > 1, np.nan, np.log(p / (1 - p)))
    return summed(cohort, {"the capsule": odds}, 0, ())


def evaluate(group: Consortium, cohort: Cohort, home: Home) -> Evaluation:
    """Evaluate a consortium on people whose diagnoses are known.

    People who are in a release are counted and told: a model that has seen them flatters.
    """
    require_valid(cohort, n_rois=group.start.n_rois)
    if wrong := group.start.wrong_rois(cohort.roi_names):
        raise DataError(wrong, do="Use the same atlas with its ROIs in the same order.")
    odds = judge(group, cohort.fc, cohort.covariates).odds
    rows = {"consortium": odds}
    if group.releases:
        alone = Consortium(group.start)
        rows["public head alone"] = judge(alone, cohort.fc, cohort.covariates).odds
    notes = []
    if home.threshold is not None:
        rows["own threshold"] = own_odds(odds, home.threshold)
        notes += home.threshold.stale(group.digest)
    if both := group.start.public_among(cohort.subject_id.tolist()):
        notes.append(f"{len(both)} of these people are among the public ones: the numbers flatter.")
    seen = len(home.seen(fingerprints(cohort.fc, cohort.subject_id.tolist(), cohort.y)))
    if seen:
        notes.append(f"{seen} of these people are in a release: the numbers flatter.")
    return summed(cohort, rows, seen, tuple(notes))


def summed(
    cohort: Cohort, rows: Mapping[str, np.ndarray], learned: int, notes: tuple[str, ...]
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
    return Evaluation(len(kept), patients, int((~here).sum()), learned, majority, found, notes)
