"""Majority class: a constant prediction, the floor for accuracy.

A lane is one training run: one learner, order of sites and seed.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.methods.base import Inputs, Lane, Method, Model, PublicView, SiteView


class MajorityState(NamedTuple):
    """Number of subjects of each class, shape (classes,)."""

    counts: Tensor


@dataclass(frozen=True)
class Majority(Method):
    """Constant prediction from the class frequencies of all subjects so far."""

    name = "majority"
    title = "Majority class"
    source = "reference: floor"
    keeps = "statistics"
    depends_on = "set"
    fits = False
    from_public = ""
    State = MajorityState

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane with all counts at zero."""
        zero = torch.zeros(model.n_outputs, device=lane.device)
        return lane._replace(state=MajorityState(zero))

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Add the number of members of each class at the site, or the sum of their weights."""
        so_far = lane.state.counts
        outputs = model.n_outputs
        members = torch.bincount(site.y, site.weight, minlength=outputs).to(so_far)
        return lane.with_state(counts=so_far + members)

    def logits(self, model: Model, lane: Lane, inputs: Inputs) -> Tensor:
        """Return log(count + 1/2) for every subject."""
        n = next(iter(inputs.values())).shape[0]
        return torch.log(lane.state.counts + 0.5).expand(n, -1)
