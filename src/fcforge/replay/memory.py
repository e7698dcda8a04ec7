"""A memory of fixed capacity: which subjects, whose labels, what the teacher said of them.

The memory is five tensors of a lane's state, so that it can be stacked over lanes, stored and
sealed. Filled slots come first; empty ones have row -1. Subjects are held by bank row; stores
write addresses, capsules write FC.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fcforge.models.base import Inputs, Model, Params
from fcforge.randomness import uniform

ROWS = "memory.row"
State = dict[str, Tensor]


def empty_memory(capacity: int, width: int, device: torch.device | str) -> State:
    """Memory with `capacity` free slots for subjects with a readout of `width` numbers."""
    return {
        ROWS: torch.full((capacity,), -1, dtype=torch.int64, device=device),
        "memory.y": torch.zeros(capacity, dtype=torch.int64, device=device),
        "memory.logits": torch.zeros(capacity, 2, device=device),
        "memory.embedding": torch.zeros(capacity, width, device=device),
        "memory.site": torch.full((capacity,), -1, dtype=torch.int64, device=device),
    }


def readout_width(model: Model, params: Params, stats: Params) -> int:
    """Length of the model's graph-level readout."""
    device = next(iter(params.values())).device
    fc = torch.eye(model.n_rois, device=device).expand(2, -1, -1)
    return int(model.apply(params, stats, model.prepare(fc)).embedding.shape[-1])


def teach(model: Model, params: Params, stats: Params, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Teacher outputs (u, r) of some subjects: eval mode, no gradient, computed once."""
    with torch.no_grad():
        out = model.apply(params, stats, inputs)
    return out.logits, out.embedding


def take(state: State, keep: Tensor, new: State) -> State:
    """Memory made of the slots `keep` of `state` followed by the entries of `new`.

    Raises when they do not fit: capacity is a promise.
    """
    capacity = state[ROWS].shape[0]
    n = len(keep) + len(new[ROWS])
    if n > capacity:
        raise AssertionError(f"{n} subjects do not fit into a memory of {capacity}")
    blank = empty_memory(capacity, state["memory.embedding"].shape[1], state[ROWS].device)
    out = dict(state)
    for key, value in blank.items():
        value[:n] = torch.cat([state[key][keep], new[key].to(value)])
        out[key] = value
    return out


def filled(state: State) -> Tensor:
    """Number of filled slots, as a tensor (works under vmap)."""
    return (state[ROWS] >= 0).sum()


def uniform_slots(state: State, key: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """`size` filled slots drawn uniformly with replacement, and weights 1 / size."""
    u = uniform(key, (size,))
    n = filled(state)
    slots = torch.minimum((u * n).long(), n - 1).clamp(min=0)  # u may round to 1
    return slots, torch.full((size,), 1.0 / size, device=u.device)
