r"""The start: what a consortium knows in advance, made once from public people.

Nothing in it is private. For a public subject with features :math:`\phi` (`log_features`,
confounds removed) and diagnosis :math:`t = \pm 1`, let :math:`x = (\phi - m) / s` be standardised
by the public people. A number has limits that are agreed in advance, -1 and +1 to it; of K classes
t is a corner of a regular simplex in K - 1 dimensions (`fcforge.base_model.contributions`), -1 and +1
where K is two. Then t has length 1 at most whatever is learned, and a start has c = K - 1
*columns*, one for a number. The start holds

- the *public head* :math:`w_0, b_0`: ridge of t on x with penalty :math:`\alpha p`, by column;
- *axes* B: the first K principal directions of :math:`x / \sqrt p`, and the variance
  :math:`g_k` of the public people along each; one common variance for all other directions;
- the *size* c: the median norm of the coordinates below, before they are divided by it;
- the *clip* C: a low quantile of :math:`\|u\,r\|` with r the leave-one-out residual of the head,
  so that nearly everybody counts alike and no sensitivity is wasted;
- the *temperature* that calibrates the head.

**Coordinates.** What tells patients apart is spread over hundreds of directions, most of them off
the span of the public people. So a release speaks of all p of them, each scaled by what is known:

.. math:: z = W \frac{x}{\sqrt p}, \qquad W = \sum_k s_k b_k b_k^\top
          + s_0 \bigl(I - \sum_k b_k b_k^\top\bigr), \qquad s_k = \frac{\gamma_k}{c\, h_k^{1/4}}

with :math:`h_k = (1 - a) g_k + a / p` (variances of few people say little: they are shrunk towards
equal ones) and :math:`\gamma_k = 1` for the first q axes, :math:`\gamma` for all others. Dividing
by :math:`h^{1/4}` whitens half: between few strong directions and many weak ones. With
:math:`\gamma = 0` a release is q numbers along the axes, and nothing else.
:math:`u = (z, \tfrac12)`; its second moments are diagonal in the axes,
:math:`G_k = \gamma_k^2 \sqrt{h_k} / c^2`.

Numbers are rounded to 12 significant bits, far below what matters and far above what two machines
differ by, so that the same files give the same start, bit by bit, on every machine.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray as Array

from fcforge.base_model.calibration import fit_temperature, targets
from fcforge.base_model.contributions import RESIDUAL, coordinates, products
from fcforge.core.constants import SHRINK
from fcforge.core.errors import DataError
from fcforge.core.settings import FRACTION, Checked, above, at_least, limits, within

BITS = 12
FLAT = 2.0**40  # scale of a feature that is the same in everybody: it weighs nothing
MIN_PUBLIC = 20  # people of a start
# fields of a start that are settings, and what those are called
SET = {"full": "axes", **{name: name for name in ("gamma", "even", "shrink", "pull")}}


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
class StartSettings(Checked):
    """What a start is made with. Chosen on public people alone (paper/benchmarks/choose_sums.py).

    Parameters
    ----------
    axes : int
        q, directions that a release speaks about in full.
    gamma : float
        Weight of all other directions; 0: nothing is said about them.
    directions : int
        K, principal directions that are told apart.
    even : float
        a, how far their variances are shrunk towards equal ones.
    shrink : float
        Of the FC toward the identity, before the matrix logarithm.
    penalty : float
        Ridge penalty of the public head per feature.
    pull : float
        How strongly the consortium's head is held at the public one (lambda of the solve), per
        feature: 1 holds as the ridge penalty of 1 per feature does.
    clip : float
        Quantile of public contributions at which a person's contribution is clipped.
    """

    kind: ClassVar[str] = "start"
    axes: int = 8
    gamma: float = 0.35
    directions: int = 128
    even: float = 0.95
    shrink: float = SHRINK
    penalty: float = 1.0
    pull: float = 0.45
    clip: float = 0.1


@dataclass(frozen=True, eq=False)
class Start:
    r"""Arrays of a start; p features, K axes (float64, 12 bits each).

    Attributes
    ----------
    mean, scale : ndarray of shape (p,)
    weight : ndarray of shape (p,), or (p, c) of several columns
        :math:`w_0`, on standardised features.
    bias : float, or ndarray of shape (c,)
    axes : ndarray of shape (p, K)
        B, orthonormal columns.
    variance : ndarray of shape (K + 1,)
        g of :math:`x / \sqrt p` along the axes, and (last) along every other direction.
    size : float
        c.
    clip : float
        C, the most that one person can move a release.
    temperature : float
        Log odds = score / temperature.
    full, gamma, even, shrink, pull : float
        q and others of `StartSettings`.
    """

    mean: Array
    scale: Array
    weight: Array
    bias: Any
    axes: Array
    variance: Array
    size: float
    clip: float
    temperature: float
    full: float
    gamma: float
    even: float
    shrink: float
    pull: float

    def arrays(self) -> dict[str, Array]:
        """All arrays by name, numbers as arrays without axes."""
        return {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all arrays: the start's name."""
        hashed = hashlib.sha256()
        for name, array in sorted(self.arrays().items()):
            hashed.update(f"{name}{array.shape}".encode())
            hashed.update(array.astype("<f8").tobytes())
        return hashed.hexdigest()

    @property
    def n_features(self) -> int:
        """P."""
        return len(self.mean)

    @property
    def columns(self) -> int:
        """Targets of a person: one, or one less than there are classes."""
        return 1 if self.weight.ndim == 1 else self.weight.shape[1]

    @property
    def n_numbers(self) -> int:
        """Numbers of a release: coordinates and the intercept's by column, and the count."""
        spoken = self.n_features if self.gamma else int(self.full)
        return self.columns * (1 + spoken) + 1

    @property
    def grid(self) -> float:
        """What one unit of a release's whole numbers is worth."""
        return self.clip / 2.0**20

    @cached_property
    def share(self) -> Array:
        """Gamma (K + 1,) of every axis, and (last) of all other directions."""
        place = np.arange(len(self.variance))
        place[-1] = self.n_features
        return np.where(place < self.full, 1.0, self.gamma)

    @cached_property
    def smooth(self) -> Array:
        """H (K + 1,): variances shrunk towards equal ones."""
        return (1 - self.even) * self.variance + self.even / self.n_features

    @cached_property
    def gain(self) -> Array:
        """How x along each axis (K + 1,) is scaled, the division by the root of p included."""
        return self.share / (self.size * (self.n_features**2 * self.smooth) ** 0.25)

    @cached_property
    def second(self) -> Array:
        """G (K + 1,)."""
        return self.share**2 * np.sqrt(self.smooth) / self.size**2

    @cached_property
    def hold(self) -> float:
        """Lambda in units of the coordinates: `pull` times p times the mean root of H."""
        root = float(np.sqrt(self.smooth[:-1]).mean())
        return self.pull * self.n_features * root / self.size**2

    def standardise(self, features: Array) -> Array:
        """Features (n, p) -> x (n, p)."""
        return (features - self.mean) / self.scale

    def score(self, x: Array) -> Array:
        """Public score (n,) or (n, c) of standardised features."""
        return x @ self.weight + self.bias

    def scaled(self, rows: Array, along: Array) -> Array:
        """Rows (..., p) multiplied by `along` (K + 1,): by direction, the last one off the axes."""
        inside = (rows @ self.axes) * (along[:-1] - along[-1])
        return along[-1] * rows + inside @ self.axes.T


def rounded(values: Array, bits: int = BITS) -> Array:
    """Values with `bits` significant bits, in float64.

    Examples
    --------
    >>> rounded(np.array([1.0, 1.0001, 3.14159]), 4).tolist()
    [1.0, 1.0, 3.25]
    """
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent)


def rounded_number(value: float, bits: int = BITS) -> float:
    """One number with `bits` significant bits."""
    return float(rounded(np.asarray(value), bits))


def set_fields(settings: Mapping[str, Any]) -> dict[str, float]:
    """Fields of a start that are settings, with 24 bits."""
    return {k: rounded_number(float(settings[name]), 24) for k, name in SET.items()}


def leave_one_out(gram: Array, t: Array, penalty: float) -> tuple[Array, Array]:
    r"""Dual coefficients of ridge on centred rows and its exact leave-one-out predictions.

    With :math:`H = K (K + \alpha I)^{-1} + \tfrac1n` the prediction without person i is
    :math:`t_i - (t_i - \hat t_i) / (1 - H_{ii})`.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Of rows that add up to zero.
    t : ndarray of shape (n,) or (n, c)
    penalty : float
    """
    n = len(t)
    inverse = np.linalg.inv(gram + penalty * np.eye(n))
    coefficient = inverse @ (t - t.mean(0))
    fitted = gram @ coefficient + t.mean(0)
    leverage = (gram * inverse).sum(1) + 1.0 / n
    return coefficient, t - ((t - fitted).T / (1 - leverage)).T


def make_start(
    features: Array,
    y: Array,
    settings: StartSettings = StartSettings(),  # noqa: B008 (frozen)
    columns: int = 1,
) -> Start:
    """Start from the features (n, p) of public people and their diagnoses (n,).

    Diagnoses are whole numbers, 0 and 1, up to `columns`; a number to be predicted is a float
    between -1 and +1. Confounds are removed before, by whoever calls. Deterministic.
    """
    check_public(len(features), y, settings.axes, columns)
    t = targets(y, columns)
    mean, scale = (rounded(values) for values in mean_and_scale(features))
    x = (features - mean) / scale
    x0 = x - x.mean(0)  # rounding has moved the mean by a hair
    coefficient, left_out = leave_one_out(x0 @ x0.T, t, settings.penalty * x.shape[1])
    weight = rounded(x0.T @ coefficient)
    number = y.dtype.kind == "f"  # which has no odds
    found = 1.0 if number else fit_temperature(left_out.reshape(len(y), -1), y)
    axes, variance = principal_axes(x0, settings.directions)
    made = Start(
        mean=mean,
        scale=scale,
        axes=axes,
        variance=variance,
        size=1.0,
        clip=1.0,
        weight=weight,
        bias=rounded(t.mean(0) - x.mean(0) @ weight)[()],
        temperature=rounded_number(found),
        **set_fields(asdict(settings)),
    )
    return _sized(made, x, t - left_out, settings.clip)


def mean_and_scale(features: Array) -> tuple[Array, Array]:
    """Of every feature (p,)."""
    spread = features.std(0)
    return features.mean(0), np.where(spread > 1e-9, spread, FLAT)


def _sized(made: Start, x: Array, residual: Array, quantile: float) -> Start:
    """The start with size and clip of public people with these left-out residuals."""
    made = replace(made, size=_middle(coordinates(made, x)[:, :-1], 0.5))
    clipped = np.clip(residual, -RESIDUAL, RESIDUAL)
    moved = products(coordinates(made, x), clipped)
    return replace(made, clip=_middle(moved, quantile))


def _middle(rows: Array, quantile: float) -> float:
    """Quantile of the norms of rows (n, d)."""
    norms = np.linalg.norm(rows, axis=1)
    return rounded_number(float(np.quantile(norms, quantile)))


def principal_axes(x: Array, most: int) -> tuple[Array, Array]:
    r"""Principal directions (p, K) of centred rows x (n, p), and variances (K + 1,).

    K is `most`, or one less than there are people. The largest entry of each direction is
    positive. Variances are of :math:`x / \sqrt p`, the last one the mean over all other directions.
    """
    n, p = x.shape
    k = min(most, n - 1, p)
    value, vectors = np.linalg.eigh(x @ x.T)
    axes = x.T @ vectors[:, : -k - 1 : -1]
    axes = axes / np.linalg.norm(axes, axis=0)
    lead = np.abs(axes).argmax(0)
    axes = axes * np.sign(axes[lead, np.arange(k)])
    along = value[: -k - 1 : -1] / (n * p)
    left = max(value.sum() / (n * p) - along.sum(), 0.0)
    each = left / max(p - k, 1)
    return rounded(axes), rounded(np.append(along, each))


def check_public(n: int, y: Array, axes: int, columns: int = 1) -> None:
    """Raise `DataError` where public people are too few for a start."""
    rarest = n
    if y.dtype.kind != "f":
        counts = [int((y == k).sum()) for k in range(columns + 1)]
        rarest = min(counts)
    if n < max(MIN_PUBLIC, axes + 4) or rarest < 5:
        raise DataError(
            f"{n} public people ({rarest} of the rarest class) are too few for {axes} axes.",
            where="start",
            do=f"Use at least {max(MIN_PUBLIC, axes + 4)} people, 5 of each class, or fewer axes.",
        )
