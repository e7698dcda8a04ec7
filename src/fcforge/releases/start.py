r"""The start: what a consortium knows in advance, made once from public people.

Nothing in it is private. For a public subject with features :math:`\phi` (`graphs.log_features`,
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
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fcforge.errors import DataError
from fcforge.randomness import torch_rng
from fcforge.settings import Checked, Fraction, Positive, Size
from fcforge.types import SHRINK

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
    mean, scale : Tensor of shape (p,)
    weight : Tensor of shape (p,)
        :math:`w_0`, on standardised features.
    bias : Tensor of shape ()
    axes : Tensor of shape (p, q)
        A: standardised features to coordinates of median norm one.
    second : Tensor of shape (q + 1, q + 1)
        G.
    clip : Tensor of shape ()
        C, the most that one person can move a release.
    persons, sites : Tensor of shape (q,)
        Standard deviation of coordinates between persons of a site, and between sites.
    temperature : Tensor of shape ()
        Log odds = score / temperature.
    factors : Tensor of shape (FACTORS, p)
        Sketch F of the residuals off the axes: :math:`F^\top F` is about their covariance.
    shrink, pull : Tensor of shape ()
        As in `StartSettings`.
    """

    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor
    axes: Tensor
    second: Tensor
    clip: Tensor
    persons: Tensor
    sites: Tensor
    temperature: Tensor
    factors: Tensor
    shrink: Tensor
    pull: Tensor

    def arrays(self) -> dict[str, Tensor]:
        """All arrays by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all arrays: the start's name."""
        hashed = hashlib.sha256()
        for name, array in sorted(self.arrays().items()):
            hashed.update(f"{name}{tuple(array.shape)}".encode())
            hashed.update(array.double().contiguous().numpy().astype("<f8").tobytes())
        return hashed.hexdigest()

    @property
    def n_axes(self) -> int:
        """Q."""
        return int(self.axes.shape[1])

    def standardise(self, features: Tensor) -> Tensor:
        """Features (n, p) -> x (n, p)."""
        return (features.to(self.mean) - self.mean) / self.scale

    def score(self, x: Tensor) -> Tensor:
        """Public score (n,) of standardised features."""
        return x @ self.weight + self.bias


def rounded(values: Tensor, bits: int = BITS) -> Tensor:
    """Values with `bits` significant bits, in float64.

    Examples
    --------
    >>> rounded(torch.tensor([1.0, 1.0001, 3.14159]), 4).tolist()
    [1.0, 1.0, 3.25]
    """
    mantissa, exponent = torch.frexp(values.double())
    return torch.ldexp(torch.round(mantissa * 2.0**bits) / 2.0**bits, exponent)


def leave_one_out(gram: Tensor, t: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    r"""Dual coefficients of ridge on centred rows and its exact leave-one-out predictions.

    With :math:`H = K (K + \alpha I)^{-1} + \tfrac1n` the prediction without person i is
    :math:`t_i - (t_i - \hat t_i) / (1 - H_{ii})`.

    Parameters
    ----------
    gram : Tensor of shape (n, n)
        Of rows that add up to zero.
    t : Tensor of shape (n,)
    penalty : float
    """
    n = len(t)
    inverse = torch.linalg.inv(gram + penalty * torch.eye(n, dtype=gram.dtype))
    coefficient = inverse @ (t - t.mean())
    fitted = gram @ coefficient + t.mean()
    leverage = (gram * inverse).sum(1) + 1.0 / n
    return coefficient, t - (t - fitted) / (1 - leverage)


def fit_temperature(score: Tensor, t: Tensor) -> float:
    """T that makes score / T log odds: one-parameter logistic regression through the origin."""
    low, high = (
        -6.0,
        6.0,
    )  # of log(1 / T); the loss is convex in 1 / T, so bisect its slope
    for _ in range(60):
        middle = (low + high) / 2
        slope = -(t * score * torch.sigmoid(-t * score * 2.0**middle)).sum()
        low, high = (middle, high) if slope < 0 else (low, middle)
    return 2.0 ** -((low + high) / 2)


def principal_axes(x: Tensor, q: int) -> Tensor:
    """First q principal axes (p, q) of centred rows (n, p), the largest entry of each positive."""
    vectors = torch.linalg.eigh(x @ x.T)[1]
    top = x.T @ vectors[:, -q:].flip(1)
    return _signed(top / top.norm(dim=0))


def pls_axes(x: Tensor, t: Tensor, q: int) -> Tensor:
    """Q directions (p, q) of partial least squares of t on centred rows, orthonormal."""
    axes: list[Tensor] = []
    left = t - t.mean()
    for _ in range(q):
        direction = x.T @ left
        for axis in axes:
            direction = direction - axis * (axis @ direction)
        axes.append(direction / direction.norm())
        along = x @ axes[-1]
        left = left - along * (along @ left) / (along @ along)
    return _signed(torch.stack(axes, 1))


def _signed(axes: Tensor) -> Tensor:
    lead = axes.abs().argmax(0)
    return axes * torch.sign(axes[lead, torch.arange(axes.shape[1])])


def coordinates(start: Start, x: Tensor) -> Tensor:
    """U (n, q + 1) of standardised features: coordinates on the axes, and one half."""
    half = torch.full((len(x), 1), 0.5, dtype=x.dtype, device=x.device)
    return torch.cat([x @ start.axes.to(x), half], 1)


def between(z: Tensor, site: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Standard deviations (q,) of coordinates between persons of a site, and between sites.

    The between-site variance is that of site means less what persons alone would give
    (one-way random effects, never below zero).
    """
    names = np.asarray(site)
    groups = [z[torch.from_numpy(names == s)] for s in dict.fromkeys(names.tolist())]
    n, k = len(z), len(groups)
    inside = torch.stack([((g - g.mean(0)) ** 2).sum(0) for g in groups]).sum(0) / max(
        n - k, 1
    )
    if k < 2:
        return inside.sqrt(), torch.zeros_like(inside)
    sizes = torch.tensor([float(len(g)) for g in groups], dtype=z.dtype)
    means = torch.stack([g.mean(0) for g in groups])
    spread = (sizes[:, None] * (means - z.mean(0)) ** 2).sum(0) / (k - 1)
    size = (n - (sizes**2).sum() / n) / (k - 1)
    return inside.sqrt(), ((spread - inside) / size).clamp(min=0).sqrt()


def make_start(
    features: Tensor,
    y: Tensor,
    site: Sequence[str],
    settings: StartSettings = StartSettings(),  # noqa: B008 (frozen)
) -> Start:
    """Start from the features (n, p) of public people, their diagnoses (n,) and sites (n,).

    Confounds are removed before, by whoever calls. Deterministic: no random number but a fixed
    sketch.
    """
    check_public(len(features), y, settings.axes)
    features, t = features.double(), 2.0 * y.double() - 1.0
    spread = features.std(0, correction=0)
    mean, scale = (
        rounded(features.mean(0)),
        rounded(torch.where(spread > 1e-9, spread, FLAT)),
    )
    x = (features - mean) / scale
    x0 = x - x.mean(0)  # rounding has moved the mean by a hair
    head, left_out = _public_head(x, x0, t, settings.penalty)
    pca = settings.directions == "pca"
    raw = principal_axes(x0, settings.axes) if pca else pls_axes(x0, t, settings.axes)
    return Start(
        mean=mean,
        scale=scale,
        factors=_sketch(x0 - (x0 @ raw) @ raw.T, y),
        shrink=_number(settings.shrink, 24),
        pull=_number(settings.pull, 24),
        **head,
        **_along(x, raw, t - left_out, site, settings.clip),
    )


def _public_head(
    x: Tensor, centred: Tensor, t: Tensor, penalty: float
) -> tuple[dict[str, Tensor], Tensor]:
    """Ridge on the public people with its temperature, and their left-out scores (n,)."""
    coefficient, left_out = leave_one_out(centred @ centred.T, t, penalty * x.shape[1])
    weight = rounded(centred.T @ coefficient)
    bias = rounded(t.mean() - x.mean(0) @ weight)
    temperature = _number(fit_temperature(left_out, t))
    return {"weight": weight, "bias": bias, "temperature": temperature}, left_out


def _number(value: float, *bits: int) -> Tensor:
    return rounded(torch.tensor(value, dtype=torch.float64), *bits)


def _along(
    x: Tensor, raw: Tensor, residual: Tensor, site: Sequence[str], clip: float
) -> dict[str, Tensor]:
    """Axes scaled so that a release needs little noise, and what the public people are on them."""
    half = raw / (x @ raw).std(0, correction=0).sqrt()
    axes = rounded(half / (x @ half).norm(dim=1).median())
    z = x @ axes
    persons, sites = between(z, site)
    u = torch.cat([z, torch.full((len(x), 1), 0.5, dtype=z.dtype)], 1)
    size = (u * residual.clamp(-2.0, 2.0)[:, None]).norm(dim=1)
    return {
        "axes": axes,
        "second": rounded(u.T @ u / len(x)),
        "clip": rounded(size.quantile(clip)),
        "persons": rounded(persons),
        "sites": rounded(sites),
    }


def _sketch(residual: Tensor, y: Tensor) -> Tensor:
    """Fixed random combinations (FACTORS, p) of residuals (n, p), class means taken out."""
    for label in (0, 1):
        members = y == label
        residual = torch.where(
            members[:, None], residual - residual[members].mean(0), residual
        )
    n = len(residual)
    sign = (
        torch.randint(0, 2, (FACTORS, n), generator=torch_rng(0, "start sketch", n))
        * 2.0
        - 1.0
    )
    return rounded(sign.double() @ residual / (FACTORS * n) ** 0.5)


def check_public(n: int, y: Tensor, axes: int) -> None:
    """Raise `DataError` where public people are too few for a start."""
    both = min(int((y == 0).sum()), int((y == 1).sum()))
    if n < max(MIN_PUBLIC, axes + 4) or both < 5:
        raise DataError(
            f"{n} public people ({both} of the rarer class) are too few for {axes} axes.",
            where="start",
            do=f"Use at least {max(MIN_PUBLIC, axes + 4)} people, 5 of each class, or fewer axes.",
        )
