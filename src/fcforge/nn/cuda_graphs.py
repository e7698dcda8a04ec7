"""CUDA graphs: a function of tensors, recorded on a GPU once and then replayed.

Recording ("capture") notes the kernels that a function launches, with the addresses of their
tensors. A replay launches them all at once, which is much faster than calling the function for many
small kernels. It always reads and writes the same tensors, so arguments are copied into them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree


def _copy(target: Any, source: Any) -> None:
    """Copy the tensors of a nested structure (a pytree) into those of another of the same form.

    Entries of dictionaries are matched by name, because their order may differ.
    """
    pytree.tree_map(lambda a, b: a if a is b else a.copy_(b), target, source)


class Graphed:
    """A function that is captured as a CUDA graph on its first call and replayed afterwards.

    The function has the form ``fn(*state, *inputs) -> state``, for example a training step.

    Parameters
    ----------
    fn : callable
        Its arguments are pytrees of CUDA tensors, whose shapes never change.
    carried : int
        Number of leading arguments that are state: `fn` returns their new values.

    Notes
    -----
    A call returns the tensors that the graph writes into. The next call overwrites them, so clone
    a result that is needed longer.
    """

    def __init__(self, fn: Callable[..., tuple[Any, ...]], carried: int) -> None:
        self._fn = fn
        self._carried = carried
        self._graph: torch.cuda.CUDAGraph | None = None
        self._static: tuple[Any, ...] = ()

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Call the function with state and inputs and return the new state."""
        if self._graph is None:
            self._capture(args)
        assert self._graph is not None
        _copy(self._static, args)
        self._graph.replay()
        return self._static[: self._carried]

    def _capture(self, args: tuple[Any, ...]) -> None:
        """Record the function on copies of `args`, which become the graph's own tensors."""
        self._static = pytree.tree_map(torch.clone, args)
        # run once outside the graph: libraries allocate memory and choose kernels on a first call
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._fn(*self._static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            _copy(self._static[: self._carried], self._fn(*self._static))
        self._graph = graph
