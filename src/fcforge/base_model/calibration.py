"""Targets of linear models and calibration of their scores.

Letters of shapes: n subjects, K classes, c = K - 1 columns of regression targets.
"""

import numpy as np
from numpy import ndarray as Array

STEPS = 50  # steps of Newton's method
LARGEST = 30.0  # largest log odds, which would be infinite for a probability of 1


# -- targets and scores ----------------------------------------------------------------------------
def vertices(n_classes: int) -> Array:
    """Return the corners of a regular simplex, the regression targets of K = `n_classes` classes.

    Two classes give -1 and +1. All classes are equally far apart and none is the reference
    (simplex coding, Mroueh et al. 2012).

    Returns
    -------
    ndarray of shape (K, K - 1)
        Rows of length 1.

    Examples
    --------
    >>> vertices(3).round(3).tolist()
    [[-0.866, -0.5], [0.866, -0.5], [0.0, 1.0]]
    """
    corners = np.zeros((n_classes, n_classes - 1))
    # Column k - 1 separates class k from the classes before it; later classes have 0 there. Of the k
    # classes before it each has -size, class k has k times as much, so that the column adds up to 0. The
    # size makes every row 1 long.
    for k in range(1, n_classes):
        size = np.sqrt(n_classes / (n_classes - 1) / (k * (k + 1)))
        corners[:k, k - 1] = -size
        corners[k, k - 1] = k * size
    return corners


def targets(y: Array, columns: int = 1) -> Array:
    """Return the regression targets of subjects, of length at most 1 each.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Integer classes, or float numbers.
    columns : int
        Number c of target columns: 1 for two classes and for numbers, otherwise K - 1.

    Returns
    -------
    ndarray of shape (n,) or (n, columns)
        Diagnoses as -1 and +1, numbers clipped to these limits, or the class's corner of `vertices`.
    """
    if y.dtype.kind == "f":
        return np.clip(y, -1.0, 1.0)
    return 2.0 * y - 1.0 if columns == 1 else vertices(columns + 1)[y]


def class_logits(score: Array) -> Array:
    """Return the logits of the classes, shape (n, K), from the scores of a ridge, shape (n, c)."""
    return score @ vertices(score.shape[1] + 1).T / 2


def fit_temperature(score: Array, y: Array) -> float:
    """Return the temperature T for which score / T has the smallest log loss.

    The loss is convex in 1 / T. The zero of its slope is found by bisection over log2(1 / T), from
    -6 to 6.

    Parameters
    ----------
    score : ndarray of shape (n, c)
        Scores of subjects that the model was not fitted on.
    y : ndarray of shape (n,)
        Classes of the subjects.
    """
    low = -6.0  # of log2(1 / T)
    high = 6.0
    logits = class_logits(score)
    lead = logits - np.take_along_axis(logits, y[:, None], 1)  # over the true class
    # a subject's loss log sum exp(lead / T) has the slope sum p lead by 1 / T, p the probabilities
    for _ in range(60):
        middle = (low + high) / 2
        scaled = 2.0**middle * lead
        probability = np.exp(scaled - scaled.max(1, keepdims=True))  # not normalised
        expected_lead = (probability * lead).sum(1) / probability.sum(1)
        slope = expected_lead.sum()
        if slope < 0:  # the loss still falls: its minimum lies above
            low = middle
        else:
            high = middle
    return 2.0 ** -((low + high) / 2)


def calibrated(score: Array, temperature: float) -> Array:
    """Return calibrated log odds (two classes) or log probabilities (K classes) of scores.

    Parameters
    ----------
    score : ndarray of shape (n,) or (n, c)
        Scores of a ridge.
    temperature : float
        Divisor of the scores.

    Returns
    -------
    ndarray of shape (n,) or (n, K)
    """
    if score.ndim == 1:
        return score / temperature
    logits = class_logits(score) / temperature
    logits = logits - logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def fit_line(z: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return intercept and slope of a penalised logistic regression of y on log odds z.

    They recalibrate log odds for other people. A prior worth about four subjects pulls the slope to 1
    and the intercept to 0, so that few subjects change them little. The penalised loss is strictly
    convex and is minimised by Newton's method.

    Parameters
    ----------
    z : ndarray of shape (n,)
        Log odds.
    y : ndarray of shape (n,)
        Diagnoses, 0 and 1.
    """
    x = np.stack([np.ones(len(z)), z], axis=1)
    # the penalty is half the squared distance of (intercept, slope) to `prior`
    prior = np.array([0.0, 1.0])
    theta = prior
    for _ in range(STEPS):
        log_odds = np.clip(x @ theta, -LARGEST, LARGEST)
        p = 1 / (1 + np.exp(-log_odds))
        gradient = x.T @ (p - y) + (theta - prior)
        weight = p * (1 - p)
        curvature = (x.T * weight) @ x + np.eye(2)
        theta = theta - np.linalg.solve(curvature, gradient)
    return float(theta[0]), float(theta[1])
