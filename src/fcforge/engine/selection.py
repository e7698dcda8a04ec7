"""Which epoch of each lane is kept: the last, or the best by a part that was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fcforge.engine.lift import clone, lift, stack, where_better
from fcforge.methods.base import Lane, cross_entropy
from fcforge.models.base import Inputs, gather
from fcforge.replay.bank import Bank
from fcforge.types import Training

if TYPE_CHECKING:
    from fcforge.engine.loop import Job, Learner


class Keeper:
    """Told of every epoch's lanes, hands out those to keep.

    The epoch is chosen on the validation part cut from train (lowest cross-entropy) or, under the
    `select_on_test` leak, on the open site's test split (highest accuracy), which is what the
    authors' code does. Where nothing is chosen the last epoch is kept.
    """

    def __init__(
        self, learner: Learner, jobs: Sequence[Job], training: Training, bank: Bank
    ) -> None:
        peeks = [j.peek for j in jobs if j.peek is not None]
        self._chooses = bool(peeks) or training.selection == "inner_val"
        self._best: Lane | None = None
        if not self._chooses:
            return
        inputs = bank.inputs(learner.model)
        val = [(gather(inputs, j.site.val), bank.y[j.site.val]) for j in jobs]
        self._watched = stack(peeks or val)

        def quality(lane: Lane, inputs: Inputs, y: Tensor) -> Tensor:
            logits = learner.method.logits(learner.model, lane, inputs)
            right = (logits.argmax(-1) == y).float().mean()
            return right if peeks else -cross_entropy(logits, y)

        self._quality = lift(quality, len(jobs))

    def see(self, lane: Lane) -> None:
        """An epoch has ended."""
        if not self._chooses:
            return
        value = self._quality(lane, *self._watched)
        if self._best is None:
            self._best, self._value = clone(lane), value
        better = value > self._value
        self._best = where_better(better, lane, self._best)
        self._value = torch.where(better, value, self._value)

    def kept(self, last: Lane) -> Lane:
        """The best epoch's lanes, or the last's."""
        return last if self._best is None else self._best
