"""The fused layers are the plain ones: through a stand-in on the CPU, by the kernels on a GPU.

The Triton kernels themselves run on a GPU, or under Triton's interpreter (TRITON_INTERPRET=1)
where Triton is installed; the stand-in checks everything around them: gradients, lanes, shapes.
"""

import importlib.util
import math
import os
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch.func import grad, vmap

from fcforge.core.component import Component
from fcforge.core.randomness import keep_mask
from fcforge.nn import fused, layers
from fcforge.nn.adam import Adam
from small_world import make_model

LANES, WIDTH, P = 3, 24, 0.3
CUDA = torch.cuda.is_available()
KEYS = [5, -77, 2**31 - 5]


def _mask(key: torch.Tensor, shape: tuple[int, ...], dropped: int) -> torch.Tensor:
    return torch.stack([keep_mask(k, shape, dropped / 256) for k in key])


def _normal(h, weight, bias, mean, inverse_sd):
    hat = (h - mean[:, None]) * inverse_sd[:, None]
    return hat, hat * weight[:, None] + bias[:, None]


def _forward(h, weight, bias, key, offset, mean, var, dropped, epsilon, momentum, rows):
    own, spread = h.mean(1), h.var(1, unbiased=False)
    inverse_sd = torch.rsqrt(spread + epsilon)
    y = _normal(h, weight, bias, own, inverse_sd)[1]
    out = y.relu() * _mask(key, tuple(h.shape[1:]), dropped)
    new_mean = torch.lerp(mean, own + offset, momentum)
    new_var = torch.lerp(var, h.var(1), momentum)
    return out, own, inverse_sd, new_mean, new_var


def _backward(g, h, weight, bias, key, mean, inverse_sd, dropped, rows):
    hat, y = _normal(h, weight, bias, mean, inverse_sd)
    dy = g * _mask(key, tuple(h.shape[1:]), dropped) * (y > 0)
    dw, db = (dy * hat).sum(1), dy.sum(1)
    inner = dy - (db[:, None] + hat * dw[:, None]) / h.shape[1]
    return (weight * inverse_sd)[:, None] * inner, dw, db


def _mean_max(h):
    top, where = h.max(2)
    return torch.cat([h.mean(2), top], -1), where.int()


def _mean_max_backward(g, where, n_rois):
    even, top = g.chunk(2, -1)
    hit = torch.arange(n_rois, device=g.device)[:, None] == where[:, :, None]
    return even[:, :, None] / n_rois + hit * top[:, :, None]


def _adam(p, g, m, v, shrink, rate, root, decay, beta1, beta2, epsilon):
    g = g * shrink[:, None] + decay * p
    m = torch.lerp(m, g, 1 - beta1)
    v = torch.lerp(v, g * g, 1 - beta2)
    return p - rate[:, None] * m / (v.sqrt() * root[:, None] + epsilon), m, v


STAND_IN = SimpleNamespace(
    adam=_adam,
    forward=_forward,
    backward=_backward,
    dropout=lambda x, key, dropped: x * _mask(key, tuple(x.shape[1:]), dropped),
    mean_max=_mean_max,
    mean_max_backward=_mean_max_backward,
)


@pytest.fixture(params=["stand-in", "kernels"])
def device(request, monkeypatch):
    if request.param == "kernels":
        if not CUDA or fused.kernels() is None:
            pytest.skip(
                "the Triton kernels need a GPU (or TRITON_INTERPRET=1, tested below)"
            )
        return "cuda"
    monkeypatch.setattr(fused, "kernels", lambda: STAND_IN)
    monkeypatch.setattr(fused, "fits", lambda h: True)
    return "cpu"


@contextmanager
def off():
    """Torch's own operations inside, to compare with."""
    before = fused.fits
    fused.fits = lambda h: False
    try:
        yield
    finally:
        fused.fits = before


def draws(device: str, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=rng).to(device) for s in shapes]


def both(f, *args):
    """Value and gradients of `f` over lanes, fused and plain."""
    target = torch.randn_like(vmap(f)(*args))

    def loss(tensors, key, t):
        return (f(*tensors, key) * t).sum()

    *tensors, key = args
    out = []
    for plain in (False, True):
        with off() if plain else nullcontext():
            out.append((vmap(f)(*args), vmap(grad(loss))(tuple(tensors), key, target)))
    return out


@pytest.mark.parametrize("n", [150, 152])  # quarters of the rows, or not
def test_norm_relu_dropout_is_the_three_layers(n, device):
    h, weight, bias, offset = draws(
        device, (LANES, n, WIDTH), (LANES, WIDTH), (LANES, WIDTH), (LANES, WIDTH)
    )
    key = torch.tensor(KEYS, dtype=torch.int32, device=device)
    stats = {
        "n.mean": torch.zeros(WIDTH, device=device),
        "n.var": torch.ones(WIDTH, device=device),
    }

    def f(h, weight, bias, offset, key):
        params = {"n.weight": weight, "n.bias": bias}
        out, new = layers.norm_relu_dropout(
            2 * h + 1, offset, params, stats, "n", True, P, key
        )
        return torch.cat([out, new["n.mean"][None], new["n.var"][None]])

    (a, ga), (b, gb) = both(f, h, weight, bias, offset, key)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert torch.equal(a[:, :n] == 0, b[:, :n] == 0)
    assert (
        0.55 < float((a[:, :n] == 0).float().mean()) < 0.75
    )  # half by ReLU, 0.3 of the rest
    for x, y in zip(ga, gb, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4)


def test_dropout_is_dropout(device):
    (x,) = draws(device, (LANES, 7, 33))
    key = torch.tensor(KEYS, dtype=torch.int32, device=device)
    (a, ga), (b, gb) = both(lambda x, key: layers.dropout(x, P, key), x, key)
    assert torch.equal(a, b)
    assert torch.equal(ga[0], gb[0])


@pytest.mark.parametrize("n", [7, 1028])
def test_linear_is_a_product(n, device):
    x, weight, key = draws(device, (LANES, 2, n // 2, 5), (LANES, 3, 5), (LANES,))
    (a, ga), (b, gb) = both(lambda x, w, key: layers.linear(x, w), x, weight, key)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    for fast, plain in zip(ga, gb, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-4)


def test_mean_max_is_mean_and_max(device):
    (x,) = draws(device, (LANES, 6, 41, WIDTH))
    key = torch.tensor(KEYS, dtype=torch.int32, device=device)
    (a, ga), (b, gb) = both(lambda x, key: layers.mean_max(torch.relu(x)), x, key)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ga[0], gb[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clip", [0.5, math.inf])
def test_adam_is_adam(clip, device):
    p, m = draws(device, (LANES, 1100), (LANES, 1100))
    how = {"lr": 1e-2, "weight_decay": 1e-3, "clip": clip}

    def step(p, m, t):
        opt = Adam(m, m.square(), t, torch.ones_like(t))
        moved, opt = opt.step(
            {"a": p[:600], "b": p[600:]}, {"b": m[:500], "a": m[500:]}, **how
        )
        return moved["a"], moved["b"], opt.m, opt.v, opt.t

    taken = torch.arange(3.0, device=device)
    fast = vmap(step)(p, m, taken)
    with off():
        plain = vmap(step)(p, m, taken)
    torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["gcn", "sage", "gat", "gae"])
def test_a_network_trains_alike_with_and_without_fused_layers(device, name):
    model = make_model(Component(name, {"hidden": 16, "depth": 2}), 12)
    (fc,) = draws(device, (9, 12, 60))
    inputs = model.prepare(torch.stack([torch.corrcoef(s) for s in fc]))
    params = {
        k: v.to(device) for k, v in model.init(torch.Generator().manual_seed(1)).items()
    }
    stats = {k: v.to(device) for k, v in model.init_stats().items()}
    key = torch.tensor(11, dtype=torch.int32, device=device)

    def loss(params):
        out = model.apply(params, stats, inputs, train=True, key=key)
        return out.logits.square().sum() + out.embedding.sum()

    fast = grad(loss)(params)
    with off():
        plain = grad(loss)(params)
    for k in plain:
        torch.testing.assert_close(fast[k], plain[k], rtol=1e-3, atol=1e-4, msg=k)


def test_a_second_derivative_is_refused(device):
    (x,) = draws(device, (2, 5, WIDTH))

    def slope(x):
        return grad(lambda x: fused.mean_max(x).square().sum())(x).square().sum()

    with pytest.raises(NotImplementedError, match="backward"):
        grad(slope)(x)


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
@pytest.mark.skipif(CUDA, reason="tested on the GPU itself")
def test_the_kernels_under_tritons_interpreter():
    code = (
        "import torch, sys; sys.path[:0] = sys.argv[1:];"
        "import test_fused as t; from fcforge.models import fused;"
        "fused.fits = lambda h: True;"
        "t.test_norm_relu_dropout_is_the_three_layers(150, 'cpu');"
        "t.test_norm_relu_dropout_is_the_three_layers(152, 'cpu');"
        "t.test_adam_is_adam(0.5, 'cpu'); t.test_dropout_is_dropout('cpu');"
        "t.test_mean_max_is_mean_and_max('cpu')"
    )
    here = os.path.dirname(__file__)
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, here, os.path.dirname(here)],
        env=env,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
