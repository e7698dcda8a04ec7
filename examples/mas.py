"""MAS: a method of one's own that computes a statistic of every site, outside fcforge.

Run it with ``method = "mas:MAS"`` in a config beside this file.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from fcforge.methods.base import Loss, Method
from fcforge.nn.tensors import Params


class Importance(NamedTuple):
    """Importance of parameters, summed over sites, and the network of the last site."""

    weight: Params
    anchor: Params


@dataclass(frozen=True)
class MAS(Method):
    """Memory aware synapses: hold parameters that the logits of past sites need."""

    strength: float = 1.0

    name = "mas"
    title = "MAS"
    source = "Aljundi et al. 2018 (ECCV)"
    State = Importance
    keeps = "statistics"

    def start(self, model, lane, public=None):
        """Return the lane with an empty state."""
        return lane._replace(state=Importance({}, {}))

    def loss(self, model, params, lane, batch, key):
        """Add the pull to the anchor, from the second site on."""
        loss = super().loss(model, params, lane, batch, key)
        weight, anchor = lane.state
        if not weight:
            return loss
        pulls = [(w * (params[k] - anchor[k]) ** 2).sum() for k, w in weight.items()]
        pull = self.strength * torch.stack(pulls).sum()
        return Loss(loss.total + pull, loss.stats, {**loss.terms, "pull": pull})

    def end_site(self, model, lane, site):
        """Add the mean absolute gradient of the squared length of the logits."""

        def squared_length(params, subject):
            return model.apply(params, lane.stats, subject).logits.square().sum()

        inputs, n = site.inputs(model), len(site.y)
        weight = dict(lane.state.weight)
        for i in range(n):
            subject = {k: v[i : i + 1] for k, v in inputs.items()}
            slopes = torch.func.grad(squared_length)(lane.params, subject)
            for k, slope in slopes.items():
                weight[k] = weight.get(k, 0.0) + slope.abs() / n
        return lane.with_state(weight=weight, anchor=dict(lane.params))
