"""A memory of fixed capacity: subjects with their labels and their teacher's outputs.

The tensors of a memory have one slot per subject. Filled slots come first; empty ones have row and
site -1. Subjects are held by bank row: stores write addresses in their place, chains write FC.

A real subject gets a priority on entry and keeps it. A full memory keeps the highest priorities:
over all subjects (with random priorities that is reservoir sampling, a uniform sample of all
subjects seen) or within every (site, class) cell, so that cells stay equal as sites come. Nothing
has to be drawn again, and no subject can enter twice.
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
    y : Tensor of shape (n,), int64, or float32 of a number
        Labels.
    logits : Tensor of shape (n, n_outputs)
        Logits u of the network when the subject entered.
    embedding : Tensor of shape (n, d)
        Readouts r of that network.
    site : Tensor of shape (n,), int64
        Position of the subject's site.
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
    """Remembered subjects of one training step, with their teacher's outputs.

    Attributes
    ----------
    inputs, y
        Prepared inputs and labels (b,).
    logits : Tensor of shape (b, n_outputs)
        Teacher logits u, stored when the subject entered the memory.
    embedding : Tensor of shape (b, d)
        Teacher readout r, stored likewise.
    weight : Tensor of shape (b,)
        Weights of the subjects in a mean; they sum to one.
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
    """Return a memory of `capacity` free slots for subjects with a readout of `width` numbers."""
    label_type = torch.float32 if n_outputs == 1 else torch.int64
    return Memory(
        rows=torch.full((capacity,), -1, dtype=torch.int64, device=device),
        y=torch.zeros(capacity, dtype=label_type, device=device),
        logits=torch.zeros(capacity, n_outputs, device=device),
        embedding=torch.zeros(capacity, width, device=device),
        site=torch.full((capacity,), -1, dtype=torch.int64, device=device),
    )


def ranked(memory: Memory, priority: Tensor) -> RankedMemory:
    """Return the memory with priorities."""
    return RankedMemory(*memory, priority=priority)


def joined(first: M, second: M) -> M:
    """Return the slots of two memories of one type, one after another."""
    pairs = zip(first, second, strict=True)
    return type(first)(*(torch.cat([a, b.to(a)]) for a, b in pairs))


def wiped(memory: M, gone: Tensor) -> M:
    """Return the memory with the slots where `gone` (n,) is true free again, in place."""
    parts = {name: value.clone() for name, value in memory._asdict().items()}
    for name, value in parts.items():
        value[gone] = FREE.get(name, 0)
    return memory._replace(**parts)


def recall(
    memory: Memory | RankedMemory, inputs: Inputs, slots: Tensor, weight: Tensor
) -> Replay:
    """Return the remembered subjects in some slots; an empty slot must have weight zero.

    Parameters
    ----------
    memory : Memory or RankedMemory
    inputs : dict of Tensor
        Prepared inputs of all rows of the bank.
    slots : Tensor of shape (b,), int64
    weight : Tensor of shape (b,)
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
    r"""Draw as many subjects of a step again, with replacement, in proportion to their weights.

    Subject i is drawn in proportion to :math:`v_i w_i`, v its weight in the step's mean and w its
    weight in training. Every loss of the replayed subjects then sees the weights. The draw is
    systematic: a subject that is due k.3 times comes k or k + 1 times.

    Parameters
    ----------
    replay : Replay
        With `rows`.
    weight : Tensor
        Training weights of all rows of the bank.
    key : Tensor, int32 scalar
    """
    assert replay.rows is not None
    mass = replay.weight * weight[replay.rows].to(replay.weight)
    place = systematic(mass, uniform(key, ()))
    total = replay.weight.sum()
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
        At least zero, one positive.
    shift : Tensor, scalar
        Random number in [0, 1).
    """
    n = len(mass)
    upper = mass.cumsum(0)
    at = (torch.arange(n, device=mass.device) + shift) / n * upper[-1]
    return torch.searchsorted(upper, at.to(upper), right=True).clamp(max=n - 1)


def uniform_slots(rows: Tensor, key: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Draw `size` filled slots uniformly with replacement.

    Parameters
    ----------
    rows : Tensor of shape (n,), int64
        Of the memory.
    key : Tensor, int32 scalar
    size : int

    Returns
    -------
    slots : Tensor of shape (size,), int64
    weight : Tensor of shape (size,)
        1 / size each.
    """
    u = uniform(key, (size,))
    n = (rows >= 0).sum()
    place = torch.minimum((u * n).long(), n - 1)  # u may round to 1
    slots = place.clamp(min=0)
    return slots, torch.full((size,), 1.0 / size, device=u.device)


def random_priority(n: int, rng: torch.Generator, device: torch.device | str) -> Tensor:
    """Draw priorities (n,) for uniform sampling."""
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
    """Return the places of the highest priorities, with equal shares of `capacity` per cell."""
    names = cell.unique().tolist()
    members = [(cell == name).nonzero()[:, 0] for name in names]
    sizes = torch.tensor([len(member) for member in members])
    shares = quotas(torch.ones(len(members)), capacity, sizes).tolist()
    kept = []
    for member, k in zip(members, shares, strict=True):
        kept.append(member[highest(priority[member], k)])
    return torch.cat(kept).sort().values


def admit(memory: M, new: M, rule: Rule) -> M:
    """Offer new subjects to a memory and return the memory.

    Parameters
    ----------
    memory : NamedTuple
        Tensors with one slot per subject, `site`, `y` and `priority` among them.
    new : NamedTuple
        The same fields, without free slots.
    rule : {"reservoir", "balanced"}
        Keep the highest priorities of all subjects, or of every (site, class) cell.
    """
    capacity = memory.site.shape[0]
    held = int((memory.site >= 0).sum())
    filled = type(memory)(*(value[:held] for value in memory))
    offered = joined(filled, new)
    if rule == "reservoir":
        keep = highest(offered.priority, capacity)
    else:
        y = offered.y
        site = offered.site
        cell = site if y.is_floating_point() else site * (y.max() + 1) + y
        keep = highest_per_cell(offered.priority, cell, capacity)
    kept = {}
    for name, value in offered._asdict().items():
        free = torch.full_like(getattr(memory, name), FREE.get(name, 0))
        kept[name] = torch.cat([value[keep], free[len(keep) :]])
    return memory._replace(**kept)
