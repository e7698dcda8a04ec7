"""Three small simulated sites and the shortest way to teach them to a learner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from fcforge.core.component import Component
from fcforge.core.randomness import torch_rng
from fcforge.core.settings import build
from fcforge.core.spec import BaseModelSpec, LearnerSpec, RunSpec, Training
from fcforge.core.subjects import FCBatch
from fcforge.data.cohort import Cohort
from fcforge.data.simulated import simulate
from fcforge.data.splits import make_sites
from fcforge.experiments.plan import Plan, make_plan
from fcforge.experiments.public_subjects import Public, fit_public
from fcforge.experiments.store import Store
from fcforge.experiments.trainer import Trainer
from fcforge.generators import make_generator
from fcforge.methods import METHODS, Lane, make_method
from fcforge.methods.base import Learner
from fcforge.models import MODELS, Model
from fcforge.replay.bank import Bank, PoolName, PublicView, SiteView
from fcforge.replay.state import rows_of
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site

R = 12
QUICK_MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"hidden": 8, "depth": 2, "tau": 0.2},
    "gat": {"hidden": 8, "depth": 2, "heads": 2, "tau": 0.2},
    "sage": {"hidden": 8, "depth": 2, "tau": 0.2},
    "gae": {"hidden": 8, "depth": 2, "tau": 0.2},
    "graph_transformer": {
        "hidden": 8,
        "depth": 1,
        "heads": 2,
        "coordinates": 3,
        "tau": 0.2,
    },
    "mlp": {"hidden": 8},
    "tem": {"hidden": 8, "tau": 0.2},
    "brainnetcnn": {"width": 2, "nodes": 4, "hidden": 8},
}
QUICK_METHODS: dict[str, dict[str, Any]] = {
    "forge": {"memory": 8, "candidates": 8, "dev": 4, "replay": 8, "refresh": 1},
    "forge_ridge": {"memory": 8, "candidates": 8, "dev": 4, "rounds": 2},
    "contributions": {"noise": "seeded"},  # secret noise never repeats
}
LOG = {"features": "log+diagonal"}
FEATURES = {"contributions": LOG, "base_model_alone": LOG}  # of the linear model
PUBLIC = BaseModelSpec(
    Component(
        "simulated",
        {"preset": "easy", "n_rois": R, "n_sites": 2, "scale": 0.2, "seed": 8},
    )
)
TRAINING = Training(epochs=2, batch_size=8)


@cache
def cohort() -> Cohort:
    return simulate("easy", n_rois=R, n_sites=3, scale=0.12, seed=3)


def order() -> tuple[str, ...]:
    return tuple(dict.fromkeys(cohort().site.tolist()))


def default_model(method: str) -> str:
    return (METHODS[method].models or ("gcn",))[0]


def learner_spec(
    method: str, params: Mapping[str, Any] | None = None, model: str | None = None
) -> LearnerSpec:
    model = model or default_model(method)
    settings = {**QUICK_METHODS.get(method, {}), **(params or {})}
    return LearnerSpec(
        Component(method, settings),
        Component(model, QUICK_MODELS.get(model, {}) | FEATURES.get(method, {})),
        Component("corr_gauss") if METHODS[method].needs_generator else None,
    )


def run_spec(
    learner: LearnerSpec, sites: int = 3, seed: int = 0, training: Training = TRAINING
) -> RunSpec:
    method = METHODS.get(learner.method.name)  # none: a pipeline
    base_model = PUBLIC if method and method.needs_public else None
    return RunSpec(
        Component("simulated"),
        learner,
        order()[:sites],
        seed,
        training=training,
        base_model=base_model,
    )


def plan_of(*specs: RunSpec) -> Plan:
    """Plan of some runs whose every node is stored with its state, so that it can be looked at."""
    plan = make_plan(specs, order())
    nodes = {key: replace(node, continued=True) for key, node in plan.nodes.items()}
    return Plan(nodes, plan.stages)


def run_plan(
    plan: Plan,
    folder: Path,
    *,
    group: int = 1,
    fresh: bool = False,
    device: str = "cpu",
) -> Trainer:
    """Train a plan, level by level; `fresh` opens a new trainer for every node."""
    store = Store(folder)
    trainer = Trainer(cohort(), store, device, group)
    for depth in sorted({n.depth for n in plan.nodes.values()}):
        nodes = [n for n in plan.nodes.values() if n.depth == depth]
        for some in [[n] for n in nodes] if fresh else [nodes]:
            trainer = Trainer(cohort(), store, device, group) if fresh else trainer
            trainer.run(some)
    return trainer


def stored_lanes(plan: Plan, folder: Path) -> dict[str, dict[str, Any]]:
    """Tensors of every stored node; remembered subjects by name instead of by row."""
    store, out = Store(folder), {}
    for key, node in plan.nodes.items():
        if node.depth == 0:
            continue
        tensors: dict[str, Any] = store.read_lane(key)
        pools = store.read_meta(key)["pools"]
        pool, item = tensors.pop("pool").tolist(), tensors.pop("item").tolist()
        named = [(pools[p], i) for p, i in zip(pool, item, strict=True)]
        state = METHODS[node.spec.learner.method.name].State
        for row in rows_of(Lane.from_named(tensors, state).state):
            places = tensors[f"state/{row}"].tolist()
            tensors[f"state/{row}"] = [named[k] if k >= 0 else None for k in places]
        out[key] = tensors
    return out


def assert_same(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """Equal bit by bit, NaN included."""
    assert a.keys() == b.keys()
    for k, v in a.items():
        same = torch.equal(v, b[k]) if isinstance(v, torch.Tensor) else v == b[k]
        assert same, k


@cache
def public_subjects() -> Public:
    """Public subjects with their base model, fitted once."""
    return fit_public(PUBLIC, ())


@cache
def synthetic(name: str, seed: int, n: int) -> FCBatch:
    """Subjects from a generator fitted on one site."""
    generator, site = (
        make_generator(Component("corr_gauss")),
        make_sites(cohort(), seed)[name],
    )
    state = generator.fit(site.train, torch_rng(seed, name))
    return generator.sample(
        state, (torch.arange(n) % 5 > 2).long(), torch_rng(seed, name, n)
    )


def make_model(component: Component, n_rois: int) -> Model:
    return build("model", component, MODELS, n_rois=n_rois)


def cast_lane(lane: Lane, dtype: torch.dtype) -> Lane:
    """The lane with its floating-point tensors in another precision."""
    return pytree.tree_map(lambda v: v.to(dtype) if v.is_floating_point() else v, lane)


@dataclass
class World:
    """One learner, taught site by site without a store."""

    learner: Learner
    bank: Bank
    lane: Lane
    training: Training = TRAINING
    seed: int = 0
    dtype: torch.dtype = torch.float32
    taught: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        method: str,
        params: Mapping[str, Any] | None = None,
        model: str | None = None,
        model_params: Mapping[str, Any] | None = None,
        training: Training = TRAINING,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        bank: Bank | None = None,
    ) -> World:
        spec = learner_spec(method, params, model)
        settings = {**spec.model.params, **(model_params or {})}
        network = make_model(Component(spec.model.name, settings), R)
        learner = Learner(make_method(spec.method), network)
        empty = Lane({}, {})
        made = cls(
            learner, Bank() if bank is None else bank, empty, training, seed, dtype
        )
        made.lane = cast_lane(start_lane(learner, seed, public=made.public()), dtype)
        return made

    def public(self) -> PublicView | None:
        """The public people, where the method cannot do without."""
        if not self.learner.method.needs_public:
            return None
        found = public_subjects()
        people = FCBatch(found.batch.fc.to(self.dtype), found.batch.y)
        rows = self.bank.add(PoolName("public", "(public)", 0, ""), people)
        return PublicView(found.subjects, self.bank, rows)

    def view(self, name: str) -> SiteView:
        def add(kind: str, part: str, batch: FCBatch) -> torch.Tensor:
            pool = PoolName(kind, name, self.seed, part)
            return self.bank.add(pool, FCBatch(batch.fc.to(self.dtype), batch.y))

        rows = add(
            "real",
            "train",
            make_sites(cohort(), self.seed)[name].learning(with_val=True),
        )
        return SiteView(
            name,
            len(self.taught),
            self.bank,
            rows,
            rows[:0],
            lambda n: add("synthetic", str(n), synthetic(name, self.seed, n)),
            public=self.public(),
            seed=self.seed,
        )

    def teach(self, names: Sequence[str]) -> World:
        for name in names:
            site, self.taught = self.view(name), (*self.taught, name)
            job = Job(self.lane, site, self.seed, self.taught)
            (self.lane,) = learn_site(self.learner, [job], self.bank, self.training)
        return self
