"""Probabilities of log odds, and the temperature that calibrates log odds.

n is the number of subjects.
"""

import math

import numpy as np
from numpy import ndarray as Array

TEMPERATURES = (0.2, 20.0)


def probability(odds: Array) -> Array:
    """Convert log odds to P(patient), without overflow at either end."""
    return 0.5 * (1.0 + np.tanh(0.5 * odds))


def temperature_of_odds(odds: Array, y: Array) -> float:
    r"""Return the temperature T by which log odds u are divided to calibrate them.

    It minimises the cross-entropy with a penalty,
    :math:`\sum_i \log(1 + e^{\mp u_i / T}) + (\log T)^2`; the sign is minus for patients. The last
    term is a prior around T = 1 (standard deviation 0.7 of log T), so that ten validation subjects
    do not decide alone.

    Parameters
    ----------
    odds : ndarray of shape (n,)
        Log odds of people whose diagnoses are known.
    y : ndarray of shape (n,)
        1 for patients.

    Returns
    -------
    float
        Between the two `TEMPERATURES`.

    Examples
    --------
    >>> odds = np.full(4000, -2.0)  # P(control) is 88 %; 3 of 4 are controls
    >>> round(temperature_of_odds(odds, np.arange(4000) % 4 == 0), 2)  # 2 / log 3
    1.82
    """
    from scipy.optimize import minimize_scalar  # slow to import

    control_odds = -np.asarray(odds, dtype=np.float64)
    odds_of_true_class = np.where(np.asarray(y) == 1, odds, control_odds)

    def loss(log_t: float) -> float:
        losses = np.logaddexp(0.0, -odds_of_true_class / math.exp(log_t))
        return float(losses.sum()) + log_t**2

    bounds = (math.log(TEMPERATURES[0]), math.log(TEMPERATURES[1]))
    return math.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x)
