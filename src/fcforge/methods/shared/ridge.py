r"""Weighted ridge regression in the dual: as many unknowns as subjects, not as edges.

.. math:: \min_{w, b} \sum_i m_i\,(t_i - b - x_i^\top w)^2 + \alpha\,\|w\|^2
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.errors import ConfigError
from fcforge.models.base import Model, Params
from fcforge.models.edge import PLAIN


def require_plain_edges(where: str, model: Model, do: str) -> None:
    """Raise `ConfigError` when a model's inputs are not edges: such have no ROI strength."""
    kind = getattr(model, "features", "z")
    if kind not in PLAIN:
        raise ConfigError(
            f"ROI strength can be taken out of edges, not out of features = '{kind}'.",
            where=where,
            do=do,
        )


def moment_rows(x: Tensor, y: Tensor) -> Tensor:
    """Rows [1, x, t] (n, q + 2), float64, of features x (n, q) and diagnoses, t = -1 or +1."""
    rows = torch.empty(len(x), x.shape[1] + 2, dtype=torch.float64, device=x.device)
    rows[:, 0], rows[:, 1:-1], rows[:, -1] = 1.0, x, 2.0 * y - 1.0
    return rows


def recalled_targets(y: Tensor, logits: Tensor, l1: float, l2: float) -> Tensor:
    """Mean (k,), weighted by l1 and l2, of diagnoses as -1 or +1 and of stored scores."""
    t, u = 2.0 * y.double() - 1.0, 0.5 * (logits[:, 1] - logits[:, 0])
    return (l1 * t + l2 * u) / max(l1 + l2, 1e-300)


def linear_head(weight: Tensor, bias: Tensor) -> Params:
    """Parameters of a linear model with logits (-s, s), s = x @ weight + bias."""
    return {
        "head.0.weight": torch.stack([-weight, weight]).float(),
        "head.0.bias": torch.stack([-bias, bias]).float(),
    }


class Dual(NamedTuple):
    """Solution as a combination of subjects: w = sum_i coefficient_i x_i, and b.

    Attributes
    ----------
    coefficient : Tensor of shape (n,)
        Adds up to zero, because the intercept is free.
    bias : Tensor of shape ()
    """

    coefficient: Tensor
    bias: Tensor


def dual_ridge(gram: Tensor, target: Tensor, mass: Tensor, penalty: float) -> Dual:
    r"""Exact minimum, the unpenalised intercept included.

    With :math:`\bar x, \bar t` the means weighted by m and :math:`s_i = \sqrt{m_i}`,

    .. math:: c = S\,(S K_c S + \alpha I)^{-1} S\,(t - \bar t), \qquad
              w = X^\top c, \qquad b = \bar t - \bar x^\top w

    where :math:`K_c` is the Gram matrix of :math:`x_i - \bar x`. Since :math:`K_c m = 0`, c adds
    up to zero and w needs no centring.

    Parameters
    ----------
    gram : Tensor of shape (n, n), float64
        :math:`K = X X^\top`.
    target : Tensor of shape (n,)
    mass : Tensor of shape (n,)
        m, at least zero: how many subjects a subject counts for.
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
    right = (root * (target - level))[:, None]
    coefficient = root * torch.cholesky_solve(right, factor)[:, 0]
    return Dual(coefficient, level - mean @ coefficient)
