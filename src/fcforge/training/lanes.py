"""Lanes: one model's code, run for many (order, seed) pairs at once.

Also which epoch is kept, and the evaluator, the only code that reads a test split.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.core.randomness import derive, torch_rng
from fcforge.core.spec import Training
from fcforge.core.subjects import Site
from fcforge.methods.base import Lane, Learner, answer, misfit
from fcforge.nn.tensors import Inputs, Params
from fcforge.replay.bank import Bank, SiteView, gather

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
    """

    lane: Lane
    site: SiteView
    seed: int
    prefix: tuple[str, ...]
    peek: tuple[Inputs, Tensor] | None = None

    def rng(self, purpose: str) -> torch.Generator:
        """Generator for work done once."""
        return torch_rng(self.seed, *self.prefix, purpose)

    @property
    def key(self) -> Tensor:
        """Counter key for work done inside the lifted step."""
        return torch.tensor(
            derive(self.seed, *self.prefix, "steps") & 0x7FFFFFFF, dtype=torch.int32
        )


def stack(trees: Sequence[T]) -> T:
    """Stack equal pytrees along a new first (lane) dimension; one tree stays as it is."""
    if len(trees) == 1:
        return trees[0]
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), *trees)


def unstack(tree: T, n: int) -> list[T]:
    """Inverse of `stack`."""
    if n == 1:
        return [tree]
    lanes = []
    for i in range(n):
        lanes.append(pytree.tree_map(lambda leaf, i=i: leaf[i].clone(), tree))
    return lanes


def shapes(tree: Any) -> tuple[Any, ...]:
    """Structure and shapes of a pytree: lanes that agree in it can be stacked."""
    leaves, spec = pytree.tree_flatten(tree)
    kinds = [(tuple(x.shape), str(x.dtype)) for x in leaves]
    return str(spec), tuple(kinds)


def clone(tree: T) -> T:
    """Copy of every tensor of a pytree."""
    return pytree.tree_map(torch.clone, tree)


def lift(fn: Callable[..., Any], n_lanes: int) -> Callable[..., Any]:
    """`fn` of one lane -> the same function of `n_lanes` stacked lanes.

    One lane is not lifted at all: the CPU path runs the very code that was written. The gradient
    transform sits inside `fn`, so parameters arrive here as plain tensors without a graph.
    """
    return fn if n_lanes == 1 else torch.func.vmap(fn, randomness="error")


def gradient(
    objective: Callable[..., Any], params: Params, alone: bool
) -> tuple[Params, Any]:
    """Gradient of the first of an objective's two results by `params`, and the second as it is.

    In a lane that is never lifted (`alone`) by plain autograd: `torch.func` would cost half as
    much again.
    """
    if not alone:
        return torch.func.grad(objective, has_aux=True)(params)
    leaves = {k: v.detach().requires_grad_() for k, v in params.items()}
    loss, also = objective(leaves)
    found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, found, strict=True)), pytree.tree_map(torch.detach, also)


def where_better(better: Tensor, new: T, old: T) -> T:
    """Per lane: `new` where `better`, else `old`. `better` is () or (n_lanes,)."""

    def pick(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(
            better.reshape(better.shape + (1,) * (a.dim() - better.dim())), a, b
        )

    return pytree.tree_map(pick, new, old)


class Keeper:
    """Told of every epoch's lanes, hands out those to keep.

    The epoch is chosen on the validation part cut from train (lowest cross-entropy) or, under the
    `select_on_test` leak, on the open site's test split (highest accuracy), which is what the
    authors' code does. Where nothing is chosen the last epoch is kept.
    """

    def __init__(
        self, learner: Learner, jobs: Sequence[Job], training: Training, bank: Bank
    ) -> None:
        peeks = [j.peek for j in jobs if j.peek is not None]
        self._chooses = bool(peeks) or training.selection == "inner_val"
        self._best: Lane | None = None
        if not self._chooses:
            return
        inputs = bank.inputs(learner.model)
        val = [(gather(inputs, j.site.val), bank.y[j.site.val]) for j in jobs]
        self._watched = stack(peeks or val)

        def quality(lane: Lane, inputs: Inputs, y: Tensor) -> Tensor:
            logits = learner.method.logits(learner.model, lane, inputs)
            if peeks and not y.is_floating_point():
                return (logits.argmax(-1) == y).float().mean()
            return -misfit(logits, y)

        self._quality = lift(quality, len(jobs))

    def see(self, lane: Lane) -> None:
        """An epoch has ended."""
        if not self._chooses:
            return
        value = self._quality(lane, *self._watched)
        if self._best is None:
            self._best = clone(lane)
            self._value = value
        better = value > self._value
        self._best = where_better(better, lane, self._best)
        self._value = torch.where(better, value, self._value)

    def kept(self, last: Lane) -> Lane:
        """The best epoch's lanes, or the last's."""
        return last if self._best is None else self._best


class Evaluator:
    """Scores lanes on the test splits of one seed's sites, learned or not.

    Parameters
    ----------
    sites : mapping of name to Site
    learner : Learner
    device : torch.device or str
    """

    def __init__(
        self,
        sites: Mapping[str, Site],
        learner: Learner,
        device: torch.device | str = "cpu",
    ) -> None:
        self._learner = learner
        self._tests: dict[str, tuple[Inputs, Tensor]] = {}
        for name, site in sites.items():
            inputs = learner.model.prepare(site.test.fc.to(device))
            self._tests[name] = inputs, site.test.y.to(device)

    def scores(self, lane: Lane) -> dict[str, np.ndarray]:
        """`answer` about every test subject of every site."""
        method = self._learner.method
        model = self._learner.model
        found = {}
        with torch.no_grad():
            for name, (inputs, _) in self._tests.items():
                logits = method.logits(model, lane, inputs)
                found[name] = answer(logits).float().cpu().numpy()
        return found

    def peek(self, site: str) -> tuple[Inputs, Tensor]:
        """Test split of one site, for the `select_on_test` leak alone."""
        return self._tests[site]
