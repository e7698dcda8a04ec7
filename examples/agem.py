"""A-GEM: a method of one's own, in a file outside fcforge.

Run it with ``method = "agem:AGEM"`` in a config beside this file.
"""

from dataclasses import dataclass

import torch

from fcforge.methods.base import label_loss
from fcforge.methods.shared.rehearsal import Rehearsal


@dataclass(frozen=True)
class AGEM(Rehearsal):
    """Averaged GEM: no step may raise the loss on remembered subjects."""

    name = "agem"
    title = "A-GEM"
    source = "Chaudhry et al. 2019 (ICLR)"

    def after_grad(self, model, lane, grads, batch, key):
        """Project the gradient so that it does not point against that of the memory."""
        replay = batch.replay
        if replay is None:  # the first site
            return grads

        def memory_loss(params):
            logits = model.apply(params, lane.stats, replay.inputs).logits
            return label_loss(logits, replay.y, replay.weight)

        past = torch.func.grad(memory_loss)(lane.params)
        product = sum((grads[k] * past[k]).sum() for k in grads)
        square = sum(past[k].square().sum() for k in grads)
        share = (product / square.clamp(min=1e-12)).clamp(max=0.0)
        return {k: g - share * past[k] for k, g in grads.items()}
