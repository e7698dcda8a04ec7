r"""Secret noise, the discrete Gaussian on the integers, sampled exactly; and what it promises.

.. math:: P(Y = y) \propto e^{-y^2 / 2\sigma^2}, \qquad y \in \mathbb Z

**Exact.** No floating-point number and no approximation is involved: every decision compares a
uniform integer with an integer (Canonne, Kamath & Steinke, The discrete Gaussian for differential
privacy, NeurIPS 2020). The total variation from the stated distribution is 0 as long as the words
of the operating system are uniform; the only limits are the 64 bits of an integer, which a draw
would leave with a probability below :math:`e^{-2^{31}}`.

**Secret.** All bits are the operating system's (`secrets`). A general-purpose generator must never
be used here: torch's and numpy's legacy seeding keep 32 bits of a seed, and all of them were tried
against a release in 1.3 s. A source scan (tests/privacy/test_noise.py) and a contract of
import-linter hold it.

**How.** A discrete Laplace draw Y, :math:`P(Y) \propto e^{-|Y| / \sigma}` with a whole sigma,
is accepted with probability :math:`e^{-(|Y| - \sigma)^2 / 2\sigma^2}`; the product is the discrete
Gaussian. Bernoulli draws with probability :math:`e^{-a/b}` come from those with probability
:math:`a / (bk)`, k = 1, 2, ... (the alternating series of the exponential). All is done on whole
arrays: 80,000 draws take a fraction of a second.

**Promise.** A release is (epsilon, delta)-private when a neighbouring data set (one person added or
removed; or one replaced) changes the probability of any outcome by at most a factor
:math:`e^\epsilon`, up to :math:`\delta`. *Sigma* is everywhere the noise's standard deviation in
units of the sensitivity: the most that one person can change the released vector (L2).

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
:math:`10^{-40}` that a coordinate lies beyond 20 s of either neighbour. `grid_cost` is this bound
for the d numbers and the s at hand, and never less than `GRID`, which covers contributions of 400
ROIs (d = 80,202) at every epsilon up to 32. More numbers get slightly more noise.

We keep this proof instead of accounting by zCDP (Canonne, Kamath & Steinke 2020), whose conversion
holds for any d but asks for 5.6 to 7.2 % more noise at the same epsilon and delta.

**Attacks.** No attack on one person has a larger AUC than :math:`\Phi(1 / \sqrt2 \sigma)` (Dong,
Roth & Su, Gaussian differential privacy, 2022).
"""

import math
import secrets
from collections.abc import Callable

import numpy as np

from fcforge.core.errors import ConfigError

Array = np.ndarray
EPSILON = 1.0  # of a release, where nothing else is said
DELTA = 1e-6
GRID = 1e-4  # least epsilon, and share of delta, that is reserved for the integer grid
MOST_EPSILON = 32.0  # more is no promise worth the name
WORD = 2**64
MOST_SIGMA = 2**31  # largest sigma whose 2 sigma^2 fits into a word


def discrete_gaussian(sigma: int, size: int) -> Array:
    """Secret draws (size,), int64, of the discrete Gaussian with parameter `sigma`.

    Parameters
    ----------
    sigma : int
        From 1 to 2^31. The variance is at most sigma^2 and, from 2 on, as good as equal to it.
    size : int
    """
    if not 1 <= sigma <= MOST_SIGMA:
        raise ConfigError(
            f"noise of standard deviation {sigma} cannot be drawn on the integers.",
            where="discrete Gaussian",
            do=f"Use a whole number from 1 to {MOST_SIGMA}: a coarser or finer grid.",
        )
    found = np.empty(size, dtype=np.int64)
    open_ = np.arange(size)
    while len(open_):
        drawn = _discrete_laplace(sigma, len(open_))
        taken = _near_sigma(drawn, sigma)
        found[open_[taken]] = drawn[taken]
        open_ = open_[~taken]
    return found


def _near_sigma(drawn: Array, sigma: int) -> Array:
    r"""Bernoulli draws (n,) with probability :math:`e^{-(|y| - \sigma)^2 / 2\sigma^2}`.

    With :math:`||y| - \sigma| = a \sigma + b`, :math:`0 \le b < \sigma`, the exponent is
    :math:`a^2 / 2 + ab / \sigma + b^2 / 2\sigma^2`: three factors whose integers fit into a word.
    """
    whole, rest = np.divmod(np.abs(np.abs(drawn) - sigma), sigma)
    whole = whole.astype(np.uint64)
    rest = rest.astype(np.uint64)
    taken = bernoulli_exp(whole * whole, 2)
    taken &= bernoulli_exp(whole * rest, sigma)
    taken &= bernoulli_exp(rest * rest, 2 * sigma * sigma)
    return taken


def _discrete_laplace(scale: int, size: int) -> Array:
    """Draws (size,) with probability proportional to e^(-abs(y) / scale), scale a whole number."""
    found = np.empty(size, dtype=np.int64)
    open_ = np.arange(size)
    while len(open_):
        part = below(scale, len(open_))
        taken = bernoulli_exp(part, scale)
        size_ = part.astype(np.int64) + scale * _successes(len(open_))
        negative = below(2, len(open_)) == 1
        taken &= ~(negative & (size_ == 0))  # zero has one sign only
        found[open_[taken]] = np.where(negative, -size_, size_)[taken]
        open_ = open_[~taken]
    return found


def _successes(size: int) -> Array:
    """How often (size,) a Bernoulli draw with probability 1 / e succeeds before it fails."""
    found = np.zeros(size, dtype=np.int64)
    open_ = np.arange(size)
    while len(open_):
        again = bernoulli_exp(np.ones(len(open_), dtype=np.uint64), 1)
        open_ = open_[again]
        found[open_] += 1
    return found


def bernoulli_exp(numerator: Array, denominator: int) -> Array:
    """Bernoulli draws (n,) with probability e^(-numerator / denominator), exactly.

    Parameters
    ----------
    numerator : ndarray of shape (n,), uint64
    denominator : int
        At most 2^63.
    """
    whole, rest = np.divmod(numerator, np.uint64(denominator))
    taken = _bernoulli_exp_of_share(rest, denominator)
    open_ = np.flatnonzero(taken & (whole > 0))
    while len(open_):  # one factor 1 / e for each whole unit
        one = np.ones(len(open_), dtype=np.uint64)
        taken[open_] = _bernoulli_exp_of_share(one, 1)
        whole[open_] -= np.uint64(1)
        open_ = open_[taken[open_] & (whole[open_] > 0)]
    return taken


def _bernoulli_exp_of_share(numerator: Array, denominator: int) -> Array:
    r"""The same where numerator <= denominator.

    The first k at which a draw with probability :math:`a / (bk)` fails is odd with probability
    :math:`\sum_k (-a/b)^k / k! = e^{-a/b}`. One such draw is two: a / b, and one in k.
    """
    first = np.zeros(len(numerator), dtype=np.int64)
    open_ = np.arange(len(numerator))
    k = 0
    while len(open_):
        k += 1
        hit = below(denominator, len(open_)) < numerator[open_]
        hit &= below(k, len(open_)) == 0
        first[open_[~hit]] = k
        open_ = open_[hit]
    return first % 2 == 1


def below(bound: int, size: int) -> Array:
    """Uniform integers (size,), uint64, from 0 to bound - 1; bound at most 2^63.

    A word is used only below the largest multiple of `bound`: the rest would make small numbers
    likelier.
    """
    if bound == 1:
        return np.zeros(size, dtype=np.uint64)
    last = np.uint64(WORD - WORD % bound - 1)
    found = _words(size)
    open_ = np.flatnonzero(found > last)
    while len(open_):
        found[open_] = _words(len(open_))
        open_ = open_[found[open_] > last]
    return found % np.uint64(bound)


def _words(size: int) -> Array:
    """Words (size,) of 64 bits from the operating system."""
    return np.frombuffer(secrets.token_bytes(8 * size), dtype=np.uint64).copy()


# -- what it promises ------------------------------------------------------------------------------
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


def grid_cost(size: int, units: float) -> float:
    """Return the cost of the integer grid: :math:`52 d / s^2`, at least `GRID`.

    Parameters
    ----------
    size : int
        Numbers d.
    units : float
        Standard deviation s of the noise, in units of the grid.
    """
    return max(GRID, 52 * size / units**2)


def grid_delta(sigma: float, epsilon: float, cost: float = GRID) -> float:
    """Return an upper bound of the delta of noise on a grid with this cost (`grid_cost`)."""
    return (1.0 + cost) * gaussian_delta(sigma, max(epsilon - cost, 0.0))


def sigma_for(epsilon: float, delta: float = DELTA, cost: float = GRID) -> float:
    """Return the smallest sigma of (epsilon, delta)-private noise on a grid with this cost.

    Examples
    --------
    >>> round(sigma_for(1.0), 3)
    4.225
    """
    check_budget(epsilon, delta, "Gaussian noise")
    return _smallest(lambda s: grid_delta(s, epsilon, cost) <= delta, 1e-3, 1e7)


def epsilon_of(sigma: float, delta: float = DELTA) -> float:
    """Smallest epsilon at this delta of noise sigma on the grid.

    Examples
    --------
    >>> round(epsilon_of(sigma_for(2.0)), 3)
    2.0
    """
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


def _smallest(good: Callable[[float], bool], low: float, high: float) -> float:
    """Smallest value (to 1e-9 relative, never below it) for which the monotone `good` holds."""
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        if good(middle):
            high = middle
        else:
            low = middle
    return high
