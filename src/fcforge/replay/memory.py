"""A memory of fixed capacity: which subjects, whose labels, what the teacher said of them.

The memory is five tensors of a lane's state, so that it can be stacked over lanes, stored and
sealed. Filled slots come first; empty ones have row -1. Subjects are held by bank row; stores
write addresses, capsules write FC.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.models.base import Inputs, Model, Params, gather
from fcforge.randomness import uniform
from fcforge.replay.declared import Declared, alike

ROWS = "memory.row"
State = dict[str, Tensor]


class Replay(NamedTuple):
    """Remembered subjects of one training step, with what the teacher said of them.

    Attributes
    ----------
    inputs, y
        Prepared inputs and diagnoses (b,).
    logits : Tensor of shape (b, 2)
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


def empty_memory(capacity: int, width: int, device: torch.device | str) -> State:
    """Memory with `capacity` free slots for subjects with a readout of `width` numbers."""
    return {
        ROWS: torch.full((capacity,), -1, dtype=torch.int64, device=device),
        "memory.y": torch.zeros(capacity, dtype=torch.int64, device=device),
        "memory.logits": torch.zeros(capacity, 2, device=device),
        "memory.embedding": torch.zeros(capacity, width, device=device),
        "memory.site": torch.full((capacity,), -1, dtype=torch.int64, device=device),
    }


def declared_memory(capacity: int, width: int, sites: int) -> dict[str, Declared]:
    """Such a memory as it may travel after `sites` sites."""
    found = alike(empty_memory(capacity, width, "meta"))
    found["memory.y"] = found["memory.y"]._replace(low=0, high=1)
    found["memory.site"] = found["memory.site"]._replace(low=-1, high=sites - 1)
    return found


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


def recall(state: State, inputs: Inputs, slots: Tensor, weight: Tensor) -> Replay:
    """The remembered subjects in some slots; an empty slot must have weight zero."""
    return Replay(
        gather(inputs, state[ROWS][slots].clamp(min=0)),
        state["memory.y"][slots],
        state["memory.logits"][slots],
        state["memory.embedding"][slots],
        weight,
    )


def filled(state: State) -> Tensor:
    """Number of filled slots, as a tensor (works under vmap)."""
    return (state[ROWS] >= 0).sum()


def uniform_slots(state: State, key: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """`size` filled slots drawn uniformly with replacement, and weights 1 / size."""
    u = uniform(key, (size,))
    n = filled(state)
    slots = torch.minimum((u * n).long(), n - 1).clamp(min=0)  # u may round to 1
    return slots, torch.full((size,), 1.0 / size, device=u.device)
