r"""Space of contributions: the coordinates in which a hospital adds to a base model.

Letters: n subjects; x, the p standardised features of a scan; K axes; d coordinates of a contribution;
columns, the outputs of the model (one for two classes or a number, one less than the classes otherwise).
In brackets the fields of `ContributionSpace` that hold a letter.

All of it is computed from public subjects. Beside the base model (`fcforge.base_model.model`) a
space holds

- *axes* B: the first K principal directions :math:`b_k` of :math:`x / \sqrt p`, the variance
  :math:`g_k` (`variance`) of the public subjects along each, and one common variance :math:`g_0` for
  all other directions;
- the *size* c: the median norm of the coordinates below, before they are divided by it;
- the *clip* C: a low quantile of :math:`\|u\,r\|`, where r is the leave-one-out residual of the
  base model. Nearly every subject then counts alike and no sensitivity is wasted.

**Coordinates.** The information about a diagnosis is spread over hundreds of directions, most of
them outside the span of the public subjects. A contribution therefore covers all p directions, each
scaled by what is known about it:

.. math:: z = W \frac{x}{\sqrt p}, \qquad W = \sum_k s_k b_k b_k^\top
          + s_0 \bigl(I - \sum_k b_k b_k^\top\bigr), \qquad s_k = \frac{\gamma_k}{c\, h_k^{1/4}}

with :math:`h_k = (1 - a) g_k + a / p` (`smooth`; a is `even`; variances of few subjects are uncertain,
so they are shrunk towards equal ones), :math:`\gamma_k = 1` for the first q (`full_axes`) axes and
:math:`\gamma` for all other directions (`share` holds all :math:`\gamma_k`). The matrix W is never
formed: `gain` holds :math:`s_k / \sqrt p`, and `scaled` multiplies by it. Dividing by :math:`h^{1/4}`
makes the directions *half-whitened*: whitening (:math:`h^{1/2}`) would count the many weak directions as
much as the few strong ones, and no division would all but ignore them. With :math:`\gamma = 0` a
contribution has q coordinates along the first q axes and no others. :math:`u = (z, \tfrac12)`, where the
constant one half serves the intercept. The second moments of u are diagonal in the axes,
:math:`G_k = \gamma_k^2 \sqrt{h_k} / c^2` (`second`).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray as Array

from fcforge.base_model.calibration import targets
from fcforge.base_model.model import (
    PENALTY,
    BaseModel,
    BaseModelSettings,
    fit_base_model,
    left_out_scores,
    rounded,
    rounded_number,
)
from fcforge.core.constants import SHRINK
from fcforge.core.errors import DataError
from fcforge.core.settings import FRACTION, Checked, above, at_least, limits, within

RESIDUAL = 2.0  # residuals of targets are clipped at -2 and +2
UNIT = 2**20  # units of the integer grid in one clip
SPARE_SUBJECTS = 4  # public subjects needed beyond the number of axes
# Fields of a space that are settings, with the names of those settings.
FIELD_SETTINGS = {"full_axes": "axes", "gamma": "gamma", "even": "even", "pull": "pull"}


@limits(
    axes=at_least(1),
    gamma=within(0, 1),
    directions=at_least(1),
    even=FRACTION,
    shrink=FRACTION,
    penalty=above(0),
    pull=above(0),
    clip=FRACTION,
)
@dataclass(frozen=True)
class SpaceSettings(Checked):
    """Settings of a base model and its space of contributions.

    The defaults were chosen on public subjects alone (paper/benchmarks/choose_sums.py).

    Parameters
    ----------
    axes : int
        q, number of directions with full weight.
    gamma : float
        Weight of all other directions; 0 leaves them out.
    directions : int
        K, number of principal directions with a variance of their own.
    even : float
        a, shrinkage of the variances towards equal ones.
    shrink : float
        Shrinkage of the FC toward the identity, before the matrix logarithm.
    penalty : float
        Ridge penalty of the base model per feature.
    pull : float
        Strength of the prior around the base model (lambda of the solution), per feature: 1 is as
        strong as a ridge penalty of 1 per feature.
    clip : float
        Quantile of the public subjects' contributions at which a contribution is clipped.
    """

    kind: ClassVar[str] = "base model"
    axes: int = 8
    gamma: float = 0.35
    directions: int = 128
    even: float = 0.95
    shrink: float = SHRINK
    penalty: float = PENALTY
    pull: float = 0.45
    clip: float = 0.1


@dataclass(frozen=True, eq=False)
class ContributionSpace:
    r"""Coordinates of contributions around a base model; p features, K axes (float64).

    Attributes
    ----------
    base : BaseModel
    axes : ndarray of shape (p, K)
        B, orthonormal columns.
    variance : ndarray of shape (K + 1,)
        g, variances of :math:`x / \sqrt p` along the axes, and (last) along any other direction.
    size : float
        c.
    clip : float
        C, the largest norm of what one subject adds to a contribution.
    full_axes : float
        q, number of axes with full weight; a whole number, kept as a float like the other settings.
    gamma, even, pull : float
        As in `SpaceSettings`.
    """

    base: BaseModel
    axes: Array
    variance: Array
    size: float
    clip: float
    full_axes: float
    gamma: float
    even: float
    pull: float

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by name, those of the base model included, without the settings."""
        settings = {"shrink", *FIELD_SETTINGS}
        arrays = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name != "base"
        }
        named = {**self.base.arrays(), **arrays}
        return {k: np.asarray(v) for k, v in named.items() if k not in settings}

    @property
    def n_features(self) -> int:
        """Number of features p."""
        return self.base.n_features

    @property
    def columns(self) -> int:
        """Number of columns c of the target."""
        return self.base.columns

    @property
    def n_numbers(self) -> int:
        """Length m of a contribution: coordinates and intercept for each column, and the count."""
        coordinates = self.n_features if self.all_directions else int(self.full_axes)
        return self.columns * (1 + coordinates) + 1

    @property
    def all_directions(self) -> bool:
        """Whether contributions cover all p directions (gamma > 0), not only the first q axes."""
        return self.gamma > 0

    @property
    def grid(self) -> float:
        """Value C / 2^20 of one unit of the integer grid."""
        return self.clip / UNIT

    @cached_property
    def share(self) -> Array:
        """Weights gamma_k (K + 1,) of each axis, and (last) of any other direction."""
        place = np.arange(len(self.variance))
        place[-1] = self.n_features  # the other directions come after all axes
        return np.where(place < self.full_axes, 1.0, self.gamma)

    @cached_property
    def smooth(self) -> Array:
        """Shrunk variances h (K + 1,)."""
        return (1 - self.even) * self.variance + self.even / self.n_features

    @cached_property
    def gain(self) -> Array:
        r"""Scales :math:`s_k / \sqrt p`, shape (K + 1,), of x along each axis, and (last) elsewhere."""
        return self.share / (self.size * (self.n_features**2 * self.smooth) ** 0.25)

    @cached_property
    def second(self) -> Array:
        """Second moments G_k (K + 1,) of the coordinates."""
        return self.share**2 * np.sqrt(self.smooth) / self.size**2

    @cached_property
    def hold(self) -> float:
        """Precision lambda of the prior: `pull` times p times the mean root of h, over c^2."""
        root = float(np.sqrt(self.smooth[:-1]).mean())
        return self.pull * self.n_features * root / self.size**2

    def scaled(self, rows: Array, along: Array) -> Array:
        """Multiply the component of each row along each axis by a factor.

        Parameters
        ----------
        rows : ndarray of shape (..., p)
        along : ndarray of shape (K + 1,)
            Factor along each axis, and (last) in all other directions.

        Returns
        -------
        ndarray of shape (..., p)
        """
        inside = (rows @ self.axes) * (along[:-1] - along[-1])
        return along[-1] * rows + inside @ self.axes.T

    def coordinates(self, x: Array) -> Array:
        """Return the coordinates u of standardised features: z and, last, the constant one half.

        Parameters
        ----------
        x : ndarray of shape (n, p)

        Returns
        -------
        ndarray of shape (n, d + 1)
            d is p, or q if contributions cover the first q axes alone (gamma 0).
        """
        if self.all_directions:
            z = self.scaled(x, self.gain)  # W x / sqrt(p)
        else:
            q = int(self.full_axes)
            z = (x @ self.axes[:, :q]) * self.gain[:q]
        return np.concatenate([z, np.full((len(z), 1), 0.5)], 1)


def products(u: Array, residual: Array) -> Array:
    """Return the products of each subject's coordinates and residuals, column after column.

    Parameters
    ----------
    u : ndarray of shape (n, d + 1)
        Coordinates of n subjects.
    residual : ndarray of shape (n,) or (n, c)
        Errors of the base model, for each of c columns of the target.

    Returns
    -------
    ndarray of shape (n, c (d + 1))
    """
    by_column = residual.reshape(len(u), -1, 1)
    outer = by_column * u[:, None, :]
    return outer.reshape(len(u), -1)


def field_settings(settings: Mapping[str, Any]) -> dict[str, float]:
    """Return the fields of a space that are settings, rounded to 24 bits.

    Parameters
    ----------
    settings : mapping
        Values of `SpaceSettings` by name.

    Returns
    -------
    dict of str to float
        Values by the names of the fields of `ContributionSpace`.
    """
    return {
        field: rounded_number(float(settings[name]), 24)
        for field, name in FIELD_SETTINGS.items()
    }


def fit_space(
    base: BaseModel,
    features: Array,
    y: Array,
    settings: SpaceSettings = SpaceSettings(),  # noqa: B008 (frozen)
) -> ContributionSpace:
    """Fit the space of contributions around a base model of the same public subjects.

    Parameters
    ----------
    base : BaseModel
    features : ndarray of shape (n, p)
        Features of the public subjects, confounds removed.
    y : ndarray of shape (n,)
        Integer classes, or float numbers between -1 and +1.
    settings : SpaceSettings
        Its `penalty` must be that with which the base model was fitted.

    Returns
    -------
    ContributionSpace

    Raises
    ------
    DataError
        If there are too few public subjects for so many axes.
    """
    fewest = settings.axes + SPARE_SUBJECTS
    if len(features) < fewest:
        raise DataError(
            f"{len(features)} public subjects are too few for {settings.axes} axes.",
            where="base model",
            do=f"Use at least {fewest} subjects, or fewer axes.",
        )
    x = base.standardise(features)
    t = targets(y, base.columns)
    _, left_out = left_out_scores(x, t, settings.penalty)
    residual = np.clip(t - left_out, -RESIDUAL, RESIDUAL)
    axes, variance = principal_axes(x - x.mean(0), settings.directions)
    # Size and clip are quantiles of norms in this very space: first with size 1, then with the size.
    space = ContributionSpace(
        base, axes, variance, size=1.0, clip=1.0, **field_settings(asdict(settings))
    )
    size = _quantile_of_norms(space.coordinates(x)[:, :-1], 0.5)
    space = replace(space, size=size)
    clip = _quantile_of_norms(products(space.coordinates(x), residual), settings.clip)
    return replace(space, clip=clip)


def fit_base_and_space(
    features: Array,
    y: Array,
    settings: SpaceSettings = SpaceSettings(),  # noqa: B008 (frozen)
    columns: int = 1,
) -> ContributionSpace:
    """Fit a base model and its space of contributions.

    Parameters
    ----------
    features : ndarray of shape (n, p)
        Features of the public subjects, confounds removed.
    y : ndarray of shape (n,)
        Integer classes 0 to `columns`, or float numbers between -1 and +1.
    settings : SpaceSettings
    columns : int
        Columns of the target: one less than the classes, or 1 for a number.

    Returns
    -------
    ContributionSpace
    """
    of_base = BaseModelSettings(shrink=settings.shrink, penalty=settings.penalty)
    base = fit_base_model(features, y, columns, of_base)
    return fit_space(base, features, y, settings)


def _quantile_of_norms(rows: Array, quantile: float) -> float:
    """Return a quantile of the norms of rows (n, d), rounded to 12 bits."""
    norms = np.linalg.norm(rows, axis=1)
    return rounded_number(float(np.quantile(norms, quantile)))


def principal_axes(x: Array, most: int) -> tuple[Array, Array]:
    r"""Return principal directions (p, K) of centred rows x (n, p), and variances (K + 1,).

    K is at most `most` and less than n. The largest entry of each direction is positive. Variances
    are those of :math:`x / \sqrt p`; the last one is the mean over all other directions, and 0
    where there are none (their sum would be nothing but rounding noise, which differs by CPU).
    """
    n, p = x.shape
    k = min(most, n - 1, p)
    value, vectors = np.linalg.eigh(x @ x.T)  # in ascending order
    largest = slice(None, -k - 1, -1)  # the last k, in descending order
    axes = x.T @ vectors[:, largest]
    axes = axes / np.linalg.norm(axes, axis=0)
    lead = np.abs(axes).argmax(0)
    axes = axes * np.sign(axes[lead, np.arange(k)])
    along = value[largest] / (n * p)
    complete = k == min(n - 1, p)
    left = 0.0 if complete else max(value.sum() / (n * p) - along.sum(), 0.0)
    each = left / max(p - k, 1)
    return rounded(axes), rounded(np.append(along, each))
