"""The subjects and the random keys of every training step at a site."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fcforge.core.randomness import fold
from fcforge.core.spec import Training
from fcforge.methods.base import Method
from fcforge.replay.bank import Bank
from fcforge.training.lanes import Job, stack


def minibatches(n: int, batch_size: int, epochs: int, rng: torch.Generator) -> Tensor:
    """Draw the minibatches of all epochs, with a fresh permutation in each.

    All batches have one size, b = ceil(n / ceil(n / batch_size)), so that shapes never change.
    The last batch of an epoch wraps around to the start of the permutation: every subject is used
    at least once per epoch.

    Returns
    -------
    Tensor of shape (epochs, steps, b), int64
        Places among the n training subjects.
    """
    steps = -(-n // batch_size)
    b = -(-n // steps)
    order = torch.argsort(torch.rand(epochs, n, generator=rng), dim=1)
    wrapped = torch.cat([order, order[:, : steps * b - n]], dim=1)
    return wrapped.reshape(epochs, steps, b)


def batch_rows(
    method: Method, jobs: Sequence[Job], training: Training, bank: Bank
) -> Tensor:
    """Return the bank rows ([lanes,] epochs, steps, b) of every training step."""
    rows = stack([method.rows(job.lane, job.site) for job in jobs])
    plans = []
    for job in jobs:
        rng = job.rng("batches")
        plan = minibatches(rows.shape[-1], training.batch_size, training.epochs, rng)
        plans.append(plan)
    places = stack(plans).to(bank.device)
    return torch.gather(rows, -1, places.flatten(-3)).reshape(places.shape)


def step_keys(key: Tensor) -> Tensor:
    """Derive the two random keys (..., 2) of each step from the step's own key (...)."""
    return torch.stack([fold(key, 1), fold(key, 2)], -1)


def epoch_keys(
    jobs: Sequence[Job], epochs: int, steps: int, device: torch.device
) -> Iterator[tuple[Tensor, Sequence[Tensor]]]:
    """Yield the random keys of every epoch, derived at once for the whole site.

    Yields
    ------
    begin : Tensor of shape ([lanes])
        Key of `Method.begin_epoch`.
    steps : sequence of Tensor of shape ([lanes,] 2)
        Keys of the epoch's steps.
    """
    counter = torch.arange(epochs * (steps + 1), dtype=torch.int32, device=device)
    lane_keys = stack([job.key for job in jobs]).to(device)
    keys = fold(lane_keys[..., None], counter).unflatten(-1, (epochs, steps + 1))
    begins = keys[..., 0].unbind(-1)
    by_epoch = step_keys(keys[..., 1:]).unbind(-3)
    for begin, one_epoch in zip(begins, by_epoch, strict=True):
        yield begin, one_epoch.unbind(-2)
