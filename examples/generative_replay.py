"""Generative replay: a method of one's own with synthetic subjects, outside fcforge.

Run it with ``method = "generative_replay:GenerativeReplay"`` and a generator in a config
beside this file.
"""

from dataclasses import dataclass

import torch

from fcforge.methods.base import Loss, Method, eval_output, label_loss
from fcforge.methods.shared.rehearsal import both_batches
from fcforge.replay.bank import gather
from fcforge.replay.memory import (
    Memory,
    empty_memory,
    joined_memories,
    recall,
    uniform_slots,
)


@dataclass(frozen=True)
class GenerativeReplay(Method):
    """Train on a site's subjects and on synthetic subjects of the sites before."""

    n_synthetic: int = 64  # kept of every site; this name tells the engine how many
    replay: int = 32  # replayed in a step

    name = "generative-replay"
    title = "generative replay"
    source = "Shin et al. 2017 (NeurIPS)"
    State = Memory
    keeps = "synthetic subjects"
    needs_generator = True

    def start(self, model, lane, public=None):
        """Return the lane with an empty memory, without room for readouts."""
        return lane._replace(state=empty_memory(0, 0, lane.device, model.n_outputs))

    def end_site(self, model, lane, site):
        """Keep synthetic subjects with the logits that the network has for them now."""
        rows = site.synthetic(self.n_synthetic)
        out = eval_output(model, lane, gather(site.bank.inputs(model), rows))
        y, place = site.bank.y[rows], torch.full_like(rows, site.position)
        new = Memory(rows, y, out.logits, out.embedding[:, :0], place)
        return lane._replace(state=joined_memories(lane.state, new))

    def recall(self, lane, inputs, key):
        """Draw the synthetic subjects of a step."""
        slots = uniform_slots(lane.state.rows, key, self.replay)
        return recall(lane.state, inputs, *slots)

    def loss(self, model, params, lane, batch, key):
        """Return the mean of the losses on real and on synthetic subjects."""
        if batch.replay is None:  # the first site
            return super().loss(model, params, lane, batch, key)
        now, past = both_batches(model, params, lane, batch, key)
        current = label_loss(now.logits, batch.y) / 2
        replayed = label_loss(past.logits, batch.replay.y, batch.replay.weight) / 2
        terms = {"current": current, "replay": replayed}
        return Loss(current + replayed, past.stats, terms)
