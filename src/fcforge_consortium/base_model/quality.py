"""Scores, calibration and label checks of a model on people with known diagnoses."""

from itertools import combinations

import numpy as np
from numpy import ndarray as Array

from fcforge.core.errors import DataError
from fcforge.core.target import TWO_CLASSES, Target
from fcforge.evaluation.metrics import cell_values
from fcforge.evaluation.temperature import probability

# p below which diagnoses count as turned round. Around a start of NYU it refuses 12 of
# the other 19 sites of ABIDE when they are (three standard errors: 4), and one, of 25
# people, when they are not.
TURNED = 0.05


def answers_of(target: Target, score: Array) -> Array:
    """What is said of calibrated scores: P(patient) (n,), P of each class (n, K), or the number."""
    if target.kind == "number":
        return target.restored(score)
    return np.exp(score) if score.ndim == 2 else probability(score)


def truth_of(target: Target, y: Array) -> Array:
    """What answers are held against (n,): classes, or the number in its unit."""
    return y if target.classes else target.restored(y)


def quality(score: Array, y: Array, target: Target = TWO_CLASSES) -> dict[str, float]:
    """A few metrics of calibrated scores of n people, beside the majority class."""
    said = answers_of(target, score)
    truth = truth_of(target, y)
    if said.ndim == 2:
        truth = np.eye(said.shape[1])[y]
    names = ("accuracy", "auroc") if target.classes else ("r2", "mae", "spearman")
    found = {name: float(cell_values(said[None], truth, name)[0]) for name in names}
    if target.classes:
        found["majority"] = float(np.bincount(y).max()) / len(y)
    found["people"] = float(len(y))
    return found


def require_labels(
    score: Array, y: Array, accept: bool, target: Target = TWO_CLASSES
) -> bool:
    """Whether diagnoses look swapped: `DataError` unless that is accepted.

    They do where a model's patients have lower log odds than its controls and chance would do so
    in less than 5 % of all cases (one-sided Mann-Whitney test). Of more classes every two are
    compared, with 5 % for all of them together; of a number, people above the median and others.

    Parameters
    ----------
    score : ndarray of shape (n,) or (n, K)
        Of the model that came in.
    y : ndarray of shape (n,)
    accept : bool
    target : Target
    """
    from scipy.stats import mannwhitneyu  # slow to import

    groups = y if target.classes else (y > np.median(y)).astype(int)
    names = target.classes or (f"lower {target.name}", f"higher {target.name}")
    pairs = list(combinations(np.unique(groups), 2))
    turned = False
    for low, high in pairs:
        odds = score[:, high] - score[:, low] if score.ndim == 2 else score
        above = odds[groups == high]
        below = odds[groups == low]
        wins, p = mannwhitneyu(above, below, alternative="less", method="asymptotic")
        if not p < TURNED / len(pairs):  # NaN where all are level
            continue
        turned = True
        if not accept:
            raise DataError(
                f"the model that came in tells this site's '{names[high]}' from '{names[low]}' the "
                f"wrong way round (AUROC {wins / len(above) / len(below):.2f} of {len(y)} "
                f"people; chance gives so little with p = {p:.2g}).",
                do="Check which diagnosis means patient in the data (--positive), or the order of "
                "the classes, or the sign of the number; if it is right, add --accept-labels.",
            )
    return turned
