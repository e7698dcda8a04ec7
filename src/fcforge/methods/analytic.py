r"""Analytic ridge: the exact joint solution from accumulated sufficient statistics.

Every site adds its Fisher-z edges X and labels t (-1 control, +1 patient) to the second moments
:math:`M = [1, X, t]^\top [1, X, t]`, kept as the square root R with :math:`R^\top R = M` (the R of
a QR decomposition: the same numbers in min(n, p + 2) rows instead of p + 2). From M alone follow
the standardisation of the edges, the ridge weights and the penalty (generalised
cross-validation). Nothing is forgotten: after the last site the weights are those of one ridge
regression on all sites together, whatever the order. No subject is kept, but second moments of
few subjects say a lot about them: see the privacy audit.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.graphs import centre_edges
from fcforge.methods.base import Declared, Inputs, Lane, Method, Model, PublicView, SiteView
from fcforge.methods.shared.ridge import linear_head, moment_rows, require_plain_edges
from fcforge.randomness import torch_rng
from fcforge.settings import Count, NotNegative, Positive

BLOCK = 64  # rows of a root that are turned at once


def add_to_root(root: Tensor, rows: Tensor) -> Tensor:
    r"""R' with :math:`R'^\top R' = R^\top R + A^\top A` for new rows A (n, q).

    R is triangular already, so that block by block only its own rows and A have to be turned.
    What is then left of A is zero in the columns of R, and gets a triangle of its own.
    """
    rows, done = rows.to(root), len(root)
    if done:
        root, rows = root.clone(), rows.clone()
    for start in range(0, done, BLOCK):
        block = root[start : start + BLOCK, start:]
        both = _turned(torch.cat([block, rows[:, start:]]), len(block))
        block.copy_(both[: len(block)])
        rows[:, start:] = both[len(block) :]
    rest = rows[:, done:]
    rest = _turned(rest, len(rest)) if len(rest) < rest.shape[1] else torch.linalg.qr(rest, "r").R
    return torch.cat([root, F.pad(rest, (done, 0))]) if done else rest


def _turned(rows: Tensor, k: int) -> Tensor:
    """Rows rotated so that their leading k columns are triangular: one matrix product for all."""
    found, (turn, triangle) = torch.empty_like(rows), torch.linalg.qr(rows[:, :k], mode="complete")
    found[:, :k] = triangle
    torch.mm(turn.T, rows[:, k:], out=found[:, k:])
    return found


def gram(z: Tensor, blocks: int = 8) -> Tensor:
    r""":math:`Z Z^\top` (m, m) of Z (m, p); the half above the diagonal is not computed twice."""
    out = z.new_empty(len(z), len(z))
    parts = torch.arange(len(z), device=z.device).chunk(blocks)
    for rows in (slice(int(p[0]), int(p[-1]) + 1) for p in parts if len(p)):
        out[rows, : rows.stop] = z[rows] @ z[: rows.stop].T
        out[: rows.start, rows] = out[rows, : rows.start].T
    return out


class Ridge(NamedTuple):
    """Ridge solution on the original features: score = x @ weight + bias."""

    weight: Tensor
    bias: Tensor
    penalty: float
    noise: Tensor


def ridge_from_root(root: Tensor, penalties: list[float], spare: Tensor | None = None) -> Ridge:
    r"""Solve :math:`\min \|t - b - Zw\|^2 + \alpha\|w\|^2`, Z the standardised features.

    Solved in the dual: the rows of R act as pseudo-subjects, so the cost is that of an
    m x m eigendecomposition with m = min(n, p + 2). The unpenalised intercept is projected out.
    Of several penalties the one with the least generalised cross-validation error is taken,

    .. math:: \mathrm{GCV}(\alpha) = \frac{\|(I - H)t\|^2 / n}{(1 - \mathrm{tr}(H) / n)^2}.

    Parameters
    ----------
    root : Tensor of shape (m, 1 + p + 1), float64
    penalties : list of float
    spare : Tensor of the shape of `root`, optional
        Memory to work in; new memory of that size takes longer to get than to fill.
    """
    one, x, t = root[:, 0], root[:, 1:-1], root[:, -1]
    n = float(one @ one)
    mean = (one @ x) / n
    z = torch.empty_like(x) if spare is None else spare[:, 1:-1]
    torch.addr(x, one, mean, alpha=-1, out=z)  # centred: orthogonal to `one`
    sd = torch.linalg.vector_norm(z, dim=0) / math.sqrt(n)
    sd = torch.where(sd < 1e-5, torch.inf, sd)  # a flat edge says nothing: weight zero
    z /= sd
    u = t - one * ((one @ t) / n)
    value, vector = torch.linalg.eigh(gram(z))
    value = value.clamp(min=0)
    along = vector.T @ u

    def gcv(alpha: float) -> float:
        shrink = value / (value + alpha)
        rss = float((((1 - shrink) * along) ** 2).sum())
        return rss / n / max(1 - (1 + float(shrink.sum())) / n, 1e-3) ** 2

    alpha = min(penalties, key=gcv)
    dual = vector @ (along / (value + alpha))
    weight = (z.T @ dual) / sd
    bias = (one @ t) / n - mean @ weight
    return Ridge(weight, bias, alpha, torch.tensor(gcv(alpha), dtype=root.dtype))


@dataclass(frozen=True)
class Analytic(Method):
    """Ridge on Fisher-z edges without ROI strength, learned site by site in closed form.

    Parameters
    ----------
    penalty : float or None
        Ridge penalty on standardised edges; None chooses it by generalised cross-validation of
        the statistics, per stage, without touching a test split.
    centre : bool
        Take ROI strength out of the edges first (`centre_edges`).
    projection : int
        Dimension of a fixed random projection of the edges (0: none). Caps the size of the
        statistics at (projection + 2)^2 numbers, at some loss of accuracy.
    public_weight : float
        What one of a run's public people counts, a site's own subject counting 1.
    """

    penalty: NotNegative | None = None
    centre: bool = True
    projection: Count = 0
    public_weight: Positive = 0.5

    name = "analytic"
    title = "Analytic ridge"
    source = "sufficient statistics of ridge regression"
    keeps = "statistics"
    depends_on = "set"
    fits = False
    from_public = "statistics"
    weighs = True
    models = ("linear",)

    def check_model(self, model: Model) -> None:
        """ROI strength is taken out of plain edges alone."""
        if self.centre:
            require_plain_edges(self.where(), model, "Set centre = false, or features = 'z'.")

    def statistics_rows(self, model: Model, inputs: Inputs, y: Tensor) -> Tensor:
        """Rows [1, x, t]; x is a fixed linear map of the edges, equal at every hospital."""
        rows = moment_rows(inputs["edges"], y)
        x = rows[:, 1:-1]
        if self.centre:
            centre_edges(x, out=x)
        return moment_rows(x @ self._basis(x), y) if self.projection else rows

    def _basis(self, x: Tensor) -> Tensor:
        rng = torch_rng(0, "analytic projection", x.shape[1], self.projection)
        basis = torch.randn(x.shape[1], self.projection, generator=rng, dtype=torch.float64)
        return basis.to(x) / math.sqrt(self.projection)

    def _to_edges(self, weight: Tensor, edges: Tensor) -> Tensor:
        """Weights of features -> weights of edges: the transpose of the map."""
        weight = self._basis(edges) @ weight if self.projection else weight
        return centre_edges(weight[None])[0] if self.centre else weight

    def start(self, model: Model, lane: Lane, rng: torch.Generator) -> Lane:
        """No rows yet."""
        weight = lane.params["head.0.weight"]
        width = (self.projection or weight.shape[1]) + 2
        root = torch.zeros(0, width, dtype=torch.float64, device=weight.device)
        return lane._replace(state={"root": root})

    def declares(self, model: Model, lane: Lane, sites: int) -> dict[str, Declared]:
        """Root of the moments: as many rows as people, at most as many as columns."""
        width = (self.projection or lane.params["head.0.weight"].shape[1]) + 2
        return {"root": Declared((None, width), torch.float64, triangular=True)}

    def learn_public(self, model: Model, lane: Lane, public: PublicView) -> Lane:
        """Statistics of the public people, each worth `public_weight` of a site's own."""
        worth = torch.full_like(public.y, self.public_weight, dtype=torch.float64)
        return self._add(model, lane, public.inputs(model), public.y, worth)

    def end_site(self, model: Model, lane: Lane, site: SiteView, rng: torch.Generator) -> Lane:
        """Add the site's statistics and solve again."""
        return self._add(model, lane, site.inputs(model), site.y, site.weight)

    def _add(
        self, model: Model, lane: Lane, inputs: Inputs, y: Tensor, worth: Tensor | None
    ) -> Lane:
        rows = self.statistics_rows(model, inputs, y).to(lane.state["root"])
        rows = rows if worth is None else rows * worth.to(rows).sqrt()[:, None]
        root = add_to_root(lane.state["root"], rows)
        spare = rows if rows.shape == root.shape else None
        ridge = ridge_from_root(root, self._penalties(rows.shape[1] - 2), spare)
        weight = self._to_edges(ridge.weight, inputs["edges"][:1].double())
        # labels at -1 and +1 with common noise: log odds = 2 score / noise, half to each side
        params = linear_head(weight / ridge.noise, ridge.bias / ridge.noise)
        return Lane(params, lane.stats, {"root": root})

    def _penalties(self, n_features: int) -> list[float]:
        if self.penalty is not None:
            return [self.penalty]
        return [n_features * 10 ** (k / 4) for k in range(-6, 9)]
