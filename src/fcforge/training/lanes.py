"""Lanes: one model's code, run for many (order, seed) pairs at once.

Lanes of equal shapes are stacked into one pytree, and functions of one lane are lifted over it
with ``torch.func.vmap``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.core.randomness import derive, torch_rng
from fcforge.methods.base import Lane, Learner, Method
from fcforge.nn.tensors import Inputs, Params
from fcforge.replay.bank import SiteView

T = TypeVar("T")


class Job(NamedTuple):
    """One lane about to learn one site.

    Attributes
    ----------
    lane : Lane
    site : SiteView
    seed : int
    prefix : tuple of str
        Sites so far, this one last. Randomness depends on (seed, prefix) alone.
    peek : (inputs, labels) or None
        The open site's test split, only ever given under the `select_on_test` leak.
    method : Method or None
        The lane's own method, where lanes of one training differ in its factors; by default
        that of their learner.
    pretrained : dict of Tensor or None
        Parameters of the network pretrained on public subjects, for `Training.public_pull`.
    """

    lane: Lane
    site: SiteView
    seed: int
    prefix: tuple[str, ...]
    peek: tuple[Inputs, Tensor] | None = None
    method: Method | None = None
    pretrained: Params | None = None

    def rng(self, purpose: str) -> torch.Generator:
        """Return the random generator for work that is done once per site, by its purpose."""
        return torch_rng(self.seed, *self.prefix, purpose)

    def learner(self, shared: Learner) -> Learner:
        """Return the lane's own learner, for hooks that are called once per lane."""
        return shared if self.method is None else replace(shared, method=self.method)

    @property
    def key(self) -> Tensor:
        """Random key of all that is drawn inside lifted steps."""
        return torch.tensor(
            derive(self.seed, *self.prefix, "steps") & 0x7FFFFFFF, dtype=torch.int32
        )


def stack(trees: Sequence[T]) -> T:
    """Stack equal pytrees along a new first (lane) dimension; one tree stays as it is."""
    if len(trees) == 1:
        return trees[0]
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), *trees)


def unstack(tree: T, n: int) -> list[T]:
    """Invert `stack` of `n` trees."""
    if n == 1:
        return [tree]
    lanes = []
    for i in range(n):
        lanes.append(pytree.tree_map(lambda leaf, i=i: leaf[i].clone(), tree))
    return lanes


def shapes(tree: Any) -> tuple[Any, ...]:
    """Return structure, shapes and types of a pytree; lanes that agree in it can be stacked."""
    leaves, spec = pytree.tree_flatten(tree)
    kinds = [(tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves]
    return str(spec), tuple(kinds)


def differing_factors(learner: Learner, jobs: Sequence[Job]) -> dict[str, Tensor]:
    """Return the factors of the method (lanes,) in which the jobs' methods differ, by name.

    Lanes that agree in a factor compute with the number itself, like a lane alone.
    """
    if all(job.method is None for job in jobs):
        return {}
    like = next(iter(jobs[0].lane.params.values()))
    values = [job.learner(learner).method.factor_values() for job in jobs]
    by_name = {name: [one[name] for one in values] for name in values[0]}
    return {
        name: like.new_tensor(each)
        for name, each in by_name.items()
        if len(set(each)) > 1
    }


def lift_learner(
    fn: Callable[..., Any], learner: Learner, jobs: Sequence[Job]
) -> Callable[..., Any]:
    """Lift ``fn(learner, ...)`` of one lane so that every lane has its own method's factors.

    Parameters
    ----------
    fn : callable
    learner : Learner
    jobs : sequence of Job
        The lanes.

    Returns
    -------
    callable
        ``fn(...)`` of all lanes, without the learner.
    """
    factors = differing_factors(learner, jobs)
    if not factors:
        return lift(partial(fn, learner), len(jobs))

    def own(values: dict[str, Tensor], *args: Any) -> Any:
        method = learner.method.with_factors(values)
        return fn(replace(learner, method=method), *args)

    return partial(lift(own, len(jobs)), factors)


def lift(fn: Callable[..., Any], n_lanes: int) -> Callable[..., Any]:
    """Turn a function of one lane into the same function of `n_lanes` stacked lanes.

    One lane is not lifted: the CPU path runs the very code that was written. A gradient is taken
    inside `fn`, so that the parameters arrive here as plain tensors without a graph.
    """
    return fn if n_lanes == 1 else torch.func.vmap(fn, randomness="error")
