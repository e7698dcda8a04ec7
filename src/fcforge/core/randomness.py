"""Explicit randomness: every generator is derived from a seed and names, never from a position.

There are two kinds. `numpy_rng` and `torch_rng` are ordinary generators for work done once
(splits, initialisation, minibatch order). `keep_mask`, `uniform` and `normal` hash an integer key
and a counter. They serve training steps that are vectorised over lanes (a lane is one training run:
one learner, one site order, one seed). As pure functions of the key they give a lane the same
numbers alone, together with 119 other lanes, compiled, on a CPU or on a GPU.
"""

import hashlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def derive(seed: int, *names: str | int) -> int:
    """Return a 63-bit integer seed derived from a seed and names, e.g. a purpose and a site.

    It is a hash (SHA-256), stable across machines and versions.
    """
    text = "\x1f".join([str(seed), *map(str, names)])
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def numpy_rng(seed: int, *names: str | int) -> np.random.Generator:
    """Return a numpy generator keyed by (seed, names)."""
    return np.random.default_rng(derive(seed, *names))


def torch_rng(seed: int, *names: str | int) -> "torch.Generator":
    """Return a torch generator on the CPU, keyed by (seed, names)."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *names))


def _mix(word: Any) -> Any:
    """Hash int32 numbers (torch or numpy) by the finaliser of Murmur3.

    Products wrap around at 32 bits. The masks turn the arithmetic shifts of signed integers into
    logical ones.
    """
    word = word ^ ((word >> 16) & 0xFFFF)
    word = word * -2048144789  # 0x85EBCA6B as a signed 32-bit integer
    word = word ^ ((word >> 13) & 0x7FFFF)
    word = word * -1028477387  # 0xC2B2AE35
    return word ^ ((word >> 16) & 0xFFFF)


def fold(key: "Tensor", number: "int | Tensor") -> "Tensor":
    """Return a new int32 key derived from `key` and the number of a purpose or step.

    It works under ``torch.func.vmap``. The number is multiplied by 0x9E3779B1, as a signed 32-bit integer
    -1640531535, so that neighbouring numbers give keys without relation.
    """
    if isinstance(number, int):  # wrap around as an int32 tensor would
        salt: int | Tensor = ((number * 0x9E3779B1 + 2**31) & 0xFFFFFFFF) - 2**31
    else:
        salt = number * -1640531535
    return _mix(_mix(key * 0x01000193 + 0x3C6EF372) ^ salt)


def bits(key: "Tensor", shape: tuple[int, ...]) -> "Tensor":
    """Return an int32 tensor of `shape` with 31 random bits per entry, a hash of (key, position)."""
    size = math.prod(shape)  # numpy here would break torch.compile's graph
    return (_hashed(key, size) & 0x7FFFFFFF).reshape(shape)


def _hashed(key: "Tensor", size: int) -> "Tensor":
    """Return `size` int32 numbers of 32 random bits, a hash of (key, position)."""
    import torch

    counter = torch.arange(size, dtype=torch.int32, device=key.device)
    return _mix(_mix(counter * -1640531535 + key) ^ key)


def uniform(key: "Tensor", shape: tuple[int, ...]) -> "Tensor":
    """Return a float32 tensor of `shape` with uniform numbers in (0, 1), a hash of `key`."""
    return (bits(key, shape).double() + 0.5).mul(2.0**-31).float()


def normal(key: "Tensor", shape: tuple[int, ...]) -> "Tensor":
    """Return a float32 tensor of `shape` with standard normal numbers (Box-Muller), from `key`."""
    import torch

    u = uniform(fold(key, 1), shape)
    v = uniform(fold(key, 2), shape)
    radius = torch.sqrt(-2.0 * torch.log(u))
    return radius * torch.cos(2.0 * torch.pi * v)


def dropped_of_256(p: float) -> int:
    """Return the drop probability `p` as a whole number of 256ths, at most 255."""
    return min(round(p * 256), 255)


def keep_mask(key: "Tensor", shape: tuple[int, ...], p: float) -> "Tensor":
    """Return an inverted-dropout mask: 0 with probability `p`, else 1 / (1 - p).

    One hash gives four draws of 8 bits, since with one hash per entry a mask costs as much as a
    matrix product. `p` is therefore rounded to a multiple of 1/256. The expected value of the mask
    is 1 for the rounded `p`.

    Parameters
    ----------
    key : Tensor, int32 scalar
        Equal keys give equal masks on every device.
    shape : tuple of int
        Shape of the mask.
    p : float
        Drop probability in [0, 1).

    Returns
    -------
    Tensor of shape `shape`, float32
    """
    import torch

    size = math.prod(shape)  # numpy here would break torch.compile's graph
    dropped = dropped_of_256(p)
    words = _hashed(key, -(-size // 4))  # a quarter of the entries, rounded up
    # the entries of the first quarter take the lowest bytes, those of the last the highest
    octets = [words & 255, (words >> 8) & 255, (words >> 16) & 255, (words >> 24) & 255]
    kept = (torch.stack(octets) >= dropped).to(torch.float32)
    mask = kept * (256.0 / (256 - dropped))
    return mask.reshape(-1)[:size].reshape(shape)
