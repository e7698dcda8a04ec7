"""A memory of real subjects, shared by ER, DER, UGCL and replay in closed form.

The memory has slots, one for each remembered subject. A slot holds the subject's row (its number in the
bank of all subjects, `fcforge.replay.bank`), its label and its logits at the end of its site.

Shapes: b subjects of a batch.
A lane is one training run: one learner, order of sites and seed.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from fcforge.core.randomness import fold
from fcforge.core.settings import at_least, limits
from fcforge.methods.base import (
    EVERY_TARGET,
    Batch,
    Inputs,
    Lane,
    Loss,
    Method,
    Model,
    Output,
    Params,
    PublicView,
    Replay,
    SiteView,
    eval_output,
    is_used,
    label_loss,
)
from fcforge.replay.bank import joined_inputs
from fcforge.replay.memory import (
    RankedMemory,
    Rule,
    admit,
    empty_memory,
    random_priority,
    ranked,
    recall,
    uniform_slots,
)

ReplayForward = Literal["joint", "separate"]
LossAndTerms = tuple[Tensor, dict[str, Tensor]]
"""A loss, and its terms by name, each with its weight."""


class Rehearsed(NamedTuple):
    """State of a method with a memory of real subjects."""

    memory: RankedMemory


@limits(memory=at_least(0), replay=at_least(1))
@dataclass(frozen=True)
class Rehearsal(Method):
    """A method with a memory of real subjects, drawn from uniformly after the first site.

    Parameters
    ----------
    memory : int
        Subjects in the memory, over all sites (paper: 256).
    replay : int
        Remembered subjects per draw (in the library Mammoth the batch size, 32).
    rule : {"reservoir", "balanced"}
        Which subjects stay: a uniform sample of all subjects seen (as in Mammoth), or equal numbers
        of every class of every site (the library Avalanche balances by experience). Each subject is
        offered once, when its site ends; offering it every epoch, as Mammoth does, would fill the
        memory with copies.
    """

    memory: int = 256
    replay: int = 32
    rule: Rule = "reservoir"

    State: ClassVar[type] = Rehearsed
    keeps = "real subjects"

    @property
    def draws(self) -> int:
        """Number of independent draws from the memory per step; 0 if no replayed term has weight."""
        return 1

    @property
    def replay_size(self) -> int:
        """Number of remembered subjects per step."""
        return self.replay * self.draws if self.memory else 0

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane with an empty memory."""
        return lane._replace(state=Rehearsed(self.empty(model, lane.device)))

    def empty(self, model: Model, device: torch.device) -> RankedMemory:
        """Return an empty memory, without room for readouts: these methods store none."""
        priority = torch.zeros(self.memory, dtype=torch.float64, device=device)
        return ranked(empty_memory(self.memory, 0, device, model.n_outputs), priority)

    def recall(self, lane: Lane, inputs: Inputs, key: Tensor) -> Replay | None:
        """Return the remembered subjects in the slots that `draw` chooses."""
        if not self.replay_size:
            return None
        return recall(lane.state.memory, inputs, *self.draw(lane, key))

    def draw(self, lane: Lane, key: Tensor) -> tuple[Tensor, Tensor]:
        """Draw memory slots uniformly with replacement, for one step.

        Returns
        -------
        slots : Tensor of shape (b,), int64
        weight : Tensor of shape (b,)
            Weights of the subjects in a mean.
        """
        return uniform_slots(lane.state.memory.rows, key, self.replay)

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Offer the site's subjects to the memory, with the network's present logits."""
        rows = site.rows
        logits = eval_output(model, lane, site.inputs(model)).logits
        new = RankedMemory(
            rows=rows,
            y=site.y,
            logits=logits,
            embedding=logits.new_zeros(len(rows), 0),  # no readout is stored
            site=torch.full_like(rows, site.position),
            priority=random_priority(len(rows), site.rng, rows.device),
        )
        return lane.with_state(memory=admit(lane.state.memory, new, self.rule))


@dataclass(frozen=True)
class TwoBatches(Rehearsal, ABC):
    """Rehearsal whose loss has a current and a remembered batch (ER, DER).

    Class attributes
    ----------------
    terms : str
        Names of the fields that weigh the replayed terms of the loss, separated by spaces.
    """

    learns = EVERY_TARGET
    terms: ClassVar[str]

    @property
    def draws(self) -> int:
        """Number of replayed terms with a positive weight; each has a draw of its own."""
        return sum(is_used(getattr(self, weight)) for weight in self.terms.split())

    @abstractmethod
    def combine(self, current: Tensor, logits: Tensor, replay: Replay) -> LossAndTerms:
        """Return the loss and its named terms.

        Parameters
        ----------
        current : Tensor, scalar
            Cross-entropy of the current subjects.
        logits : Tensor of shape (b, n_outputs)
            Present logits of the replayed subjects.
        replay : Replay
            The replayed subjects with their labels and stored logits.

        Returns
        -------
        loss : Tensor, scalar
        terms : dict of Tensor
            Named terms that add up to the loss, see `Loss`.
        """

    def loss(
        self, model: Model, params: Params, lane: Lane, batch: Batch, key: Tensor
    ) -> Loss:
        """Return the loss of `combine`; the cross-entropy alone while nothing is remembered."""
        replay = batch.replay
        if replay is None:
            return super().loss(model, params, lane, batch, key)
        current, replayed = both_batches(model, params, lane, batch, key)
        total, terms = self.combine(
            label_loss(current.logits, batch.y), replayed.logits, replay
        )
        return Loss(total, replayed.stats, terms)


def both_batches(
    model: Model,
    params: Params,
    lane: Lane,
    batch: Batch,
    key: Tensor,
    how: ReplayForward = "joint",
) -> tuple[Output, Output]:
    """Return the outputs for the current and the replayed subjects in training mode.

    Parameters
    ----------
    model, params, lane, batch, key
        As for `Method.loss`.
    how : {"joint", "separate"}
        Whether both are one batch, so that batch norm sees all (ER of the library Mammoth), or two.
        Each is then normalised by itself, and the running statistics move twice (Mammoth's DER, the
        code of FORGE's authors).

    Returns
    -------
    current, replayed : Output
        ``replayed.stats`` are the batch-norm statistics after the step.
    """
    assert batch.replay is not None
    stats = lane.stats
    current = batch.inputs
    replayed = batch.replay.inputs
    if how == "separate":
        first = model.apply(params, stats, current, train=True, key=key)
        second_key = fold(key, 1)
        second = model.apply(params, first.stats, replayed, train=True, key=second_key)
        return first, second
    n = next(iter(current.values())).shape[0]  # number of current subjects
    out = model.apply(
        params, stats, joined_inputs([current, replayed]), train=True, key=key
    )
    return (
        out._replace(logits=out.logits[:n], embedding=out.embedding[:n]),
        out._replace(logits=out.logits[n:], embedding=out.embedding[n:]),
    )
