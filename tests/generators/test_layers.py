"""Plain layers against torch.nn, and parameters of lanes."""

import pytest
import torch

from fcforge.generators import layers
from fcforge.generators.layers import device_rng
from fcforge.randomness import torch_rng


def test_a_linear_layer_is_torchs() -> None:
    p: layers.Params = {}
    layers.linear_init(p, "a", 5, 3, torch_rng(0))
    p["a.bias"] = torch.arange(3.0)
    module = torch.nn.Linear(5, 3)
    module.load_state_dict({"weight": p["a.weight"], "bias": p["a.bias"]})
    x = torch.randn(4, 5, generator=torch_rng(1))
    torch.testing.assert_close(layers.linear(p, "a", x), module(x))
    del p["a.bias"]
    torch.testing.assert_close(layers.linear(p, "a", x), module(x) - torch.arange(3.0))


def test_weights_have_the_variance_that_is_said() -> None:
    p: layers.Params = {}
    layers.linear_init(p, "a", 100, 400, torch_rng(0), gain=2.0)
    assert p["a.weight"].var().item() == pytest.approx(4 / 300, rel=0.05)
    assert p["a.weight"].abs().max() <= 0.2
    assert (p["a.bias"] == 0).all()


def test_layer_norm_is_torchs() -> None:
    p: layers.Params = {}
    layers.norm_init(p, "n", 6)
    p["n.weight"] += torch.arange(6.0)
    module = torch.nn.LayerNorm(6)
    module.load_state_dict({"weight": p["n.weight"], "bias": p["n.bias"]})
    x = torch.randn(4, 6, generator=torch_rng(1))
    torch.testing.assert_close(layers.norm(p, "n", x), module(x))


def test_lanes_are_stacked_and_taken_apart() -> None:
    lanes = [{"w": torch.full((2,), float(i)), "b": torch.tensor(i)} for i in range(3)]
    together = layers.stacked(lanes)
    assert together["w"].shape == (3, 2)
    for one, back in zip(lanes, layers.unstacked(together, 3), strict=True):
        assert torch.equal(one["w"], back["w"])
        assert torch.equal(one["b"], back["b"])


def test_a_state_keeps_names_apart_by_prefix_and_holds_no_graph() -> None:
    p = {"w": torch.ones(2, requires_grad=True)}
    state = layers.frozen(p, "net.") | {"other": torch.zeros(1)}
    assert list(layers.with_prefix(state, "net.")) == ["w"]
    assert not state["net.w"].requires_grad
    state["net.w"] += 1
    assert p["w"].tolist() == [1.0, 1.0]


def test_a_step_goes_down_the_gradient() -> None:
    p = layers.trainable({"w": torch.tensor([3.0])}, torch.device("cpu"))
    optimiser = layers.adam(p, lr=0.5)
    for _ in range(3):
        layers.step(optimiser, p["w"].square().sum())
    assert p["w"].item() == pytest.approx(
        1.5, abs=0.05
    )  # Adam's steps have the size of the rate


def test_a_generator_on_its_own_device_is_itself() -> None:
    rng = torch_rng(0)
    assert device_rng(rng, torch.device("cpu")) is rng
