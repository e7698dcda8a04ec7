"""Majority class: a constant prediction, the floor for accuracy."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.methods.base import Inputs, Lane, Method, Model, SiteView


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

    def start(self, model: Model, lane: Lane) -> Lane:
        """Nobody seen yet."""
        return lane.holding({"count": torch.zeros(model.n_outputs, device=lane.device)})

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Count the members of each class."""
        seen = torch.bincount(site.y, minlength=model.n_outputs).to(lane.state["count"])
        return lane.holding({"count": lane.state["count"] + seen})

    def logits(self, model: Model, lane: Lane, inputs: Inputs) -> Tensor:
        """log(count + 1/2), the same for everybody."""
        n = next(iter(inputs.values())).shape[0]
        return torch.log(lane.state["count"] + 0.5).expand(n, -1)
