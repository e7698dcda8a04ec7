"""CUDA graphs: capture a function of tensors once and replay it."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def _copy(target: Any, source: Any) -> None:
    """Copy leaf by leaf; in a dictionary by name, for two may hold their names in another order."""
    pytree.tree_map(lambda a, b: a if a is b else a.copy_(b), target, source)


class Graphed:
    """A function captured on its first call and replayed ever after.

    ``fn(*carried, *given) -> carried``: the first `carried` arguments are pytrees of tensors that
    the function advances and returns. What a call returns are its own buffers: they are
    overwritten by the next call, so whoever keeps one for later clones it. Shapes never change.
    """

    def __init__(self, fn: Callable[..., tuple[Any, ...]], carried: int) -> None:
        self._fn = fn
        self._carried = carried
        self._graph: torch.cuda.CUDAGraph | None = None
        self._static: tuple[Any, ...] = ()

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Advance once."""
        if self._graph is None:
            self._capture(args)
        assert self._graph is not None
        _copy(self._static, args)
        self._graph.replay()
        return self._static[: self._carried]

    def _capture(self, args: tuple[Any, ...]) -> None:
        self._static = pytree.tree_map(torch.clone, args)
        # on a side stream first: libraries allocate and choose kernels there, not in a graph
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._fn(*self._static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            _copy(self._static[: self._carried], self._fn(*self._static))
        self._graph = graph
