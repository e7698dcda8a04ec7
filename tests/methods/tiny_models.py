"""Linear models of three edges, small enough to work out by hand."""

import torch

from fcforge.core.component import Component
from fcforge.core.randomness import torch_rng
from fcforge.methods import Batch, Lane, Replay, make_method
from small_world import make_model

KEY = torch.tensor(5, dtype=torch.int32)


def tiny():
    """Linear model on 3 edges, a current batch of 2 and a remembered one of 3."""
    model = make_model(Component("linear"), 3)
    rng = torch_rng(0)
    params = {
        "head.0.weight": torch.randn(2, 3, generator=rng),
        "head.0.bias": torch.zeros(2),
    }
    batch = Batch({"edges": torch.randn(2, 3, generator=rng)}, torch.tensor([0, 1]))
    x = torch.randn(3, 3, generator=rng)
    u = torch.randn(3, 2, generator=rng)
    replay = Replay(
        {"edges": x},
        torch.tensor([1, 1, 0]),
        u,
        torch.zeros(3, 0),
        torch.full((3,), 1 / 3),
    )
    z = {
        "now": batch.inputs["edges"] @ params["head.0.weight"].T,
        "then": x @ params["head.0.weight"].T,
    }
    return model, params, Lane(params, {}), batch, replay, z


def loss_of(method: str, settings: dict, replay_size: int = 3):
    model, params, lane, batch, replay, z = tiny()
    method = make_method(Component(method, {"replay": replay_size, **settings}))
    lane = method.start(model, lane)
    return (
        float(method.loss(model, params, lane, batch._replace(replay=replay), KEY)[0]),
        batch,
        replay,
        z,
    )


def logistic(n: int = 9, seed: int = 0):
    """Logistic regression on 3 ROIs (3 edges) with random parameters."""
    model = make_model(Component("linear"), 3)
    rng = torch_rng(seed)
    x = torch.randn(n, 3, generator=rng)
    params = {
        "head.0.weight": torch.randn(2, 3, generator=rng),
        "head.0.bias": torch.randn(2, generator=rng),
    }
    y = torch.arange(n) % 2
    return model, Lane(params, {}), {"edges": x}, y
