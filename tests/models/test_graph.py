"""The dense convolutions agree with PyG's sparse ones, biases and isolated ROIs included.

And what the graph models share: attention among neighbours, dropout between convolutions.
"""

import math

import pytest
import torch

from fcforge import graphs
from fcforge.core.component import Component
from fcforge.core.randomness import torch_rng
from fcforge.models.gae import GAE
from fcforge.models.gat import GAT
from fcforge.models.gcn import GCN
from fcforge.models.sage import SAGE
from fcforge.models.transformer import attend
from fcforge.nn import layers
from small_world import make_model

pyg = pytest.importorskip("torch_geometric.nn")
N, R, F = 3, 18, 12
TAUS = [0.2, 0.4, 0.6]


def random_fc(n: int = N, rois: int = R) -> torch.Tensor:
    rng = torch_rng(0, "fc")
    series = torch.randn(n, rois, 40, generator=rng) + torch.randn(
        n, 1, 40, generator=rng
    )
    fc = torch.stack([torch.corrcoef(s) for s in series])
    fc[0, 4, :], fc[0, :, 4] = 0.0, 0.0  # an isolated ROI at every tau
    return fc


def filled(module: torch.nn.Module) -> torch.nn.Module:
    """Every parameter drawn, biases too: PyG starts them at 0, which hides their place."""
    rng = torch_rng(1)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=rng) * 0.3
    return module


def sparse(adj: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """All subjects as one disconnected graph: edge_index and weights."""
    big = torch.block_diag(*adj)
    index = big.nonzero().t()
    return index, big[index[0], index[1]]


def both_layers(model, params, fc):
    """Outputs of convolution 0 (on the prepared features) and 1 (on random nodes), with bias."""
    inputs = model.prepare(fc)
    h = torch.randn(N, R, F, generator=torch_rng(2))
    first = model.convolve(params, 0, inputs["features"], inputs) + params["conv0.bias"]
    second = model.convolve(params, 1, h, inputs) + params["conv1.bias"]
    return (
        first,
        second,
        graphs.node_features(fc).reshape(N * R, R),
        h.reshape(N * R, F),
    )


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("cls", [GCN, GAE])
@pytest.mark.parametrize("kind", ["positive", "absolute"])
def test_gcn_conv(kind, tau, cls):
    fc = random_fc()
    strength = fc.abs() if kind == "absolute" else fc
    index, weight = sparse(graphs.adjacency(strength, tau))
    convs = [filled(pyg.GCNConv(R, F)), filled(pyg.GCNConv(F, F))]
    params = {}
    for i, conv in enumerate(convs):
        params |= {f"conv{i}.weight": conv.lin.weight, f"conv{i}.bias": conv.bias}
    model = cls(n_rois=R, hidden=F, tau=tau, edges=kind)
    first, second, x, h = both_layers(model, params, fc)
    assert torch.allclose(
        first.reshape(N * R, F), convs[0](x, index, weight), atol=2e-5
    )
    assert torch.allclose(
        second.reshape(N * R, F), convs[1](h, index, weight), atol=2e-5
    )


@pytest.mark.parametrize("tau", TAUS)
def test_gat_conv(tau):
    fc, heads = random_fc(), 3
    index, _ = sparse(graphs.adjacency(fc, tau))
    convs = [filled(pyg.GATConv(n_in, F // heads, heads=heads)) for n_in in (R, F)]
    params = {}
    for i, conv in enumerate(convs):
        params |= {
            f"conv{i}.weight": conv.lin.weight,
            f"conv{i}.source": conv.att_src[0],
            f"conv{i}.target": conv.att_dst[0],
            f"conv{i}.bias": conv.bias,
        }
    model = GAT(n_rois=R, hidden=F, tau=tau, heads=heads)
    first, second, x, h = both_layers(model, params, fc)
    assert torch.allclose(first.reshape(N * R, F), convs[0](x, index), atol=2e-5)
    assert torch.allclose(second.reshape(N * R, F), convs[1](h, index), atol=2e-5)


@pytest.mark.parametrize("tau", TAUS)
def test_sage_conv(tau):
    fc = random_fc()
    index, _ = sparse(graphs.adjacency(fc, tau))
    convs = [filled(pyg.SAGEConv(R, F)), filled(pyg.SAGEConv(F, F))]
    params = {}
    for i, conv in enumerate(convs):
        params |= {
            f"conv{i}.weight": conv.lin_l.weight,
            f"conv{i}.root": conv.lin_r.weight,
            f"conv{i}.bias": conv.lin_l.bias,
        }
    first, second, x, h = both_layers(SAGE(n_rois=R, hidden=F, tau=tau), params, fc)
    assert torch.allclose(first.reshape(N * R, F), convs[0](x, index), atol=2e-5)
    assert torch.allclose(second.reshape(N * R, F), convs[1](h, index), atol=2e-5)


@pytest.mark.parametrize("tau", TAUS)
def test_transformer_attention(tau):
    heads = 3
    adj = graphs.adjacency(random_fc(), tau)
    index, _ = sparse(graphs.binary(adj) + torch.eye(R))
    conv = filled(pyg.TransformerConv(F, F // heads, heads=heads, root_weight=False))
    h = torch.randn(N, R, F, generator=torch_rng(3))
    q, k, v = conv.lin_query(h), conv.lin_key(h), conv.lin_value(h)
    out = attend(q, k, v, graphs.attention_mask(adj), heads)
    assert torch.allclose(
        out.reshape(N * R, F), conv(h.reshape(N * R, F), index), atol=2e-5
    )


def test_readout_is_mean_and_max_pooling():
    h = torch.randn(N, R, F, generator=torch_rng(4))
    batch = torch.arange(N).repeat_interleave(R)
    flat = h.reshape(N * R, F)
    pooled = [pyg.global_mean_pool(flat, batch), pyg.global_max_pool(flat, batch)]
    assert torch.allclose(layers.mean_max(h), torch.cat(pooled, 1), atol=1e-6)


def test_whole_gcn_in_eval_mode_equals_a_pyg_network():
    fc = random_fc()
    model = GCN(n_rois=R, hidden=F, depth=2)
    params = model.init(torch_rng(6))
    params = {
        k: v + 0.1 * torch.randn(v.shape, generator=torch_rng(7, k))
        for k, v in params.items()
    }
    stats = {
        k: v + 0.5 * torch.rand(v.shape, generator=torch_rng(8, k))
        for k, v in model.init_stats().items()
    }
    index, weight = sparse(graphs.adjacency(fc, 0.4))
    x = graphs.node_features(fc).reshape(N * R, R)
    for i in range(2):
        conv, norm = pyg.GCNConv(x.shape[1], F), torch.nn.BatchNorm1d(F).eval()
        conv.lin.weight.data, conv.bias.data = (
            params[f"conv{i}.weight"],
            params[f"conv{i}.bias"],
        )
        norm.weight.data, norm.bias.data = (
            params[f"norm{i}.weight"],
            params[f"norm{i}.bias"],
        )
        norm.running_mean, norm.running_var = (
            stats[f"norm{i}.mean"],
            stats[f"norm{i}.var"],
        )
        x = torch.relu(norm(conv(x, index, weight)))
    nodes = x.reshape(N, R, F)
    out = torch.cat([nodes.mean(1), nodes.max(1).values], 1)
    embedding = out
    for i in range(3):
        out = torch.nn.functional.linear(
            out if i == 0 else torch.relu(out),
            params[f"head.{i}.weight"],
            params[f"head.{i}.bias"],
        )
    ours = model.apply(params, stats, model.prepare(fc))
    assert torch.allclose(ours.embedding, embedding, atol=1e-5)
    assert torch.allclose(ours.logits, out, atol=1e-5)


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
