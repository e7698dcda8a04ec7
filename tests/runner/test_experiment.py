"""Which orders an experiment asks for."""

from typing import Any

import pytest

from fcforge.errors import ConfigError
from fcforge.runner.experiment import Experiment
from fcforge.types import Component, Leaks, LearnerSpec, Training

SITES = ("A", "B", "C", "D")


def orders(value: Any, sites: tuple[str, ...] = SITES) -> list[tuple[str, ...]]:
    experiment = Experiment(Component("simulated"), (), orders=value)
    return experiment.list_orders(sites)


def test_orders():
    assert len(set(orders("all"))) == 24
    assert orders((("C", "A"), ("B",))) == [("C", "A"), ("B",)]
    some = orders(5)
    assert len(set(some)) == 5
    assert some == orders(5)  # the same on every machine
    assert all(sorted(o) == list(SITES) for o in some)
    assert orders(24) == orders("all")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (0, "Give 1 to 24"),
        (25, "Give 1 to 24"),
        ((("A", "X"),), r"unknown site in order .* 'X'.*Known: A, B, C, D"),
        ((("A", "B", "A"),), "repeats a site"),
        (((),), "is empty"),
        ((), "orders is empty"),
        ((("A",), ("A",)), "lists an order twice"),
    ],
)
def test_orders_that_cannot_be(value, says):
    with pytest.raises(ConfigError, match=says):
        orders(value)


def test_many_sites_are_not_enumerated():
    """25 sites of REST-meta-MDD have 10^25 orders."""
    sites = tuple(f"S{i}" for i in range(25))
    some = orders(7, sites)
    assert len(set(some)) == 7
    assert all(sorted(o) == sorted(sites) for o in some)
    assert some[:3] == orders(3, sites)
    with pytest.raises(ConfigError, match=r"25 sites.*5040"):
        orders("all", sites)


def test_specs_are_learners_times_seeds_times_orders():
    learners = tuple(LearnerSpec(Component(m), Component("gcn")) for m in ("ewc", "si"))
    experiment = Experiment(
        Component("simulated", {"n_rois": 9}),
        learners,
        seeds=(0, 5),
        training=Training(epochs=2),
        leaks=Leaks(context_on_test=True),
        test_fraction=0.4,
        val_fraction=0.1,
        protocol="paper",
    )
    specs = experiment.specs(SITES[:3], "sha")
    assert len(specs) == len({s.key for s in specs}) == 2 * 2 * 6
    for spec in specs:
        assert spec.dataset == experiment.dataset
        assert spec.training.epochs == 2
        assert spec.leaks.context_on_test
        assert (spec.test_fraction, spec.val_fraction, spec.protocol) == (
            0.4,
            0.1,
            "paper",
        )
        assert spec.data_sha256 == "sha"
