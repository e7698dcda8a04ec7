"""Targets of linear models and calibration of their scores."""

import numpy as np
from numpy import ndarray as Array

STEPS = 50  # steps of Newton's method
LARGEST = 30.0  # bound of log odds, which are infinite for a probability of 1


# -- targets and scores ----------------------------------------------------------------------------
def vertices(n_classes: int) -> Array:
    """Return the corners (K, K - 1) of a regular simplex, each of length 1.

    Two classes give -1 and +1. All classes are equally far apart and none is the reference
    (simplex coding, Mroueh et al. 2012).

    Examples
    --------
    >>> vertices(3).round(3).tolist()
    [[-0.866, -0.5], [0.866, -0.5], [0.0, 1.0]]
    """
    corners = np.zeros((n_classes, n_classes - 1))
    for k in range(1, n_classes):
        size = np.sqrt(n_classes / (n_classes - 1) / (k * (k + 1)))
        corners[:k, k - 1] = -size
        corners[k, k - 1] = k * size
    return corners


def targets(y: Array, columns: int = 1) -> Array:
    """Return regression targets of length at most 1.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Integer classes, or float numbers.
    columns : int

    Returns
    -------
    ndarray of shape (n,) or (n, columns)
        Diagnoses as -1 and +1, numbers clipped to these limits, or corners of the classes.
    """
    if y.dtype.kind == "f":
        return np.clip(y, -1.0, 1.0)
    return 2.0 * y - 1.0 if columns == 1 else vertices(columns + 1)[y]


def class_logits(score: Array) -> Array:
    """Return the logits (n, K) of scores (n, c)."""
    return score @ vertices(score.shape[1] + 1).T / 2


def fit_temperature(score: Array, y: Array) -> float:
    """Return the temperature T that minimises the log loss of score / T.

    The loss is convex in 1 / T, so its slope is bisected over the logarithm of 1 / T.

    Parameters
    ----------
    score : ndarray of shape (n, c)
    y : ndarray of shape (n,)
        Classes.
    """
    low = -6.0
    high = 6.0
    logits = class_logits(score)
    ahead = logits - np.take_along_axis(logits, y[:, None], 1)
    for _ in range(60):
        middle = (low + high) / 2
        scaled = 2.0**middle * ahead
        share = np.exp(scaled - scaled.max(1, keepdims=True))
        expected = (share * ahead).sum(1) / share.sum(1)
        slope = expected.sum()
        if slope < 0:
            low = middle
        else:
            high = middle
    return 2.0 ** -((low + high) / 2)


def calibrated(score: Array, temperature: float) -> Array:
    """Return log odds (n,) of scores (n,), or log probabilities (n, K) of scores (n, c).

    Parameters
    ----------
    score : ndarray of shape (n,) or (n, c)
    temperature : float
        Divisor of the scores.
    """
    if score.ndim == 1:
        return score / temperature
    logits = class_logits(score) / temperature
    logits = logits - logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def fit_line(z: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return intercept and slope of a penalised logistic regression of y on log odds z.

    A prior worth about four subjects pulls the slope to 1 and the intercept to 0, so that few
    subjects change them little. The penalised loss is strictly convex.

    Parameters
    ----------
    z : ndarray of shape (n,)
    y : ndarray of shape (n,)
        Diagnoses, 0 and 1.
    """
    x = np.stack([np.ones(len(z)), z], axis=1)
    middle = np.array([0.0, 1.0])
    theta = middle
    for _ in range(STEPS):
        odds = np.clip(x @ theta, -LARGEST, LARGEST)
        p = 1 / (1 + np.exp(-odds))
        gradient = x.T @ (p - y) + (theta - middle)
        weight = p * (1 - p)
        curvature = (x.T * weight) @ x + np.eye(2)
        theta = theta - np.linalg.solve(curvature, gradient)
    return float(theta[0]), float(theta[1])
