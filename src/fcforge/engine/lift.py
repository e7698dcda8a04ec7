"""Lanes: one model's code, run for many (order, seed) pairs at once."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

T = TypeVar("T")
Params = dict[str, Tensor]


def stack(trees: Sequence[T]) -> T:
    """Stack equal pytrees along a new first (lane) dimension; one tree stays as it is."""
    if len(trees) == 1:
        return trees[0]
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), *trees)


def unstack(tree: T, n: int) -> list[T]:
    """Inverse of `stack`."""
    if n == 1:
        return [tree]
    return [pytree.tree_map(lambda leaf, i=i: leaf[i].clone(), tree) for i in range(n)]


def shapes(tree: Any) -> tuple[Any, ...]:
    """Structure and shapes of a pytree: lanes that agree in it can be stacked."""
    leaves, spec = pytree.tree_flatten(tree)
    return (str(spec), tuple((tuple(x.shape), str(x.dtype)) for x in leaves))


def clone(tree: T) -> T:
    """Copy of every tensor of a pytree."""
    return pytree.tree_map(torch.clone, tree)


def lift(fn: Callable[..., Any], n_lanes: int) -> Callable[..., Any]:
    """`fn` of one lane -> the same function of `n_lanes` stacked lanes.

    One lane is not lifted at all: the CPU path runs the very code that was written. The gradient
    transform sits inside `fn`, so parameters arrive here as plain tensors without a graph.
    """
    return fn if n_lanes == 1 else torch.func.vmap(fn, randomness="error")


def gradient(objective: Callable[..., Any], params: Params) -> tuple[Params, Any]:
    """Gradient of the first of an objective's two results by `params`, and the second as it is."""
    leaves = {k: v.detach().requires_grad_() for k, v in params.items()}
    loss, also = objective(leaves)
    found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, found, strict=True)), pytree.tree_map(torch.detach, also)


def lifted_gradient(objective: Callable[..., Any], params: Params) -> tuple[Params, Any]:
    """The same where it is lifted over lanes; alone it would cost half as much again."""
    return torch.func.grad(objective, has_aux=True)(params)


def where_better(better: Tensor, new: T, old: T) -> T:
    """Per lane: `new` where `better`, else `old`. `better` is () or (n_lanes,)."""

    def pick(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(better.reshape(better.shape + (1,) * (a.dim() - better.dim())), a, b)

    return pytree.tree_map(pick, new, old)
