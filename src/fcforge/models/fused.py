r"""Batch norm, ReLU and dropout of all lanes in two passes each way, as Triton kernels (CUDA only).

Written with torch's own operations, these three layers read and write the activations about
fifteen times (the lifted batch norm transposes them, the dropout mask is hashed word by word); the
step is bound by that traffic. Here the forward pass reads them twice and writes them once, the
backward pass reads them and the incoming gradient twice and writes once, and nothing but the input
is kept between the two: the mask is a hash of (key, position) and is computed again.

The numbers are those of `layers.batch_norm`, ``relu`` and `randomness.keep_mask` up to rounding;
the mask is the same bit by bit.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fcforge.randomness import dropped_of_256

ROWS = 64  # rows of one program: enough programs for the card, few enough partial sums


@cache
def kernels() -> ModuleType | None:
    """The module of Triton kernels, or None where Triton is not installed."""
    try:
        from fcforge.models import fused_kernels
    except ImportError:
        return None
    return fused_kernels


def fits(h: Tensor) -> bool:
    """Whether the kernels can take h: float32 on a CUDA device, Triton there."""
    return h.is_cuda and h.dtype == torch.float32 and kernels() is not None


def norm_relu_dropout(
    h: Tensor, weight: Tensor, bias: Tensor, key: Tensor | None, p: float, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Training-mode batch norm of h (n, F) over n, then ReLU, then dropout with `key`.

    Returns
    -------
    out : Tensor of shape (n, F)
    mean, inverse_sd : Tensor of shape (F,)
        Of the batch, without gradient.
    """
    dropped = 0 if key is None else dropped_of_256(p)
    if key is None:
        key = torch.zeros((), dtype=torch.int32, device=h.device)
    out, mean, inverse_sd = _Forward.apply(
        h[None], weight[None], bias[None], key[None], dropped, epsilon
    )
    return out[0], mean[0], inverse_sd[0]


class _Forward(torch.autograd.Function):
    """Of h (lanes, n, F), weight and bias (lanes, F), key (lanes,)."""

    @staticmethod
    def forward(
        h: Tensor, weight: Tensor, bias: Tensor, key: Tensor, dropped: int, epsilon: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        return _module().forward(h.contiguous(), weight, bias, key, dropped, epsilon, ROWS)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        h, weight, bias, key, dropped, _ = inputs
        _, mean, inverse_sd = output
        ctx.mark_non_differentiable(mean, inverse_sd)
        ctx.save_for_backward(h, weight, bias, key, mean, inverse_sd)
        ctx.dropped = dropped

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        dh, dw, db = _Backward.apply(grad, *ctx.saved_tensors, ctx.dropped)
        return dh, dw, db, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        out = _Forward.apply(*_merge(info.batch_size, in_dims, args))
        return _split(info.batch_size, out), (0, 0, 0)


class _Backward(torch.autograd.Function):
    """Gradients of h, weight and bias; itself not differentiable again."""

    @staticmethod
    def forward(
        grad: Tensor,
        h: Tensor,
        weight: Tensor,
        bias: Tensor,
        key: Tensor,
        mean: Tensor,
        inverse_sd: Tensor,
        dropped: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        return _module().backward(
            grad.contiguous(), h.contiguous(), weight, bias, key, mean, inverse_sd, dropped, ROWS
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        raise RuntimeError("the fused layer has a first derivative only")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        out = _Backward.apply(*_merge(info.batch_size, in_dims, args))
        return _split(info.batch_size, out), (0, 0, 0)


def _module() -> Any:
    found = kernels()
    assert found is not None, "called without Triton: ask `fits` first"
    return found


def _merge(size: int, in_dims: tuple[int | None, ...], args: tuple[Any, ...]) -> list[Any]:
    """Fold the dimension vmap adds into the lane dimension of every tensor."""
    merged = []
    for value, dim in zip(args, in_dims, strict=True):
        if isinstance(value, Tensor):
            whole = value.expand(size, *value.shape) if dim is None else value.movedim(dim, 0)
            value = whole.reshape(-1, *whole.shape[2:])
        merged.append(value)
    return merged


def _split(size: int, out: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x.reshape(size, -1, *x.shape[1:]) for x in out)
