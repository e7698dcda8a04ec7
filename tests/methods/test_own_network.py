"""Every method that works on any network trains a module of the user's, repeatably."""

import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from fcforge.core.spec import Training
from fcforge.methods import METHODS
from fcforge.models import MODELS
from small_world import (
    R,
    assert_same,
    learner_spec,
    plan_of,
    run_plan,
    run_spec,
    stored_lanes,
)

NAME = "own_networks:Net"
QUICK = Training(epochs=1, batch_size=16)
ANY_NETWORK = [m for m, cls in METHODS.items() if not cls.models and cls.fits]


class Net(nn.Module):
    """A hidden layer with batch norm and dropout."""

    def __init__(self, n_rois: int = R) -> None:
        super().__init__()
        self.hidden = nn.Linear(n_rois * n_rois, 6)
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(6, 2)

    def forward(self, fc):
        return self.out(self.drop(torch.relu(self.norm(self.hidden(fc.flatten(1))))))


@pytest.fixture
def own_network(monkeypatch):
    plugin = ModuleType("own_networks")
    plugin.Net = Net
    monkeypatch.setitem(sys.modules, "own_networks", plugin)
    MODELS.import_member(NAME)
    yield NAME
    del MODELS[NAME]


@pytest.mark.parametrize("method", ANY_NETWORK)
def test_a_method_trains_a_module(method, own_network, tmp_path):
    spec = learner_spec(method, model=own_network)
    plan = plan_of(run_spec(spec, 2, training=QUICK))
    run_plan(plan, tmp_path / "a")
    run_plan(plan, tmp_path / "b")
    first, again = (stored_lanes(plan, tmp_path / x) for x in "ab")
    assert first
    for key, tensors in first.items():
        assert_same(tensors, again[key])
        assert "params/hidden.weight" in tensors
        for name, value in tensors.items():
            if isinstance(value, torch.Tensor):
                assert torch.isfinite(value).all(), name
    weights = [tensors["params/out.weight"] for tensors in first.values()]
    assert len({w.numpy().tobytes() for w in weights}) == len(weights)
