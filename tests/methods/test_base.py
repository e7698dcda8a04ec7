"""A lane of one model on its way through the sites, and settings a method cannot have."""

import pytest
import torch

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.randomness import torch_rng
from fcforge.methods import make_method
from fcforge.methods.base import Lane, Method, eval_output
from fcforge.methods.shared.union import UnionState
from fcforge.replay.state import Network
from small_world import R, cohort, make_model, order


def test_a_lane_is_the_lane_of_its_names():
    rows = torch.arange(3)
    state = UnionState(rows, Network({"w/x": torch.zeros(1)}, {}))
    lane = Lane({"a/b": torch.ones(2)}, {}, state)
    named = lane.named()
    assert sorted(named) == ["params/a/b", "state/fresh.params/w/x", "state/rows"]
    again = Lane.from_named(named, UnionState)
    assert again.params["a/b"] is lane.params["a/b"]
    assert again.state.rows is rows
    assert again.state.fresh == state.fresh
    assert again.stats == {}


def test_a_network_is_seen_in_eval_mode_and_without_gradient():
    model = make_model(Component("gcn", {"hidden": 4, "depth": 2, "dropout": 0.9}), 5)
    params = {k: v.requires_grad_() for k, v in model.init(torch_rng(0)).items()}
    lane = Lane(params, model.init_stats())
    series = torch.randn(3, 5, 20, generator=torch_rng(1))
    inputs = model.prepare(torch.stack([torch.corrcoef(s) for s in series]))
    out = eval_output(model, lane, inputs)
    assert torch.equal(out.logits, eval_output(model, lane, inputs).logits)
    assert not out.logits.requires_grad
    assert out.embedding.shape == (3, model.readout_size) == (3, 8)


@pytest.mark.parametrize(
    ("method", "params", "word"),
    [
        ("ewc", {"strength": -1.0}, "too small"),
        ("er", {"rule": "balance"}, "Did you mean 'balanced'\\? Known: balanced"),
        ("si", {"damping": 0.0}, "too small"),
        ("lwf", {"temperature": 0.0}, "too small"),
        ("twp", {"loss_strength": -1.0}, "too small"),
        ("packnet", {"prune_first": 1.0}, "fraction"),
        ("er", {"rule": "fifo"}, "Known: balanced, reservoir"),
        ("pdgnn", {"sampler": "best"}, "Known: memory"),
        ("ugcl", {"tau": 0.0}, "too small"),
    ],
)
def test_wrong_settings_say_what_is_known(method, params, word):
    with pytest.raises(ConfigError, match=word):
        make_method(Component(method, params))


def test_the_small_world_is_what_the_numbers_above_assume():
    assert cohort().fc.shape[1:] == (R, R)
    assert len(order()) == 3


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"keeps": "weights"}, "keeps = 'weights' is not one of 'nothing', 'stat"),
        ({"keeps": ["nothing"]}, "is not one of .*'real subjects', 'synthetic subje"),
        ({"depends_on": "sites"}, "depends_on = 'sites' is not one of 'order', 'set"),
    ],
)
def test_unknown_values_of_class_attributes_are_refused(attributes, says):
    with pytest.raises(ConfigError, match=f"class Odd: .*{says}"):
        type("Odd", (Method,), attributes)
