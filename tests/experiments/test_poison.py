"""No test split is read: NaN in it changes nothing that is learned, whatever is combined.

Every method meets confounds and none; every generator and every model is among the
combinations. What is compared is all that a node stores.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

import small_world
from fcforge.core.component import Component
from fcforge.core.randomness import numpy_rng
from fcforge.core.spec import RunSpec, Training
from fcforge.core.subjects import FCBatch, Site
from fcforge.data.cohort import Cohort
from fcforge.experiments import run_parts
from fcforge.experiments.store import Store
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS
from fcforge.models import MODELS
from small_world import (
    assert_same,
    learner_spec,
    plan_of,
    run_plan,
    run_spec,
    stored_lanes,
)

WITHOUT_AGE = small_world.cohort
ONE = Training(epochs=1, batch_size=16)
SMALL = {
    "fcm_vae": {
        "epochs": 1,
        "d_model": 8,
        "d_ff": 8,
        "layers": 1,
        "d_z": 4,
        "rank": 4,
        "k_pe": 4,
    },
    "regate": {"epochs": 1, "d_z": 4, "hidden": 8},
    "brainnetgan": {"steps": 1, "n_critic": 1},
    "gr_spd_gan": {"steps": 1, "n_critic": 1, "width": 8},
    "contributed": {"noise": "seeded"},
}


@cache
def with_age() -> Cohort:
    """The small world with an age per subject."""
    people = WITHOUT_AGE()
    age = numpy_rng(0, "age").normal(30, 5, len(people))
    return replace(people, covariates={**people.covariates, "age": age})


def combinations() -> list[tuple[str, str | None, tuple[str, ...]]]:
    """Method, model, confounds: each method with and without, models in turn.

    Two kinds of method meet less: those that need a start are run plain (the public people of the
    small world have no age), and generators meet no confounds (a run refuses them together: what
    confounds leave of a scan has no unit diagonal).
    """
    found = []
    for turn, method in enumerate(sorted(METHODS)):
        own = METHODS[method].models or tuple(sorted(small_world.QUICK_MODELS))
        for k, removed in enumerate(((), ("age",))):
            if METHODS[method].needs_public or METHODS[method].needs_generator:
                removed = ()
            found.append((method, own[(turn + k) % len(own)], removed))
    return list(dict.fromkeys(found))


def poisoned(sites):
    """The same sites with NaN for every scan and the other diagnosis in every test part."""
    found = {}
    for name, site in sites.items():
        fc = torch.full_like(site.test.fc, np.nan)
        found[name] = replace(site, test=FCBatch(fc, 1 - site.test.y))
    return found


def check(spec: RunSpec, tmp_path, monkeypatch) -> None:
    """Learn two sites with and without poison: all that is stored is equal, bit by bit."""
    monkeypatch.setattr(small_world, "cohort", with_age)
    plan = plan_of(spec)
    run_plan(plan, tmp_path / "clean")
    honest = run_parts.make_sites
    monkeypatch.setattr(
        run_parts, "make_sites", lambda *a, **k: poisoned(honest(*a, **k))
    )
    run_plan(plan, tmp_path / "dirty")
    clean, dirty = (stored_lanes(plan, tmp_path / part) for part in ("clean", "dirty"))
    assert clean
    for key, tensors in clean.items():
        assert_same(tensors, dirty[key])
    if spec.learner.method.name != "majority":  # the poison was there to be read
        last = list(plan.nodes)[-1]
        before, after = (
            Store(tmp_path / x).read_scores(last) for x in ("clean", "dirty")
        )
        assert any((before[s] != after[s]).any() for s in before)


@pytest.mark.parametrize(("method", "model", "confounds"), combinations())
def test_methods(method, model, confounds, tmp_path, monkeypatch):
    spec = run_spec(learner_spec(method, model=model), 2, training=ONE)
    check(replace(spec, confounds=confounds), tmp_path, monkeypatch)


@pytest.mark.parametrize("generator", sorted(GENERATORS))
def test_generators(generator, tmp_path, monkeypatch):
    learner = replace(
        learner_spec("forge_ridge"),
        generator=Component(generator, SMALL.get(generator, {})),
    )
    spec = run_spec(learner, 2, training=ONE)
    if GENERATORS[generator].needs_public:
        spec = replace(spec, base_model=small_world.PUBLIC)
    check(spec, tmp_path, monkeypatch)


def test_every_model_is_among_the_combinations():
    assert {model for _, model, _ in combinations()} >= set(MODELS) - {"none"}


def test_the_poison_would_show(tmp_path, monkeypatch):
    """A run that does read the test split fails the same check."""

    def everybody(site: Site, *, with_val: bool) -> FCBatch:
        return FCBatch.concat([site.train, site.val, site.test])

    monkeypatch.setattr(Site, "learning", everybody)
    spec = run_spec(learner_spec("analytic"), 2, training=ONE)
    with pytest.raises((AssertionError, RuntimeError)):
        check(spec, tmp_path, monkeypatch)
