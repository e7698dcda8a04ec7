r"""Fused GPU versions of layers and of Adam, by Triton kernels; only for CUDA.

The main one is batch norm, ReLU and dropout of all lanes (the networks that ``vmap`` trains at
once). With torch's own operations these three layers read and write the activations about fifteen
times (batch norm under vmap transposes them, the dropout mask is hashed word by word), and this
traffic limits the speed of a training step. Here the forward pass reads them twice and writes them
once. The backward pass reads them and the incoming gradient twice and writes once. Nothing but the
input is kept between the two: the mask is a hash of (key, position) and is computed again.

The numbers are those of `layers.normalise`, ``relu`` and `randomness.keep_mask` up to rounding; the
mask is the same bit by bit.

The functions here take the tensors of one lane. The ``vmap`` rule of `_OfLanes` turns many lanes
into one kernel launch.

Shapes: n rows, R ROIs, F features, P parameters in all.
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
    """Return whether the kernels can take h: float32, on a CUDA device, with Triton installed."""
    return h.is_cuda and h.dtype == torch.float32 and kernels() is not None


def norm_relu_dropout(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    key: Tensor | None,
    running: Sequence[Tensor],
    p: float,
    epsilon: float,
    momentum: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Apply batch norm in training mode, then ReLU, then dropout.

    Parameters
    ----------
    h : Tensor of shape (n, F)
        The norm is over its n rows.
    weight, bias : Tensor of shape (F,)
        Scale and shift of the norm.
    key : int32 scalar or None
        Random key of dropout; None: nothing is dropped.
    running : three Tensors of shape (F,)
        Offset of h, which only its running mean sees; running mean; running variance.
    p : float
        Probability that dropout drops a value.
    epsilon, momentum : float
        Of the batch norm.

    Returns
    -------
    out : Tensor of shape (n, F)
    mean, var : Tensor of shape (F,)
        Running statistics after this batch (`layers.normalise`), without gradient.
    """
    dropped = 0 if key is None else dropped_of_256(p)
    if key is None:
        key = torch.zeros((), dtype=torch.int32, device=h.device)
    one_lane = [x[None] for x in (h, weight, bias, key, *running)]
    out, _, _, mean, var = _NormReluDropout.apply(*one_lane, dropped, epsilon, momentum)
    # squeeze, because the gradient of [0] is a copy
    return out.squeeze(0), mean.squeeze(0), var.squeeze(0)


def adam(vectors: Sequence[Tensor], scalars: Sequence[Tensor], *numbers: float) -> Any:
    """Take a step of `fcforge.nn.adam.Adam` in one pass.

    Parameters
    ----------
    vectors : sequence of Tensor of shape (P,)
        Parameters, gradients, first and second moments.
    scalars : sequence of Tensor of shape ()
        Factor that clips the gradients, learning rate with the bias correction of the first moment,
        factor of the root of the second moment that corrects its bias.
    numbers : float
        Weight decay, both betas, epsilon.

    Returns
    -------
    tuple of three Tensors of shape (P,)
        Parameters, first and second moments after the step.
    """
    one_lane = [x[None] for x in (*vectors, *scalars)]
    results = _KernelWithoutGradient.apply("adam", *one_lane, *numbers)
    return tuple(result.squeeze(0) for result in results)


def dropout(x: Tensor, p: float, key: Tensor) -> Tensor:
    """Apply dropout to x (any shape) with the mask of `keep_mask`, in one pass each way."""
    flat = _Dropout.apply(x.reshape(1, -1), key[None], dropped_of_256(p))
    return flat.reshape(x.shape)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return ``x W^T`` of x (n, in); its gradient of W is computed in parts, for a full GPU."""
    return _Linear.apply(x, weight)


def mean_max(h: Tensor) -> Tensor:
    """Return mean and maximum over ROIs, (n, R, F) -> (n, 2 F), in one pass each way.

    Where several ROIs share the maximum, the first gets the gradient; torch's ``amax`` divides it.
    That is the same after a ReLU (ties are zeros, no gradient passes) and without one (no ties).
    """
    return _MeanMax.apply(h[None])[0].squeeze(0)


class _Linear(torch.autograd.Function):
    """Product ``x W^T`` whose gradient of W over many rows is summed in parts.

    As one product per lane it would be one tile on one of a GPU's hundred multiprocessors.
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
        parts = 4 if n % 4 == 0 and n >= MANY_ROWS else 1  # one sum for each
        rows = (parts, n // parts)
        weight_grads = grad.unflatten(0, rows).mT @ x.unflatten(0, rows)
        return grad @ weight, weight_grads.sum(0)


class _OfLanes(torch.autograd.Function):
    """Operation on tensors whose first dimension is the lane.

    Under vmap the mapped dimension is merged into the first one, so that many lanes are one launch.
    """

    @classmethod
    def vmap(
        cls, info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[Any, Any]:
        """Apply the operation to mapped arguments, as ``torch.autograd.Function.vmap`` prescribes.

        Parameters
        ----------
        info
            Its ``batch_size`` is the number of lanes that vmap maps over.
        in_dims : tuple of int or None
            Dimension of each argument that is mapped over; None for one that all lanes share.
        *args
            Arguments of ``forward``. Tensors have a first dimension for lanes besides the mapped one.

        Returns
        -------
        out : Tensor or tuple of Tensor
        out_dims : int or tuple of int
            The dimension of each result that is mapped over: always 0.
        """
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


class _KernelWithoutGradient(_OfLanes):
    """Call of a function of `fused_kernels` that is not differentiated: a gradient or a step."""

    @staticmethod
    def forward(name: str, *args: Any) -> Any:
        whole = [x.contiguous() if isinstance(x, Tensor) else x for x in args]
        return getattr(kernels(), name)(*whole)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass


class _MeanMax(_OfLanes):
    """Mean and maximum over ROIs of h (lanes, n, R, F), and the ROI of each maximum."""

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
        saved = *ctx.saved_tensors, ctx.n_rois
        return _KernelWithoutGradient.apply("mean_max_backward", grad, *saved)


class _Dropout(_OfLanes):
    """Dropout of x (lanes, n) with keys (lanes,); the gradient passes through the same mask."""

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


class _NormReluDropout(_OfLanes):
    """Batch norm, ReLU and dropout of h (lanes, n, F); arguments of `fused_kernels.forward`."""

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
        h, weight, bias, key = inputs[:4]
        mean, inverse_sd = moments[:2]
        ctx.save_for_backward(h, weight, bias, key, mean, inverse_sd)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        saved = *ctx.saved_tensors, ctx.dropped, ROWS
        gradients = _KernelWithoutGradient.apply("backward", grad, *saved)
        # of h, weight and bias; the seven arguments after them have no gradient
        return (*gradients, *[None] * 7)
