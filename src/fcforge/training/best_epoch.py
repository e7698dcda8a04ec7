"""The choice of the epoch whose parameters each lane (training run) keeps."""

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.core.errors import DataError
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
        One answer per lane; a scalar for one lane alone.
    new, old : pytree of Tensor
        Of one lane, or with the lane as first dimension of every tensor.
    """

    def pick(new_leaf: Tensor, old_leaf: Tensor) -> Tensor:
        """Choose by lane, the first dimension of both tensors."""
        trailing = (1,) * (new_leaf.dim() - better.dim())
        by_lane = better.reshape(better.shape + trailing)
        return torch.where(by_lane, new_leaf, old_leaf)

    return pytree.tree_map(pick, new, old)


class BestEpoch:
    """Keeper of each lane's best epoch at one site.

    The best epoch has the lowest loss on the validation part, which is cut from the training part.
    Under the `select_on_test` leak it has the highest accuracy on the site's test split, as in the
    authors' code. With ``selection = "fixed"`` nothing is compared and the last epoch is kept.

    Parameters
    ----------
    learner : Learner
    jobs : sequence of Job
        The lanes, at the site that they learn.
    training : Training
    bank : Bank
    """

    def __init__(
        self, learner: Learner, jobs: Sequence[Job], training: Training, bank: Bank
    ) -> None:
        # there are test splits only under the leak
        test_splits = [job.peek for job in jobs if job.peek is not None]
        self._chooses = bool(test_splits) or training.selection == "inner_val"
        self._best: Lane | None = None
        if not self._chooses:
            return
        inputs = bank.inputs(learner.model)
        for job in jobs:
            if not test_splits and not len(job.site.val):
                raise DataError(
                    "has no validation subject, on which selection = 'inner_val' chooses the epoch.",
                    where=f"site '{job.site.name}'",
                    do="Give the site more subjects, or set selection = 'fixed' in [training].",
                )
        val = [(gather(inputs, job.site.val), bank.y[job.site.val]) for job in jobs]
        self._held_out = stack(test_splits or val)

        def quality(lane: Lane, inputs: Inputs, y: Tensor) -> Tensor:
            """Return the number by which epochs are compared; higher is better."""
            logits = learner.method.logits(learner.model, lane, inputs)
            if test_splits and not y.is_floating_point():
                return (logits.argmax(-1) == y).float().mean()
            return -label_loss(logits, y)

        self._quality = lift(quality, len(jobs))

    def update(self, lane: Lane) -> None:
        """Compare all lanes after an epoch with their best epochs so far."""
        if not self._chooses:
            return
        value = self._quality(lane, *self._held_out)
        if self._best is None:
            # a copy, because the next step may overwrite the lane's tensors (a CUDA graph)
            self._best = pytree.tree_map(torch.clone, lane)
            self._value = value
        better = value > self._value
        self._best = where_better(better, lane, self._best)
        self._value = torch.where(better, value, self._value)

    def lanes(self, last: Lane) -> Lane:
        """Return the lanes as of their best epochs, or `last` where epochs are not compared."""
        return last if self._best is None else self._best
