"""Explicit randomness: every generator is derived from a seed and names, never from a position.

There are two kinds. `numpy_rng` and `torch_rng` are ordinary generators for work done once
(splits, initialisation, minibatch order). `keep_mask` is a counter-based hash for work done
inside a lifted training step: it is a pure function of an integer key, so a lane draws the
same dropout mask alone, beside 119 other lanes, compiled, on a CPU or on a GPU.
"""

import hashlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def derive(seed: int, *names: str | int) -> int:
    """Return a 63-bit integer from a seed and names (SHA-256, stable across versions)."""
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


def _mix(h: Any) -> Any:
    """Apply Murmur3's 32-bit finaliser to int32 numbers of torch or numpy.

    Products wrap around; masks make the shifts logical.
    """
    h = h ^ ((h >> 16) & 0xFFFF)
    h = h * -2048144789  # 0x85EBCA6B as a signed 32-bit integer
    h = h ^ ((h >> 13) & 0x7FFFF)
    h = h * -1028477387  # 0xC2B2AE35
    return h ^ ((h >> 16) & 0xFFFF)


def fold(key: "Tensor", number: "int | Tensor") -> "Tensor":
    """Derive a new int32 key from `key` for a purpose or step `number`; works under vmap."""
    if isinstance(number, int):  # wrap as an int32 tensor would
        salt: int | Tensor = ((number * 0x9E3779B1 + 2**31) & 0xFFFFFFFF) - 2**31
    else:
        salt = number * -1640531535
    return _mix(_mix(key * 0x01000193 + 0x3C6EF372) ^ salt)


def bits(key: "Tensor", shape: tuple[int, ...]) -> "Tensor":
    """Return 31 random bits per entry (int32 tensor of `shape`), a hash of (key, position)."""
    n = math.prod(shape)  # numpy here would break torch.compile's graph
    return (_hashed(key, n) & 0x7FFFFFFF).reshape(shape)


def _hashed(key: "Tensor", n: int) -> "Tensor":
    """Return `n` int32 numbers of 32 random bits."""
    import torch

    counter = torch.arange(n, dtype=torch.int32, device=key.device)
    return _mix(_mix(counter * -1640531535 + key) ^ key)


def uniform(key: "Tensor", shape: tuple[int, ...]) -> "Tensor":
    """Return uniform numbers in (0, 1), float32."""
    return (bits(key, shape).double() + 0.5).mul(2.0**-31).float()


def normal(key: "Tensor", shape: tuple[int, ...]) -> "Tensor":
    """Return standard normal numbers (Box-Muller), float32."""
    import torch

    u = uniform(fold(key, 1), shape)
    v = uniform(fold(key, 2), shape)
    radius = torch.sqrt(-2.0 * torch.log(u))
    return radius * torch.cos(2.0 * torch.pi * v)


def dropped_of_256(p: float) -> int:
    """Return the drop probability `p` in 256ths, at most 255."""
    return min(round(p * 256), 255)


def keep_mask(key: "Tensor", shape: tuple[int, ...], p: float) -> "Tensor":
    """Return an inverted-dropout mask: 0 with probability `p`, else 1 / (1 - p).

    One hash gives four draws of 8 bits (a mask costs as much as a matrix product otherwise),
    so `p` is rounded to a multiple of 1/256; the mask's mean is 1 for the rounded value.

    Parameters
    ----------
    key : Tensor, int32 scalar
        Counter; equal keys give equal masks on every device.
    shape : tuple of int
        Shape of the mask.
    p : float
        Drop probability in [0, 1).

    Returns
    -------
    Tensor of shape `shape`, float32
    """
    import torch

    n = math.prod(shape)  # numpy here would break torch.compile's graph
    dropped = dropped_of_256(p)
    u = _hashed(key, -(-n // 4))
    draws = torch.stack([u & 255, (u >> 8) & 255, (u >> 16) & 255, (u >> 24) & 255])
    kept = (draws >= dropped).to(torch.float32)
    mask = kept * (256.0 / (256 - dropped))
    return mask.reshape(-1)[:n].reshape(shape)
