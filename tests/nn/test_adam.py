"""Adam and clipping are torch's, alone and lane by lane."""

import pytest
import torch
from torch.utils import _pytree as pytree

from fcforge.core.randomness import torch_rng
from fcforge.nn.adam import Adam, FusedAdam, clip_factor, flatten, unflatten


def stacked(trees):
    return pytree.tree_map(lambda *leaves: torch.stack(leaves), *trees)


SHAPES = {"a": (3, 4), "b": (4,), "c": ()}


def draw(seed: int, dtype: torch.dtype, size: float = 1.0) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {
        k: size * torch.randn(s, generator=rng, dtype=dtype) for k, s in SHAPES.items()
    }


@pytest.mark.parametrize("weight_decay", [0.0, 2e-4, 0.3])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-5)]
)
def test_adam_is_torch_adam(weight_decay, dtype, tolerance):
    params, lr = draw(0, dtype), 0.05
    theirs = {k: v.clone().requires_grad_() for k, v in params.items()}
    optimiser = torch.optim.Adam(theirs.values(), lr=lr, weight_decay=weight_decay)
    opt = Adam.start(params)
    for step in range(12):
        # gradients of very different size, so that eps and both corrections matter
        grads = draw(step + 1, dtype, size=10.0 ** (step % 4 - 3))
        for k, p in theirs.items():
            p.grad = grads[k].clone()
        optimiser.step()
        params, opt = opt.step(params, grads, lr=lr, weight_decay=weight_decay)
        for k, p in theirs.items():
            torch.testing.assert_close(
                params[k], p.detach(), rtol=0, atol=tolerance * lr * 12
            )
            assert params[k].dtype == dtype
    assert opt.t == 12


def test_first_adam_step_is_the_learning_rate():
    """m / sqrt(v) is the sign of the gradient after one step, whatever its size."""
    params, grads = draw(0, torch.float64), draw(1, torch.float64, size=1e-3)
    new, _ = Adam.start(params).step(params, grads, lr=0.01, weight_decay=0.0)
    for k in params:
        # g / (|g| + 1e-8) is not quite one for gradients this small
        moved = params[k] - 0.01 * grads[k] / (grads[k].abs() + 1e-8)
        torch.testing.assert_close(new[k], moved, rtol=0, atol=1e-8)


@pytest.mark.parametrize("limit", [0.1, 1.0, 1e3])
def test_clipping_is_torch_clipping(limit):
    grads = draw(3, torch.float64, size=2.0)
    leaves = [torch.zeros_like(g).requires_grad_() for g in grads.values()]
    for leaf, g in zip(leaves, grads.values(), strict=True):
        leaf.grad = g.clone()
    torch.nn.utils.clip_grad_norm_(leaves, limit)
    flat = flatten(grads)
    clipped = unflatten(flat * clip_factor(flat, limit), grads)
    for leaf, g in zip(leaves, clipped.values(), strict=True):
        torch.testing.assert_close(g, leaf.grad, rtol=1e-12, atol=0)
    norm = torch.sqrt(sum(g.square().sum() for g in clipped.values()))
    whole = torch.sqrt(sum(g.square().sum() for g in grads.values()))
    assert norm == pytest.approx(min(limit, float(whole)), rel=1e-5)


def test_clipping_does_not_depend_on_the_order_of_names():
    grads = draw(4, torch.float32, size=3.0)
    backwards = dict(reversed(grads.items()))
    a, b = flatten(grads), flatten(backwards)
    assert torch.equal(a, b)
    assert torch.equal(clip_factor(a, 1.0), clip_factor(b, 1.0))
    assert list(unflatten(b, backwards)) == list(backwards)


def test_lifted_adam_is_adam_per_lane():
    """Lanes clip and step on their own: a loud lane does not silence a quiet one."""
    params = [draw(i, torch.float64) for i in range(3)]
    grads = [draw(i + 9, torch.float64, size=10.0**i) for i in range(3)]

    def step(p, g, o):
        return o.step(p, g, lr=0.1, weight_decay=0.01, clip=1.0)

    alone = [step(p, g, Adam.start(p)) for p, g in zip(params, grads, strict=True)]
    starts = [Adam.start(p) for p in params]
    moved, states = torch.func.vmap(step)(*map(stacked, (params, grads, starts)))
    for i, (p, o) in enumerate(alone):
        for k in p:
            torch.testing.assert_close(moved[k][i], p[k], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(states.v[i], o.v, rtol=1e-12, atol=1e-12)
        assert states.t[i] == o.t == 1


def test_a_restart_is_a_new_optimiser_at_another_rate():
    """Two steps, a restart at a tenth: the third step is the first of a fresh Adam at lr / 10."""
    rng = torch_rng(0, "restart")
    params = {"w": torch.randn(4, generator=rng, dtype=torch.float64)}
    grads = [
        {"w": torch.randn(4, generator=rng, dtype=torch.float64)} for _ in range(4)
    ]
    opt = Adam.start(params)
    for g in grads[:2]:
        params, opt = opt.step(params, g, lr=1e-2, weight_decay=0.1)
    again, fresh = opt.restart(0.1), Adam.start(params)
    a = b = params
    for g in grads[2:]:
        a, again = again.step(a, g, lr=1e-2, weight_decay=0.1)
        b, fresh = fresh.step(b, g, lr=1e-3, weight_decay=0.1)
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
    assert not torch.equal(a["w"], params["w"])


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_fused_adam_is_torchs_in_place(clip):
    start = {"w": torch.randn(4, 3, generator=torch_rng(0)), "b": torch.ones(3)}
    start["unused"] = torch.ones(2)
    ours = {k: v.clone().requires_grad_() for k, v in start.items()}
    theirs = {k: v.clone().requires_grad_() for k, v in start.items()}
    x = torch.randn(5, 4, generator=torch_rng(1))
    fused, plain = FusedAdam(ours, 0.1, clip), torch.optim.Adam(theirs.values(), lr=0.1)

    def loss(p):
        return ((x @ p["w"] + p["b"]).square() * 3.0).sum()

    for _ in range(5):
        fused.step(loss(ours))
        plain.zero_grad()
        loss(theirs).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(theirs.values(), clip)
        plain.step()
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-5, atol=1e-6)
    assert torch.equal(ours["unused"], start["unused"])
