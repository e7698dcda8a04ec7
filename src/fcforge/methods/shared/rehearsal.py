"""What ER, DER and UGCL share: a memory of real subjects, filled once per subject and site."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fcforge.core.randomness import fold
from fcforge.core.settings import at_least, limits
from fcforge.methods.base import (
    EVERY,
    Batch,
    Lane,
    Loss,
    Method,
    Model,
    Output,
    Params,
    Replay,
    SiteView,
    misfit,
    seen,
)
from fcforge.replay import memory
from fcforge.replay.bank import joined
from fcforge.replay.memory import ROWS, Rule

ReplayForward = Literal["joint", "separate"]


@limits(memory=at_least(0), replay=at_least(1))
@dataclass(frozen=True)
class Rehearsal(Method):
    """Memory of real subjects, drawn from uniformly at every step after the first site.

    Parameters
    ----------
    memory : int
        Subjects in the memory, over all sites (paper: 256).
    replay : int
        Remembered subjects per draw (Mammoth: the batch size, 32).
    rule : {"reservoir", "balanced"}
        Who stays: a uniform sample of all subjects seen (Mammoth), or equal numbers of every
        class of every site (Avalanche balances by experience). Each subject is offered once,
        when its site ends: offering it every epoch, as Mammoth does, fills the memory with
        copies.
    """

    memory: int = 256
    replay: int = 32
    rule: Rule = "reservoir"

    keeps = "real subjects"
    row_keys = (ROWS,)

    @property
    def draws(self) -> int:
        """Independent draws from the memory per step; 0 where every weight is zero."""
        return 1

    @property
    def replay_size(self) -> int:
        """Remembered subjects per step."""
        return self.replay * self.draws if self.memory else 0

    def start(self, model: Model, lane: Lane) -> Lane:
        """Empty memory."""
        priority = torch.zeros(self.memory, dtype=torch.float64, device=lane.device)
        state = memory.empty_memory(self.memory, 0, lane.device, model.n_outputs)
        return lane.holding({**state, "memory.priority": priority})

    def draw(self, lane: Lane, key: Tensor) -> tuple[Tensor, Tensor]:
        """Uniform, with replacement."""
        return memory.uniform_slots(lane.state, key, self.replay)

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Offer the site's subjects, with what the network says of them now (eval mode)."""
        rows = site.rows
        logits = seen(model, lane, site.inputs(model)).logits
        new = {
            ROWS: rows,
            "memory.y": site.y,
            "memory.logits": logits,
            "memory.embedding": logits.new_zeros(len(rows), 0),
            "memory.site": torch.full_like(rows, site.position),
            "memory.priority": memory.random_priority(len(rows), site.rng, rows.device),
        }
        return lane._replace(state=memory.admit(lane.state, new, self.rule))


@dataclass(frozen=True)
class TwoBatches(Rehearsal, ABC):
    """Rehearsal whose loss is made of the current and a remembered batch (ER, DER)."""

    learns = EVERY
    terms: ClassVar[str]  # fields that weigh what is replayed

    @property
    def draws(self) -> int:
        """One draw per term that counts."""
        return sum(getattr(self, weight) > 0 for weight in self.terms.split())

    @abstractmethod
    def combine(self, current: Tensor, z: Tensor, replay: Replay) -> Tensor:
        """Loss from the current subjects' cross-entropy and the logits z (b, K) of the others."""

    def loss(
        self, model: Model, params: Params, lane: Lane, batch: Batch, key: Tensor
    ) -> Loss:
        """`combine` of both batches; cross-entropy alone while nobody is remembered."""
        replay = batch.replay
        if replay is None:
            return super().loss(model, params, lane, batch, key)
        now, then = both_batches(model, params, lane, batch, key)
        loss = self.combine(misfit(now.logits, batch.y), then.logits, replay)
        return loss, then.stats


def both_batches(
    model: Model,
    params: Params,
    lane: Lane,
    batch: Batch,
    key: Tensor,
    how: ReplayForward = "joint",
) -> tuple[Output, Output]:
    """Outputs of the current and the remembered subjects of a batch in training mode.

    ``joint`` runs them as one batch: batch norm sees both (Mammoth's ER). ``separate``
    normalises each by itself and moves the running statistics twice (Mammoth's DER, the
    authors' FORGE). The statistics after the step are those of the second output.
    """
    assert batch.replay is not None
    stats = lane.stats
    now = batch.inputs
    then = batch.replay.inputs
    if how == "separate":
        first = model.apply(params, stats, now, train=True, key=key)
        return first, model.apply(
            params, first.stats, then, train=True, key=fold(key, 1)
        )
    n = next(iter(now.values())).shape[0]
    out = model.apply(params, stats, joined([now, then]), train=True, key=key)
    return (
        out._replace(logits=out.logits[:n], embedding=out.embedding[:n]),
        out._replace(logits=out.logits[n:], embedding=out.embedding[n:]),
    )
