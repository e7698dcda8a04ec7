"""The authors' loop in PyG, which speed is compared with, still runs on today's parts."""

import pytest

pytest.importorskip("torch_geometric")

import pyg_loop
from lanes import fake_people
from setting import Stopwatch

from fcforge.core.subjects import Site


def test_one_order_is_measured(monkeypatch):
    monkeypatch.setattr(pyg_loop, "CANDIDATES", 8)
    sites = {}
    for i, name in enumerate("AB"):
        people = fake_people(30, 16, seed=i)
        train, val, test = (people.select(slice(a, a + 10)) for a in (0, 10, 20))
        sites[name] = Site(name, train, val, test, {})
    synthetic = {name: fake_people(14, 16, seed=9) for name in sites}
    order = pyg_loop.Order(sites, synthetic, Stopwatch())
    pyg_loop.warm_up(order, "A")
    pyg_loop.measure_order(order, 1, 1)
    stages = {"A:plain", "A:replay", "B:plain", "B:replay", "memory", "evaluation"}
    assert stages <= set(order.watch.spent)
    assert order.watch.count["refresh, per past site"] == 1 + 2
    assert len(order.active) == 8
    assert len(order.past) == 2
