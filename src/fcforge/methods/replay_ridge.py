r"""Replay of real subjects in closed form: the terms of ER and DER++ on the solver of FORGE's.

It differs from `forge_ridge` only in the replayed subjects, which are real; features, penalty and
weights are the same:

.. math:: \sum_{i} (s_i - t_i)^2 + \sum_{j \in M} m_j \Bigl[\lambda_1 (s_j - t_j)^2
          + \lambda_2 (s_j - u_j)^2\Bigr] + \alpha \|w\|^2,

where i runs over the subjects of the open site, j over those of the memory M, m is the weight of a
remembered subject, s the score, t = -1 or +1 the diagnosis, and u the score when subject j was stored. With
``l1 = 1, l2 = 0`` this is ER, with ``0.5, 0.5`` DER++; without a memory every site is a ridge
regression of its own (fine-tuning), and with room for all subjects, each with weight one
(``weigh = "subjects"``, ``l1 = 1, l2 = 0``), one of all sites so far (cumulative).

Shapes: k remembered subjects, c columns of targets (one, or one per class if there are more than two).
A lane is one training run: one learner, order of sites and seed.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fcforge.core.settings import above, at_least, limits
from fcforge.methods.base import EVERY_TARGET, Lane, Model, SiteView
from fcforge.methods.shared.rehearsal import Rehearsal
from fcforge.methods.shared.ridge import (
    coded,
    dual_ridge,
    linear_head,
    recalled_targets,
    weigh_subjects,
)
from fcforge.models.edge import WHOLE_LOG
from fcforge.replay.memory import RankedMemory


@limits(l1=at_least(0), l2=at_least(0), penalty=above(0))
@dataclass(frozen=True)
class ReplayRidge(Rehearsal):
    """Replay of real subjects on a linear model without a gradient step.

    Parameters
    ----------
    l1, l2 : float
        Weights of a remembered subject's diagnosis and of its score when it was stored.
    penalty : float
        Ridge penalty per feature, as `forge_ridge`'s.
    weigh : {"sites", "subjects"}
        Whether each past site has the weight of the open one, however few of its subjects are
        remembered (m = n / number remembered of that site), or each subject has weight m = 1.
    **settings
        Those of the memory, `fcforge.methods.shared.rehearsal.Rehearsal`. All of it is used.
    """

    l1: float = 0.5
    l2: float = 0.5
    penalty: float = 0.5
    weigh: Literal["sites", "subjects"] = "sites"

    name = "replay_ridge"
    title = "Replay, closed form"
    source = "ER and DER++ (Buzzega et al. 2020) with squared loss"
    fits = False
    models = ("linear",)
    features = WHOLE_LOG
    learns = EVERY_TARGET

    @property
    def draws(self) -> int:
        """No draw: every remembered subject is part of the solution."""
        return 0

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Solve the objective, then offer the site's subjects to the memory."""
        return super().end_site(model, self._solve(model, lane, site), site)

    def _solve(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Return the lane with the head that solves the objective."""
        memory = lane.state.memory
        slots = (memory.site >= 0).nonzero()[:, 0]  # the filled ones
        slots = slots if self.l1 + self.l2 > 0 else slots[:0]
        rows = torch.cat([site.rows, memory.rows[slots]])
        x = site.bank.inputs(model)["edges"][rows].double()
        t = coded(site.y, model.n_outputs)
        # weights of the open site's subjects, and their sum
        open_mass = torch.ones_like(t[:, 0]) if site.weight is None else site.weight
        n = len(t) if site.weight is None else float(open_mass.sum())
        target, mass = self.targets(memory, slots, n)
        if site.bank.weight is not None:
            training_weight = site.bank.weight[memory.rows[slots]]
            if self.weigh == "subjects":
                mass = mass * training_weight
            else:
                mass = weigh_subjects(mass, training_weight, memory.site[slots])
        target = torch.cat([t, target])
        mass = torch.cat([open_mass, mass])
        dual = dual_ridge(x @ x.T, target, mass, self.penalty * x.shape[1])
        head = x.T @ dual.coefficient
        dtype = lane.params["head.0.weight"].dtype
        params = linear_head(head, dual.bias, model.n_outputs, dtype)
        return lane._replace(params=params)

    def targets(
        self, memory: RankedMemory, slots: Tensor, n: float
    ) -> tuple[Tensor, Tensor]:
        """Return targets (k, c) and weights (k,) of remembered subjects.

        Parameters
        ----------
        memory : RankedMemory
            All remembered subjects.
        slots : Tensor of shape (k,), int64
            Memory slots of the subjects.
        n : float
            Total weight of the open site's subjects.
        """
        y = memory.y[slots]
        logits = memory.logits[slots].double()
        mass = torch.full(
            y.shape, self.l1 + self.l2, dtype=torch.float64, device=y.device
        )
        if self.weigh == "sites":
            site = memory.site[slots]
            # the subjects of a past site share the open site's weight
            mass = mass * n / torch.bincount(site)[site]
        return recalled_targets(y, logits, self.l1, self.l2), mass
