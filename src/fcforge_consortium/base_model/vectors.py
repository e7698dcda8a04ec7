r"""Contributions as vectors of whole numbers, and the model that their sum gives.

Letters: n subjects, p features of a scan, K axes, d coordinates, c columns of the target, and m =
c (d + 1) + 1 numbers of a contribution. "Units" are those of the integer grid: a number i stands for
the real value i C / 2^20, where C is the clip. The clip, the half-whitened directions, the matrix W that
scales them, their weights gamma_k, second moments G_k and the precision lambda of the prior are
defined in `fcforge_consortium.base_model.space`.

For each training subject, :math:`u = (z, \tfrac12)` are its coordinates
(`fcforge_consortium.base_model.space`) and :math:`r = \mathrm{clip}(t - w_0^\top x - b_0)` is the
residual of the base model for its target t: :math:`\pm1` for two diagnoses, a number scaled and cut
to :math:`-1 \le t \le 1`, or the corner of one of L classes in L - 1 dimensions. So r has c
columns, one or L - 1. The subject adds, in units of :math:`C / 2^{20}`,

.. math:: v = \Bigl(\bigl\lfloor 2^{20}\, \mathrm{clip}_C(u r^\top) / C \bigr\rfloor,\; 2^{18}\Bigr)
          \in \mathbb Z^{c (d + 1) + 1}

(cut toward zero, the length clipped over all columns at once). A contribution is the sum over the
hospital's subjects plus discrete Gaussian noise on every number. Whole numbers add up exactly, in
any order, and modulo :math:`2^{64}`: shares of a sum hide it perfectly.

**Sensitivity.** Adding or removing one subject adds or removes one v, of norm at most
:math:`S = \sqrt{2^{40} + 2^{36}} = 2^{18} \sqrt{17}`, whatever the scan and the target and
whatever the base model: clipping, then cutting toward zero, never exceeds :math:`2^{20}`, with one
column or many. The number of subjects is part of v, and there is no count per class, so everything
that leaves is inside the budget. Classes and limits come from the base model, not from the
hospital's subjects. *Replacing* a subject (the diagnosis of a known member is turned, or another
subject stands in) leaves the count as it is and changes the rest by the difference of two vectors of norm up
to :math:`2^{20}`, at most :math:`2^{21}`. The bound is reached: u r and u r' of two diagnoses have
opposite signs (and so do those of two ages at the limits). Noise that is sigma of the first is
:math:`\sigma S / 2^{21} = .515\,\sigma` of the second.

**Solution.** For each column, let s be the sum of its d + 1 numbers over all contributions, n the number
of subjects, and V the variance of all noise in the sum. Along every axis k (and along all other
directions with one common :math:`G_0`)

.. math:: \beta_k = \frac{s_k}{n G_k + \lambda_k + \lambda_k V / (n G_k)}, \qquad
          w = w_0 + W \beta / \sqrt p, \qquad b = b_0 + \tfrac12 \beta_{d+1}

In code, :math:`\beta` is what `solve` returns, and :math:`W \beta / \sqrt p` is `space.scaled(beta,
space.gain)`: W is diagonal in the axes, and `gain` holds its factors divided by :math:`\sqrt p`.
Contributions that cover the first q axes alone (:math:`\gamma = 0`) have q numbers
:math:`\beta_k`, one for each of these axes.

This is the posterior mean of a step :math:`\beta` from the base model, given
:math:`s_k = n G_k \beta_k + e` with :math:`e \sim N(0, n G_k + V)` and the same prior in every
half-whitened direction: :math:`\lambda_k = \lambda \gamma_k^2`. Exact sums (V = 0) give one ridge
step with public second moments. A direction with more noise than signal stays at the base model.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray as Array

from fcforge.base_model.calibration import targets
from fcforge.core.errors import ConfigError, DataError
from fcforge_consortium.base_model.space import (
    RESIDUAL,
    UNIT,
    ContributionSpace,
    products,
)
from fcforge_consortium.privacy.noise import (
    DELTA,
    GRID,
    MOST_SIGMA,
    grid_cost,
    sigma_for,
)

COUNT = 2**18  # units that one subject adds to the last number
SENSITIVITY = math.sqrt(UNIT**2 + COUNT**2)  # L2 norm of adding or removing one subject
REPLACED = 2 * UNIT  # L2 norm of replacing one subject
DOSES = 2  # aggregators, each of which adds a full dose of noise to a round
BELOW_UNIT = 1 - 1e-9  # keeps float rounding from lifting a norm above the unit


class LinearModel(NamedTuple):
    """A linear model on standardised features: score = x @ weight + bias, for each column.

    Attributes
    ----------
    weight : ndarray of shape (p,) or (p, c)
    bias : float, or ndarray of shape (c,)
    """

    weight: Array
    bias: Any


def contribution_rows(space: ContributionSpace, features: Array, y: Array) -> Array:
    """Return the vectors that subjects add to a contribution, each of norm `SENSITIVITY` at most.

    Parameters
    ----------
    space : ContributionSpace
    features : ndarray of shape (n, p)
        Features of the scans, confounds removed.
    y : ndarray of shape (n,)
        Classes, or scaled numbers.

    Returns
    -------
    ndarray of shape (n, m), int64
    """
    x = space.base.standardise(features)
    residual = targets(y, space.columns) - space.base.score(x)
    return rows_of_residuals(space, space.coordinates(x), residual)


def rows_of_residuals(space: ContributionSpace, u: Array, residual: Array) -> Array:
    """Return the vectors that subjects with these coordinates and residuals add to a contribution.

    Parameters
    ----------
    space : ContributionSpace
    u : ndarray of shape (n, d + 1)
        Coordinates of the subjects.
    residual : ndarray of shape (n,) or (n, c)
        Targets minus the scores of the base model.

    Returns
    -------
    ndarray of shape (n, m), int64
    """
    products_in_units = products(u, np.clip(residual, -RESIDUAL, RESIDUAL) / space.grid)
    if not np.isfinite(products_in_units).all():  # as an integer it would be -2^63
        raise DataError("the vector of a scan is not finite in this base model.")
    norm = np.linalg.norm(products_in_units, axis=1, keepdims=True)
    factor = np.minimum(UNIT * BELOW_UNIT / np.maximum(norm, 1e-30), 1.0)
    clipped = np.trunc(products_in_units * factor)
    count = np.full((len(u), 1), COUNT)
    return np.concatenate([clipped.astype(np.int64), count], 1)


def noise_units(epsilon: float | None, delta: float = DELTA, size: int = 0) -> int:
    """Return the standard deviation of the noise for a budget, in whole units.

    Parameters
    ----------
    epsilon : float or None
        Budget of every person; None for exact sums.
    delta : float
    size : int
        Length of the contribution, on which the cost of the integer grid depends.

    Returns
    -------
    int
        The noise that one party adds (a hospital, or each aggregator); 0 for exact sums.

    Raises
    ------
    ConfigError
        If the budget needs more noise than can be drawn.
    """
    if epsilon is None:
        return 0
    units = math.ceil(sigma_for(epsilon, delta) * SENSITIVITY)
    cost = grid_cost(size, units)
    if cost > GRID:  # more noise costs less, so that one step is enough
        units = math.ceil(sigma_for(epsilon, delta, cost) * SENSITIVITY)
    if units > MOST_SIGMA:
        raise ConfigError(
            f"epsilon {epsilon:g} and delta {delta:g} need more noise than can be drawn.",
            do="Choose a larger epsilon. No budget was spent.",
        )
    return units


def solve(
    space: ContributionSpace, total: Array, variance: float, contributions: float = 1
) -> Array:
    """Return the step from the base model that a sum of contributions gives.

    Noise can make the number of subjects small or negative: it is taken as at least one for each
    contribution. The step is zero if there is no contribution.

    Parameters
    ----------
    space : ContributionSpace
    total : ndarray of shape (..., m)
        Sum of contributions, in units; its last number counts the subjects, in units of `COUNT`.
    variance : float
        Variance of the noise on each number, in squared units.
    contributions : float
        Number of contributions in the sum.

    Returns
    -------
    ndarray of shape (..., d + 1), or (..., c, d + 1) for c > 1 columns
        Beta of the module's text: along the p features, or along the first q axes if contributions
        cover no other directions; last, that of the intercept.
    """
    n = np.maximum(total[..., -1:] / COUNT, max(contributions, 1))
    sums = total[..., :-1]
    if space.columns > 1:
        sums = sums.reshape(*total.shape[:-1], space.columns, -1)
        n = n[..., None]
    coordinate_sums = sums[..., :-1] * space.grid
    noise = variance * space.grid**2
    hold = space.hold * space.share**2  # lambda gamma_k^2
    if space.all_directions:
        factor = step_factor(n, space.second, hold, noise)
        common = factor[..., -1:]  # of all directions that are not axes
        # every direction by the common factor, and on top of it each axis by its own
        along_axes = (coordinate_sums @ space.axes) * (factor[..., :-1] - common)
        step = common * coordinate_sums + along_axes @ space.axes.T
    else:  # one number for each of the first q axes, and none beside them
        q = int(space.full_axes)
        step = coordinate_sums * step_factor(n, space.second[:q], hold[:q], noise)
    constant_sum = sums[..., -1:] * space.grid  # the constant coordinate is one half
    intercept = constant_sum * step_factor(n, 0.25, space.hold, noise)
    return np.concatenate([step, intercept], -1)


def step_factor(
    n: Array, second: Array | float, hold: Array | float, noise: float
) -> Array:
    """Return the step per unit of a sum: 1 / (n G + lambda + lambda V / (n G)).

    Parameters
    ----------
    n : ndarray
        Number of subjects.
    second : float or ndarray
        G, second moment of the coordinate.
    hold : float or ndarray
        lambda, precision of the prior.
    noise : float
        V, variance of the noise.
    """
    return 1.0 / (n * second + hold + hold * noise / (n * second))


def stepped_model(space: ContributionSpace, beta: Array) -> LinearModel:
    """Return the linear model after a step from the base model: w_0 + W beta / sqrt(p) and its bias.

    Where contributions cover all p directions, the step is scaled along every one of them. Where they
    cover the first q axes alone, the weights change within the plane of these axes only.

    Parameters
    ----------
    space : ContributionSpace
    beta : ndarray of shape (d + 1,), or (c, d + 1) for c > 1 columns
        The step, as `solve` returns it; its last number belongs to the intercept.

    Returns
    -------
    LinearModel
    """
    coordinates = beta[..., :-1]
    if space.all_directions:
        weight_step = space.scaled(coordinates, space.gain)  # W beta / sqrt(p)
    else:
        q = int(space.full_axes)
        weight_step = (space.gain[:q] * coordinates) @ space.axes[:, :q].T
    base = space.base
    bias = base.bias + 0.5 * beta[..., -1]  # the constant coordinate is one half
    return LinearModel(base.weight + weight_step.T, bias)


def temperature(space: ContributionSpace, model: LinearModel) -> float:
    r"""Return the temperature of a model: that of the base model times a ratio of variances.

    The ratio is :math:`w^\top H w / w_0^\top H w_0` with the shrunk variances H. A step makes
    scores larger before it makes them more accurate. On public subjects (two files, sums at epsilon
    1, 8 and none) scores of unseen subjects grow as this variance does, and the expected
    calibration error stays that of the base model (.10; .16 for exact sums with the base model's
    own temperature).
    """
    before = spread(space, space.base.weight)
    ratio = spread(space, model.weight) / before if before else 1.0
    return space.base.temperature * ratio


def spread(space: ContributionSpace, weights: Array) -> float:
    """Return the variance of a model's scores over subjects like the public ones, divided by p.

    It is the sum over columns of w' H w, for weights w of shape (p,) or (p, c) and the shrunk variances
    H of the public subjects.
    """
    return max(shared_spread(space, weights, weights), 0.0)


def shared_spread(space: ContributionSpace, weights: Array, others: Array) -> float:
    """Return the covariance of two models' scores over subjects like the public ones, divided by p.

    It is the sum over columns of w' H v, with the shrunk variances H of the public subjects.

    Parameters
    ----------
    space : ContributionSpace
    weights, others : ndarray of shape (p,) or (p, c)
        Weights w of the one and v of the other model.

    Returns
    -------
    float
    """
    total = 0.0
    for w, v in zip(np.atleast_2d(weights.T), np.atleast_2d(others.T), strict=True):
        w_along, v_along = space.axes.T @ w, space.axes.T @ v
        beside_axes = float(w @ v - w_along @ v_along)
        along_axes = space.smooth[:-1] @ (w_along * v_along)
        total += float(along_axes + space.smooth[-1] * beside_axes)
    return total


def agreement(space: ContributionSpace, weights: Array) -> float:
    """Return the correlation of a model's scores with the base model's, over public subjects.

    It is 1 for the base model itself, and negative for a model that contradicts it. A model whose scores
    do not vary has 0.

    Parameters
    ----------
    space : ContributionSpace
    weights : ndarray of shape (p,) or (p, c)
        Weights of the model that is compared with the base model.

    Returns
    -------
    float
    """
    scores = spread(space, weights)
    base = spread(space, space.base.weight)
    if not scores or not base:
        return 0.0
    return shared_spread(space, weights, space.base.weight) / (scores * base) ** 0.5


def on_features(space: ContributionSpace, model: LinearModel) -> LinearModel:
    """Return the same model on features (n, p) that are not standardised."""
    weight = (model.weight.T / space.base.scale).T  # also for (p, c) weights
    return LinearModel(weight, model.bias - space.base.mean @ weight)
