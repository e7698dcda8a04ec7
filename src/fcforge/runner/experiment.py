"""What to run: learners x orders x seeds on one dataset, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import permutations
from typing import Any, Literal

import numpy as np

from fcforge.errors import ConfigError
from fcforge.randomness import numpy_rng
from fcforge.types import Component, Leaks, LearnerSpec, RunSpec, Training


@dataclass(frozen=True)
class Experiment:
    """A table of runs. `orders` is "all", a number of random orders, or the orders themselves."""

    dataset: Component
    learners: tuple[LearnerSpec, ...]
    title: str = "fcforge experiment"
    seeds: tuple[int, ...] = (0,)
    orders: Literal["all"] | int | tuple[tuple[str, ...], ...] = "all"
    training: Training = field(default_factory=Training)
    protocol: Literal["strict", "paper"] = "strict"
    leaks: Leaks = field(default_factory=Leaks)
    test_fraction: float = 0.3
    val_fraction: float = 0.2
    harmonise: Literal["none", "site_demean", "combat"] = "none"

    def list_orders(self, sites: Sequence[str]) -> list[tuple[str, ...]]:
        """The site orders asked for, checked against the dataset's sites."""
        if self.orders == "all":
            return list(permutations(sites))
        if isinstance(self.orders, int):
            every = list(permutations(sites))
            if not 1 <= self.orders <= len(every):
                raise ConfigError(
                    f"orders = {self.orders}, but {len(sites)} sites have {len(every)} orders.",
                    do=f"Give 1 to {len(every)}, or 'all'.",
                )
            chosen = numpy_rng(0, "orders", *sites).choice(len(every), self.orders, replace=False)
            return [every[i] for i in np.sort(chosen)]
        for order in self.orders:
            unknown = sorted(set(order) - set(sites))
            if unknown or len(set(order)) != len(order):
                raise ConfigError(
                    f"order {list(order)} names unknown or repeated sites {unknown}.",
                    do=f"The dataset has: {', '.join(sites)}.",
                )
        return [tuple(order) for order in self.orders]

    def specs(self, sites: Sequence[str], data_sha256: str = "") -> list[RunSpec]:
        """One RunSpec per learner, order and seed."""
        return [
            RunSpec(
                dataset=self.dataset,
                learner=learner,
                order=order,
                seed=seed,
                training=self.training,
                protocol=self.protocol,
                leaks=self.leaks,
                test_fraction=self.test_fraction,
                val_fraction=self.val_fraction,
                harmonise=self.harmonise,
                data_sha256=data_sha256,
            )
            for learner in self.learners
            for seed in self.seeds
            for order in self.list_orders(sites)
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain nested dict; `from_json` reads it back."""
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Experiment:
        """Inverse of `to_json`."""
        orders = data["orders"]
        return cls(
            **{
                **data,
                "dataset": Component(**data["dataset"]),
                "learners": tuple(LearnerSpec.from_json(d) for d in data["learners"]),
                "seeds": tuple(data["seeds"]),
                "orders": tuple(map(tuple, orders)) if isinstance(orders, list) else orders,
                "training": Training(**data["training"]),
                "leaks": Leaks(**data["leaks"]),
            }
        )
