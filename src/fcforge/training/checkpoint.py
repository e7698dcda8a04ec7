"""The choice of the epoch that each lane keeps."""

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.core.spec import Training
from fcforge.methods.base import Lane, Learner, label_loss
from fcforge.nn.tensors import Inputs
from fcforge.replay.bank import Bank, gather
from fcforge.training.lanes import Job, lift, stack

T = TypeVar("T")


def where_better(better: Tensor, new: T, old: T) -> T:
    """Return `new` in the lanes where `better` is true, else `old`.

    Parameters
    ----------
    better : Tensor of shape () or (n_lanes,), bool
    new, old : pytree of Tensor
    """

    def pick(a: Tensor, b: Tensor) -> Tensor:
        trailing = (1,) * (a.dim() - better.dim())
        return torch.where(better.reshape(better.shape + trailing), a, b)

    return pytree.tree_map(pick, new, old)


class BestEpoch:
    """The lanes of each lane's best epoch at one site.

    The epoch is chosen by the lowest loss on the validation part cut from the training part, or,
    under the `select_on_test` leak, by the highest accuracy on the open site's test split, as in
    the authors' code. With ``selection = "fixed"`` the last epoch is kept.

    Parameters
    ----------
    learner : Learner
    jobs : sequence of Job
    training : Training
    bank : Bank
    """

    def __init__(
        self, learner: Learner, jobs: Sequence[Job], training: Training, bank: Bank
    ) -> None:
        peeks = [job.peek for job in jobs if job.peek is not None]
        self._chooses = bool(peeks) or training.selection == "inner_val"
        self._best: Lane | None = None
        if not self._chooses:
            return
        inputs = bank.inputs(learner.model)
        val = [(gather(inputs, job.site.val), bank.y[job.site.val]) for job in jobs]
        self._held_out = stack(peeks or val)

        def quality(lane: Lane, inputs: Inputs, y: Tensor) -> Tensor:
            logits = learner.method.logits(learner.model, lane, inputs)
            if peeks and not y.is_floating_point():
                return (logits.argmax(-1) == y).float().mean()
            return -label_loss(logits, y)

        self._quality = lift(quality, len(jobs))

    def update(self, lane: Lane) -> None:
        """Compare the lanes after an epoch with the best ones so far."""
        if not self._chooses:
            return
        value = self._quality(lane, *self._held_out)
        if self._best is None:
            self._best = pytree.tree_map(torch.clone, lane)
            self._value = value
        better = value > self._value
        self._best = where_better(better, lane, self._best)
        self._value = torch.where(better, value, self._value)

    def lanes(self, last: Lane) -> Lane:
        """Return the lanes of the best epochs, or `last` if nothing is chosen."""
        return last if self._best is None else self._best
