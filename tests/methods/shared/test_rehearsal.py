"""Current and remembered subjects through a network together or apart."""

import torch

from small_world import World, order


def test_joint_and_separate_differ_only_through_batch_norm():
    for model, same in (("gcn", False), ("mlp", True)):
        lanes = [
            World.of("forge", {"forward": f}, model, {"dropout": 0.0})
            .teach(order()[:2])
            .lane
            for f in ("joint", "separate")
        ]
        close = all(
            torch.allclose(v, lanes[1].params[k], rtol=1e-2, atol=1e-4)
            for k, v in lanes[0].params.items()
        )
        assert close is same
