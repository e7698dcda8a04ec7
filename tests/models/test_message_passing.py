"""What the graph models share: attention among neighbours, dropout between convolutions."""

import math

import pytest
import torch

from fcforge.models.message_passing import attend
from fcforge.randomness import torch_rng
from fcforge.types import Component
from small_world import make_model


@pytest.mark.parametrize("name", ["gcn", "gat", "sage", "gae"])
def test_no_dropout_after_the_last_convolution(name):
    """One convolution: the readout of a training step is that without any dropout."""
    fc = torch.corrcoef(torch.randn(8, 40, generator=torch_rng(5))).expand(4, 8, 8)
    key, readouts, logits = torch.tensor(3, dtype=torch.int32), [], []
    for p in (0.9, 0.0):
        settings = {"hidden": 8, "depth": 1, "dropout": p, "tau": 0.1}
        model = make_model(Component(name, settings), 8)
        params = model.init(torch_rng(1))
        out = model.apply(
            params, model.init_stats(), model.prepare(fc), train=True, key=key
        )
        readouts.append(out.embedding)
        logits.append(out.logits)
    assert torch.equal(*readouts)
    assert not torch.equal(*logits)  # the head has its own


def test_attention_by_hand():
    """Two ROIs: the first is blocked from the second, the second looks at both, scores 0 and 1."""
    query = torch.tensor([[[5.0], [1.0]]])
    keys, values = torch.tensor([[[0.0], [1.0]]]), torch.tensor([[[2.0], [4.0]]])
    blocked = torch.tensor([[[0.0, -math.inf], [0.0, 0.0]]])
    first, second = attend(query, keys, values, blocked, heads=1).flatten().tolist()
    assert first == pytest.approx(2.0)
    assert second == pytest.approx((2 + 4 * math.e) / (1 + math.e))
