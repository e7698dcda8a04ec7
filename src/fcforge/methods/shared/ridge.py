r"""Ridge regression on edges, two ways: of weighted subjects, and of a root.

.. math:: \min_{w, b} \sum_i m_i\,(t_i - b - x_i^\top w)^2 + \alpha\,\|w\|^2

in the dual: as many unknowns as subjects, not as edges.

The letters: m_i is the weight (mass) of subject i, t_i its target and x_i its features. Shapes: n subjects,
p or q features, c columns of targets (one, or one per class if there are more than two), k remembered
subjects, m rows of a root.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.methods.base import Params

BLOCK = 64  # rows of a root that are turned at once


def n_columns(n_outputs: int) -> int:
    """Return the number of scores per subject: one, or one per class of more than two."""
    return n_outputs if n_outputs > 2 else 1


def coded(y: Tensor, n_outputs: int) -> Tensor:
    """Return targets (n, c), float64: -1 or +1 per class (one column for two), or a number."""
    if n_outputs == 1:
        return y.double()[:, None]
    member = F.one_hot(y, n_outputs) if n_outputs > 2 else y[:, None]
    return 2.0 * member.double() - 1.0


def recalled_targets(y: Tensor, logits: Tensor, l1: float, l2: float) -> Tensor:
    """Return the mean (k, c) of targets and stored scores, weighted by l1 and l2."""
    n_outputs = logits.shape[1]
    u = logits
    if n_outputs == 2:
        u = 0.5 * (logits[:, 1:] - logits[:, :1])
    return (l1 * coded(y, n_outputs) + l2 * u) / max(l1 + l2, 1e-300)


def logits_of(score: Tensor, n_outputs: int) -> Tensor:
    """Return logits (..., n_outputs) of scores (..., c): (-s, s) for two classes."""
    return torch.cat([-score, score], -1) if n_outputs == 2 else score


def linear_head(weight: Tensor, bias: Tensor, n_outputs: int = 2) -> Params:
    """Return the parameters of a linear model with scores x @ weight (q, c) + bias (c,)."""
    return {
        "head.0.weight": logits_of(weight, n_outputs).T.float().contiguous(),
        "head.0.bias": logits_of(bias, n_outputs).float(),
    }


class Dual(NamedTuple):
    """Solution as a combination of subjects: w = sum_i coefficient_i x_i, and b.

    Attributes
    ----------
    coefficient : Tensor of shape (n, c)
        Adds up to zero, because the intercept is free.
    bias : Tensor of shape (c,)
    """

    coefficient: Tensor
    bias: Tensor


def dual_ridge(gram: Tensor, target: Tensor, mass: Tensor, penalty: float) -> Dual:
    r"""Solve weighted ridge regression with an unpenalised intercept exactly.

    With :math:`\bar x, \bar t` the means weighted by m and :math:`s_i = \sqrt{m_i}`,

    .. math:: c = S\,(S K_c S + \alpha I)^{-1} S\,(t - \bar t), \qquad
              w = X^\top c, \qquad b = \bar t - \bar x^\top w

    where :math:`K_c` is the Gram matrix of :math:`x_i - \bar x`. Since :math:`K_c m = 0`, c adds
    up to zero and w needs no centring.

    Parameters
    ----------
    gram : Tensor of shape (n, n), float64
        :math:`K = X X^\top`.
    target : Tensor of shape (n, c)
    mass : Tensor of shape (n,)
        m, at least zero: weights of the subjects.
    penalty : float
        :math:`\alpha > 0`.
    """
    share = mass / mass.sum()
    mean = gram @ share
    centred = gram - mean[:, None] - mean[None, :] + share @ mean
    root = mass.sqrt()
    kernel = root[:, None] * centred * root[None, :]
    kernel.diagonal().add_(penalty)
    level = share @ target
    factor = torch.linalg.cholesky(kernel)
    right = root[:, None] * (target - level)
    coefficient = root[:, None] * torch.cholesky_solve(right, factor)
    return Dual(coefficient, level - mean @ coefficient)


def balance_classes(
    mass: Tensor, y: Tensor, site: Tensor, strength: float, n_classes: int = 2
) -> Tensor:
    r"""Return masses (n,) that bring the classes of every site nearer to equal weight.

    .. math:: m'_i \propto m_i\, q_{c(i)}^{-\gamma}

    with :math:`q_c` the share of the site's mass that class c has. The total mass of a site is
    kept. With :math:`\gamma = 1` all classes weigh alike, with 0 nothing changes.

    Parameters
    ----------
    mass : Tensor of shape (n,), positive
    y, site : Tensor of shape (n,), int64
        Labels, and numbers of sites from 0.
    strength : float
        :math:`\gamma`.
    n_classes : int
    """
    if strength == 0 or not len(mass):
        return mass
    group = n_classes * site + y
    empty = mass.new_zeros(n_classes * (int(site.max()) + 1))
    before = empty.index_add(0, group, mass)
    weight = mass * before[group] ** -strength
    after = empty.index_add(0, group, weight)
    whole_before, whole_after = (
        m.reshape(-1, n_classes).sum(1)[site] for m in (before, after)
    )
    return weight * whole_before / whole_after


def weigh_subjects(mass: Tensor, weight: Tensor | None, site: Tensor) -> Tensor:
    """Return masses (n,) times the subjects' weights, with the total mass of every site kept.

    Parameters
    ----------
    mass : Tensor of shape (n,)
    weight : Tensor of shape (n,) or None
        None leaves the masses as they are.
    site : Tensor of shape (n,), int64
        Numbers of sites from 0.
    """
    if weight is None or not len(mass):
        return mass
    weighted = mass * weight.to(mass)
    zero = mass.new_zeros(int(site.max()) + 1)
    before = zero.index_add(0, site, mass)
    after = zero.index_add(0, site, weighted)
    return weighted * (before / after.clamp(min=1e-300))[site]


# -- from statistics alone -------------------------------------------------------------------------
def add_to_root(root: Tensor, rows: Tensor) -> Tensor:
    r"""Return R' with :math:`R'^\top R' = R^\top R + A^\top A` for new rows A (n, q).

    R is triangular already, so that block by block only its own rows and A are rotated. The rest
    of A is then zero in the columns of R, and gets a triangle of its own.
    """
    rows = rows.to(root)
    done = len(root)
    if done:
        root = root.clone()
        rows = rows.clone()
    for start in range(0, done, BLOCK):
        block = root[start : start + BLOCK, start:]
        both = _turned(torch.cat([block, rows[:, start:]]), len(block))
        block.copy_(both[: len(block)])
        rows[:, start:] = both[len(block) :]
    rest = rows[:, done:]
    rest = (
        _turned(rest, len(rest))
        if len(rest) < rest.shape[1]
        else torch.linalg.qr(rest, "r").R
    )
    return torch.cat([root, F.pad(rest, (done, 0))]) if done else rest


def _turned(rows: Tensor, k: int) -> Tensor:
    """Rotate rows so that their leading k columns are triangular, by one matrix product."""
    rotated = torch.empty_like(rows)
    (turn, triangle) = torch.linalg.qr(rows[:, :k], mode="complete")
    rotated[:, :k] = triangle
    torch.mm(turn.T, rows[:, k:], out=rotated[:, k:])
    return rotated


def gram(z: Tensor) -> Tensor:
    r"""Return :math:`Z Z^\top` (m, m) of Z (m, p), computing only one of its two halves."""
    out = z.new_empty(len(z), len(z))
    parts = torch.arange(len(z), device=z.device).chunk(8)
    for part in parts:
        if not len(part):
            continue
        rows = slice(int(part[0]), int(part[-1]) + 1)
        out[rows, : rows.stop] = z[rows] @ z[: rows.stop].T
        out[: rows.start, rows] = out[rows, : rows.start].T
    return out


class Ridge(NamedTuple):
    """Ridge solution on the original features: scores (n, c) = x @ weight + bias.

    `noise` is the mean squared error of a new person, over the columns.
    """

    weight: Tensor
    bias: Tensor
    penalty: float
    noise: Tensor


def _standardise(one: Tensor, x: Tensor, n: float, z: Tensor) -> tuple[Tensor, Tensor]:
    """Write standardised features x (m, p) of a root into `z`; return mean and spread (p,)."""
    mean = (one @ x) / n
    torch.addr(x, one, mean, alpha=-1, out=z)  # centred: orthogonal to `one`
    sd = torch.linalg.vector_norm(z, dim=0) / math.sqrt(n)
    sd = torch.where(sd < 1e-5, torch.inf, sd)  # a constant edge gets weight zero
    z /= sd
    return mean, sd


def ridge_from_root(
    root: Tensor, penalties: list[float], spare: Tensor | None = None, columns: int = 1
) -> Ridge:
    r"""Solve :math:`\min \|t - b - Zw\|^2 + \alpha\|w\|^2`, Z the standardised features.

    Solved in the dual: the rows of R act as pseudo-subjects, so the cost is that of an
    m x m eigendecomposition with m = min(n, p + 2). The unpenalised intercept is projected out.
    Of several penalties the one with the least generalised cross-validation error is taken,

    .. math:: \mathrm{GCV}(\alpha) = \frac{\|(I - H)t\|^2 / n}{(1 - \mathrm{tr}(H) / n)^2}.

    Parameters
    ----------
    root : Tensor of shape (m, 1 + p + c), float64
    penalties : list of float
    spare : Tensor of the shape of `root`, optional
        Memory to work in; allocating as much anew takes longer than filling it.
    columns : int
        c; errors are added up over them.
    """
    one = root[:, 0]
    t = root[:, -columns:]
    n = float(one @ one)
    x = root[:, 1:-columns]
    z = torch.empty_like(x) if spare is None else spare[:, 1:-columns]
    mean, sd = _standardise(one, x, n, z)
    level = (one @ t) / n
    u = t - one[:, None] * level
    value, vector = torch.linalg.eigh(gram(z))
    value = value.clamp(min=0)
    along = vector.T @ u

    def gcv(alpha: float) -> float:
        shrink = value / (value + alpha)
        left = (1 - shrink)[:, None] * along
        rss = float((left**2).sum()) / columns
        freedom = 1 - (1 + float(shrink.sum())) / n
        return rss / n / max(freedom, 1e-3) ** 2

    alpha = min(penalties, key=gcv)
    dual = vector @ (along / (value + alpha)[:, None])
    weight = (z.T @ dual) / sd[:, None]
    bias = level - mean @ weight
    return Ridge(weight, bias, alpha, torch.tensor(gcv(alpha), dtype=root.dtype))
