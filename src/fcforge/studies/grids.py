"""What `fcforge tune` tries for each method (grids.toml), and for all with a budget."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from fcforge.methods import METHODS
from fcforge.methods.shared.synthetic import LAMBDAS
from fcforge.models import MODELS
from fcforge.randomness import numpy_rng
from fcforge.runner.pipelines import pipeline_of
from fcforge.types import Component, LearnerSpec

Settings = dict[str, Any]
# with a budget: times the model's own rate, weight decay, epochs
RATES = (1.0, 0.3, 3.0)
DECAYS = (2e-4, 1e-2)
EPOCHS = (100, 50, 200)


@cache
def all_grids() -> dict[str, dict[str, Any]]:
    """What grids.toml says, by method."""
    return tomllib.loads(files("fcforge.studies").joinpath("grids.toml").read_text())


def grid_of(method: Component) -> list[Settings]:
    """Settings to try, the default first; none where a method has nothing to choose."""
    said = dict(all_grids().get(method.name, {}))
    if "settings" in said:
        return said["settings"]
    if method.name == "forge":  # one weight at a time
        lambdas = LAMBDAS[method.params.get("lambdas", "asd")]
        default = dict(zip(said, lambdas, strict=True))
        moved = []
        for name, values in said.items():
            moved += [{**default, name: value} for value in values]
    else:
        default = said.pop("default", {})
        crossed = product(*said.values())
        moved = [dict(zip(said, row, strict=True)) for row in crossed]
    return [default, *(settings for settings in moved if settings != default)]


def candidates(learner: LearnerSpec, budget: int = 0) -> list[LearnerSpec]:
    """The learner with every setting of its method's grid, none where nothing can be chosen.

    What the config sets by hand stays: only the other fields of the grid are searched. With a
    `budget` so many settings of everything that can be chosen (times the model's own rate, weight
    decay, epochs, strength) are drawn at random, the default first and the same for every learner
    whose method has the same grid; fewer where there are fewer.
    """
    if pipeline_of(learner):  # an estimator's settings are its own
        return []
    tried: dict[str, LearnerSpec] = {}
    trainings = _trainings(learner) if budget else [{}]
    for training, settings in product(trainings, grid_of(learner.method)):
        params = _kept(learner.method.params, settings)
        own = _kept(learner.training, training)
        method = replace(learner.method, params=params)
        made = replace(learner, method=method, training=own)
        tried.setdefault(repr((sorted(params.items()), own)), made)
    first, *others = tried.values()
    if budget:
        rng = numpy_rng(0, "tuning budget", learner.method.name)
        drawn = rng.permutation(len(others))[: budget - 1].tolist()
        others = [others[k] for k in drawn]
    return [first, *others] if others else []


def _kept(said: Mapping[str, Any], offered: Settings) -> Settings:
    """What was said, and what is offered beside it."""
    beside = {name: value for name, value in offered.items() if name not in said}
    return {**said, **beside}


def _trainings(learner: LearnerSpec) -> list[Settings]:
    """Rates, weight decays and epochs to try; none where no network is trained."""
    if not METHODS[learner.method.name].fits:
        return [{}]
    rate = MODELS[learner.model.name].lr
    return [
        {"lr": times * rate, "weight_decay": decay, "epochs": epochs}
        for times, decay, epochs in product(RATES, DECAYS, EPOCHS)
    ]
