r"""Analytic ridge: the exact joint solution from accumulated sufficient statistics.

Every site adds its features X and labels t (-1 control, +1 patient; a column of each of more
classes; a number as it is) to the second moments
:math:`M = [1, X, t]^\top [1, X, t]`, kept as the square root R with :math:`R^\top R = M` (the R of
a QR decomposition: the same numbers in min(n, 1 + q + c) rows instead of 1 + q + c). From M alone follow
the standardisation of the features and the ridge weights. Nothing is forgotten: after the last
site the weights are those of one ridge regression on all sites together, whatever the order. No
subject is kept, but second moments of few subjects reveal a lot about them: see the privacy audit.

Shapes: n subjects so far, q features, c columns of labels (one, or one per class if there are more than
two).
A lane is one training run: one learner, order of sites and seed.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fcforge.base_model.model import PENALTY
from fcforge.core.settings import above, limits, within
from fcforge.methods.base import (
    EVERY_TARGET,
    Inputs,
    Lane,
    Method,
    Model,
    PublicView,
    SiteView,
)
from fcforge.methods.shared import ridge
from fcforge.models.edge import WHOLE_LOG


class AnalyticState(NamedTuple):
    """Root R of the second moments: upper triangular, float64, min(n, 1 + q + c) rows of 1 + q + c."""

    root: Tensor


def moment_rows(model: Model, inputs: Inputs, y: Tensor) -> Tensor:
    """Return rows [1, x, t] (n, 1 + q + c) of features x (n, q) and coded labels t (n, c).

    The method keeps their second moments.
    """
    t = ridge.coded(y, model.n_outputs)
    return torch.cat([torch.ones_like(t[:, :1]), inputs["edges"], t], 1)


@limits(penalty=within(1e-6, 1000), public_weight=above(0))
@dataclass(frozen=True)
class Analytic(Method):
    """Ridge on the whole matrix logarithm, learned site by site in closed form.

    Plain edges are a setting of its model: ``{ name = "linear", features = "centred" }``.

    Parameters
    ----------
    penalty : float or "gcv"
        Ridge penalty per standardised feature. The default, that of the base model, was chosen on
        the public subjects of ABIDE's fourteen smaller sites (paper/choices/ridge_penalty.json).
        "gcv" chooses it at every stage by generalised cross-validation of the statistics, without
        touching a test split.
    public_weight : float
        Weight of a run's public subject; a site's own subject has weight 1.
    """

    penalty: float | Literal["gcv"] = PENALTY
    public_weight: float = 0.5

    name = "analytic"
    title = "Analytic ridge"
    source = "sufficient statistics of ridge regression"
    keeps = "statistics"
    depends_on = "set"
    fits = False
    from_public = "statistics"
    models = ("linear",)
    features = WHOLE_LOG
    learns = EVERY_TARGET
    State = AnalyticState

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane with the moments of the public subjects, or with none."""
        weight = lane.params["head.0.weight"]
        width = weight.shape[1] + 1 + ridge.n_columns(model.n_outputs)
        root = torch.zeros(0, width, dtype=torch.float64, device=weight.device)
        lane = lane._replace(state=AnalyticState(root))
        if public is None:
            return lane
        return self._add(model, lane, public, weight=self.public_weight)

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Add the site's moments, and solve again if the model after this site is wanted."""
        return self._add(model, lane, site, solved=site.wanted)

    def _add(
        self,
        model: Model,
        lane: Lane,
        subjects: PublicView | SiteView,
        weight: float = 1.0,
        solved: bool = True,
    ) -> Lane:
        """Return the lane with the moments of some subjects added to its root.

        Parameters
        ----------
        model : Model
        lane : Lane
        subjects : PublicView or SiteView
            The public subjects, or the training subjects of a site.
        weight : float
            Weight of each of these subjects, besides the user's training weights.
        solved : bool
            Whether to compute the model of all subjects so far, too; otherwise the lane's parameters
            stay as they were.
        """
        rows = moment_rows(model, subjects.inputs(model), subjects.y)
        # a row times the root of its weight: moments are products of two rows
        rows = rows.to(lane.state.root).mul_(math.sqrt(weight))
        if isinstance(subjects, SiteView) and subjects.weight is not None:
            rows.mul_(subjects.weight.sqrt()[:, None])
        root = ridge.add_to_root(lane.state.root, rows)
        if not solved:
            return lane.with_state(root=root)
        spare = rows if rows.shape == root.shape else None  # no longer needed
        outputs = model.n_outputs
        columns = ridge.n_columns(outputs)
        penalties = self._penalties(rows.shape[1] - 1 - columns)
        solution = ridge.ridge_from_root(root, penalties, spare, columns)
        # If scores are normal around the labels -1 and +1 with variance `noise`, the log odds of a
        # patient are 2 score / noise. They are the difference of the logits (-s, s) of s = score / noise.
        noise = solution.noise if outputs > 1 else torch.ones_like(solution.noise)
        scaled = solution.weight / noise, solution.bias / noise
        params = ridge.linear_head(*scaled, outputs)
        return Lane(params, lane.stats, AnalyticState(root))

    def _penalties(self, n_features: int) -> list[float]:
        """Return the penalties to choose from: the setting, or with "gcv" a grid of 0.03 to 100."""
        per_feature = [self.penalty]
        if self.penalty == "gcv":
            per_feature = [10 ** (k / 4) for k in range(-6, 9)]
        return [n_features * float(each) for each in per_feature]
