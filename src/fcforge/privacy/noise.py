r"""Secret noise: the discrete Gaussian on the integers, sampled exactly.

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
"""

import secrets

import numpy as np

from fcforge.errors import ConfigError

Array = np.ndarray
WORD = 2**64
MOST = 2**31  # largest sigma whose 2 sigma^2 fits into a word


def discrete_gaussian(sigma: int, size: int) -> Array:
    """Secret draws (size,), int64, of the discrete Gaussian with parameter `sigma`.

    Parameters
    ----------
    sigma : int
        From 1 to 2^31. The variance is at most sigma^2 and, from 2 on, as good as equal to it.
    size : int
    """
    if not 1 <= sigma <= MOST:
        raise ConfigError(
            f"noise of standard deviation {sigma} cannot be drawn on the integers.",
            where="discrete Gaussian",
            do=f"Use a whole number from 1 to {MOST}: a coarser or finer grid.",
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
