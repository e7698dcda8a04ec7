"""The subjects and the random keys of every training step at a site.

A lane is one training run: one learner, order of sites and seed. A step is one minibatch. Rows are places of
subjects in the bank, which holds all subjects that may be used.

Shapes: n training subjects of a site, b subjects of a minibatch.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fcforge.core.randomness import fold
from fcforge.core.spec import Training
from fcforge.methods.base import Method
from fcforge.replay.bank import Bank
from fcforge.replay.memory import systematic
from fcforge.training.lanes import Job, stack


def minibatches(n: int, batch_size: int, epochs: int, rng: torch.Generator) -> Tensor:
    """Draw the minibatches of all epochs, with a fresh permutation in each.

    All batches have one size, b = ceil(n / ceil(n / batch_size)), so that shapes never change.
    The last batch of an epoch wraps around to the start of the permutation: every subject is used
    at least once per epoch.

    Parameters
    ----------
    n : int
        Number of training subjects.
    batch_size : int
        Largest size of a batch.
    epochs : int
        Number of epochs.
    rng : torch.Generator

    Returns
    -------
    Tensor of shape (epochs, steps, b), int64
        Numbers of the training subjects in every batch.
    """
    steps = -(-n // batch_size)  # rounded up, as b
    b = -(-n // steps)
    order = torch.argsort(torch.rand(epochs, n, generator=rng), dim=1)
    wrapped = torch.cat([order, order[:, : steps * b - n]], dim=1)
    return wrapped.reshape(epochs, steps, b)


def weighted_minibatches(
    weight: Tensor, batch_size: int, epochs: int, rng: torch.Generator
) -> Tensor:
    """Draw the minibatches of all epochs, with subjects in proportion to their weights.

    An epoch has as many subjects as without weights. A subject that is due 2.3 times in an epoch
    comes two or three times, at random places.

    Parameters
    ----------
    weight : Tensor of shape (n,)
        Positive weights of the training subjects.
    batch_size, epochs : int
        As for `minibatches`.
    rng : torch.Generator

    Returns
    -------
    Tensor of shape (epochs, steps, b), int64
        Numbers of the training subjects in every batch.
    """
    n = len(weight)
    # Every epoch draws n subjects with replacement. The plain minibatches of n places then say which of
    # the draws come together in a batch.
    places = minibatches(n, batch_size, epochs, rng)
    shifts = torch.rand(epochs, generator=rng, dtype=torch.float64)
    orders = torch.argsort(torch.rand(epochs, n, generator=rng), dim=1)
    drawn = []
    for order, shift in zip(orders, shifts, strict=True):
        # in random order, because neighbours in it are not drawn independently
        drawn.append(order[systematic(weight[order], shift)])
    flat = torch.gather(torch.stack(drawn), 1, places.flatten(1))
    return flat.reshape(places.shape)


def batch_rows(
    method: Method, jobs: Sequence[Job], training: Training, bank: Bank
) -> Tensor:
    """Draw the batches of every training step at a site.

    With `Training.public_replay` and public subjects, that many of these join every batch.

    Parameters
    ----------
    method : Method
    jobs : sequence of Job
        The lanes, at the site that they learn.
    training : Training
    bank : Bank

    Returns
    -------
    Tensor of shape ([lanes,] epochs, steps, b), int64
        Bank rows of the subjects. One lane alone has no first dimension.
    """
    # the subjects to train on; all jobs have equally many
    rows = stack([method.rows(job.lane, job.site) for job in jobs])
    plans = []
    sizes = training.batch_size, training.epochs
    for job in jobs:
        rng = job.rng("batches")
        if bank.weight is None:
            plan = minibatches(rows.shape[-1], *sizes, rng)
        else:
            weight = bank.weight[method.rows(job.lane, job.site)].cpu()
            plan = weighted_minibatches(weight, *sizes, rng)
        plans.append(plan)
    places = stack(plans).to(bank.device)  # numbers of subjects within `rows`
    chosen = torch.gather(rows, -1, places.flatten(-3)).reshape(places.shape)
    if not training.public_replay or jobs[0].site.public is None:
        return chosen
    shape = (*chosen.shape[-3:-1], training.public_replay)
    public = stack([public_rows(job, shape) for job in jobs])
    return torch.cat([chosen, public.to(chosen)], dim=-1)


def public_rows(job: Job, shape: tuple[int, ...]) -> Tensor:
    """Draw bank rows of public subjects, uniformly and with replacement.

    Parameters
    ----------
    job : Job
        Lane whose site has public subjects beside it.
    shape : tuple of int
        Shape of the result.
    """
    assert job.site.public is not None
    rows = job.site.public.rows
    places = torch.randint(len(rows), shape, generator=job.rng("public"))
    return rows[places.to(rows.device)]


def step_keys(key: Tensor) -> Tensor:
    """Derive two random keys per step, of recall and of loss, from one key per step.

    Parameters
    ----------
    key : int32 Tensor of any shape
        One key per step.

    Returns
    -------
    int32 Tensor of that shape with a further dimension of 2
    """
    return torch.stack([fold(key, 1), fold(key, 2)], -1)


def epoch_keys(
    jobs: Sequence[Job], epochs: int, steps: int, device: torch.device
) -> Iterator[tuple[Tensor, Sequence[Tensor]]]:
    """Yield the random keys of every epoch, all of which are derived at once.

    A lane's key (`Job.key`) is combined with a counter: each epoch takes one number for itself and one for
    every step.

    Parameters
    ----------
    jobs : sequence of Job
        The lanes, at the site that they learn.
    epochs, steps : int
        Number of epochs and of steps per epoch.
    device : torch.device

    Yields
    ------
    begin : Tensor of shape (lanes,), or scalar for one lane
        Key of `Method.begin_epoch`.
    of_steps : sequence of Tensor of shape ([lanes,] 2)
        Keys of the epoch's steps (`step_keys`).
    """
    counter = torch.arange(epochs * (steps + 1), dtype=torch.int32, device=device)
    lane_keys = stack([job.key for job in jobs]).to(device)
    keys = fold(lane_keys[..., None], counter).unflatten(-1, (epochs, steps + 1))
    # ([lanes,] epochs, 1 + steps); the dimensions counted from the end are those without the lanes
    begins = keys[..., 0].unbind(-1)
    by_epoch = step_keys(keys[..., 1:]).unbind(-3)
    for begin, one_epoch in zip(begins, by_epoch, strict=True):
        yield begin, one_epoch.unbind(-2)
