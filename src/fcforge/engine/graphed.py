"""One training step as a CUDA graph: hundreds of small kernels, one launch.

Training lanes of small networks is bound by launch latency. Capturing the lifted step once and
replaying it removes that without waiting for a compiler: a new shape costs a few eager steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Step = Callable[[Any, Any, Tensor, Tensor], tuple[Any, Any]]


def _copy(target: Any, source: Any) -> None:
    for a, b in zip(pytree.tree_leaves(target), pytree.tree_leaves(source), strict=True):
        if a is not b:
            a.copy_(b)


class GraphedStep:
    """`step(lane, opt, rows, key)` captured on its first call and replayed ever after.

    The lane and optimiser it returns are its own buffers: they are overwritten by the next call,
    so whoever keeps one for later clones it.
    """

    def __init__(self, step: Step, warmup: int = 3) -> None:
        self._step, self._warmup = step, warmup
        self._graph: torch.cuda.CUDAGraph | None = None
        self._static: tuple[Any, Any, Tensor, Tensor] | None = None

    def __call__(self, lane: Any, opt: Any, rows: Tensor, key: Tensor) -> tuple[Any, Any]:
        """Advance one step."""
        if self._static is None:
            self._capture(lane, opt, rows, key)
        assert self._static is not None
        assert self._graph is not None
        _copy(self._static, (lane, opt, rows, key))
        self._graph.replay()
        return self._static[0], self._static[1]

    def _capture(self, *args: Any) -> None:
        self._static = pytree.tree_map(torch.clone, args)
        _warm_up(self._step, self._static, self._warmup)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            _copy(self._static[:2], self._step(*self._static))


def _warm_up(fn: Callable[..., Any], args: Any, times: int) -> None:
    """Run on a side stream first: libraries allocate and choose kernels there, not in a graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            fn(*args)
    torch.cuda.current_stream().wait_stream(side)
