r"""FORGE: replay of synthetic subjects with two levels of distillation and Thompson sampling.

With the memory of `fcforge.methods.shared.synthetic_memory`, tuples (G, y, u, r), the loss is

.. math::

    L = CE_{current} + \frac{1}{T}\sum_{t} E_{R_t}\Bigl[\lambda_1\, CE(y, f(G))
        + \tfrac{\lambda_2}{2}\, \|h(G) - u\|^2 + \tfrac{\lambda_3}{d}\, \|\rho(G) - r\|^2\Bigr]

with :math:`R_t` the part of site t among the K active subjects of the T past sites.
``preset = "paper"`` follows the paper's text (sums instead of means, its sampler), ``"official"``
the authors' code; every difference is a field.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fcforge.core.settings import at_least, limits
from fcforge.methods.base import (
    Batch,
    Inputs,
    Lane,
    Loss,
    Model,
    Output,
    Params,
    Replay,
    SiteView,
    misfit,
)
from fcforge.methods.shared.anchor import without
from fcforge.methods.shared.rehearsal import ReplayForward, both_batches
from fcforge.methods.shared.synthetic_memory import SyntheticMemory, seen_by
from fcforge.methods.shared.teacher import TEACHER, teacher, with_teacher
from fcforge.replay.hcts import draw_slots


@limits(replay=at_least(1), refresh=at_least(1))
@dataclass(frozen=True)
class Forge(SyntheticMemory):
    """FORGE: synthetic subjects chosen by HCTS, replayed with labels, logits and readouts.

    Parameters
    ----------
    replay : int
        Remembered subjects per training step (rounded up to equal parts per site): 32, as the
        methods that replay real subjects; 64 in the authors' code.
    forward : {"joint", "separate"}
        Current and replayed subjects through the network together, so that batch norm sees both
        at every step, or one after the other (authors' code).
    refresh : int
        Epochs between two choices. The authors' 80 give one or two per site: too few to learn.
        The paper says "each round", taken as every epoch.
    loss_form : {"mean", "sum"}
        Squared norms divided by their length, or the paper's sums. The readout has 256 numbers:
        as a sum it outweighs the diagnosis.
    teach_current : bool
        The network of the last site also teaches on the current subjects, with the weights of
        logits and readout (the paper's Appendix A; its equations teach on replayed ones alone).
    **settings
        Those of the memory and its sampler, `fcforge.methods.shared.synthetic_memory.SyntheticMemory`.
    """

    replay: int = 32
    forward: ReplayForward = "joint"
    refresh: int = 5
    loss_form: Literal["mean", "sum"] = "mean"
    teach_current: bool = False

    name = "forge"
    title = "FORGE"
    source = "the FORGE paper"
    captures = True
    presets = {
        "paper": {
            "replay": 64,
            "forward": "separate",
            "refresh": 1,
            "loss_form": "sum",
            "sum_sites": True,
            "sampler": "paper",
        },
        "official": {
            "replay": 64,
            "forward": "separate",
            "refresh": 80,
            "lambdas": "official",
            "dev": 16,
            "sampler": "official",
        },
    }

    @property
    def replay_size(self) -> int:
        """Nothing is replayed when nothing is asked of it."""
        return self.replay if any(self.weights) else 0

    def begin_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """With `teach_current` the network so far becomes a teacher."""
        lane = super().begin_site(model, lane, site)
        return with_teacher(lane) if self.teach_current and site.position else lane

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Drop what is there while a site is learned: the teacher."""
        return super().end_site(model, without(lane, *TEACHER), site)

    def updates_at(self, epoch: int, epochs: int) -> bool:
        """Choose anew every `refresh` epochs, first before the first step at a site."""
        return self.chooses and epoch % self.refresh == 0

    def begin_epoch(self, model: Model, lane: Lane, bank: Inputs, key: Tensor) -> Lane:
        """Choose the subjects to replay until the next refresh."""
        return self.choose(seen_by(model, lane, bank), lane, key)

    def draw(self, lane: Lane, key: Tensor) -> tuple[Tensor, Tensor]:
        """Slots of one step from the active subjects, with replacement."""
        choice = self.active(lane.state)
        return draw_slots(choice, key, self.replay_size, self.hcts.official)

    def loss(
        self, model: Model, params: Params, lane: Lane, batch: Batch, key: Tensor
    ) -> Loss:
        """Current cross-entropy, replay cross-entropy, logits and readout distillation."""
        replay = batch.replay
        if replay is None:
            return super().loss(model, params, lane, batch, key)
        now, then = both_batches(model, params, lane, batch, key, self.forward)
        l1, *weights = self.weights
        past = l1 * misfit(then.logits, replay.y, replay.weight)
        past = sum(self.distilled(then, replay, replay.weight, weights), past)
        if self.sum_sites:
            past = past * lane.state["replay.quota"].shape[0]
        if old := teacher(lane):
            frozen = model.apply(*old, batch.inputs)
            alike = torch.full_like(now.logits[:, 0], 1.0 / len(batch.y))
            past = sum(self.distilled(now, frozen, alike, weights), past)
        return misfit(now.logits, batch.y) + past, then.stats

    def distilled(
        self,
        student: Output,
        taught: Output | Replay,
        weight: Tensor,
        factors: Sequence[Tensor | float],
    ) -> list[Tensor]:
        """Distances of logits and readouts (n, d) from a teacher's, subjects weighed (n,)."""
        pairs = [(student.logits, taught.logits)]
        if taught.embedding.shape[-1]:  # else readouts never change: the term is zero
            pairs.append((student.embedding, taught.embedding))
        found = []
        for factor, (own, wanted) in zip(factors, pairs, strict=False):
            square = (own - wanted).square()
            each = square.mean(-1) if self.loss_form == "mean" else square.sum(-1)
            found.append(factor * (weight * each).sum())
        return found
