r"""Ridge regression on edges, two ways: of weighted subjects, and of a root.

.. math:: \min_{w, b} \sum_i m_i\,(t_i - b - x_i^\top w)^2 + \alpha\,\|w\|^2

in the dual: as many unknowns as subjects, not as edges. A root is what is left of the subjects where only
statistics are kept: the triangular matrix R with :math:`R^\top R = A^\top A`, where the rows of A are
[1, x_i, t_i]. It has at most as many rows as columns, however many subjects there are.

The letters: m_i is the weight (mass) of subject i, t_i its target and x_i its features; :math:`\alpha`
is the penalty. Shapes: n subjects, q features, c columns of targets (one, or one per class if there are
more than two), k remembered subjects, r rows of a root.
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
    """Return targets (n, c), float64: -1 or +1 per class (one column for two), or a number.

    `y` (n,) are class labels, or numbers if there is a single output.
    """
    if n_outputs == 1:
        return y.double()[:, None]
    member = F.one_hot(y, n_outputs) if n_outputs > 2 else y[:, None]
    return 2.0 * member.double() - 1.0


def recalled_targets(y: Tensor, logits: Tensor, l1: float, l2: float) -> Tensor:
    """Return the targets (k, c) of remembered subjects: the mean of label and stored score.

    Parameters
    ----------
    y : Tensor of shape (k,)
        Labels; they become -1 and +1 (`coded`).
    logits : Tensor of shape (k, n_outputs)
        Logits that were stored with the subjects.
    l1, l2 : float
        Weights of the label and of the stored score in the mean.
    """
    n_outputs = logits.shape[1]
    score = logits
    if n_outputs == 2:  # the inverse of `logits_of`
        score = 0.5 * (logits[:, 1:] - logits[:, :1])
    return (l1 * coded(y, n_outputs) + l2 * score) / max(l1 + l2, 1e-300)


def logits_of(score: Tensor, n_outputs: int) -> Tensor:
    """Return logits (..., n_outputs) of scores s (..., c): (-s, s) for two classes, else s."""
    return torch.cat([-score, score], -1) if n_outputs == 2 else score


def linear_head(
    weight: Tensor, bias: Tensor, n_outputs: int = 2, dtype: torch.dtype = torch.float32
) -> Params:
    """Return the parameters of the model `linear` with scores x @ weight (q, c) + bias (c,).

    Weight and bias are turned into those of `n_outputs` logits (`logits_of`), of type `dtype`.
    """
    return {
        "head.0.weight": logits_of(weight, n_outputs).T.to(dtype).contiguous(),
        "head.0.bias": logits_of(bias, n_outputs).to(dtype),
    }


class Dual(NamedTuple):
    """Solution as a combination of subjects: w = sum_i coefficient_i x_i, and the intercept b.

    Attributes
    ----------
    coefficient : Tensor of shape (n, c)
        One per subject. They add up to zero, because the intercept is free.
    bias : Tensor of shape (c,)
        The intercept b.
    """

    coefficient: Tensor
    bias: Tensor


def dual_ridge(gram: Tensor, target: Tensor, mass: Tensor, penalty: float) -> Dual:
    r"""Solve weighted ridge regression with an unpenalised intercept exactly.

    With :math:`\bar x, \bar t` the means weighted by m, and S the diagonal matrix of
    :math:`\sqrt{m_i}`,

    .. math:: a = S\,(S \tilde K S + \alpha I)^{-1} S\,(t - \bar t), \qquad
              w = X^\top a, \qquad b = \bar t - \bar x^\top w

    where a are the coefficients and :math:`\tilde K` (`centred`) is the Gram matrix of
    :math:`x_i - \bar x`. Since :math:`\tilde K m = 0`, a adds up to zero and w needs no centring.

    Parameters
    ----------
    gram : Tensor of shape (n, n), float64
        :math:`K = X X^\top`.
    target : Tensor of shape (n, c)
        t, by column.
    mass : Tensor of shape (n,)
        m, at least zero: weights of the subjects.
    penalty : float
        :math:`\alpha > 0`.
    """
    share = mass / mass.sum()
    with_mean = gram @ share  # inner products of every subject with the mean subject
    centred = gram - with_mean[:, None] - with_mean[None, :] + share @ with_mean
    sqrt_mass = mass.sqrt()[:, None]
    kernel = sqrt_mass * centred * sqrt_mass.T
    kernel.diagonal().add_(penalty)
    mean_target = share @ target
    factor = torch.linalg.cholesky(kernel)
    right = sqrt_mass * (target - mean_target)
    coefficient = sqrt_mass * torch.cholesky_solve(right, factor)
    return Dual(coefficient, mean_target - with_mean @ coefficient)


def balance_classes(
    mass: Tensor, y: Tensor, site: Tensor, strength: float, n_classes: int = 2
) -> Tensor:
    r"""Return masses (n,) that bring the classes of every site nearer to equal weight.

    .. math:: m'_i \propto m_i\, M_i^{-\gamma}

    with :math:`M_i` the mass of all subjects of the same class at the same site. The total mass of a
    site is kept. With :math:`\gamma = 1` all classes weigh alike, with 0 nothing changes.

    Parameters
    ----------
    mass : Tensor of shape (n,), positive
        Weights m of the subjects.
    y, site : Tensor of shape (n,), int64
        Labels, and numbers of sites from 0.
    strength : float
        :math:`\gamma`.
    n_classes : int
    """
    if strength == 0 or not len(mass):
        return mass
    group = n_classes * site + y  # one number for every class of every site
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
        Masses m before the weights.
    weight : Tensor of shape (n,) or None
        The user's training weights of the subjects; None leaves the masses as they are.
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
    r"""Return the root R' with :math:`R'^\top R' = R^\top R + A^\top A`, for the rows A of new subjects.

    R is triangular already, so that block by block only its own rows and A are rotated. After that A
    is zero in the leading columns, those with a diagonal entry in R. The rest of A gets a triangle of
    its own.

    Parameters
    ----------
    root : Tensor of shape (r, columns), float64
        R; without rows (r = 0) before the first subjects.
    rows : Tensor of shape (n, columns)
        A, for example the rows [1, x_i, t_i].

    Returns
    -------
    Tensor of shape (min(r + n, columns), columns), float64
    """
    rows = rows.to(root)
    done = len(root)  # columns with a diagonal entry in R
    if done:  # they are changed in place below
        root = root.clone()
        rows = rows.clone()
    for start in range(0, done, BLOCK):
        block = root[start : start + BLOCK, start:]
        both = _turned(torch.cat([block, rows[:, start:]]), len(block))
        block.copy_(both[: len(block)])
        rows[:, start:] = both[len(block) :]
    rest = rows[:, done:]
    wide = len(rest) < rest.shape[1]  # fewer rows than columns
    rest = _turned(rest, len(rest)) if wide else torch.linalg.qr(rest, "r").R
    return torch.cat([root, F.pad(rest, (done, 0))]) if done else rest


def _turned(rows: Tensor, k: int) -> Tensor:
    """Return rotated rows whose leading `k` columns are triangular.

    One rotation Q turns all columns, so that inner products of columns stay: the leading ones become
    the R of their own QR decomposition, the others are multiplied by the transpose of Q.
    """
    rotated = torch.empty_like(rows)
    turn, triangle = torch.linalg.qr(rows[:, :k], mode="complete")
    rotated[:, :k] = triangle
    torch.mm(turn.T, rows[:, k:], out=rotated[:, k:])
    return rotated


def gram(z: Tensor) -> Tensor:
    r"""Return :math:`Z Z^\top` (r, r) of Z (r, q), computing only one of its two halves.

    Band by band of rows, the part up to the diagonal is computed and copied across it.
    """
    out = z.new_empty(len(z), len(z))
    parts = torch.arange(len(z), device=z.device).chunk(8)  # eight bands
    for part in parts:
        if not len(part):
            continue
        rows = slice(int(part[0]), int(part[-1]) + 1)
        out[rows, : rows.stop] = z[rows] @ z[: rows.stop].T
        out[: rows.start, rows] = out[rows, : rows.start].T
    return out


class Ridge(NamedTuple):
    """Ridge solution on the original features: scores (n, c) = x @ weight + bias.

    Attributes
    ----------
    weight : Tensor of shape (q, c)
    bias : Tensor of shape (c,)
    penalty : float
        The penalty that was chosen.
    noise : Tensor, scalar
        Estimated squared error of a new person, the mean over the columns.
    """

    weight: Tensor
    bias: Tensor
    penalty: float
    noise: Tensor


def _standardise(one: Tensor, x: Tensor, n: float, z: Tensor) -> tuple[Tensor, Tensor]:
    """Write the standardised features of a root into `z` and return their means and spreads (q,).

    Parameters
    ----------
    one : Tensor of shape (r,)
        First column of the root. It stands for the constant 1 that every subject has.
    x : Tensor of shape (r, q)
        Columns of the features in the root.
    n : float
        Number of subjects, or the sum of their weights.
    z : Tensor of shape (r, q)
        Memory for the result. A constant feature gets zeros.
    """
    # the columns of a root have the inner products that the subjects' columns have
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
    r x r eigendecomposition with r = min(n, 1 + q + c). The unpenalised intercept is projected out.
    Of several penalties the one with the least generalised cross-validation error is taken,

    .. math:: \mathrm{GCV}(\alpha) = \frac{\|(I - H)t\|^2 / n}{(1 - \mathrm{tr}(H) / n)^2}

    where H t are the fitted values. The error is the mean over the columns of t.

    Parameters
    ----------
    root : Tensor of shape (r, 1 + q + c), float64
        R of the rows [1, x_i, t_i] of all subjects.
    penalties : list of float
        Values of :math:`\alpha` to choose from; a single one is taken as it is.
    spare : Tensor of the shape of `root`, optional
        Memory to work in, which is overwritten; allocating as much anew takes longer than filling it.
    columns : int
        c, number of columns of targets.

    Returns
    -------
    Ridge
        On the features before standardisation.
    """
    one = root[:, 0]
    t = root[:, -columns:]
    n = float(one @ one)  # number of subjects, or the sum of their weights
    x = root[:, 1:-columns]
    z = torch.empty_like(x) if spare is None else spare[:, 1:-columns]
    mean, sd = _standardise(one, x, n, z)
    mean_target = (one @ t) / n
    centred = t - one[:, None] * mean_target
    eigenvalue, vector = torch.linalg.eigh(gram(z))
    eigenvalue = eigenvalue.clamp(min=0)
    along = vector.T @ centred  # targets in the coordinates of the eigenvectors

    def gcv(alpha: float) -> float:
        """Return the generalised cross-validation error of a penalty."""
        shrink = eigenvalue / (eigenvalue + alpha)  # eigenvalues of H
        residual = (1 - shrink)[:, None] * along
        rss = float((residual**2).sum()) / columns
        freedom = 1 - (1 + float(shrink.sum())) / n  # the intercept takes one, too
        return rss / n / max(freedom, 1e-3) ** 2

    alpha = min(penalties, key=gcv)
    dual = vector @ (along / (eigenvalue + alpha)[:, None])
    weight = (z.T @ dual) / sd[:, None]
    bias = mean_target - mean @ weight
    return Ridge(weight, bias, alpha, torch.tensor(gcv(alpha), dtype=root.dtype))
