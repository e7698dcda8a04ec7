"""A memory of fixed capacity: which subjects, whose labels, what the teacher said of them.

The memory is five tensors of a lane's state, so that it can be stacked over lanes, stored and
sealed. Filled slots come first; empty ones have row -1. Subjects are held by bank row; stores
write addresses, chains write FC.

A real subject gets a priority on entry and keeps it. A memory that is too small keeps the highest:
over everybody (with random priorities that is reservoir sampling, a uniform sample of all subjects
seen) or within every (site, class) cell, so that cells stay equal as sites come. Nothing has to be
drawn again and no subject can enter twice.
"""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fcforge.core.randomness import uniform
from fcforge.nn.tensors import Inputs
from fcforge.replay.bandit import quotas
from fcforge.replay.bank import gather


class Declared(NamedTuple):
    """One array.

    Attributes
    ----------
    shape : tuple of int or None
        None stands for any length.
    dtype : torch.dtype
    low, high : float
        Bounds of its numbers; NaN and infinity are never allowed.
    triangular : bool
        Zero below the diagonal: the root of a matrix of moments, which raw rows are not.
    """

    shape: tuple[int | None, ...]
    dtype: torch.dtype = torch.float32
    low: float = -math.inf
    high: float = math.inf
    triangular: bool = False

    def complaint(self, value: Tensor) -> str:
        """What is wrong with an array; empty where nothing is."""
        if value.dtype != self.dtype:
            return f"is of type {value.dtype}, not {self.dtype}"
        same = value.dim() == len(self.shape) and all(
            wanted in (None, n)
            for wanted, n in zip(self.shape, value.shape, strict=True)
        )
        if not same:
            words = (
                " x ".join("any" if n is None else str(n) for n in self.shape)
                or "one number"
            )
            return f"has shape {tuple(value.shape)}, not {words}"
        if not bool(torch.isfinite(value).all()):
            return "holds NaN or infinity"
        if (
            value.numel()
            and not self.low <= float(value.min()) <= float(value.max()) <= self.high
        ):
            return f"has numbers outside {self.low:g} to {self.high:g}"
        if self.triangular and bool(torch.tril(value, -1).any()):
            return "is not triangular, as the root of a matrix of moments is"
        return ""


def alike(state: Mapping[str, Tensor]) -> dict[str, Declared]:
    """Arrays of the same shapes and types as these."""
    return {name: Declared(tuple(v.shape), v.dtype) for name, v in state.items()}


ROWS = "memory.row"
State = dict[str, Tensor]
Rule = Literal["reservoir", "balanced"]


class Replay(NamedTuple):
    """Remembered subjects of one training step, with what the teacher said of them.

    Attributes
    ----------
    inputs, y
        Prepared inputs and diagnoses (b,).
    logits : Tensor of shape (b, n_outputs)
        Teacher logits u, stored when the subject entered the memory.
    embedding : Tensor of shape (b, d)
        Teacher readout r, stored likewise.
    weight : Tensor of shape (b,)
        How much each remembered subject counts in a mean; sums to one.
    """

    inputs: Inputs
    y: Tensor
    logits: Tensor
    embedding: Tensor
    weight: Tensor


def empty_memory(
    capacity: int, width: int, device: torch.device | str, n_outputs: int = 2
) -> State:
    """Memory with `capacity` free slots for subjects with a readout of `width` numbers."""
    kind = torch.float32 if n_outputs == 1 else torch.int64
    return {
        ROWS: torch.full((capacity,), -1, dtype=torch.int64, device=device),
        "memory.y": torch.zeros(capacity, dtype=kind, device=device),
        "memory.logits": torch.zeros(capacity, n_outputs, device=device),
        "memory.embedding": torch.zeros(capacity, width, device=device),
        "memory.site": torch.full((capacity,), -1, dtype=torch.int64, device=device),
    }


def bounded(
    found: dict[str, Declared], sites: int, n_outputs: int
) -> dict[str, Declared]:
    """Arrays of a memory after `sites` sites, with bounds of diagnoses and of sites' numbers."""
    # places of classes, or the limits of a number
    label = (-1, 1) if n_outputs == 1 else (0, n_outputs - 1)
    limits = {"memory.y": label, "dev.y": label, "memory.site": (-1, sites - 1)}
    for key in limits.keys() & found:
        low, high = limits[key]
        found[key] = found[key]._replace(low=low, high=high)
    return found


def recall(state: State, inputs: Inputs, slots: Tensor, weight: Tensor) -> Replay:
    """The remembered subjects in some slots; an empty slot must have weight zero."""
    return Replay(
        gather(inputs, state[ROWS][slots].clamp(min=0)),
        state["memory.y"][slots],
        state["memory.logits"][slots],
        state["memory.embedding"][slots],
        weight,
    )


def uniform_slots(state: State, key: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """`size` filled slots drawn uniformly with replacement, and weights 1 / size."""
    u = uniform(key, (size,))
    n = (state[ROWS] >= 0).sum()
    place = torch.minimum((u * n).long(), n - 1)  # u may round to 1
    slots = place.clamp(min=0)
    return slots, torch.full((size,), 1.0 / size, device=u.device)


def random_priority(n: int, rng: torch.Generator, device: torch.device | str) -> Tensor:
    """Priorities (n,) for uniform sampling."""
    return torch.rand(n, generator=rng, dtype=torch.float64).to(device)


def weighted_priority(weight: Tensor, rng: torch.Generator) -> Tensor:
    r"""Priorities for sampling without replacement with probability proportional to `weight`.

    .. math:: \log(u_i) / w_i, \quad u_i \sim U(0, 1)

    The k highest are a weighted sample of size k, for every k.

    References
    ----------
    Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006.
    """
    u = random_priority(len(weight), rng, weight.device).clamp_min(1e-300)
    return u.log() / weight.double().clamp_min(1e-12)


def highest(priority: Tensor, n: int) -> Tensor:
    """Places of the `n` highest priorities, in order of entry."""
    return torch.argsort(priority, descending=True, stable=True)[:n].sort().values


def highest_per_cell(priority: Tensor, cell: Tensor, capacity: int) -> Tensor:
    """Places of the highest priorities of every cell, cells sharing `capacity` equally."""
    names = cell.unique().tolist()
    members = [(cell == c).nonzero()[:, 0] for c in names]
    sizes = torch.tensor([len(m) for m in members])
    room = quotas(torch.ones(len(members)), capacity, sizes).tolist()
    kept = []
    for member, k in zip(members, room, strict=True):
        kept.append(member[highest(priority[member], k)])
    return torch.cat(kept).sort().values


def free_slot(key: str) -> int:
    """What a part of the memory holds where nobody is."""
    return -1 if key in (ROWS, "memory.site") else 0


def admit(state: State, new: State, rule: Rule) -> State:
    """Memory after `new` subjects were offered to it.

    Parameters
    ----------
    state : dict
        ``memory.site`` (-1 marks a free slot; filled slots come first), ``memory.y``,
        ``memory.priority`` and any other ``memory.*`` tensor of the same length.
    new : dict
        The same keys, without free slots.
    rule : {"reservoir", "balanced"}
    """
    capacity = state["memory.site"].shape[0]
    held = int((state["memory.site"] >= 0).sum())
    offered = {}
    for key, value in new.items():
        old = state[key]
        offered[key] = torch.cat([old[:held], value.to(old)])
    if rule == "reservoir":
        keep = highest(offered["memory.priority"], capacity)
    else:
        y = offered["memory.y"]
        site = offered["memory.site"]
        cell = site if y.is_floating_point() else site * (y.max() + 1) + y
        keep = highest_per_cell(offered["memory.priority"], cell, capacity)
    out = dict(state)
    for key, value in offered.items():
        free = torch.full_like(state[key], free_slot(key))
        out[key] = torch.cat([value[keep], free[len(keep) :]])
    return out
