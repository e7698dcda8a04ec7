"""A memory of fixed capacity: subjects with their labels and their teacher's outputs.

The tensors of a memory have one slot per subject. Filled slots come first; empty ones have row and
site -1. A subject is held as its row in the bank (`fcforge.replay.bank`). The teacher is the network
at the time when the subject entered.

In a memory of real subjects each gets a priority on entry and keeps it. A full memory keeps the
subjects of the highest priorities: over all subjects (with random priorities that is reservoir sampling, a
uniform sample of all subjects seen) or within every cell, so that cells stay equal as sites come. A cell is
the subjects of one class at one site. Nothing has to be drawn again, and no subject can enter twice.

Shapes: n slots, b subjects of a batch, d numbers of a readout.
"""

from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from fcforge.core.randomness import uniform
from fcforge.nn.tensors import Inputs
from fcforge.replay.bandit import quotas
from fcforge.replay.bank import gather
from fcforge.replay.state import Rows

M = TypeVar("M", bound=Any)
Rule = Literal["reservoir", "balanced"]
FREE = {"rows": -1, "site": -1}  # values of a free slot; 0 in all other fields


class Memory(NamedTuple):
    """Remembered subjects, one per slot.

    Attributes
    ----------
    rows : Tensor of shape (n,), int64
        Bank rows.
    y : Tensor of shape (n,), int64, or float32 where the target is a number
        Labels.
    logits : Tensor of shape (n, n_outputs)
        The teacher's logits u.
    embedding : Tensor of shape (n, d)
        The teacher's readouts r.
    site : Tensor of shape (n,), int64
        Number of the subject's site in the order of sites.
    """

    rows: Rows
    y: Tensor
    logits: Tensor
    embedding: Tensor
    site: Tensor


class RankedMemory(NamedTuple):
    """A memory whose subjects have priorities (n,), float64; other fields as in `Memory`."""

    rows: Rows
    y: Tensor
    logits: Tensor
    embedding: Tensor
    site: Tensor
    priority: Tensor


class Replay(NamedTuple):
    """Remembered subjects that one training step replays, with their teacher's outputs.

    Attributes
    ----------
    inputs : dict of Tensor
        Prepared inputs of the subjects.
    y : Tensor of shape (b,)
        Labels.
    logits : Tensor of shape (b, n_outputs)
        Teacher logits u, stored when the subject entered the memory.
    embedding : Tensor of shape (b, d)
        Teacher readout r, stored likewise.
    weight : Tensor of shape (b,)
        Weights of the subjects in a mean. They sum to one, or to less where a site has no part because
        its quota is 0 (`fcforge.replay.hcts.HCTS.draw_slots`).
    rows : Tensor of shape (b,), int64, or None
        Bank rows of the subjects, where training weights of subjects are looked up.
    """

    inputs: Inputs
    y: Tensor
    logits: Tensor
    embedding: Tensor
    weight: Tensor
    rows: Tensor | None = None


def empty_memory(
    capacity: int, width: int, device: torch.device | str, n_outputs: int = 2
) -> Memory:
    """Return a memory of free slots.

    Parameters
    ----------
    capacity : int
        Number of slots.
    width : int
        Length of a readout.
    device : torch.device or str
    n_outputs : int
        Number of logits; 1 where the target is a number.
    """
    label_type = torch.float32 if n_outputs == 1 else torch.int64
    return Memory(
        rows=torch.full((capacity,), -1, dtype=torch.int64, device=device),
        y=torch.zeros(capacity, dtype=label_type, device=device),
        logits=torch.zeros(capacity, n_outputs, device=device),
        embedding=torch.zeros(capacity, width, device=device),
        site=torch.full((capacity,), -1, dtype=torch.int64, device=device),
    )


def ranked(memory: Memory, priority: Tensor) -> RankedMemory:
    """Return the memory with priorities (n,) of its subjects added."""
    return RankedMemory(*memory, priority=priority)


def joined_memories(first: M, second: M) -> M:
    """Return the slots of two memories of one type, one after another."""
    pairs = zip(first, second, strict=True)
    return type(first)(*(torch.cat([a, b.to(a)]) for a, b in pairs))


def wiped(memory: M, gone: Tensor) -> M:
    """Return a copy of the memory in which the slots where `gone` (n,) is true are free.

    The other subjects stay in their slots.
    """
    parts = {name: value.clone() for name, value in memory._asdict().items()}
    for name, value in parts.items():
        value[gone] = FREE.get(name, 0)
    return memory._replace(**parts)


def recall(
    memory: Memory | RankedMemory, inputs: Inputs, slots: Tensor, weight: Tensor
) -> Replay:
    """Return the remembered subjects in some slots as a replay batch.

    Parameters
    ----------
    memory : Memory or RankedMemory
    inputs : dict of Tensor
        Prepared inputs of all rows of the bank.
    slots : Tensor of shape (b,), int64
        Numbers of the slots; one may occur several times.
    weight : Tensor of shape (b,)
        Weights of the subjects in a mean; that of an empty slot must be zero.
    """
    rows = memory.rows[slots].clamp(min=0)
    return Replay(
        gather(inputs, rows),
        memory.y[slots],
        memory.logits[slots],
        memory.embedding[slots],
        weight,
        rows,
    )


def drawn_by_weight(replay: Replay, weight: Tensor, key: Tensor) -> Replay:
    r"""Resample a replay batch in proportion to the subjects' training weights (``sample_weight``).

    Subject i is drawn, with replacement, in proportion to :math:`v_i w_i`, where v is its weight in
    the batch's mean and w its training weight. Every loss of the batch then respects the training
    weights without knowing them. The draw is systematic: a subject that is due 2.3 times comes two
    or three times.

    Parameters
    ----------
    replay : Replay
        Batch with `rows`.
    weight : Tensor
        Training weights of all rows of the bank.
    key : Tensor, int32 scalar
        Random key.

    Returns
    -------
    Replay
        As many subjects, with equal weights in a mean.
    """
    assert replay.rows is not None
    mass = replay.weight * weight[replay.rows].to(replay.weight)
    place = systematic(mass, uniform(key, ()))
    total = replay.weight.sum()  # below one where a site has no part in the replay
    even = torch.ones_like(replay.weight) * (total / len(place))
    inputs = {k: v[place] for k, v in replay.inputs.items()}
    return Replay(
        inputs,
        replay.y[place],
        replay.logits[place],
        replay.embedding[place],
        even,
        replay.rows[place],
    )


def systematic(mass: Tensor, shift: Tensor) -> Tensor:
    """Return n places drawn with replacement in proportion to `mass` (n,), in ascending order.

    Parameters
    ----------
    mass : Tensor of shape (n,)
        Non-negative, at least one of them positive.
    shift : Tensor, scalar
        Random number in [0, 1).

    Returns
    -------
    Tensor of shape (n,), int64
        Place i occurs ``n mass_i / mass.sum()`` times, rounded up or down.
    """
    # Place i owns a stretch of length mass_i on a line; n points at equal distances, all moved by one
    # random shift, find the places whose stretches they lie in.
    n = len(mass)
    upper = mass.cumsum(0)  # where each stretch ends
    grid = (torch.arange(n, device=mass.device) + shift) / n * upper[-1]
    return torch.searchsorted(upper, grid.to(upper), right=True).clamp(max=n - 1)


def uniform_slots(rows: Tensor, key: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Draw `size` filled slots uniformly with replacement.

    Parameters
    ----------
    rows : Tensor of shape (n,), int64
        Bank rows in the memory's slots, -1 in free ones.
    key : Tensor, int32 scalar
        Random key.
    size : int
        Number of draws.

    Returns
    -------
    slots : Tensor of shape (size,), int64
    weight : Tensor of shape (size,)
        1 / size each.
    """
    u = uniform(key, (size,))
    n = (rows >= 0).sum()  # filled slots come first
    place = torch.minimum((u * n).long(), n - 1)  # u may round to 1
    slots = place.clamp(min=0)
    return slots, torch.full((size,), 1.0 / size, device=u.device)


def random_priority(n: int, rng: torch.Generator, device: torch.device | str) -> Tensor:
    """Draw the priorities (n,) with which a memory is a uniform sample of all subjects seen."""
    return torch.rand(n, generator=rng, dtype=torch.float64).to(device)


def weighted_priority(weight: Tensor, rng: torch.Generator) -> Tensor:
    r"""Draw priorities for sampling without replacement, proportionally to `weight` (n,).

    .. math:: \log(u_i) / w_i, \quad u_i \sim U(0, 1)

    The k highest are a weighted sample of size k, for every k.

    References
    ----------
    Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006.
    """
    u = random_priority(len(weight), rng, weight.device).clamp_min(1e-300)
    return u.log() / weight.double().clamp_min(1e-12)


def highest(priority: Tensor, n: int) -> Tensor:
    """Return the places of the `n` highest priorities, in order of entry."""
    return torch.argsort(priority, descending=True, stable=True)[:n].sort().values


def highest_per_cell(priority: Tensor, cell: Tensor, capacity: int) -> Tensor:
    """Return the places of the highest priorities within every cell, in order of entry.

    Parameters
    ----------
    priority : Tensor of shape (n,)
        Priority of each subject.
    cell : Tensor of shape (n,)
        Number of each subject's cell, for example of its site and class.
    capacity : int
        Number of places over all cells. Cells share it equally; what a small cell leaves goes to
        the others.
    """
    members = [(cell == number).nonzero()[:, 0] for number in cell.unique().tolist()]
    sizes = torch.tensor([len(member) for member in members])
    shares = quotas(torch.ones(len(members)), capacity, sizes).tolist()
    kept = []
    for member, k in zip(members, shares, strict=True):
        kept.append(member[highest(priority[member], k)])
    return torch.cat(kept).sort().values


def admit(memory: M, new: M, rule: Rule) -> M:
    """Offer new subjects to a memory, which keeps the highest priorities of old and new ones.

    Parameters
    ----------
    memory : NamedTuple
        Tensors with one slot per subject, `site`, `y` and `priority` among them.
    new : NamedTuple
        The same fields, without free slots.
    rule : {"reservoir", "balanced"}
        Keep the highest priorities of all subjects, or of every cell of site and class.

    Returns
    -------
    NamedTuple
        The memory after it, with the same number of slots.
    """
    capacity = memory.site.shape[0]
    n_filled = int((memory.site >= 0).sum())
    filled = type(memory)(*(value[:n_filled] for value in memory))
    offered = joined_memories(filled, new)
    if rule == "reservoir":
        keep = highest(offered.priority, capacity)
    else:
        y = offered.y
        site = offered.site
        # one number for every class of every site; a number as target has no classes
        cell = site if y.is_floating_point() else site * (y.max() + 1) + y
        keep = highest_per_cell(offered.priority, cell, capacity)
    kept = {}
    for name, value in offered._asdict().items():
        free = torch.full_like(getattr(memory, name), FREE.get(name, 0))
        kept[name] = torch.cat([value[keep], free[len(keep) :]])
    return memory._replace(**kept)
