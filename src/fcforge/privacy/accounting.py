r"""What noise promises: exact (epsilon, delta), and the best that any attack can do.

A release is (epsilon, delta)-private when a neighbouring data set (one person added or removed; or
one replaced) changes the probability of any outcome by at most a factor :math:`e^\epsilon`, up to
:math:`\delta`. *Sigma* is everywhere the noise's standard deviation in units of the sensitivity:
the most that one person can change the released vector (L2).

**Delta.** Of the continuous Gaussian it is known exactly (Balle & Wang, ICML 2018),

.. math:: \delta(\epsilon) = \Phi\left(\tfrac{1}{2\sigma} - \epsilon\sigma\right)
          - e^\epsilon \Phi\left(-\tfrac{1}{2\sigma} - \epsilon\sigma\right).

**The grid.** Noise on d integers with standard deviation s (in grid units) is the rounded
continuous one up to a factor: for every integer y with :math:`|y| \le 20 s`,

.. math:: e^{-51 / s^2} \le \frac{p(y)}{r(y)} \le e^{1 / 8 s^2}, \qquad
          r(y) = \int_{-1/2}^{1/2} \varphi_s(y + u)\,du

because :math:`r(y) / \varphi_s(y) = \int \cosh(yu / s^2) e^{-u^2 / 2s^2} du` lies between
:math:`e^{-1/8s^2}` and :math:`e^{y^2 / 8s^4}`, and :math:`p = \varphi_s / Z` with
:math:`1 \le Z \le 1 + 3e^{-2\pi^2 s^2}`. Rounding loses nothing. So the grid costs at most
:math:`52 d / s^2` of epsilon and as large a share of delta, plus the chance below
:math:`10^{-40}` that a coordinate lies beyond 20 s of either neighbour. With the grid of
`fcforge.releases.vector`, epsilon up to 32 (`MOST_EPSILON`: s is above 233,000) and d up to 80,202
numbers (400 ROIs) both are below `GRID`, which every number here includes.

**Attacks.** No attack on one person has a larger AUC than :math:`\Phi(1 / \sqrt2 \sigma)` (Dong,
Roth & Su, Gaussian differential privacy, 2022).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from fcforge.errors import ConfigError

EPSILON = 1.0  # of a release, where nothing else is said
DELTA = 1e-6
GRID = 1e-4  # epsilon, and share of delta, that integers can cost
MOST_EPSILON = 32.0  # more is no promise worth the name


class Promise(NamedTuple):
    """What noise promises one person, by who the neighbour is.

    Attributes
    ----------
    epsilon : float
    delta : float
    ceiling : float
        Largest AUC of any attack.
    """

    epsilon: float
    delta: float
    ceiling: float


def check_budget(epsilon: float, delta: float, where: str) -> None:
    """Raise `ConfigError` on a budget that means nothing."""
    if not (GRID < epsilon <= MOST_EPSILON and 0 < delta < 1):
        raise ConfigError(
            f"epsilon {epsilon} and delta {delta} are not a privacy budget.",
            where=where,
            do=f"epsilon is above {GRID} and at most {MOST_EPSILON:g}, delta between 0 and 1 "
            "(below 1 / number of subjects).",
        )


def _normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def gaussian_delta(sigma: float, epsilon: float) -> float:
    """Exact delta of one continuous Gaussian release."""
    near = _normal_cdf(0.5 / sigma - epsilon * sigma)
    far = _normal_cdf(-0.5 / sigma - epsilon * sigma)
    grown = math.exp(min(epsilon, 700.0)) * far if far > 0 else 0.0
    return near - grown


def grid_delta(sigma: float, epsilon: float) -> float:
    """Delta of one release on the grid: never less than it is."""
    return (1.0 + GRID) * gaussian_delta(sigma, epsilon - GRID)


def sigma_for(epsilon: float, delta: float = DELTA) -> float:
    """Smallest sigma of one (epsilon, delta)-private release on the grid.

    Examples
    --------
    >>> round(sigma_for(1.0), 3)
    4.225
    """
    check_budget(epsilon, delta, "Gaussian noise")
    return _smallest(lambda s: grid_delta(s, epsilon) <= delta, 1e-3, 1e7)


def epsilon_of(sigma: float, delta: float = DELTA) -> float:
    """Smallest epsilon at this delta of noise sigma on the grid; 0 where there is no release.

    Examples
    --------
    >>> round(epsilon_of(sigma_for(2.0)), 3)
    2.0
    """
    if math.isinf(sigma):
        return 0.0
    return _smallest(lambda e: grid_delta(sigma, e) <= delta, GRID, 1e12)


def ceiling(sigma: float) -> float:
    r"""AUC that no attack exceeds: :math:`\Phi(1 / (\sqrt2 \sigma))`; 1 without noise.

    Reached by an attacker who knows everybody else in the release exactly, against a person who
    contributes as much as anybody may.

    Examples
    --------
    >>> round(ceiling(1.0), 4), ceiling(0.0)
    (0.7602, 1.0)
    """
    return 1.0 if sigma == 0 else _normal_cdf(1.0 / (math.sqrt(2.0) * sigma))


def ceiling_of(epsilon: float | None, delta: float = DELTA) -> float:
    """The same by epsilon; None: exact sums."""
    return 1.0 if epsilon is None else ceiling(sigma_for(epsilon, delta))


def promise(sigma: float, delta: float = DELTA) -> Promise:
    """What noise sigma promises."""
    return Promise(epsilon_of(sigma, delta), delta, ceiling(sigma))


def _smallest(good: Callable[[float], bool], low: float, high: float) -> float:
    """Smallest value (to 1e-9 relative, never below it) for which the monotone `good` holds."""
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        if good(middle):
            high = middle
        else:
            low = middle
    return high
