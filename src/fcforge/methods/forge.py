r"""FORGE: replay of synthetic subjects with two levels of distillation and Thompson sampling.

With the memory of `fcforge.methods.shared.synthetic_memory`, tuples (G, y, u, r), the loss is

.. math::

    L = CE_{current} + \frac{1}{T}\sum_{t} E_{R_t}\Bigl[\lambda_1\, CE(y, f(G))
        + \tfrac{\lambda_2}{2}\, \|h(G) - u\|^2 + \tfrac{\lambda_3}{d}\, \|\rho(G) - r\|^2\Bigr]

where f is the classifier, h its logits and :math:`\rho` its readout of length d. A memory tuple is a
synthetic subject G with its label y, and the logits u and readout r of the network at the end of the
subject's site. :math:`R_t` are the subjects of site t among the active ones, those that the sampler
has chosen, and T is the number of past sites; the expectation is a mean over subjects. The three variants
differ in the defaults of the settings and in the sampler; docs/forge.md has the table.

A lane is one training run: one learner, order of sites and seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from fcforge.core.settings import at_least, limits
from fcforge.core.variants import Variants
from fcforge.methods.base import (
    Batch,
    Factor,
    Inputs,
    Lane,
    Loss,
    Method,
    Model,
    Output,
    Params,
    Replay,
    SiteView,
    label_loss,
)
from fcforge.methods.shared.rehearsal import ReplayForward, both_batches
from fcforge.methods.shared.synthetic_memory import (
    HeldOut,
    SyntheticMemory,
    eval_by_row,
    n_learned,
)
from fcforge.methods.shared.teacher import with_teacher
from fcforge.replay.hcts import HCTS, Choice, HCTSState, Variant
from fcforge.replay.memory import Memory, recall
from fcforge.replay.selection import Geometry
from fcforge.replay.state import ABSENT, Absent, Network


class ForgeState(NamedTuple):
    """State of FORGE: that of its memory (`SyntheticState`), and a teacher during a site.

    The teacher, the network of the site before, is there only with `Forge.teach_current`.
    """

    memory: Memory
    held_out: HeldOut
    choice: Choice
    hcts: HCTSState | Absent = ABSENT
    geometry: Geometry | Absent = ABSENT
    teacher: Network | Absent = ABSENT


@limits(replay=at_least(1), refresh=at_least(1))
@dataclass(frozen=True)
class Forge(SyntheticMemory, metaclass=Variants):
    """FORGE: synthetic subjects chosen by HCTS, replayed with labels, logits and readouts.

    This class is the variant ``"stable"``, from which the others derive.

    Parameters
    ----------
    replay : int
        Remembered subjects per training step (rounded up to equal parts per site): 32, like the
        methods that replay real subjects; 64 in the authors' code.
    forward : {"joint", "separate"}
        Whether current and replayed subjects go through the network together, so that batch norm
        sees both, or one after the other (authors' code).
    refresh : int
        Epochs between two choices of the active subjects. The authors' 80 give one or two per site,
        too few for the sampler to learn. The paper says "each round", taken as every epoch.
    loss_form : {"mean", "sum"}
        Squared norms divided by their length, or the paper's sums. The readout has 256 numbers:
        as a sum it outweighs the diagnosis.
    teach_current : bool
        Whether the network of the last site also teaches on the current subjects, with the
        weights of logits and readout (the paper's Appendix A; its equations teach on replayed
        ones alone).
    variant : {"stable", "paper", "authors"}
        Class to use: this one, `PaperForge` or `AuthorsForge`.
    **settings
        Those of the memory and its sampler, `fcforge.methods.shared.synthetic_memory`.
    """

    replay: int = 32
    forward: ReplayForward = "joint"
    refresh: int = 5
    loss_form: Literal["mean", "sum"] = "mean"
    teach_current: bool = False

    variants: ClassVar[dict[str, type]] = {}
    variant: ClassVar[Variant] = "stable"
    name = "forge"
    title = "FORGE"
    source = "the FORGE paper"
    captures = True
    factors = ("l1", "l2", "l3")
    State = ForgeState

    @property
    def replay_size(self) -> int:
        """Number of remembered subjects per step; 0 if all loss weights are zero."""
        return self.replay if self.replays else 0

    def factor_values(self) -> dict[str, float]:
        """Return the loss weights, also those that `lambdas` gives."""
        return dict(zip(self.factors, self.weights, strict=True))

    def without_factors(self) -> Method:
        """Return the method with all loss weights 1, or 0 if nothing is replayed.

        Methods for which the result is equal can train as lanes of one group.
        """
        switch = float(self.replays)
        return replace(self, lambdas="asd", l1=switch, l2=switch, l3=switch)

    def begin_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Note the geometry of past sites and, with `teach_current`, the network so far as teacher."""
        lane = super().begin_site(model, lane, site)
        return with_teacher(lane) if self.teach_current and site.position else lane

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Drop the teacher and store the site's synthetic subjects."""
        return super().end_site(model, lane.with_state(teacher=ABSENT), site)

    def updates_at(self, epoch: int, epochs: int) -> bool:
        """Return whether a new choice is due: every `refresh` epochs from the first on."""
        return self.chooses and epoch % self.refresh == 0

    def begin_epoch(self, model: Model, lane: Lane, bank: Inputs, key: Tensor) -> Lane:
        """Choose the active subjects: those to replay until the next refresh."""
        return self.choose(eval_by_row(model, lane, bank), lane, key)

    def recall(self, lane: Lane, inputs: Inputs, key: Tensor) -> Replay | None:
        """Draw the subjects that one step replays from the active ones, with replacement."""
        if not self.replay_size:
            return None
        slots = self.hcts.draw_slots(lane.state.choice, key, self.replay_size)
        return recall(lane.state.memory, inputs, *slots)

    def loss(
        self, model: Model, params: Params, lane: Lane, batch: Batch, key: Tensor
    ) -> Loss:
        """Add cross-entropy, logits and readout distillation of the replayed subjects.

        With `teach_current` the two distillations are added for the current subjects, too.
        """
        replay = batch.replay
        if replay is None:
            return super().loss(model, params, lane, batch, key)
        current, replayed = both_batches(model, params, lane, batch, key, self.forward)
        l1, *distilled = self.weights  # of labels; of logits and readout
        labels = l1 * label_loss(replayed.logits, replay.y, replay.weight)
        distances = self.distances(replayed, replay, replay.weight, distilled)
        past = sum(distances.values(), labels)
        terms = {"replay": labels, **distances}
        if self.sum_sites:  # T times the mean over past sites
            past = past * n_learned(lane)
            terms = {name: term * n_learned(lane) for name, term in terms.items()}
        if teacher := lane.state.teacher:  # there only with `teach_current`
            target = model.apply(teacher.params, teacher.stats, batch.inputs)
            even = torch.full_like(current.logits[:, 0], 1.0 / len(batch.y))
            distances = self.distances(current, target, even, distilled)
            past = sum(distances.values(), past)
            terms |= {f"current {name}": term for name, term in distances.items()}
        current_loss = label_loss(current.logits, batch.y)
        terms = {"current": current_loss, **terms}
        return Loss(current_loss + past, replayed.stats, terms)

    def distances(
        self,
        student: Output,
        teacher: Output | Replay,
        weight: Tensor,
        factors: Sequence[Factor],
    ) -> dict[str, Tensor]:
        """Return the squared distances of logits and readouts to a teacher's, by name.

        Parameters
        ----------
        student : Output
            Present outputs for n subjects.
        teacher : Output or Replay
            Outputs of the teacher for the same subjects.
        weight : Tensor of shape (n,)
            Weights of the subjects.
        factors : sequence of float
            Loss weights of logits and readout distillation, by which the distances are multiplied.

        Returns
        -------
        dict of scalar Tensor
            "logits" and, if the readout is learned, "readout".
        """
        pairs = {"logits": (student.logits, teacher.logits)}
        if teacher.embedding.shape[-1]:  # else readouts never change: the term is zero
            pairs["readout"] = (student.embedding, teacher.embedding)
        terms = {}
        # the second factor has no pair where readouts never change
        for factor, name in zip(factors, pairs, strict=False):
            value, target = pairs[name]
            square = (value - target).square()
            norms = square.mean(-1) if self.loss_form == "mean" else square.sum(-1)
            terms[name] = factor * (weight * norms).sum()
        return terms


@dataclass(frozen=True)
class PaperForge(Forge):
    """FORGE as the paper's text has it, with the authors' numbers where the text has none."""

    dev: int = 16
    sum_sites: bool = True
    sampler: Variant | HCTS = "paper"
    replay: int = 64
    forward: ReplayForward = "separate"
    refresh: int = 1
    loss_form: Literal["mean", "sum"] = "sum"

    variant: ClassVar[Variant] = "paper"
    defaults_version = 2


@dataclass(frozen=True)
class AuthorsForge(Forge):
    """FORGE as the authors' code has it."""

    lambdas: Literal["asd", "bsnip", "mdd", "authors"] = "authors"
    dev: int = 16
    sampler: Variant | HCTS = "authors"
    replay: int = 64
    forward: ReplayForward = "separate"
    refresh: int = 80

    variant: ClassVar[Variant] = "authors"
    defaults_version = 2
