r"""Secret noise, the discrete Gaussian on the integers sampled exactly, and its privacy accounting.

.. math:: P(Y = y) \propto e^{-y^2 / 2\sigma^2}, \qquad y \in \mathbb Z

**Exact.** No floating-point number and no approximation is involved: every decision compares a
uniform integer with an integer (Canonne, Kamath & Steinke, The discrete Gaussian for differential
privacy, NeurIPS 2020). The total variation from the stated distribution is 0 as long as the words
of the operating system are uniform; the only limits are the 64 bits of an integer, which a draw
would leave with a probability below :math:`e^{-2^{31}}`.

**Secret.** All bits are the operating system's (`secrets`). A general-purpose generator must never
be used here: torch's and numpy's legacy seeding keep 32 bits of a seed, and trying all of them
against a contribution takes 1.3 s. A source scan (tests/consortium/privacy/test_noise.py) and a
contract of import-linter enforce this.

**Algorithm.** A discrete Laplace draw Y, :math:`P(Y) \propto e^{-|Y| / \sigma}` with a whole sigma,
is accepted with probability :math:`e^{-(|Y| - \sigma)^2 / 2\sigma^2}`; the product is the discrete
Gaussian. Bernoulli draws with probability :math:`e^{-a/b}` come from those with probability
:math:`a / (bk)`, k = 1, 2, ... (the alternating series of the exponential). Draws are vectorised:
80,000 of them take a fraction of a second.

**Promise.** A contribution is (epsilon, delta)-private if a neighbouring data set (one person added or
removed; or one replaced) changes the probability of any outcome by at most a factor
:math:`e^\epsilon`, up to :math:`\delta`. *Sigma* is everywhere the noise's standard deviation in
units of the sensitivity: the most that one person can change the released vector (L2).

**Delta.** The delta of the continuous Gaussian is known exactly (Balle & Wang, ICML 2018):

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
EPSILON = 1.0  # default epsilon of a contribution
DELTA = 1e-6
GRID = 1e-4  # least epsilon, and share of delta, that is reserved for the integer grid
MOST_EPSILON = 32.0  # a larger epsilon protects nobody
WORD = 2**64  # number of words, integers of 64 bits
MOST_SIGMA = 2**31  # largest sigma whose 2 sigma^2 fits into a word


def discrete_gaussian(sigma: int, size: int) -> Array:
    """Draw secret noise (size,), int64, from the discrete Gaussian with parameter `sigma`.

    Parameters
    ----------
    sigma : int
        From 1 to 2^31. The variance is at most sigma^2, and from sigma 2 on nearly equal to it.
    size : int

    Raises
    ------
    ConfigError
        If `sigma` is out of range.
    """
    if not 1 <= sigma <= MOST_SIGMA:
        raise ConfigError(
            f"noise of standard deviation {sigma} cannot be drawn on the integers.",
            where="discrete Gaussian",
            do=f"Use a whole number from 1 to {MOST_SIGMA}: a coarser or finer grid.",
        )
    draws = np.empty(size, dtype=np.int64)
    pending = np.arange(size)  # places whose draw was not accepted yet
    while len(pending):
        candidates = _discrete_laplace(sigma, len(pending))
        accepted = _near_sigma(candidates, sigma)
        draws[pending[accepted]] = candidates[accepted]
        pending = pending[~accepted]
    return draws


def _near_sigma(drawn: Array, sigma: int) -> Array:
    r"""Accept each of n integers y with probability :math:`e^{-(|y| - \sigma)^2 / 2\sigma^2}`.

    With :math:`||y| - \sigma| = a \sigma + b`, :math:`0 \le b < \sigma`, the exponent is
    :math:`a^2 / 2 + ab / \sigma + b^2 / 2\sigma^2`: three factors whose integers fit into a word of 64
    bits.

    Parameters
    ----------
    drawn : ndarray of shape (n,), int64
        The integers y.
    sigma : int

    Returns
    -------
    ndarray of shape (n,), bool
    """
    whole, rest = np.divmod(np.abs(np.abs(drawn) - sigma), sigma)
    whole = whole.astype(np.uint64)
    rest = rest.astype(np.uint64)
    accepted = bernoulli_exp(whole * whole, 2)
    accepted &= bernoulli_exp(whole * rest, sigma)
    accepted &= bernoulli_exp(rest * rest, 2 * sigma * sigma)
    return accepted


def _discrete_laplace(scale: int, size: int) -> Array:
    """Draw integers (size,) y with probability proportional to e^(-abs(y) / scale).

    The magnitude is u + scale * k with u below scale, accepted with probability e^(-u / scale), and a
    geometric number k.
    """
    draws = np.empty(size, dtype=np.int64)
    pending = np.arange(size)  # places whose draw was not accepted yet
    while len(pending):
        remainder = below(scale, len(pending))
        accepted = bernoulli_exp(remainder, scale)
        magnitude = remainder.astype(np.int64) + scale * _successes(len(pending))
        negative = below(2, len(pending)) == 1
        accepted &= ~(negative & (magnitude == 0))  # zero has one sign only
        draws[pending[accepted]] = np.where(negative, -magnitude, magnitude)[accepted]
        pending = pending[~accepted]
    return draws


def _successes(size: int) -> Array:
    """Draw geometric numbers (size,): successes of draws with probability 1 / e before one fails."""
    counts = np.zeros(size, dtype=np.int64)
    pending = np.arange(size)  # places without a failure yet
    while len(pending):
        success = bernoulli_exp(np.ones(len(pending), dtype=np.uint64), 1)
        pending = pending[success]
        counts[pending] += 1
    return counts


def bernoulli_exp(numerator: Array, denominator: int) -> Array:
    """Return Bernoulli draws (n,) with probability e^(-numerator / denominator), exactly.

    Parameters
    ----------
    numerator : ndarray of shape (n,), uint64
    denominator : int
        At most 2^63.

    Returns
    -------
    ndarray of shape (n,), bool
    """
    whole, rest = np.divmod(numerator, np.uint64(denominator))
    success = _bernoulli_exp_of_share(rest, denominator)
    pending = np.flatnonzero(success & (whole > 0))
    while len(pending):  # one factor 1 / e for each whole unit
        one = np.ones(len(pending), dtype=np.uint64)
        success[pending] = _bernoulli_exp_of_share(one, 1)
        whole[pending] -= np.uint64(1)
        pending = pending[success[pending] & (whole[pending] > 0)]
    return success


def _bernoulli_exp_of_share(numerator: Array, denominator: int) -> Array:
    r"""Return Bernoulli draws (n,) as `bernoulli_exp`, for numerators a up to the denominator b.

    The first k at which a draw with probability :math:`a / (bk)` fails is odd with probability
    :math:`\sum_k (-a/b)^k / k! = e^{-a/b}`. Each draw is the
    product of two, with probabilities a / b and 1 / k.
    """
    first_failure = np.zeros(len(numerator), dtype=np.int64)
    pending = np.arange(len(numerator))  # places without a failure yet
    k = 0
    while len(pending):
        k += 1
        success = below(denominator, len(pending)) < numerator[pending]
        success &= below(k, len(pending)) == 0
        first_failure[pending[~success]] = k
        pending = pending[success]
    return first_failure % 2 == 1


def below(bound: int, size: int) -> Array:
    """Draw uniform integers (size,), uint64, from 0 to bound - 1.

    Words of 64 bits from the largest multiple of `bound` on are drawn again: they would make small
    numbers more likely.

    Parameters
    ----------
    bound : int
        At most 2^63.
    size : int
    """
    if bound == 1:
        return np.zeros(size, dtype=np.uint64)
    largest = np.uint64(WORD - WORD % bound - 1)
    words = _words(size)
    too_large = np.flatnonzero(words > largest)
    while len(too_large):
        words[too_large] = _words(len(too_large))
        too_large = too_large[words[too_large] > largest]
    return words % np.uint64(bound)


def _words(size: int) -> Array:
    """Return words (size,), uint64, of 64 random bits each from the operating system."""
    return np.frombuffer(secrets.token_bytes(8 * size), dtype=np.uint64).copy()


# -- privacy accounting ------------------------------------------------------------------------------
def check_budget(epsilon: float, delta: float, where: str) -> None:
    """Raise `ConfigError` if epsilon or delta is out of range.

    Parameters
    ----------
    epsilon, delta : float
    where : str
        Place that the error message names.
    """
    if not (GRID < epsilon <= MOST_EPSILON and 0 < delta < 1):
        raise ConfigError(
            f"epsilon {epsilon} and delta {delta} are not a privacy budget.",
            where=where,
            do=f"Choose epsilon above {GRID} and at most {MOST_EPSILON:g}, and delta between 0 and 1 "
            "(below 1 / number of subjects).",
        )


def _normal_cdf(x: float) -> float:
    """Return the distribution function of the standard normal."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def gaussian_delta(sigma: float, epsilon: float) -> float:
    """Return the exact delta of one vector with continuous Gaussian noise.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise in units of the sensitivity.
    epsilon : float
    """
    first = _normal_cdf(0.5 / sigma - epsilon * sigma)
    second = _normal_cdf(-0.5 / sigma - epsilon * sigma)
    # the bound of 700 avoids an overflow; the exact product is below 1
    scaled = math.exp(min(epsilon, 700.0)) * second if second > 0 else 0.0
    return first - scaled


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
    """Return an upper bound of the delta of noise on a grid.

    Parameters
    ----------
    sigma, epsilon : float
        As for `gaussian_delta`.
    cost : float
        Cost of the grid (`grid_cost`).
    """
    return (1.0 + cost) * gaussian_delta(sigma, max(epsilon - cost, 0.0))


def sigma_for(epsilon: float, delta: float = DELTA, cost: float = GRID) -> float:
    """Return the smallest sigma of noise on the integer grid that is (epsilon, delta)-private.

    Sigma is the standard deviation of the noise in units of the sensitivity.

    Parameters
    ----------
    epsilon, delta : float
    cost : float
        Cost of the grid (`grid_cost`).

    Examples
    --------
    >>> round(sigma_for(1.0), 3)
    4.225
    """
    check_budget(epsilon, delta, "Gaussian noise")
    return _smallest(lambda s: grid_delta(s, epsilon, cost) <= delta, 1e-3, 1e7)


def epsilon_of(sigma: float, delta: float = DELTA) -> float:
    """Return the smallest epsilon for which noise on the integer grid is (epsilon, delta)-private.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise in units of the sensitivity.
    delta : float

    Examples
    --------
    >>> round(epsilon_of(sigma_for(2.0)), 3)
    2.0
    """
    return _smallest(lambda e: grid_delta(sigma, e) <= delta, GRID, 1e12)


def ceiling(sigma: float) -> float:
    r"""Return the AUC that no attack exceeds: :math:`\Phi(1 / (\sqrt2 \sigma))`; 1 without noise.

    It is reached by an attacker who knows the vectors of all other people exactly, against a person
    whose vector has the largest possible norm.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise in units of the sensitivity.

    Examples
    --------
    >>> round(ceiling(1.0), 4), ceiling(0.0)
    (0.7602, 1.0)
    """
    return 1.0 if sigma == 0 else _normal_cdf(1.0 / (math.sqrt(2.0) * sigma))


def ceiling_of(epsilon: float | None, delta: float = DELTA) -> float:
    """Return the AUC that no attack exceeds at a budget; 1 for exact sums (`epsilon` None)."""
    return 1.0 if epsilon is None else ceiling(sigma_for(epsilon, delta))


def _smallest(good: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest value for which a monotone condition holds.

    Parameters
    ----------
    good : callable
        The condition, which holds from some value on.
    low, high : float
        Limits of the search.

    Returns
    -------
    float
        At least the smallest value, and larger by a relative 1e-9 at most.
    """
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        if good(middle):
            high = middle
        else:
            low = middle
    return high
