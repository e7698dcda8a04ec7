"""What is done for speed and memory alone: CUDA graphs, threads, freed memory.

Training lanes of small networks is bound by launch latency. Capturing the lifted step once and
replaying it removes that without waiting for a compiler: a new shape costs a few eager steps.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch.utils import _pytree as pytree


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread: the order of sums, and so every number, is the same on any machine.

    Also where threads of one's own share the cores: each of theirs would start as many again.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def give_back() -> None:
    """Hand freed memory back to the system.

    glibc keeps what was freed in pieces below 32 MB: after a generator of 400 ROIs 0.3 GB. Other
    libraries have no such function and are left alone.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


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
