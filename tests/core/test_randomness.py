"""Generators from a seed and names; counter-based draws that are right and the same everywhere."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fcforge.core.randomness import (
    bits,
    derive,
    fold,
    keep_mask,
    normal,
    numpy_rng,
    torch_rng,
    uniform,
)


def key(value: int) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.int32)


def test_derive_is_stable_across_versions():
    """Written down: a change would make every stored run wrong without saying so."""
    assert derive(0) == 3456079177858693020
    assert derive(7, "split", "NYU") == 4120632160509044114


def test_names_are_a_path_not_a_sentence():
    assert derive(1, "ab", "c") != derive(1, "a", "bc")
    assert derive(1, "a") != derive(1, "a", "")
    assert derive(1, 2) == derive(1, "2")
    assert 0 <= derive(3, "x") < 2**63


def test_generators_repeat_and_differ():
    assert numpy_rng(0, "a").random() == numpy_rng(0, "a").random()
    assert numpy_rng(0, "a").random() != numpy_rng(0, "b").random()
    a, b, c = (torch.rand(3, generator=torch_rng(s, "a")) for s in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_no_global_state_is_touched():
    torch.manual_seed(5)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    numpy_rng(0, "a").random(3)
    torch.rand(3, generator=torch_rng(0, "a"))
    normal(key(3), (4,))
    assert torch.equal(before, torch.get_rng_state())
    assert (numpy_before == np.random.get_state()[1]).all()  # noqa: NPY002


def test_fold_takes_numbers_and_tensors_alike():
    for number in (0, 1, 77, 2**31 - 1, 123456789):
        assert torch.equal(fold(key(9), number), fold(key(9), key(number)))
        assert fold(key(9), number).dtype == torch.int32


def test_folded_keys_do_not_meet():
    keys = {int(fold(key(k), n)) for k in range(60) for n in range(60)}
    assert len(keys) == 3600


def test_uniform_is_uniform():
    u = uniform(key(11), (200_000,)).double()
    assert u.min() > 0
    assert u.max() <= 1
    counts = torch.histc(u, bins=20, min=0, max=1) / len(u)
    assert (counts - 0.05).abs().max() < 0.003
    assert abs(float(torch.corrcoef(torch.stack([u[:-1], u[1:]]))[0, 1])) < 0.01
    other = uniform(key(12), (200_000,)).double()
    assert abs(float(torch.corrcoef(torch.stack([u, other]))[0, 1])) < 0.01


def test_normal_is_normal():
    z = normal(key(5), (200_000,)).double()
    assert torch.isfinite(z).all()
    assert abs(float(z.mean())) < 0.01
    assert float(z.std()) == pytest.approx(1.0, abs=0.01)
    assert float((z**4).mean()) == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.3, 0.5, 0.9])
def test_dropout_mask_has_mean_one(p):
    mask = keep_mask(key(3), (100_000,), p)
    dropped = round(p * 256) / 256
    assert float((mask == 0).double().mean()) == pytest.approx(dropped, abs=0.006)
    assert set(mask.unique().tolist()) <= {
        0.0,
        float(np.float32(256 / (256 - round(p * 256)))),
    }
    assert float(mask.mean()) == pytest.approx(1.0, abs=0.02 / (1 - p))


def test_dropout_mask_has_no_pattern():
    """Each hash gives four draws: neither they nor neighbours may be alike."""
    mask = (keep_mask(key(8), (4, 50_000), 0.5) > 0).double()
    within = torch.corrcoef(mask)
    assert (within - torch.eye(4)).abs().max() < 0.02


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 7), (2, 3, 4)])
def test_a_mask_is_the_same_alone_and_lifted(shape):
    keys = torch.arange(6, dtype=torch.int32)
    for draw in (
        lambda k: keep_mask(k, shape, 0.4),
        lambda k: uniform(k, shape),
        lambda k: bits(fold(k, 4), shape),
        lambda k: normal(k, shape),
    ):
        lifted = torch.func.vmap(draw)(keys)
        assert lifted.shape == (6, *shape)
        for i in range(6):
            assert torch.equal(lifted[i], draw(keys[i]))


def test_a_longer_draw_begins_like_a_shorter_one():
    assert torch.equal(bits(key(4), (10,)), bits(key(4), (30,))[:10])


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**31))
def test_one_key_folds_as_many_do(key, number):
    """Alone a key is folded by Python's integers, among others by tensors."""
    alone = fold(torch.tensor(key, dtype=torch.int32), number)
    among = fold(torch.tensor([key, 1], dtype=torch.int32), number)[0]
    assert int(alone) == int(among)
    assert alone.dtype == among.dtype == torch.int32
