"""What `fcforge tune` tries for each method, and where the values come from.

docs/experiments.md shows the same to users. A method that is not here has nothing to choose: its
penalty was chosen on public people (analytic), or it has no weight at all (fine-tuning,
cumulative, joint).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from fcforge.methods import METHODS
from fcforge.methods.shared.synthetic import LAMBDAS
from fcforge.models import MODELS
from fcforge.randomness import numpy_rng
from fcforge.runner.pipelines import pipeline_of
from fcforge.types import LearnerSpec

Settings = dict[str, Any]


@dataclass(frozen=True)
class Grid:
    """Settings to try, the default first (it wins ties), and their source."""

    settings: tuple[Settings, ...]
    source: str


def _grid(source: str, default: Settings, **values: Sequence[Any]) -> Grid:
    """All combinations of the values, the default first."""
    crossed = (dict(zip(values, row, strict=True)) for row in product(*values.values()))
    return Grid((default, *(s for s in crossed if s != default)), source)


def _powers(low: int, high: int) -> list[float]:
    return [10.0**k for k in range(low, high + 1)]


RIDGE: dict[str, Any] = {
    "default": {"penalty": 0.5},
    "penalty": [0.1, 0.2, 0.5, 1.0, 2.0],
}
UGCL = ("logits_weight", "global_weight", "local_weight")
MAMMOTH = "Mammoth's best arguments, domain-incremental"
ALPHA = [0.1, 0.2, 0.5, 1.0]
GRIDS: dict[str, Grid] = {
    "er": _grid(
        "1 is Mammoth's one mean over both batches; half and double of it are ours",
        {"strength": 1.0},
        strength=[0.5, 1.0, 2.0],
    ),
    "der": _grid(MAMMOTH, {"alpha": 0.5}, alpha=ALPHA),
    "derpp": _grid(MAMMOTH, {"alpha": 0.5, "beta": 0.5}, alpha=ALPHA, beta=[0.5, 1.0]),
    "ewc": _grid(
        "0.7 (Mammoth) to 1e10 (van de Ven) are in use: the scale depends on the kind of "
        "Fisher",
        {"strength": 1e3},
        strength=_powers(0, 7),
    ),
    "si": _grid(
        "0.5 (Mammoth) to 5e4 (van de Ven)", {"strength": 1.0}, strength=_powers(-2, 4)
    ),
    "lwf": _grid(
        "0.5 (Mammoth), 1 (Avalanche, BeGin, van de Ven); temperature 2 in all",
        {"strength": 1.0},
        strength=[0.1, 0.5, 1.0, 2.0],
    ),
    "packnet": _grid(
        "0.5 and 0.75 are Mallya and Lazebnik's",
        {"prune_first": 0.5, "prune_later": 0.75},
        prune_first=[0.5, 0.75],
        prune_later=[0.5, 0.75],
    ),
    "twp": _grid(
        "1e4 / 100 (Liu et al., CGLB), 1e4 / 1e4 (BeGin, PDGNN's repository)",
        {"loss_strength": 1e4, "topology_strength": 100.0},
        loss_strength=_powers(1, 6),
        topology_strength=[1e2, 1e4],
    ),
    "ugcl": Grid(
        tuple(dict.fromkeys(UGCL, w) for w in (0.5, 0.1, 1.0)),
        "a reconstruction: three weights, kept equal to bound the search",
    ),
    "replay_ridge": _grid("as forge_ridge", **RIDGE),
    "forge_ridge": _grid(
        "around the value chosen on inner and development splits "
        "(docs/results/history.md)",
        **RIDGE,
    ),
}


def forge_grid(lambdas: str = "asd") -> Grid:
    """The paper's lambda ranges, one weight at a time around the paper's choice."""
    centre = dict(zip(("l1", "l2", "l3"), LAMBDAS[lambdas], strict=True))
    wide = (0.20, 0.25, 0.30, 0.35, 0.40)
    ranges = {"l1": wide, "l2": wide, "l3": (0.10, 0.15, 0.20, 0.25, 0.30)}
    moved = [
        {**centre, key: value} for key, values in ranges.items() for value in values
    ]
    unique = {tuple(s.items()): s for s in (centre, *moved)}
    return Grid(tuple(unique.values()), "ranges of the paper's appendix")


RATES = (1.0, 0.3, 3.0)
DECAYS = (2e-4, 1e-2)
EPOCHS = (100, 50, 200)


def candidates(learner: LearnerSpec, budget: int = 0) -> list[LearnerSpec]:
    """The learner with every setting of its method's grid; just itself where there is none.

    What the config sets by hand stays: only the other fields of the grid are searched. With a
    `budget` so many settings of everything that can be chosen (times the model's own rate, weight
    decay, epochs, strength) are drawn at random, the default first and the same for every learner
    whose method has the same grid; fewer where there are fewer.
    """
    strengths = _strengths(learner)
    if not budget or pipeline_of(learner):  # an estimator's settings are its own
        return strengths
    own = METHODS[learner.method.name]
    trained = (
        [{}]
        if not own.fits
        else [
            {
                "lr": rate * MODELS[learner.model.name].lr,
                "weight_decay": decay,
                "epochs": epochs,
            }
            for rate, decay, epochs in product(RATES, DECAYS, EPOCHS)
        ]
    )
    free = [{k: v for k, v in t.items() if k not in learner.training} for t in trained]
    every = [
        replace(s, training={**learner.training, **t}) for t in free for s in strengths
    ]
    unique = list({repr((e.method.params, e.training)): e for e in every}.values())
    rng = numpy_rng(0, "tuning budget", learner.method.name)
    drawn = rng.permutation(len(unique) - 1)[: budget - 1].tolist()
    return [unique[0], *(unique[1 + k] for k in drawn)]


def _strengths(learner: LearnerSpec) -> list[LearnerSpec]:
    method = learner.method
    grid = GRIDS.get(method.name)
    if method.name == "forge":
        grid = forge_grid(method.params.get("lambdas", "asd"))
    if grid is None:
        return [learner]
    found: dict[str, LearnerSpec] = {}
    for settings in grid.settings:
        free = {k: v for k, v in settings.items() if k not in method.params}
        component = replace(method, params={**method.params, **free})
        found.setdefault(repr(sorted(free.items())), replace(learner, method=component))
    return list(found.values())
