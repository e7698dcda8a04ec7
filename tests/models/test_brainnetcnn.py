"""BrainNetCNN: a forward pass by hand, its two inputs, and that it learns."""

import pytest
import torch
import torch.nn.functional as F
from simulated_site import simulate

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.randomness import torch_rng
from fcforge.graphs import log_matrix
from fcforge.models.brainnetcnn import SLOPE, BrainNetCNN
from fcforge.nn.adam import Adam
from small_world import make_model

SMALL = {"width": 4, "nodes": 6, "hidden": 16}


def test_a_forward_pass_by_hand() -> None:
    model = BrainNetCNN(n_rois=3, width=2, nodes=2, hidden=2, dropout=0.0)
    p = model.init(torch_rng(0))
    fc = simulate(4, rois=3).fc[:1]
    x = model.prepare(fc)["matrix"][0][None]  # (channels, R, R)
    for name in ("edge0", "edge1"):
        row = p[f"{name}.row.weight"].unflatten(1, (len(x), 3))
        column = p[f"{name}.col.weight"].unflatten(1, (len(x), 3))
        by_row = torch.einsum("ock,cik->oi", row, x)[:, :, None]
        x = by_row + torch.einsum("ock,ckj->oj", column, x)[:, None, :]
        x = F.leaky_relu(x, SLOPE)
    kernel = p["node.weight"].unflatten(1, (2, 3))
    nodes = torch.einsum("fck,cik->if", kernel, x) + p["node.bias"]
    nodes = F.leaky_relu(nodes, SLOPE).flatten()
    graph = F.leaky_relu(p["graph.weight"] @ nodes + p["graph.bias"], SLOPE)
    out = model.apply(p, {}, model.prepare(fc))
    torch.testing.assert_close(out.embedding[0], graph, atol=1e-6, rtol=1e-5)


def test_both_inputs_have_about_unit_spread() -> None:
    fc = simulate(20, rois=10).fc
    plain = BrainNetCNN(n_rois=10).prepare(fc)["matrix"]
    assert (plain.diagonal(dim1=-2, dim2=-1) == 0).all()
    torch.testing.assert_close(plain[0, 1, 2], torch.atanh(fc[0, 1, 2]) / 0.2)
    log = BrainNetCNN(n_rois=10, features="log").prepare(fc)["matrix"]
    torch.testing.assert_close(log, log_matrix(fc) / 0.05)
    with pytest.raises(ConfigError, match="features = 'raw' is unknown"):
        BrainNetCNN(features="raw")


@pytest.mark.parametrize("features", ["fc", "log"])
def test_it_learns_a_difference_between_classes(features) -> None:
    site = simulate(60, rois=10, effect=2.0)
    model = make_model(Component("brainnetcnn", {**SMALL, "features": features}), 10)
    params = model.init(torch_rng(0))
    inputs = model.prepare(site.fc)
    optimiser = Adam.start(params)

    def loss(params):
        return F.cross_entropy(model.apply(params, {}, inputs).logits, site.y)

    for _ in range(80):
        grads = torch.func.grad(loss)(params)
        params, optimiser = optimiser.step(params, grads, lr=3e-3)
    logits = model.apply(params, {}, inputs).logits
    assert (logits.argmax(1) == site.y).float().mean() > 0.9
