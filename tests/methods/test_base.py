"""One model on its way through the sites."""

import torch

from fcforge.methods.base import Lane


def test_a_lane_is_the_lane_of_its_names():
    lane = Lane({"a/b": torch.ones(2)}, {}, {"memory.row": torch.arange(3)})
    named = lane.named()
    assert sorted(named) == ["params/a/b", "state/memory.row"]
    again = Lane.from_named(named)
    assert again.params["a/b"] is lane.params["a/b"]
    assert again.state["memory.row"] is lane.state["memory.row"]
    assert again.stats == {}
