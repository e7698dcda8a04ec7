r"""Batch norm, ReLU and dropout of all lanes in two passes each way, as Triton kernels (CUDA only).

Written with torch's own operations, these three layers read and write the activations about
fifteen times (the lifted batch norm transposes them, the dropout mask is hashed word by word); the
step is bound by that traffic. Here the forward pass reads them twice and writes them once, the
backward pass reads them and the incoming gradient twice and writes once, and nothing but the input
is kept between the two: the mask is a hash of (key, position) and is computed again.

The numbers are those of `layers.normalise`, ``relu`` and `randomness.keep_mask` up to rounding;
the mask is the same bit by bit.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from fcforge.core.randomness import dropped_of_256

MANY_ROWS = 1024  # from here on a product over rows is cut into parts
ROWS = 64  # rows of one program: enough programs for the card, few enough partial sums


@cache
def kernels() -> Any:
    """Return the module of Triton kernels, or None where Triton is not installed."""
    try:
        from fcforge.nn import fused_kernels
    except ImportError:
        return None
    return fused_kernels


def fits(h: Tensor) -> bool:
    """Whether the kernels can take h: float32 on a CUDA device, Triton there."""
    return h.is_cuda and h.dtype == torch.float32 and kernels() is not None


def norm_relu_dropout(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    key: Tensor | None,
    old: Sequence[Tensor],
    p: float,
    epsilon: float,
    momentum: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Training-mode batch norm of h (n, F) over n, then ReLU, then dropout with `key`.

    `old` are the offset of h, which only its running mean sees, and the running mean and variance
    so far, each (F,).

    Returns
    -------
    out : Tensor of shape (n, F)
    mean, var : Tensor of shape (F,)
        Running statistics after this batch (`layers.normalise`), without gradient.
    """
    dropped = 0 if key is None else dropped_of_256(p)
    if key is None:
        key = torch.zeros((), dtype=torch.int32, device=h.device)
    given = [x[None] for x in (h, weight, bias, key, *old)]
    out, _, _, mean, var = _Forward.apply(*given, dropped, epsilon, momentum)
    return out.squeeze(0), mean.squeeze(0), var.squeeze(0)  # [0] would copy backwards


def adam(vectors: Sequence[Tensor], scalars: Sequence[Tensor], *numbers: float) -> Any:
    """Parameters and moments (P,) after a step of `fcforge.nn.adam.Adam`, in one pass.

    Parameters
    ----------
    vectors : sequence of Tensor of shape (P,)
        Parameters, gradients, first and second moments.
    scalars : sequence of Tensor of shape ()
        Factor of the gradients, rate, factor of the root of the second moment.
    numbers : float
        Weight decay, both betas, epsilon.
    """
    given = [x[None] for x in (*vectors, *scalars)]
    return tuple(new.squeeze(0) for new in _Last.apply("adam", *given, *numbers))


def dropout(x: Tensor, p: float, key: Tensor) -> Tensor:
    """Inverted dropout of x (any shape) with the mask of `keep_mask`, one pass each way."""
    return _Dropout.apply(x.reshape(1, -1), key[None], dropped_of_256(p)).reshape(
        x.shape
    )


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """``x W^T`` of x (n, in), whose gradient of W keeps the whole card busy."""
    return _Linear.apply(x, weight)


def mean_max(h: Tensor) -> Tensor:
    """Mean and maximum over ROIs, (n, R, F) -> (n, 2 F), one pass each way.

    Where several ROIs share the maximum, the first gets the gradient; torch's ``amax`` divides it.
    That is the same after a ReLU (ties are zeros, no gradient passes) and without one (no ties).
    """
    return _MeanMax.apply(h[None])[0].squeeze(0)


class _Linear(torch.autograd.Function):
    """A product that sums its gradient of W over many rows in parts.

    As one product per lane it would be one tile on one of a hundred multiprocessors.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return x @ weight.t()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        n = x.shape[0]
        parts = 4 if n % 4 == 0 and n >= MANY_ROWS else 1
        rows = (parts, n // parts)
        each = grad.unflatten(0, rows).mT @ x.unflatten(0, rows)
        return grad @ weight, each.sum(0)


class _OfLanes(torch.autograd.Function):
    """Operation on tensors whose first dimension is the lane: what vmap adds joins the lanes."""

    @classmethod
    def vmap(
        cls, info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[Any, Any]:
        size = info.batch_size
        merged = []
        for value, dim in zip(args, in_dims, strict=True):
            if isinstance(value, Tensor):
                if dim is None:
                    value = value.expand(size, *value.shape)
                value = value.movedim(dim or 0, 0).flatten(0, 1)
            merged.append(value)
        out = cls.apply(*merged)
        parts = out if isinstance(out, tuple) else (out,)
        split = tuple(x.reshape(size, -1, *x.shape[1:]) for x in parts)
        return (split, (0,) * len(split)) if isinstance(out, tuple) else (split[0], 0)


class _Last(_OfLanes):
    """The kernel of that name: a gradient or a step, itself not differentiable again."""

    @staticmethod
    def forward(name: str, *given: Any) -> Any:
        whole = [x.contiguous() if isinstance(x, Tensor) else x for x in given]
        return getattr(kernels(), name)(*whole)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass


class _MeanMax(_OfLanes):
    """Of h (lanes, n, R, F); also returns where the maximum is."""

    @staticmethod
    def forward(h: Tensor) -> tuple[Tensor, Tensor]:
        return kernels().mean_max(h.contiguous())

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]
    ) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.n_rois = inputs[0].shape[2]

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Tensor:
        given = *ctx.saved_tensors, ctx.n_rois
        return _Last.apply("mean_max_backward", grad, *given)


class _Dropout(_OfLanes):
    """Of x (lanes, n) and key (lanes,); linear in x, so the gradient is dropped alike."""

    @staticmethod
    def forward(x: Tensor, key: Tensor, dropped: int) -> Tensor:
        return kernels().dropout(x.contiguous(), key, dropped)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, key, ctx.dropped = inputs
        ctx.save_for_backward(key)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _Dropout.apply(grad, *ctx.saved_tensors, ctx.dropped), None, None


class _Forward(_OfLanes):
    """Of h (lanes, n, F), weight and bias (lanes, F), key (lanes,), old statistics (lanes, F)."""

    @staticmethod
    def forward(h: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        return kernels().forward(h.contiguous(), *rest, ROWS)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]
    ) -> None:
        _, *moments = output
        ctx.mark_non_differentiable(*moments)
        ctx.dropped = inputs[7]
        ctx.save_for_backward(*inputs[:4], *moments[:2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        given = *ctx.saved_tensors, ctx.dropped, ROWS
        return (*_Last.apply("backward", grad, *given), *[None] * 7)
