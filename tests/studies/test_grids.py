"""Grids: settings that exist, beginning with the default, and the paper's for FORGE."""

import pytest

import small_world
from fcforge.methods import METHODS, make_method
from fcforge.studies import grids
from fcforge.types import Component, LearnerSpec

QUICK = Component("gcn", small_world.QUICK_MODELS["gcn"])


@pytest.mark.parametrize("name", grids.all_grids())
def test_grids_hold_settings_that_exist_and_begin_with_the_default(name):
    grid = grids.grid_of(Component(name))
    plain = make_method(Component(name))
    for settings in grid:
        make_method(Component(name, settings))
    first = make_method(Component(name, grid[0]))
    if name == "forge":
        assert first.weights == plain.weights
    else:
        assert first == plain
    assert len({repr(s) for s in grid}) == len(grid) > 1


def test_every_method_with_a_weight_has_a_grid():
    of_the_paper = {
        "er",
        "der",
        "derpp",
        "ewc",
        "si",
        "lwf",
        "packnet",
        "twp",
        "ugcl",
        "forge",
    }
    assert set(grids.all_grids()) == of_the_paper | {"forge_ridge", "replay_ridge"}
    assert of_the_paper <= set(METHODS)


def test_forge_grid_is_the_papers_around_each_datasets_weights():
    for name, centre in (("asd", (0.2, 0.35, 0.15)), ("mdd", (0.3, 0.3, 0.2))):
        method = Component("forge", {"lambdas": name})
        points = [tuple(s.values()) for s in grids.grid_of(method)]
        assert points[0] == centre
        assert len(points) == 13


def test_what_the_config_sets_stays():
    free = grids.candidates(LearnerSpec(Component("derpp", {"memory": 9}), QUICK))
    assert len(free) == 8
    assert all(c.method.params["memory"] == 9 for c in free)
    half = grids.candidates(LearnerSpec(Component("derpp", {"beta": 0.7}), QUICK))
    assert [c.method.params for c in half] == [
        {"beta": 0.7, "alpha": a} for a in (0.5, 0.1, 0.2, 1.0)
    ]
    ablation = grids.candidates(LearnerSpec(Component("forge", {"l3": 0.0}), QUICK))
    assert {c.method.params["l3"] for c in ablation} == {0.0}
    fixed = LearnerSpec(Component("ewc", {"strength": 5.0}), QUICK)
    assert grids.candidates(fixed) == []
