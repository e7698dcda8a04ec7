"""Features of edges and topology embeddings by hand."""

import pytest
import torch
from forge_world import N_ROIS, World

from fcforge import graphs
from fcforge.core.component import Component
from fcforge.core.randomness import torch_rng
from fcforge.models.edge import edge_features, n_features
from small_world import make_model


def test_log_features_are_the_scaled_matrix_logarithm():
    fc = World().bank.fc(torch.arange(3))
    log = edge_features(fc, "log")
    torch.testing.assert_close(log * graphs.LOG_SCALE, graphs.log_edges(fc))
    assert torch.equal(log, edge_features(fc, "centred+log")[:, log.shape[1] :])
    # two ROIs at correlation c: the log of (1 - a) C + a I has (log(1 + d) - log(1 - d)) / 2
    # beside its diagonal, with d = 0.6 c
    pair = torch.tensor([[[1.0, 0.5], [0.5, 1.0]]])
    assert float(edge_features(pair, "log")) == pytest.approx(
        0.30952 / graphs.LOG_SCALE, rel=1e-4
    )


def test_log_with_diagonal_by_hand():
    """Two ROIs at correlation 0.5: d = 0.3, the diagonal is (log(1 + d) + log(1 - d)) / 2."""
    pair = torch.tensor([[[1.0, 0.5], [0.5, 1.0]]])
    edge, first, second = (
        edge_features(pair, "log+diagonal")[0] * graphs.LOG_SCALE
    ).tolist()
    assert edge == pytest.approx(0.30952, rel=1e-4)
    assert [first, second] == pytest.approx([-0.04716 / 2**0.5] * 2, rel=1e-3)
    fc = World().bank.fc(torch.arange(2))
    x = edge_features(fc, "log+diagonal") * graphs.LOG_SCALE
    assert x.shape[1] == n_features(N_ROIS, "log+diagonal")
    apart = (graphs.log_matrix(fc[0]) - graphs.log_matrix(fc[1])).square().sum()
    torch.testing.assert_close((x[0] - x[1]).square().sum(), apart / 2)


def test_topology_embedding_by_hand():
    """Three ROIs, one edge of weight 0.5 between 0 and 1; two hops."""
    fc = torch.eye(3)[None].clone()
    fc[0, 0, 1] = fc[0, 1, 0] = 0.5
    fc[0, 1, 2] = fc[0, 2, 1] = 0.1
    # A + I has row sums 1.5, 1.5, 1: P_00 = 1/1.5, P_01 = 0.5/1.5, P_22 = 1
    p = torch.tensor([[2 / 3, 1 / 3, 0.0], [1 / 3, 2 / 3, 0.0], [0.0, 0.0, 1.0]])
    raw = torch.tensor([[0.0, 0.5, 0.0], [0.5, 0.0, 0.1], [0.0, 0.1, 0.0]])
    x = (raw - raw.mean(0)) / raw.std(0, unbiased=False)
    h = p @ p @ x
    pooled = make_model(Component("tem"), 3).prepare(fc)["topology"][0]
    torch.testing.assert_close(pooled, torch.cat([h.mean(0), h.amax(0)]))


def test_dropout_goes_by_the_key():
    model = make_model(Component("mlp", {"hidden": 8}), 8)
    params, stats = model.init(torch_rng(1)), model.init_stats()
    inputs = {"edges": torch.randn(5, 28, generator=torch_rng(2))}
    key = torch.tensor(3, dtype=torch.int32)
    plain = model.apply(params, stats, inputs)
    frozen = model.apply(params, stats, inputs, key=key)
    assert torch.equal(frozen.embedding, plain.embedding)
    assert not torch.equal(frozen.logits, plain.logits)
    assert frozen.stats == stats == {}
