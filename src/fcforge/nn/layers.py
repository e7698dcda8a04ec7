"""Layers of classifiers and generators: short pure functions of tensors.

Shapes: n subjects, R ROIs, F features; weights have torch's layout (out, in). Parameters are
dictionaries of tensors: those of layer ``name`` are called ``name.weight`` and ``name.bias``.
Everything works under ``torch.func.vmap``, which trains many networks ("lanes") at once, and under
``torch.compile``. Parameters are drawn from an explicit generator of random numbers, because
torch.nn uses a global one.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from fcforge.core.randomness import fold, keep_mask
from fcforge.nn import fused
from fcforge.nn.tensors import Key, Params

MOMENTUM = 0.1
EPSILON = 1e-5
HEAD_KEYS = 1000  # dropout keys of the head start here, those of layer l are l


def uniform(rng: torch.Generator, shape: tuple[int, ...], bound: float) -> Tensor:
    """Draw uniformly in [-bound, bound] from `rng`, float32."""
    return (torch.rand(shape, generator=rng) * 2.0 - 1.0) * bound


def glorot(rng: torch.Generator, n_out: int, n_in: int) -> Tensor:
    """Draw a Glorot-uniform weight (out, in), as PyG initialises its convolutions."""
    return uniform(rng, (n_out, n_in), (6.0 / (n_in + n_out)) ** 0.5)


def init_linear(
    rng: torch.Generator,
    name: str,
    n_in: int,
    n_out: int,
    *,
    gain: float = 1.0,
    bias: Literal["uniform", "zero", "none"] = "uniform",
) -> Params:
    """Draw weight and bias from U(-1/sqrt(in), 1/sqrt(in)), as ``torch.nn.Linear`` does.

    Parameters
    ----------
    rng : torch.Generator
        On the CPU, so that every device starts from the same numbers.
    name : str
        Parameters are called ``name.weight`` (out, in) and ``name.bias`` (out,).
    n_in, n_out : int
        Length of the layer's input and output.
    gain : float
        Factor of the weight's bound.
    bias : {"uniform", "zero", "none"}
        Bias drawn like the weight, a bias of 0, or no bias.

    Returns
    -------
    dict of Tensor
    """
    bound = n_in**-0.5
    params = {f"{name}.weight": uniform(rng, (n_out, n_in), gain * bound)}
    if bias == "uniform":
        params[f"{name}.bias"] = uniform(rng, (n_out,), bound)
    elif bias == "zero":
        params[f"{name}.bias"] = torch.zeros(n_out)
    return params


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return ``x W^T`` over the last axis of x, without bias; `weight` is W (out, in).

    The leading axes are folded into one first. Under ``vmap`` over lanes this is then a single
    batched product whose only batch axis is the lane.
    """
    rows = x.reshape(-1, x.shape[-1])
    flat = fused.linear(rows, weight) if fused.fits(x) else rows @ weight.t()
    return flat.reshape(*x.shape[:-1], weight.shape[0])


def affine(params: Params, name: str, x: Tensor) -> Tensor:
    """Return ``x W^T + b`` of layer `name`, or ``x W^T`` where it has no bias."""
    product = linear(x, params[f"{name}.weight"])
    bias = params.get(f"{name}.bias")
    return product if bias is None else product + bias


def layer_norm(params: Params, name: str, x: Tensor) -> Tensor:
    """Normalise the last axis of x to mean 0 and variance 1, then scale and shift it.

    `params` has the scale ``name.weight`` and the shift ``name.bias`` (`init_norm`).
    """
    weight = params[f"{name}.weight"]
    bias = params[f"{name}.bias"]
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias)


def dropout(x: Tensor, p: float, key: Key) -> Tensor:
    """Set random values of x to 0 and scale the others up, so that the expected value stays.

    Parameters
    ----------
    x : Tensor of any shape
    p : float
        Probability that a value is dropped.
    key : int32 scalar or None
        Random key of the mask; without one x is returned as it is.
    """
    if key is None or p == 0.0:
        return x
    if fused.fits(x):
        return fused.dropout(x, p, key)
    return x * keep_mask(key, tuple(x.shape), p)


def dropout_keys(key: Key, n: int, first: int = 0) -> Sequence[Key]:
    """Derive one dropout key for each of `n` layers from the key of a training step.

    Parameters
    ----------
    key : int32 scalar or None
        Random key of the training step; None for no dropout.
    n : int
        Number of keys.
    first : int
        Number of the first of these layers in the network: a layer's key depends on `key` and on its
        number, so that no two layers have the same mask.

    Returns
    -------
    sequence of int32 scalars, or of None where `key` is None
    """
    if key is None:
        return [None] * n
    return fold(
        key, torch.arange(first, first + n, dtype=torch.int32, device=key.device)
    ).unbind()


def init_norm(name: str, width: int) -> Params:
    """Return scale 1 and shift 0 of a batch norm or layer norm."""
    return {f"{name}.weight": torch.ones(width), f"{name}.bias": torch.zeros(width)}


def normalise(
    h: Tensor, offset: Tensor, params: Params, stats: Params, name: str, train: bool
) -> tuple[Tensor, Params]:
    """Apply batch norm to ``h + offset``, with running statistics as argument and result.

    As in ``torch.nn.BatchNorm1d``, the batch's population variance normalises in training, its
    sample variance enters the running one: ``running = 0.9 running + 0.1 batch``.

    Parameters
    ----------
    h : Tensor of shape (..., F)
        Output of the layer before; moments are over all its dimensions but the last.
    offset : Tensor of shape (F,)
        Bias of the layer before. It shifts only the mean, so in training it is never added: its
        gradient is exactly 0, and one pass over the batch is saved.
    params : dict of Tensor
        Scale ``name.weight`` (F,) and shift ``name.bias`` (F,).
    stats : dict of Tensor
        Running ``name.mean`` (F,) and ``name.var`` (F,).
    name : str
        Name of the batch norm.
    train : bool
        Normalise by the moments of the batch and update the running ones; otherwise by the running
        ones.

    Returns
    -------
    normalised : Tensor of shape (..., F)
    stats : dict
        Running statistics after this batch (unchanged when `train` is False).
    """
    weight = params[f"{name}.weight"]
    bias = params[f"{name}.bias"]
    mean = stats[f"{name}.mean"]
    var = stats[f"{name}.var"]
    if not train:
        scale = weight * torch.rsqrt(var + EPSILON)
        out = torch.addcmul(bias + (offset - mean) * scale, h, scale)
        return out, {f"{name}.mean": mean, f"{name}.var": var}
    flat = h.reshape(-1, h.shape[-1])
    bias = bias + 0.0 * offset  # the offset stays in the graph, with a gradient of 0
    out, batch_mean, inverse_sd = torch.native_batch_norm(
        flat, weight, bias, None, None, True, MOMENTUM, EPSILON
    )
    batch_var = inverse_sd.detach().square().reciprocal() - EPSILON
    sample_var = batch_var * (len(flat) / max(len(flat) - 1, 1))
    batch_mean = batch_mean.detach() + offset.detach()
    return out.reshape(h.shape), {
        f"{name}.mean": mean + MOMENTUM * (batch_mean - mean),
        f"{name}.var": var + MOMENTUM * (sample_var - var),
    }


def norm_relu_dropout(
    h: Tensor,
    offset: Tensor,
    params: Params,
    stats: Params,
    name: str,
    train: bool,
    p: float,
    key: Key,
) -> tuple[Tensor, Params]:
    """Apply batch norm, ReLU and dropout; in training on a GPU as one fused kernel.

    Parameters
    ----------
    h, offset, params, stats, name, train
        As in `normalise`.
    p, key
        As in `dropout`.

    Returns
    -------
    out : Tensor of shape (..., F)
    stats : dict
        Running statistics after this batch.
    """
    if not train or not fused.fits(h):  # `fits` asks for a GPU with Triton
        h, new = normalise(h, offset, params, stats, name, train)
        return dropout(torch.relu(h), p, key), new
    weight = params[f"{name}.weight"]
    bias = params[f"{name}.bias"]
    flat = h.reshape(-1, h.shape[-1])
    running = offset, stats[f"{name}.mean"], stats[f"{name}.var"]
    out, mean, var = fused.norm_relu_dropout(
        flat, weight, bias, key, running, p, EPSILON, MOMENTUM
    )
    return out.reshape(h.shape), {f"{name}.mean": mean, f"{name}.var": var}


def masked_softmax(scores: Tensor, blocked: Tensor) -> Tensor:
    """Return attention weights: the softmax of scores over the last axis, masked pairs excluded.

    Parameters
    ----------
    scores : Tensor of shape (n, heads, R, R)
        For each ROI (row) its scores of all ROIs.
    blocked : Tensor of shape (n, R, R)
        0 for pairs of ROIs that may attend, -inf for others (`fcforge.graphs.attention_mask`).
    """
    return torch.softmax(scores + blocked[:, None], dim=-1)


def split_heads(h: Tensor, heads: int) -> Tensor:
    """Reshape (n, R, heads * c) to (n, heads, R, c)."""
    return h.reshape(*h.shape[:-1], heads, -1).transpose(-3, -2)


def join_heads(h: Tensor) -> Tensor:
    """Reshape (n, heads, R, c) to (n, R, heads * c)."""
    return h.transpose(-3, -2).flatten(-2)


def mean_max(h: Tensor) -> Tensor:
    """Return the graph-level readout (n, 2 F) of node features (n, R, F): mean and max over ROIs."""
    if fused.fits(h):
        return fused.mean_max(h)
    return torch.cat([h.mean(1), h.amax(1)], dim=-1)


def init_head(rng: torch.Generator, name: str, widths: tuple[int, ...]) -> Params:
    """Draw a fully connected network for `head`.

    Parameters
    ----------
    rng : torch.Generator
    name : str
        Layers are called ``name.0``, ``name.1``, ...
    widths : tuple of int
        Width of the input, of every hidden layer and of the output.
    """
    params: Params = {}
    for i, (n_in, n_out) in enumerate(pairwise(widths)):
        params |= init_linear(rng, f"{name}.{i}", n_in, n_out)
    return params


def head(params: Params, name: str, x: Tensor, p: float, key: Key) -> Tensor:
    """Apply a fully connected network: linear, ReLU, dropout, ..., linear.

    Parameters
    ----------
    params : dict of Tensor
        Parameters of the whole network, those of this part among them.
    name : str
        The layers are called ``name.0``, ``name.1``, ... as made by `init_head`.
    x : Tensor of shape (n, in)
        Input of the first layer, such as the readout.
    p : float
        Probability that dropout after a hidden layer drops a value.
    key : int32 scalar or None
        Random key of the training step; None: no dropout.

    Returns
    -------
    Tensor of shape (n, out)
    """
    depth = sum(k.startswith(f"{name}.") and k.endswith(".weight") for k in params)
    keys = [*dropout_keys(key, depth - 1, HEAD_KEYS), None]  # the last layer has none
    for i, layer_key in enumerate(keys):
        x = affine(params, f"{name}.{i}", x)
        x = dropout(torch.relu(x), p, layer_key) if i < depth - 1 else x
    return x
