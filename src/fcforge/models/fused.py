r"""Batch norm, ReLU and dropout of all lanes in two passes each way, as Triton kernels (CUDA only).

Written with torch's own operations, these three layers read and write the activations about
fifteen times (the lifted batch norm transposes them, the dropout mask is hashed word by word); the
step is bound by that traffic. Here the forward pass reads them twice and writes them once, the
backward pass reads them and the incoming gradient twice and writes once, and nothing but the input
is kept between the two: the mask is a hash of (key, position) and is computed again.

The numbers are those of `layers.normalise`, ``relu`` and `randomness.keep_mask` up to rounding;
the mask is the same bit by bit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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


_wanted = ContextVar("fused layers", default=True)


@contextmanager
def off() -> Iterator[None]:
    """Use torch's own operations inside: for second derivatives, and to compare with."""
    before = _wanted.set(False)
    try:
        yield
    finally:
        _wanted.reset(before)


def fits(h: Tensor) -> bool:
    """Whether the kernels can take h: float32 on a CUDA device, Triton there, not `off`."""
    return (
        h.is_cuda
        and h.dtype == torch.float32
        and _wanted.get()
        and kernels() is not None
    )


def norm_relu_dropout(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    key: Tensor | None,
    p: float,
    epsilon: float,
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
    return (
        out.squeeze(0),
        mean.squeeze(0),
        inverse_sd.squeeze(0),
    )  # [0] would copy backwards


def dropout(x: Tensor, p: float, key: Tensor) -> Tensor:
    """Inverted dropout of x (any shape) with the mask of `keep_mask`, one pass each way."""
    return _Dropout.apply(x.reshape(1, -1), key[None], dropped_of_256(p)).reshape(
        x.shape
    )


def mean_max(h: Tensor) -> Tensor:
    """Mean and maximum over ROIs, (n, R, F) -> (n, 2 F), one pass each way.

    Where several ROIs share the maximum, the first gets the gradient; torch's ``amax`` divides it.
    That is the same after a ReLU (ties are zeros, no gradient passes) and without one (no ties).
    """
    return _MeanMax.apply(h[None])[0].squeeze(0)


class _OfLanes(torch.autograd.Function):
    """Operation on tensors whose first dimension is the lane: what vmap adds joins the lanes."""

    @classmethod
    def vmap(
        cls, info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[Any, Any]:
        out = cls.apply(*_merge(info.batch_size, in_dims, args))
        parts = out if isinstance(out, tuple) else (out,)
        split = tuple(x.reshape(info.batch_size, -1, *x.shape[1:]) for x in parts)
        return (split, (0,) * len(split)) if isinstance(out, tuple) else (split[0], 0)


class _Gradient(_OfLanes):
    """A gradient that is itself not differentiable again."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        raise RuntimeError("a fused layer has a first derivative only: use `fused.off`")


class _MeanMax(_OfLanes):
    """Of h (lanes, n, R, F); also returns where the maximum is."""

    @staticmethod
    def forward(h: Tensor) -> tuple[Tensor, Tensor]:
        return _module().mean_max(h.contiguous())

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]
    ) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.n_rois = inputs[0].shape[2]

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Tensor:
        return _MeanMaxBackward.apply(grad, *ctx.saved_tensors, ctx.n_rois)


class _MeanMaxBackward(_Gradient):
    """Gradient of h."""

    @staticmethod
    def forward(grad: Tensor, where: Tensor, n_rois: int) -> Tensor:
        return _module().mean_max_backward(
            grad.contiguous(), where.contiguous(), n_rois
        )


class _Dropout(_OfLanes):
    """Of x (lanes, n) and key (lanes,); linear in x, so the gradient is dropped alike."""

    @staticmethod
    def forward(x: Tensor, key: Tensor, dropped: int) -> Tensor:
        return _module().dropout(x.contiguous(), key, dropped)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, key, ctx.dropped = inputs
        ctx.save_for_backward(key)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _Dropout.apply(grad, *ctx.saved_tensors, ctx.dropped), None, None


class _Forward(_OfLanes):
    """Of h (lanes, n, F), weight and bias (lanes, F), key (lanes,)."""

    @staticmethod
    def forward(h: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
        return _module().forward(h.contiguous(), *rest, ROWS)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]
    ) -> None:
        *saved, ctx.dropped, _ = inputs
        _, *moments = output
        ctx.mark_non_differentiable(*moments)
        ctx.save_for_backward(*saved, *moments)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return (
            *_Backward.apply(grad, *ctx.saved_tensors, ctx.dropped),
            None,
            None,
            None,
        )


class _Backward(_Gradient):
    """Gradients of h, weight and bias, from that of the output and what `_Forward` saved."""

    @staticmethod
    def forward(grad: Tensor, h: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
        return _module().backward(grad.contiguous(), h.contiguous(), *rest, ROWS)


def _module() -> Any:
    found = kernels()
    assert found is not None, "called without Triton: ask `fits` first"
    return found


def _merge(
    size: int, in_dims: tuple[int | None, ...], args: tuple[Any, ...]
) -> list[Any]:
    """Fold the dimension vmap adds into the lane dimension of every tensor."""
    merged = []
    for value, dim in zip(args, in_dims, strict=True):
        if isinstance(value, Tensor):
            whole = (
                value.expand(size, *value.shape)
                if dim is None
                else value.movedim(dim, 0)
            )
            value = whole.reshape(-1, *whole.shape[2:])
        merged.append(value)
    return merged
