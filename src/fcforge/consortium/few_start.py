r"""The start: what a consortium knows in advance, made once from public people.

Nothing in it is private. For a public subject with features :math:`\phi` (`log_features`,
confounds removed) and diagnosis :math:`t = \pm 1`, let :math:`x = (\phi - m) / s` be standardised
by the public people. The start holds

- the *public head* :math:`w_0, b_0`: ridge of t on x with penalty :math:`\alpha p`;
- q *axes* A: principal axes V of x, each divided by the square root of its spread (half
  whitened), and all by the median norm, so that :math:`z = A^\top x` has median norm one;
- the second moments G of :math:`u = (z, \tfrac12)` per person;
- the *clip* C: the median of :math:`\|u\,r\|` with r the leave-one-out residual of the head;
- spreads of z between persons and between sites; the *temperature* that calibrates the head;
- *factors*: a sketch of what the axes do not say, from which synthetic subjects are drawn.

Numbers are rounded to 12 significant bits, far below what matters and far above what two machines
differ by, so that the same files give the same start, bit by bit, on every machine.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from fcforge.errors import DataError
from fcforge.settings import Checked, Fraction, Positive, Size
from fcforge.types import SHRINK

Array = np.ndarray
BITS = 12
FACTORS = 64  # rows of the sketch of residuals
FLAT = 2.0**40  # scale of a feature that is the same in everybody: it weighs nothing
MIN_PUBLIC = 20  # people of a start


@dataclass(frozen=True)
class StartSettings(Checked):
    """What a start is made with. Chosen on public people alone (docs/consortium.md).

    Parameters
    ----------
    axes : int
        q, directions a release speaks about.
    directions : {"pca", "pls"}
        Principal axes, or partial least squares on the public diagnoses.
    shrink : float
        Of the FC toward the identity, before the matrix logarithm.
    penalty : float
        Ridge penalty of the public head per feature.
    pull : float
        How strongly the consortium's head is held at the public one (lambda of the solve).
    clip : float
        Quantile of public contributions at which a person's contribution is clipped.
    """

    kind: ClassVar[str] = "start"
    axes: Size = 16
    directions: Literal["pca", "pls"] = "pca"
    shrink: Fraction = SHRINK
    penalty: Positive = 1.0
    pull: Positive = 10.0
    clip: Fraction = 0.5


@dataclass(frozen=True, eq=False)
class Start:
    r"""Arrays of a start; p features, q axes, k confound terms (float64, 12 bits each).

    Attributes
    ----------
    mean, scale : ndarray of shape (p,)
    weight : ndarray of shape (p,)
        :math:`w_0`, on standardised features.
    bias : float
    axes : ndarray of shape (p, q)
        A: standardised features to coordinates of median norm one.
    second : ndarray of shape (q + 1, q + 1)
        G.
    clip : float
        C, the most that one person can move a release.
    persons, sites : ndarray of shape (q,)
        Standard deviation of coordinates between persons of a site, and between sites.
    temperature : float
        Log odds = score / temperature.
    factors : ndarray of shape (FACTORS, p)
        Sketch F of the residuals off the axes: :math:`F^\top F` is about their covariance.
    shrink, pull : float
        As in `StartSettings`.
    """

    mean: Array
    scale: Array
    weight: Array
    bias: float
    axes: Array
    second: Array
    clip: float
    persons: Array
    sites: Array
    temperature: float
    factors: Array
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
    def n_axes(self) -> int:
        """Q."""
        return int(self.axes.shape[1])

    def standardise(self, features: Array) -> Array:
        """Features (n, p) -> x (n, p)."""
        return (features - self.mean) / self.scale

    def score(self, x: Array) -> Array:
        """Public score (n,) of standardised features."""
        return x @ self.weight + self.bias


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


def leave_one_out(gram: Array, t: Array, penalty: float) -> tuple[Array, Array]:
    r"""Dual coefficients of ridge on centred rows and its exact leave-one-out predictions.

    With :math:`H = K (K + \alpha I)^{-1} + \tfrac1n` the prediction without person i is
    :math:`t_i - (t_i - \hat t_i) / (1 - H_{ii})`.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Of rows that add up to zero.
    t : ndarray of shape (n,)
    penalty : float
    """
    n = len(t)
    inverse = np.linalg.inv(gram + penalty * np.eye(n))
    coefficient = inverse @ (t - t.mean())
    fitted = gram @ coefficient + t.mean()
    leverage = (gram * inverse).sum(1) + 1.0 / n
    return coefficient, t - (t - fitted) / (1 - leverage)


def fit_temperature(score: Array, t: Array) -> float:
    """T that makes score / T log odds: one-parameter logistic regression through the origin.

    The loss is convex in 1 / T: its slope is bisected, over the logarithm of 1 / T.
    """
    low = -6.0
    high = 6.0
    margin = t * score
    for _ in range(60):
        middle = (low + high) / 2
        slope = -(margin * (1.0 - np.tanh(margin * 2.0 ** (middle - 1)))).sum()
        if slope < 0:
            low = middle
        else:
            high = middle
    return 2.0 ** -((low + high) / 2)


def principal_axes(x: Array, q: int) -> Array:
    """First q principal axes (p, q) of centred rows (n, p), the largest entry of each positive."""
    vectors = np.linalg.eigh(x @ x.T)[1]
    top = x.T @ vectors[:, : -q - 1 : -1]
    return _signed(top / np.linalg.norm(top, axis=0))


def pls_axes(x: Array, t: Array, q: int) -> Array:
    """Q directions (p, q) of partial least squares of t on centred rows, orthonormal."""
    axes: list[Array] = []
    left = t - t.mean()
    for _ in range(q):
        direction = x.T @ left
        for axis in axes:
            direction = direction - axis * (axis @ direction)
        axes.append(direction / np.linalg.norm(direction))
        along = x @ axes[-1]
        left = left - along * (along @ left) / (along @ along)
    return _signed(np.stack(axes, 1))


def _signed(axes: Array) -> Array:
    lead = np.abs(axes).argmax(0)
    return axes * np.sign(axes[lead, np.arange(axes.shape[1])])


def coordinates(start: Start, x: Array) -> Array:
    """U (n, q + 1) of standardised features: coordinates on the axes, and one half."""
    return _with_half(x @ start.axes)


def _with_half(z: Array) -> Array:
    return np.concatenate([z, np.full((len(z), 1), 0.5)], 1)


def between(z: Array, site: Sequence[str]) -> tuple[Array, Array]:
    """Standard deviations (q,) of coordinates between persons of a site, and between sites.

    The between-site variance is that of site means less what persons alone would give
    (one-way random effects, never below zero).
    """
    names = np.asarray(site)
    groups = [z[names == s] for s in dict.fromkeys(names.tolist())]
    n = len(z)
    k = len(groups)
    inside = sum(((g - g.mean(0)) ** 2).sum(0) for g in groups) / max(n - k, 1)
    if k < 2:
        return np.sqrt(inside), np.zeros_like(inside)
    sizes = np.array([float(len(g)) for g in groups])
    means = np.stack([g.mean(0) for g in groups])
    spread = (sizes[:, None] * (means - z.mean(0)) ** 2).sum(0) / (k - 1)
    size = (n - (sizes**2).sum() / n) / (k - 1)
    return np.sqrt(inside), np.sqrt(np.maximum((spread - inside) / size, 0.0))


def make_start(
    features: Array,
    y: Array,
    site: Sequence[str],
    settings: StartSettings = StartSettings(),  # noqa: B008 (frozen)
) -> Start:
    """Start from the features (n, p) of public people, their diagnoses (n,) and sites (n,).

    Confounds are removed before, by whoever calls. Deterministic: no random number but a fixed
    sketch.
    """
    check_public(len(features), y, settings.axes)
    t = 2.0 * y - 1.0
    spread = features.std(0)
    mean = rounded(features.mean(0))
    scale = rounded(np.where(spread > 1e-9, spread, FLAT))
    x = (features - mean) / scale
    x0 = x - x.mean(0)  # rounding has moved the mean by a hair
    head, left_out = _public_head(x, x0, t, settings.penalty)
    pca = settings.directions == "pca"
    raw = principal_axes(x0, settings.axes) if pca else pls_axes(x0, t, settings.axes)
    return Start(
        mean=mean,
        scale=scale,
        factors=_sketch(x0 - (x0 @ raw) @ raw.T, y),
        shrink=rounded_number(settings.shrink, 24),
        pull=rounded_number(settings.pull, 24),
        **head,
        **_along(x, raw, t - left_out, site, settings.clip),
    )


def _public_head(
    x: Array, centred: Array, t: Array, penalty: float
) -> tuple[dict[str, Any], Array]:
    """Ridge on the public people with its temperature, and their left-out scores (n,)."""
    coefficient, left_out = leave_one_out(centred @ centred.T, t, penalty * x.shape[1])
    weight = rounded(centred.T @ coefficient)
    bias = rounded_number(t.mean() - x.mean(0) @ weight)
    temperature = rounded_number(fit_temperature(left_out, t))
    return {"weight": weight, "bias": bias, "temperature": temperature}, left_out


def _along(
    x: Array, raw: Array, residual: Array, site: Sequence[str], clip: float
) -> dict[str, Any]:
    """Axes scaled so that a release needs little noise, and what the public people are on them."""
    half = raw / np.sqrt((x @ raw).std(0))
    norms = np.linalg.norm(x @ half, axis=1)
    axes = rounded(half / np.quantile(norms, 0.5, method="lower"))
    z = x @ axes
    persons, sites = between(z, site)
    u = _with_half(z)
    size = np.linalg.norm(u * np.clip(residual, -2.0, 2.0)[:, None], axis=1)
    return {
        "axes": axes,
        "second": rounded(u.T @ u / len(x)),
        "clip": rounded_number(np.quantile(size, clip)),
        "persons": rounded(persons),
        "sites": rounded(sites),
    }


def _sketch(residual: Array, y: Array) -> Array:
    """Fixed random combinations (FACTORS, p) of residuals (n, p), class means taken out."""
    left = residual.copy()
    for label in (0, 1):
        left[y == label] -= residual[y == label].mean(0)
    n = len(left)
    return rounded(_signs(FACTORS, n) @ left / (FACTORS * n) ** 0.5)


def _signs(rows: int, columns: int) -> Array:
    """A fixed table of -1 and 1: bits of SHAKE-256, so that no generator is in reach here."""
    size = -(-rows * columns // 8)
    text = f"start sketch {rows} {columns}".encode()
    stream = np.frombuffer(hashlib.shake_256(text).digest(size), dtype=np.uint8)
    bits = np.unpackbits(stream)[: rows * columns]
    return 2.0 * bits.reshape(rows, columns) - 1.0


def check_public(n: int, y: Array, axes: int) -> None:
    """Raise `DataError` where public people are too few for a start."""
    both = min(int((y == 0).sum()), int((y == 1).sum()))
    if n < max(MIN_PUBLIC, axes + 4) or both < 5:
        raise DataError(
            f"{n} public people ({both} of the rarer class) are too few for {axes} axes.",
            where="start",
            do=f"Use at least {max(MIN_PUBLIC, axes + 4)} people, 5 of each class, or fewer axes.",
        )
