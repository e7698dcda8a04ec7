"""What a method's state must be when it travels: name, shape, type and bounds of every array.

A capsule refuses whatever is not declared, so that nothing can hide in a state.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor


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
            wanted in (None, n) for wanted, n in zip(self.shape, value.shape, strict=True)
        )
        if not same:
            words = " x ".join("any" if n is None else str(n) for n in self.shape) or "one number"
            return f"has shape {tuple(value.shape)}, not {words}"
        if not bool(torch.isfinite(value).all()):
            return "holds NaN or infinity"
        if value.numel() and not self.low <= float(value.min()) <= float(value.max()) <= self.high:
            return f"has numbers outside {self.low:g} to {self.high:g}"
        if self.triangular and bool(torch.tril(value, -1).any()):
            return "is not triangular, as the root of a matrix of moments is"
        return ""


def alike(state: Mapping[str, Tensor]) -> dict[str, Declared]:
    """Arrays of the same shapes and types as these."""
    return {name: Declared(tuple(v.shape), v.dtype) for name, v in state.items()}
