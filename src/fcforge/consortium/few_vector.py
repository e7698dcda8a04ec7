r"""A release: what one hospital gives, and the head that follows from the sum of all.

For each training subject, :math:`u = (z, \tfrac12)` are its coordinates on the public axes and
:math:`r = \mathrm{clip}(t - w_0^\top x - b_0)` what the public head does not explain of its
diagnosis :math:`t = \pm1`. Released is

.. math:: \Bigl(\sum_i \mathrm{clip}_C(u_i r_i),\; \tfrac{C}{4}\, n\Bigr) + N(0, \sigma^2 S^2 I),
          \qquad S = C \sqrt{1 + 1/16}.

**Sensitivity.** Adding or removing one person adds or removes one term of each sum: a vector
:math:`(v, C/4)` with :math:`\|v\| \le C` by clipping. Its norm is at most
:math:`\sqrt{C^2 + C^2 / 16} = S`, whatever the person's scan and diagnosis, because clip, axes and
public head are fixed in advance. With the multiplier :math:`\sigma` of
`fcforge.privacy.accounting.sigma_for` the release is (epsilon, delta)-private under
add/remove of one person; the number of people is part of it, so nothing that leaves is outside
the budget.

**Head.** With :math:`c` the sum over hospitals of the first q + 1 numbers and n that of the last,

.. math:: \beta = \Bigl(n G + \lambda I + \tfrac{\lambda V}{n} G^{-1}\Bigr)^{-1} c, \qquad
          w = w_0 + A \beta_{1..q}, \qquad b = b_0 + \tfrac12 \beta_{q+1}

with V the summed variance of the noise: the posterior mean of a step :math:`\beta` from the public
head, given :math:`c = n G \beta + e` with :math:`e \sim N(0, n G + V I)` and the prior
:math:`\beta \sim N(0, I / \lambda)`. Exact releases (V = 0) give one ridge step with public second
moments; noisy ones of few people leave the public head as it is, those of many take over.
"""

import math
from typing import NamedTuple

import numpy as np

from fcforge.consortium.few_start import Array, Start, coordinates
from fcforge.privacy.accounting import sigma_for

COUNT = 0.25  # how much of the clip one more person adds to the last number
UNIT = 2**20
RESIDUAL = 2.0  # residuals of labels at -1 and +1 are clipped there


class Head(NamedTuple):
    """A linear head on standardised features: score = x @ weight + bias."""

    weight: Array
    bias: float


def contributions(start: Start, features: Array, y: Array) -> Array:
    """What each person adds to a release, (n, q + 2); norm at most `sensitivity`."""
    x = start.standardise(features)
    t = 2.0 * y - 1.0
    return contributions_on_axes(start, coordinates(start, x), t - start.score(x))


def contributions_on_axes(start: Start, u: Array, residual: Array) -> Array:
    """The same from coordinates (n, q + 1) and residuals (n,) of the public head."""
    moved = u * np.clip(residual, -RESIDUAL, RESIDUAL)[:, None]
    count = np.full((len(u), 1), COUNT * start.clip)
    return np.concatenate([clip_rows(moved, start.clip), count], 1)


def clip_rows(rows: Array, bound: float) -> Array:
    """Rows (n, q) shortened to L2 norm at most `bound`; shorter ones are left as they are."""
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(bound / np.maximum(norm, 1e-30), 1.0)


def sensitivity(start: Start) -> float:
    """S: the most that adding or removing one person can change a release (L2)."""
    return start.clip * math.sqrt(1.0 + COUNT**2)


def noise_sd(start: Start, epsilon: float | None, delta: float) -> float:
    """Standard deviation of the noise on each number; 0 where epsilon is None."""
    if epsilon is None:
        return 0.0
    return sigma_for(epsilon, delta) * sensitivity(start)


def people(start: Start, last: float) -> float:
    """How many people the last number of a release stands for; noise and all."""
    return last / (COUNT * start.clip)


def release_vector(
    start: Start,
    features: Array,
    y: Array,
    epsilon: float | None,
    delta: float,
    drawn: Array,
) -> Array:
    """The q + 2 numbers of a release, float64.

    Parameters
    ----------
    start : Start
    features : ndarray of shape (n, p)
        `log_features` of the training subjects, confounds removed as the start says.
    y : ndarray of shape (n,)
    epsilon : float or None
        None releases the exact sums.
    delta : float
    drawn : ndarray of shape (q + 2,)
        Noise of standard deviation `UNIT`. Secret where the release is real.
    """
    total = contributions(start, features, y).sum(0)
    return total + noise_sd(start, epsilon, delta) / UNIT * drawn


def solve(start: Start, total: Array, variance: float, releases: float) -> Array:
    """Beta (q + 1,) from the sum (q + 2,) of so many releases and the variance of its noise.

    Noise can make the number of people small or negative: it counts as at least one for each
    release. Zero where there is no release.
    """
    n = max(people(start, float(total[-1])), releases, 1.0)
    system = (
        n * start.second
        + start.pull * np.eye(start.n_axes + 1)
        + start.pull * variance / n * np.linalg.inv(start.second)
    )
    return np.linalg.solve(system, total[:-1])


def head(start: Start, beta: Array) -> Head:
    """The consortium's head from the public one and the correction."""
    weight = start.weight + start.axes @ beta[:-1]
    return Head(weight, start.bias + 0.5 * float(beta[-1]))


def on_features(start: Start, solution: Head) -> Head:
    """The same head on raw features (n, p): the standardisation folded in."""
    weight = solution.weight / start.scale
    return Head(weight, solution.bias - float(start.mean @ weight))
