"""Lanes: code written for one training run, executed for many at once.

A lane is one training run: one learner, one order of sites, one seed. Its networks and states are a
pytree, a nested structure of tensors (`fcforge.methods.base.Lane`). Lanes of equal shapes are stacked
along a new first dimension. A function of one lane is then "lifted": ``torch.func.vmap`` turns it into
a function of all stacked lanes.
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
    """One lane that is about to learn one site.

    Attributes
    ----------
    lane : Lane
    site : SiteView
        The site's training subjects.
    seed : int
        Seed of the run.
    prefix : tuple of str
        Names of the sites so far, this one last. Random numbers depend only on seed and prefix.
    peek : (inputs, labels) or None
        The site's test split, only under the `select_on_test` leak.
    method : Method or None
        The lane's own method, where lanes that train together differ in factors of the loss; None
        for the method of their learner.
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
        """Return a random generator for work that is done once per site, such as "batches"."""
        return torch_rng(self.seed, *self.prefix, purpose)

    def learner(self, shared: Learner) -> Learner:
        """Return the learner with the lane's own method, for hooks that are called once per lane.

        `shared` is the learner of all lanes that train together.
        """
        return shared if self.method is None else replace(shared, method=self.method)

    @property
    def key(self) -> Tensor:
        """Random key (int32 scalar) from which those of all epochs and steps at the site are derived.

        The mask keeps the lower 31 bits, so that the key is not negative.
        """
        return torch.tensor(
            derive(self.seed, *self.prefix, "steps") & 0x7FFFFFFF, dtype=torch.int32
        )


def stack(trees: Sequence[T]) -> T:
    """Stack pytrees of equal shapes along a new first dimension; a single one stays as it is."""
    if len(trees) == 1:
        return trees[0]
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), *trees)


def unstack(tree: T, n: int) -> list[T]:
    """Return the `n` pytrees that `stack` has stacked, as copies."""
    if n == 1:
        return [tree]
    lanes = []
    for i in range(n):
        lanes.append(pytree.tree_map(lambda leaf, i=i: leaf[i].clone(), tree))
    return lanes


def shapes(tree: Any) -> tuple[Any, ...]:
    """Return structure, shapes and types of a pytree; lanes for which it is equal can be stacked."""
    leaves, structure = pytree.tree_flatten(tree)
    kinds = [(tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves]
    return str(structure), tuple(kinds)


def differing_factors(learner: Learner, jobs: Sequence[Job]) -> dict[str, Tensor]:
    """Return the factors of the loss (lanes,) in which the jobs' methods differ, by name.

    A factor that is equal in all lanes is left out: they compute with the number itself, as a lane
    alone does.
    """
    if all(job.method is None for job in jobs):
        return {}
    parameter = next(iter(jobs[0].lane.params.values()))  # has the type and the device
    factors = [job.learner(learner).method.factor_values() for job in jobs]
    by_name = {name: [values[name] for values in factors] for name in factors[0]}
    return {
        name: parameter.new_tensor(values)
        for name, values in by_name.items()
        if len(set(values)) > 1
    }


def lift_learner(
    fn: Callable[..., Any], learner: Learner, jobs: Sequence[Job]
) -> Callable[..., Any]:
    """Turn a function of a learner and one lane into one of all lanes.

    Every lane is computed with its own method's factors of the loss.

    Parameters
    ----------
    fn : callable
        ``fn(learner, *args)``, where `args` are pytrees of one lane.
    learner : Learner
        The learner of all lanes.
    jobs : sequence of Job
        The lanes, in the order in which they are stacked.

    Returns
    -------
    callable
        Function of stacked `args`, without the learner.
    """
    factors = differing_factors(learner, jobs)
    if not factors:
        return lift(partial(fn, learner), len(jobs))

    def with_own_factors(values: dict[str, Tensor], *args: Any) -> Any:
        """Call `fn` for one lane, whose factors are the scalars `values`."""
        method = learner.method.with_factors(values)
        return fn(replace(learner, method=method), *args)

    return partial(lift(with_own_factors, len(jobs)), factors)


def lift(fn: Callable[..., Any], n_lanes: int) -> Callable[..., Any]:
    """Turn a function of one lane into the same function of `n_lanes` stacked lanes.

    For one lane it is `fn` itself, so that a CPU runs the very code that was written. Gradients are
    computed inside `fn`; its arguments are tensors without an autograd graph.
    """
    return fn if n_lanes == 1 else torch.func.vmap(fn, randomness="error")
