r"""Which edges moved a score: exact for linear models, integrated gradients for all others.

With :math:`z = \mathrm{artanh}(C)` of a scan's FC and :math:`z'` of a reference scan, edge e
contributes to the score f

.. math:: c_e = (z_e - z'_e) \int_0^1 \frac{\partial f}{\partial z_e}
          \big(z' + a (z - z')\big) \, da, \qquad \sum_e c_e = f(z) - f(z').

Where f is linear in z this is :math:`w_e (z_e - z'_e)`, and one gradient is exact. Elsewhere
(matrix-log features, networks) the integral is Gauss-Legendre quadrature. A graph model looks only
at edges above a threshold, so its score jumps where an edge crosses it on the way: such a jump
belongs to the edge that crosses, and is shared by those that cross within the same of many steps.

References
----------
Sundararajan, Taly, Yan (2017), Axiomatic attribution for deep networks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fcforge.graphs import edges, fisher_z, from_edges
from fcforge.models.base import Model
from fcforge.models.edge import Linear

Score = Callable[[Tensor], Tensor]  # FC (m, R, R), float64 -> scores (m,)
# gradients on the way: of matrix-log features; of networks
SMOOTH = 16
KINKED = 64


@dataclass(frozen=True)
class Scorer:
    """A score and how smooth it is.

    Attributes
    ----------
    score : callable
        FC (m, R, R), float64 -> (m,), differentiable.
    steps : int
        Gradients on the way from the reference; 1 for a score that is linear in Fisher z.
    kept : callable or None
        Edges (m, E) -> whether the model sees them, where it has a threshold.
    """

    score: Score
    steps: int = SMOOTH
    kept: Callable[[Tensor], Tensor] | None = None

    @property
    def exact(self) -> bool:
        """Whether contributions are the terms of a linear model."""
        return self.steps == 1

    @classmethod
    def of(cls, model: Model, score: Score, *, plain: bool = True) -> Scorer:
        """Scorer of a model; `plain` where the score is the margin of its logits itself."""
        if isinstance(model, Linear):
            linear = plain and model.features in ("z", "centred")
            return cls(score, 1 if linear else SMOOTH if plain else KINKED)
        settings: Any = model
        if not hasattr(model, "tau"):
            return cls(score, KINKED)
        absolute = settings.edges == "absolute"
        tau = settings.tau
        return cls(score, KINKED, lambda r: (r.abs() if absolute else r) >= tau)


class Attribution(NamedTuple):
    """What each edge added to the score of n scans; E = R (R - 1) / 2 edges, row by row.

    Attributes
    ----------
    contribution : Tensor of shape (n, E)
    slope : Tensor of shape (n, E)
        Mean gradient on the way: positive where a stronger edge raises the score.
    score : Tensor of shape (n,)
    base : Tensor of shape ()
        Score of the reference.
    """

    contribution: Tensor
    slope: Tensor
    score: Tensor
    base: Tensor


def attribute(scorer: Scorer, fc: Tensor, reference: Tensor) -> Attribution:
    """Contributions of every edge of scans (n, R, R) against a reference scan (R, R)."""
    fc = fc.double()
    reference = reference.double()
    begin = fisher_z(edges(reference))
    way = fisher_z(edges(fc)) - begin
    along = _with_jumps if scorer.kept is not None else _smooth
    parts = [along(scorer, begin, step) for step in way]
    with torch.no_grad():
        score = (
            torch.cat([scorer.score(scan[None]) for scan in fc])
            if len(fc)
            else begin[:0]
        )
        base = scorer.score(reference[None])[0]
    slope = torch.stack([s for s, _ in parts]) if parts else way
    jumps = torch.stack([j for _, j in parts]) if parts else way
    return Attribution(way * slope + jumps, slope, score, base)


def slope_at(scorer: Scorer, fc: Tensor) -> Tensor:
    """Gradient (E,) of the score by each Fisher-z edge at one scan (R, R): a linear model's w."""
    return _gradient(scorer.score, fisher_z(edges(fc.double()))[None])[0]


def _gradient(score: Score, z: Tensor) -> Tensor:
    """Gradients (m, E) at Fisher-z edges (m, E); zero where the score does not look."""
    z = z.clone().requires_grad_()
    with torch.enable_grad():
        found = score(from_edges(torch.tanh(z)))
        if not found.requires_grad:
            return torch.zeros_like(z)
        (gradient,) = torch.autograd.grad(found.sum(), z, allow_unused=True)
    if gradient is None:
        return torch.zeros_like(z)
    # eigenvectors of a graph with equal eigenvalues have no gradient
    return torch.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)


def _smooth(scorer: Scorer, begin: Tensor, way: Tensor) -> tuple[Tensor, Tensor]:
    """Mean gradient (E,) on the straight way, and no jumps."""
    place, weight = np.polynomial.legendre.leggauss(scorer.steps)
    at = torch.from_numpy((place + 1) / 2)
    gradient = _gradient(scorer.score, begin + at[:, None] * way)
    return torch.from_numpy(weight / 2) @ gradient, torch.zeros_like(way)


def _with_jumps(scorer: Scorer, begin: Tensor, way: Tensor) -> tuple[Tensor, Tensor]:
    """Mean gradient (E,), and what edges add (E,) by crossing the threshold."""
    at = torch.linspace(0, 1, scorer.steps + 1, dtype=way.dtype)
    points = begin + at[:, None] * way
    gradient = _gradient(scorer.score, (points[1:] + points[:-1]) / 2)
    with torch.no_grad():
        rise = scorer.score(from_edges(torch.tanh(points))).diff()
    kept = scorer.kept(torch.tanh(points)) if scorer.kept else points > 0
    crossing = (kept[1:] != kept[:-1]).double()
    jump = rise - gradient @ way / scorer.steps
    each = jump / crossing.sum(1).clamp(min=1)
    return gradient.mean(0), each @ crossing
