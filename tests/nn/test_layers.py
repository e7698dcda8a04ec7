"""Layers: batch norm with explicit statistics against torch's, dropout, head, initialisation."""

import pytest
import torch

from fcforge.core.randomness import torch_rng
from fcforge.nn import layers


def key(n: int) -> torch.Tensor:
    return torch.tensor(n, dtype=torch.int32)


def batch_norm_case():
    rng = torch_rng(0)
    h = torch.randn(5, 7, 6, generator=rng) * 2.0 + 1.0
    weight, bias, mean, var, offset = torch.rand(5, 6, generator=rng).add(0.5).unbind()
    params = {"n.weight": weight, "n.bias": bias}
    return h, offset, params, {"n.mean": mean, "n.var": var}


@pytest.mark.parametrize("train", [True, False])
def test_batch_norm_equals_torchs_with_the_bias_before_it(train):
    h, offset, params, stats = batch_norm_case()
    oracle = torch.nn.BatchNorm1d(6).train(train)
    oracle.weight.data, oracle.bias.data = params["n.weight"], params["n.bias"]
    oracle.running_mean = stats["n.mean"].clone()
    oracle.running_var = stats["n.var"].clone()
    expected = oracle((h + offset).reshape(-1, 6)).reshape(h.shape)
    out, new = layers.normalise(h, offset, params, stats, "n", train)
    assert torch.allclose(out, expected, atol=1e-5)
    assert torch.allclose(new["n.mean"], oracle.running_mean, atol=1e-6)
    assert torch.allclose(new["n.var"], oracle.running_var, atol=1e-5)
    assert torch.equal(new["n.mean"], stats["n.mean"]) is not train


def test_batch_norm_gradient_equals_torchs():
    h, offset, params, stats = batch_norm_case()
    weight, bias = params.values()
    for tensor in (leaves := [h, weight, bias, offset]):
        tensor.requires_grad_()
    probe = torch.randn(h.shape, generator=torch_rng(1))
    out, _ = layers.normalise(h, offset, params, stats, "n", True)
    ours = torch.autograd.grad((out * probe).sum(), leaves)
    expected = torch.nn.functional.batch_norm(
        (h + offset).reshape(-1, 6), None, None, weight, bias, True
    ).reshape(h.shape)
    theirs = torch.autograd.grad((expected * probe).sum(), leaves)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    assert (ours[3] == 0).all()  # exactly: the batch mean takes every offset back


def test_batch_norm_moves_a_tenth_of_the_way_by_hand():
    h = torch.tensor([[0.0], [2.0]])  # mean 1, sample variance 2
    norm = layers.init_norm("n", 1)
    stats = {"n.mean": torch.zeros(1), "n.var": torch.ones(1)}
    _, new = layers.normalise(h, torch.tensor([5.0]), norm, stats, "n", True)
    assert new["n.mean"].item() == pytest.approx(0.1 * 6.0)
    assert new["n.var"].item() == pytest.approx(0.9 + 0.2)


def test_dropout_drops_the_right_share_and_keeps_the_mean():
    x = torch.ones(200, 200)
    out = layers.dropout(x, 0.3, key(1))
    assert (out == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert out.mean().item() == pytest.approx(1.0, abs=0.01)
    assert torch.equal(out, layers.dropout(x, 0.3, key(1)))
    assert not torch.equal(out, layers.dropout(x, 0.3, key(2)))
    assert layers.dropout(x, 0.3, None) is x


def test_head_is_a_plain_network():
    params = layers.init_head(torch_rng(3), "head", (6, 4, 3, 2))
    x = torch.randn(5, 6, generator=torch_rng(4))
    net = torch.nn.Sequential(
        *[
            torch.nn.Linear(6, 4),
            torch.nn.ReLU(),
            torch.nn.Linear(4, 3),
            torch.nn.ReLU(),
        ],
        torch.nn.Linear(3, 2),
    )
    for i, j in enumerate((0, 2, 4)):
        net[j].weight.data, net[j].bias.data = (
            params[f"head.{i}.weight"],
            params[f"head.{i}.bias"],
        )
    assert torch.allclose(layers.head(params, "head", x, 0.5, None), net(x), atol=1e-6)
    dropped = layers.head(params, "head", x, 0.5, key(1))
    assert not torch.allclose(dropped, net(x), atol=1e-3)


def test_initial_ranges():
    weight = layers.glorot(torch_rng(5), 128, 116)
    assert weight.abs().max() <= (6 / 244) ** 0.5
    assert weight.std().item() == pytest.approx((2 / 244) ** 0.5, rel=0.05)
    params = layers.init_linear(torch_rng(6), "a", 100, 50)
    assert params["a.weight"].abs().max() <= 0.1
    assert params["a.bias"].shape == (50,)


def test_heads_split_and_join():
    h = torch.randn(2, 5, 12, generator=torch_rng(7))
    parts = layers.split_heads(h, 3)
    assert parts.shape == (2, 3, 5, 4)
    assert torch.equal(parts[:, 1], h[..., 4:8])
    assert torch.equal(layers.join_heads(parts), h)


def test_an_affine_layer_is_torchs() -> None:
    p = layers.init_linear(torch_rng(0), "a", 5, 3, bias="zero")
    p["a.bias"] = torch.arange(3.0)
    module = torch.nn.Linear(5, 3)
    module.load_state_dict({"weight": p["a.weight"], "bias": p["a.bias"]})
    x = torch.randn(4, 5, generator=torch_rng(1))
    torch.testing.assert_close(layers.affine(p, "a", x), module(x))
    del p["a.bias"]
    torch.testing.assert_close(layers.affine(p, "a", x), module(x) - torch.arange(3.0))


def test_weights_have_the_stated_variance_and_bias() -> None:
    p = layers.init_linear(torch_rng(0), "a", 100, 400, gain=2.0, bias="zero")
    assert p["a.weight"].var().item() == pytest.approx(4 / 300, rel=0.05)
    assert p["a.weight"].abs().max() <= 0.2
    assert (p["a.bias"] == 0).all()
    drawn = layers.init_linear(torch_rng(0), "a", 100, 400)["a.bias"]
    assert 0.09 < drawn.abs().max() <= 0.1
    assert "a.bias" not in layers.init_linear(torch_rng(0), "a", 2, 2, bias="none")


def test_layer_norm_is_torchs() -> None:
    p = layers.init_norm("n", 6)
    p["n.weight"] += torch.arange(6.0)
    module = torch.nn.LayerNorm(6)
    module.load_state_dict({"weight": p["n.weight"], "bias": p["n.bias"]})
    x = torch.randn(4, 6, generator=torch_rng(1))
    torch.testing.assert_close(layers.layer_norm(p, "n", x), module(x))
