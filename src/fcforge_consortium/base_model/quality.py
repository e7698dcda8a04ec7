"""Metrics and label checks of a model on people with known diagnoses.

A *score* is what a model returns for a scan: the calibrated log odds of "patient" for two classes, log
probabilities for more, a scaled number for a numeric target.
"""

from itertools import combinations

import numpy as np
from numpy import ndarray as Array

from fcforge.core.errors import DataError
from fcforge.core.target import TWO_CLASSES, Target
from fcforge.evaluation.metrics import cell_values
from fcforge.evaluation.temperature import probability

# p value below which diagnoses count as swapped. With a base model of NYU it refuses 12 of the other
# 19 sites of ABIDE when their diagnoses are swapped, and one site, of 25 people, when they are not. A
# rule of three standard errors would refuse 4 of the swapped sites.
SWAPPED = 0.05


def answers_of(target: Target, score: Array) -> Array:
    """Return the predictions that calibrated scores stand for.

    Parameters
    ----------
    target : Target
    score : ndarray of shape (n,), or (n, K) for K > 2 classes

    Returns
    -------
    ndarray of shape (n,) or (n, K)
        P(patient) for two classes, the probability of every class for more, or the number in its unit.
    """
    if target.kind == "number":
        return target.restored(score)
    return np.exp(score) if score.ndim == 2 else probability(score)


def truth_of(target: Target, y: Array) -> Array:
    """Return the true values (n,) to compare predictions with: classes, or numbers in their unit.

    Parameters
    ----------
    target : Target
    y : ndarray of shape (n,)
        Classes, or scaled numbers.
    """
    return y if target.classes else target.restored(y)


def quality(score: Array, y: Array, target: Target = TWO_CLASSES) -> dict[str, float]:
    """Return metrics of calibrated scores, the share of the largest class and the number of people.

    Parameters
    ----------
    score : ndarray of shape (n,) or (n, K)
    y : ndarray of shape (n,)
        Classes, or scaled numbers.
    target : Target

    Returns
    -------
    dict of str to float
        accuracy, auroc and majority for classes; r2, mae and spearman for a number; and people.
    """
    predicted = answers_of(target, score)
    truth = truth_of(target, y)
    if predicted.ndim == 2:
        truth = np.eye(predicted.shape[1])[y]
    names = ("accuracy", "auroc") if target.classes else ("r2", "mae", "spearman")
    values = {
        name: float(cell_values(predicted[None], truth, name)[0]) for name in names
    }
    if target.classes:
        values["majority"] = float(np.bincount(y).max()) / len(y)
    values["people"] = float(len(y))
    return values


def require_labels(
    score: Array, y: Array, accept: bool, target: Target = TWO_CLASSES
) -> bool:
    """Raise `DataError` if diagnoses look swapped, unless that is accepted.

    Diagnoses look swapped if patients have lower log odds than controls with p < 0.05 (one-sided
    Mann-Whitney test). With more than two classes all pairs are compared, at 0.05 for all of them
    together. For a number, people above the median are compared with the others.

    Parameters
    ----------
    score : ndarray of shape (n,) or (n, K)
        Scores of the site's people by the model that the site received.
    y : ndarray of shape (n,)
        Their classes, or scaled numbers.
    accept : bool
        Whether swapped diagnoses are accepted: True is returned in place of an error.
    target : Target

    Returns
    -------
    bool
        Whether the diagnoses look swapped.
    """
    from scipy.stats import mannwhitneyu  # slow to import

    groups = y if target.classes else (y > np.median(y)).astype(int)
    names = target.classes or (f"lower {target.name}", f"higher {target.name}")
    pairs = list(combinations(np.unique(groups), 2))
    swapped = False
    for low, high in pairs:
        odds = score[:, high] - score[:, low] if score.ndim == 2 else score
        above = odds[groups == high]
        below = odds[groups == low]
        wins, p = mannwhitneyu(above, below, alternative="less", method="asymptotic")
        if not p < SWAPPED / len(pairs):  # p is NaN if all scores are equal
            continue
        swapped = True
        if not accept:
            raise DataError(
                f"labels look swapped: the received model ranks this site's '{names[high]}' below "
                f"'{names[low]}' (AUROC {wins / len(above) / len(below):.2f}, {len(y)} people, "
                f"p = {p:.2g}).",
                do="Check which diagnosis means patient in the data (--positive), the order of "
                "the classes, or the sign of the number. If it is right, add --accept-labels.",
            )
    return swapped
