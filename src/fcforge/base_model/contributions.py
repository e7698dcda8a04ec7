r"""People as numbers: their features, what a hospital gives of them, the head of all that is given.

For each training subject, :math:`u = (z, \tfrac12)` are its coordinates (`fcforge.base_model.start`)
and :math:`r = \mathrm{clip}(t - w_0^\top x - b_0)` what the public head does not explain of its
target t: :math:`\pm1` of two diagnoses, a number that the start's limits scale and cut to
:math:`-1 \le t \le 1`, or the corner of one of K classes in K - 1 dimensions. So r has c columns,
one or K - 1. The subject's contribution is, in units of :math:`C / 2^{20}`,

.. math:: v = \Bigl(\bigl\lfloor 2^{20}\, \mathrm{clip}_C(u r^\top) / C \bigr\rfloor,\; 2^{18}\Bigr)
          \in \mathbb Z^{c (d + 1) + 1}

(cut toward zero, the length over all columns clipped at once), and a release is the sum over its
people plus discrete Gaussian noise on every number. Whole numbers add up exactly, in any order, and
modulo :math:`2^{64}`: shares of a sum hide it perfectly.

**Sensitivity.** Adding or removing one person adds or removes one v, of norm at most
:math:`S = \sqrt{2^{40} + 2^{36}} = 2^{18} \sqrt{17}`, whatever the person's scan and target and
whatever the start says: clipping, then cutting toward zero, never exceeds :math:`2^{20}`, with one
column or many. The number of people is part of it, and of classes no counts are given but those
inside these sums, so nothing that leaves is outside the budget; classes and limits come from the
start, nobody's people choose them. *Replacing* a person (a known member's diagnosis is turned, or
another person stands in) leaves the count and changes the rest by the difference of two vectors of
norm up to :math:`2^{20}`, at most :math:`2^{21}`. The bound is reached: u r and u r' of two
diagnoses have opposite signs (and so do those of two ages at the limits). Noise that is sigma of
the first is :math:`\sigma S / 2^{21} = .515\,\sigma` of the second.

**Head.** By column, with :math:`c` the sum of its d + 1 numbers, n that of the people, and V the
summed variance of the noise, along every axis k (and along all other directions with one common G)

.. math:: \beta_k = \frac{c_k}{n G_k + \lambda_k + \lambda_k V / (n G_k)}, \qquad
          w = w_0 + W \beta / \sqrt p, \qquad b = b_0 + \tfrac12 \beta_{d+1}

the posterior mean of a step :math:`\beta` from the public head, given
:math:`c_k = n G_k \beta_k + e` with :math:`e \sim N(0, n G_k + V)` and the same prior in every
half-whitened direction: :math:`\lambda_k = \lambda \gamma_k^2`. Exact sums (V = 0) give one ridge
step with public second moments; directions in which noise is louder than people stay public by
themselves.

**Features** are the whole matrix logarithm of an FC as a vector, in numpy: the same numbers as
`fcforge.graphs.log_features`, which needs torch and has a gradient. A hospital that only gives
releases needs neither.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy import ndarray as Array

from fcforge.core.errors import DataError
from fcforge_consortium.privacy.noise import DELTA, sigma_for

if TYPE_CHECKING:
    from fcforge.base_model.start import Start
from fcforge.base_model.calibration import class_logits, targets

RESIDUAL = 2.0  # residuals of labels at -1 and +1 are clipped there
UNIT = 2**20  # units of the clip
COUNT = 2**18  # units that one more person adds to the last number
SENSITIVITY = math.sqrt(UNIT**2 + COUNT**2)  # of adding or removing one person
REPLACED = 2 * UNIT  # of replacing one
DOSES = 2  # keepers who each add the noise of a whole round


# -- releases --------------------------------------------------------------------------------------
def coordinates(start: "Start", x: Array) -> Array:
    """U (n, d + 1) of standardised features: coordinates and one half; d is p, or q at gamma 0."""
    if start.gamma:
        z = start.scaled(x, start.gain)
    else:
        q = int(start.full)
        z = (x @ start.axes[:, :q]) * start.gain[:q]
    return np.concatenate([z, np.full((len(z), 1), 0.5)], 1)


def products(u: Array, residual: Array) -> Array:
    """U (n, d + 1) times residuals (n,) or (n, c): (n, c (d + 1)), column after column."""
    by_column = residual.reshape(len(u), -1, 1)
    each = by_column * u[:, None, :]
    return each.reshape(len(u), -1)


class Head(NamedTuple):
    """A linear head on standardised features: score = x @ weight + bias, one of each column."""

    weight: Array
    bias: Any


def contributions(start: "Start", features: Array, y: Array) -> Array:
    """What each person adds to a release, (n, m), int64; norm at most `SENSITIVITY`."""
    x = start.standardise(features)
    residual = targets(y, start.columns) - start.score(x)
    return whole_rows(start, coordinates(start, x), residual)


def whole_rows(start: "Start", u: Array, residual: Array) -> Array:
    """The same from coordinates (n, d + 1) and residuals (n,) or (n, c) of the public head."""
    moved = products(u, np.clip(residual, -RESIDUAL, RESIDUAL) / start.grid)
    if not np.isfinite(moved).all():  # as a whole number it would be -2^63
        raise DataError("a scan and the start give numbers that are not finite.")
    norm = np.linalg.norm(moved, axis=1, keepdims=True)
    most = UNIT * (1 - 1e-9)  # rounding of floats must not lift a norm above the unit
    factor = np.minimum(most / np.maximum(norm, 1e-30), 1.0)
    cut = np.trunc(moved * factor)
    count = np.full((len(u), 1), COUNT)
    return np.concatenate([cut.astype(np.int64), count], 1)


def noise_units(epsilon: float | None, delta: float = DELTA) -> int:
    """Standard deviation of one dose of noise, a whole number of units; 0 where epsilon is None."""
    if epsilon is None:
        return 0
    return math.ceil(sigma_for(epsilon, delta) * SENSITIVITY)


def solve(start: "Start", total: Array, variance: float, releases: float = 1) -> Array:
    """Beta (..., d + 1), of several columns (..., c, d + 1), from sums (..., m) of releases.

    Noise can make the number of people small or negative: it counts as at least one for each
    release. Zero where there is no release.

    Parameters
    ----------
    start : Start
    total : ndarray of shape (..., m)
        In units; m is c (d + 1) + 1.
    variance : float
        Of the noise on each of its numbers, in squared units.
    releases : float
    """
    n = np.maximum(total[..., -1:] / COUNT, max(releases, 1))
    sums = total[..., :-1]
    if start.columns > 1:
        sums = sums.reshape(*total.shape[:-1], start.columns, -1)
        n = n[..., None]
    moved = sums[..., :-1] * start.grid
    noise = variance * start.grid**2
    hold = start.hold * start.share**2
    if start.gamma:
        factor = held(n, start.second, hold, noise)
        common = factor[..., -1:]
        inside = (moved @ start.axes) * (factor[..., :-1] - common)
        along = common * moved + inside @ start.axes.T
    else:
        q = int(start.full)
        along = moved * held(n, start.second[:q], hold[:q], noise)
    moved_half = sums[..., -1:] * start.grid
    half = moved_half * held(n, 0.25, start.hold, noise)
    return np.concatenate([along, half], -1)


def held(n: Array, second: Array | float, hold: Array | float, noise: float) -> Array:
    """Step per unit of a sum over n people: G `second`, lambda `hold`, V `noise`."""
    return 1.0 / (n * second + hold + hold * noise / (n * second))


def head(start: "Start", beta: Array) -> Head:
    """The consortium's head from the public one and the correction (d + 1,) or (c, d + 1)."""
    if start.gamma:
        step = start.scaled(beta[..., :-1], start.gain)
    else:
        q = int(start.full)
        along = start.gain[:q] * beta[..., :-1]
        step = along @ start.axes[:, :q].T
    return Head(start.weight + step.T, start.bias + 0.5 * beta[..., -1])


def temperature(start: "Start", solution: Head) -> float:
    r"""T of a head (log odds are score / T): the start's, times :math:`w^\top H w` over w_0's.

    A step makes scores larger before it makes them truer. On public people (two files, sums at
    epsilon 1, 8 and none) scores of unseen people grow as the variance of the head under the
    shrunk variances H does, and the expected calibration error stays that of the public head
    (.10; .16 for exact sums with the start's own T).
    """
    public = spread(start, start.weight)
    return start.temperature * (
        spread(start, solution.weight) / public if public else 1.0
    )


def spread(start: "Start", weights: Array) -> float:
    """Sum over columns of w' H w, for weights (p,) or (p, c).

    That is the variance of scores over people like the public ones, divided by p.
    """
    total = 0.0
    for weight in np.atleast_2d(weights.T):
        inside = start.axes.T @ weight
        off = max(float(weight @ weight - inside @ inside), 0.0)
        variance = start.smooth[:-1] @ inside**2 + start.smooth[-1] * off
        total += float(variance)
    return total


def calibrated(score: Array, temperature: float) -> Array:
    """Log odds (n,) of scores (n,), or log probabilities (n, K) of scores (n, c) of classes."""
    if score.ndim == 1:
        return score / temperature
    logits = class_logits(score) / temperature
    logits = logits - logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def on_features(start: "Start", solution: Head) -> Head:
    """The same head on raw features (n, p): the standardisation folded in."""
    weight = (solution.weight.T / start.scale).T
    return Head(weight, solution.bias - start.mean @ weight)
