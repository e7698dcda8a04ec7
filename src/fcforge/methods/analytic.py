r"""Analytic ridge: the exact joint solution from accumulated sufficient statistics.

Every site adds its Fisher-z edges X and labels t (-1 control, +1 patient) to the second moments
:math:`M = [1, X, t]^\top [1, X, t]`, kept as the square root R with :math:`R^\top R = M` (the R of
a QR decomposition: the same numbers in min(n, p + 2) rows instead of p + 2). From M alone follow
the standardisation of the edges, the ridge weights and the penalty (generalised
cross-validation). Nothing is forgotten: after the last site the weights are those of one ridge
regression on all sites together, whatever the order. No subject is kept, but second moments of
few subjects say a lot about them: see the privacy audit.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.graphs import centre_edges
from fcforge.methods.base import (
    Declared,
    Inputs,
    Lane,
    Method,
    Model,
    PublicView,
    SiteView,
)
from fcforge.methods.shared import ridge
from fcforge.settings import NotNegative, Positive


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
    public_weight : float
        What one of a run's public people counts, a site's own subject counting 1.
    """

    penalty: NotNegative | None = None
    centre: bool = True
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
            ridge.require_plain_edges(
                self.where(), model, "Set centre = false, or features = 'z'."
            )

    def statistics_rows(self, model: Model, inputs: Inputs, y: Tensor) -> Tensor:
        """Rows [1, x, t]; x are the edges, without ROI strength where that is asked for."""
        rows = ridge.moment_rows(inputs["edges"], y)
        x = rows[:, 1:-1]
        if self.centre:
            centre_edges(x, out=x)
        return rows

    def start(self, model: Model, lane: Lane, rng: torch.Generator) -> Lane:
        """No rows yet."""
        weight = lane.params["head.0.weight"]
        width = weight.shape[1] + 2
        root = torch.zeros(0, width, dtype=torch.float64, device=weight.device)
        return lane._replace(state={"root": root})

    def declares(self, model: Model, lane: Lane, sites: int) -> dict[str, Declared]:
        """Root of the moments: as many rows as people, at most as many as columns."""
        width = lane.params["head.0.weight"].shape[1] + 2
        return {"root": Declared((None, width), torch.float64, triangular=True)}

    def learn_public(self, model: Model, lane: Lane, public: PublicView) -> Lane:
        """Statistics of the public people, each worth `public_weight` of a site's own."""
        worth = torch.full_like(public.y, self.public_weight, dtype=torch.float64)
        return self._add(model, lane, public.inputs(model), public.y, worth)

    def end_site(
        self, model: Model, lane: Lane, site: SiteView, rng: torch.Generator
    ) -> Lane:
        """Add the site's statistics and solve again, where anybody asks for the solution."""
        return self._add(
            model, lane, site.inputs(model), site.y, site.weight, site.wanted
        )

    def _add(
        self,
        model: Model,
        lane: Lane,
        inputs: Inputs,
        y: Tensor,
        worth: Tensor | None,
        solved: bool = True,
    ) -> Lane:
        rows = self.statistics_rows(model, inputs, y).to(lane.state["root"])
        rows = rows if worth is None else rows * worth.to(rows).sqrt()[:, None]
        root = ridge.add_to_root(lane.state["root"], rows)
        if not solved:
            return lane._replace(state={"root": root})
        spare = rows if rows.shape == root.shape else None
        found = ridge.ridge_from_root(root, self._penalties(rows.shape[1] - 2), spare)
        weight = found.weight
        if self.centre:  # the transpose of the same map
            weight = centre_edges(weight[None])[0]
        # labels at -1 and +1 with common noise: log odds = 2 score / noise, half to each side
        params = ridge.linear_head(weight / found.noise, found.bias / found.noise)
        return Lane(params, lane.stats, {"root": root})

    def _penalties(self, n_features: int) -> list[float]:
        if self.penalty is not None:
            return [self.penalty]
        return [n_features * 10 ** (k / 4) for k in range(-6, 9)]
