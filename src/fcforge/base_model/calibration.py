"""Targets of linear heads, and the calibration of their scores."""

import numpy as np
from numpy import ndarray as Array

STEPS = 50  # of Newton's method
LARGEST = 30.0  # log odds; those of a probability of 1 are infinite


# -- targets and scores ----------------------------------------------------------------------------
def vertices(n_classes: int) -> Array:
    """Corners (K, K - 1) of a regular simplex, each of length 1: -1 and +1 for two classes.

    No class is nearer to another than the rest are, and no class is the one that others are held
    against (simplex coding, Mroueh et al. 2012).

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
    """What a head is fitted to, of length 1 at most whatever y is.

    (n,): diagnoses at -1 and +1, or a number cut to these limits; (n, c): corners of classes.
    """
    if y.dtype.kind == "f":
        return np.clip(y, -1.0, 1.0)
    return 2.0 * y - 1.0 if columns == 1 else vertices(columns + 1)[y]


def class_logits(score: Array) -> Array:
    """Logits (n, K) of scores (n, c), which softmax makes probabilities once calibrated."""
    return score @ vertices(score.shape[1] + 1).T / 2


def fit_temperature(score: Array, y: Array) -> float:
    """T that makes the logits of score (n, c) / T probabilities: logistic regression on one number.

    The loss is convex in 1 / T: its slope is bisected, over the logarithm of 1 / T.
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


def fit_line(z: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Intercept and slope by penalised logistic regression of diagnoses y (n,) on log odds z.

    The slope is held at 1 and the intercept at 0 by a prior worth about four people, so that few
    people move them little; the penalised loss is strictly convex.
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
