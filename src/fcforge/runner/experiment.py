"""What to run: learners x orders x seeds on one dataset, as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import permutations, product
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np

from fcforge.components import check_names
from fcforge.errors import ConfigError
from fcforge.randomness import numpy_rng
from fcforge.settings import Bound
from fcforge.types import Component, Conditions, LearnerSpec, RunSpec, Site

if TYPE_CHECKING:
    from fcforge.sites import Cohort

MOST_ORDERS = 5040  # all orders of 7 sites
OWN_FOLDS = 5  # of the training people, for thresholds of their own


Seeds = Annotated[
    tuple[int, ...],
    Bound(bool, "is empty", "Give at least one seed."),
    Bound(
        lambda v: len(set(v)) == len(v), "lists a seed twice", "Give each seed once."
    ),
]
CONDITIONS = tuple(f.name for f in fields(Conditions))


@dataclass(frozen=True)
class Experiment(Conditions):
    """A table of runs. `orders` is "all", a number of random orders, or the orders themselves."""

    kind: ClassVar[str] = "experiment"
    dataset: Component
    learners: tuple[LearnerSpec, ...]
    title: str = "fcforge experiment"
    seeds: Seeds = (0,)
    orders: Literal["all"] | int | tuple[tuple[str, ...], ...] = "all"

    def list_orders(self, sites: Sequence[str]) -> list[tuple[str, ...]]:
        """The site orders asked for, checked against the dataset's sites."""
        if self.orders == "all" or isinstance(self.orders, int):
            return _pick_orders(sites, self.orders)
        known = f"The dataset has: {', '.join(sites)}."
        if not self.orders or len(set(self.orders)) < len(self.orders):
            raise ConfigError("orders is empty or lists an order twice.", do=known)
        for order in self.orders:
            check_names(f"site in order {list(order)}:", order, sites)
            if not order or len(set(order)) < len(order):
                raise ConfigError(
                    f"order {list(order)} is empty or repeats a site.", do=known
                )
        return [tuple(order) for order in self.orders]

    def specs(self, sites: Sequence[str], data_sha256: str = "") -> list[RunSpec]:
        """One RunSpec per learner, order and seed."""
        shared = {name: getattr(self, name) for name in CONDITIONS}
        found = []
        orders = self.list_orders(sites)
        folds = (None, *range(OWN_FOLDS)) if self.own_threshold else (None,)
        for learner in self.learners:
            shared["training"] = replace(self.training, **learner.training)
            shared["start"] = self.start if learner.start else None
            for fold, seed, order in product(folds, self.seeds, orders):
                of = (self.dataset, learner, order, seed, data_sha256, fold)
                found.append(RunSpec(*of, **shared))
        return found


def split_sites(asked: Conditions, cohort: Cohort, seed: int) -> dict[str, Site]:
    """Sites of a dataset, split into train, val and test as an experiment or a run asks."""
    from fcforge.sites import make_sites

    how = {
        name: getattr(asked, name)
        for name in ("test_fraction", "val_fraction", "folds")
    }
    return make_sites(cohort, seed, **how)


def _pick_orders(
    sites: Sequence[str], wanted: Literal["all"] | int
) -> list[tuple[str, ...]]:
    """All orders, or that many different random ones, the same on every machine."""
    there_are = math.factorial(len(sites))
    n = there_are if wanted == "all" else wanted
    if not 1 <= n <= there_are:
        what = f"orders = {wanted}, but {len(sites)} sites have {there_are} orders."
        raise ConfigError(what, do=f"Give 1 to {there_are}, or 'all'.")
    if n > MOST_ORDERS:
        what = f"orders = {wanted!r}: of {len(sites)} sites, more than {MOST_ORDERS} orders "
        do = f"Give orders = a number up to {MOST_ORDERS}, or a list of orders."
        raise ConfigError(what + "are too many to run.", do=do)
    rng = numpy_rng(0, "orders", *sites)
    if there_are <= MOST_ORDERS:
        every = list(permutations(sites))
        if wanted == "all":
            return every
        chosen = rng.choice(len(every), n, replace=False)
        return [every[i] for i in np.sort(chosen)]
    found = dict[tuple[str, ...], None]()
    while len(found) < n:  # far fewer than there are: hardly one is drawn twice
        places = rng.permutation(len(sites))
        order = tuple(sites[place] for place in places)
        found[order] = None
    return list(found)
