"""References without a memory: fine-tuned from site to site, begun anew at each, majority class."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.methods.base import EVERY, Inputs, Lane, Method, Model, SiteView


@dataclass(frozen=True)
class Finetune(Method):
    """Base of the paper: L = CE(current batch), continuing from the last site's parameters."""

    name = "finetune"
    learns = EVERY
    title = "Fine-tuning (Base)"
    source = "FORGE paper, Base"


@dataclass(frozen=True)
class Independent(Method):
    """Each site alone: what a hospital reaches without the consortium. Read its diagonal only."""

    name = "independent"
    learns = EVERY
    title = "Independent"
    source = "reference: single-site training"
    depends_on = "site"


@dataclass(frozen=True)
class Majority(Method):
    """Constant prediction, the floor for accuracy: class frequencies of the subjects so far."""

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
