from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import pytest
import torch

from fcforge.core.errors import DataError, StoreError
from fcforge.core.subjects import FCBatch
from fcforge.generators import cache
from fcforge.generators.base import Generator
from fcforge.generators.cache import (
    _seed,
    fit_cached,
    fit_key,
    fit_together,
    read_tensors,
)
from fcforge.generators.corr_gauss import CorrGauss
from real_runs import do_damage

CALLS: list[int] = []


class Counted(NamedTuple):
    x: torch.Tensor
    n: torch.Tensor


@dataclass(frozen=True)
class Counting(Generator):
    name: ClassVar[str] = "counting"
    state_type: ClassVar[type] = Counted
    a: int = field(default=1)

    def learn(self, batch, rng):
        CALLS.append(1)
        return Counted(torch.randn(3, generator=rng), torch.tensor(len(batch)))

    def draw(self, state, y, rng):
        raise AssertionError


def test_key_depends_on_everything(small_site) -> None:
    gen = Counting()
    keys = {
        fit_key(gen, small_site, 0),
        fit_key(gen, small_site, 1),
        fit_key(Counting(a=2), small_site, 0),
        fit_key(gen, FCBatch(small_site.fc, 1 - small_site.y), 0),
        fit_key(gen, FCBatch(small_site.fc * 0.5, small_site.y), 0),
        fit_key(CorrGauss(), small_site, 0),
    }
    assert len(keys) == 6
    assert fit_key(Counting(), small_site, 0) in keys


@pytest.mark.parametrize("on_disk", [True, False])
def test_fits_once(small_site, tmp_path, on_disk) -> None:
    CALLS.clear()
    folder = tmp_path / "new" if on_disk else None
    gen = Counting(a=10 + on_disk)
    a = fit_cached(gen, small_site, (0, "NYU"), folder)
    b = fit_cached(gen, small_site, (0, "NYU"), folder)
    assert len(CALLS) == 1
    a, b = a.named(), b.named()
    assert a.keys() == b.keys() == {"counts", "model.x", "model.n"}
    assert all(torch.equal(a[k], b[k]) for k in a)
    c = fit_cached(gen, small_site, (0, "UM"), folder)
    assert len(CALLS) == 2
    assert not torch.equal(a["model.x"], c.model.x)
    if on_disk:
        assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("damage", ["truncate", "one bit", "empty"])
def test_a_damaged_state_is_fitted_again(damage, small_site, tmp_path) -> None:
    CALLS.clear()
    whole = fit_cached(Counting(), small_site, (0,), tmp_path)
    (path,) = tmp_path.iterdir()
    do_damage(path, damage)
    with pytest.raises(StoreError, match="damaged"):
        read_tensors(path)
    again = fit_cached(Counting(), small_site, (0,), tmp_path)
    assert len(CALLS) == 2
    first, second = whole.named(), again.named()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_is_fitted_together_is_found_one_by_one(
    small_site, tmp_path, monkeypatch
) -> None:
    """Lanes write what `fit_cached` looks for; what is there already is not fitted again."""
    CALLS.clear()
    gen = Counting(a=20)
    half = small_site.select(slice(0, 20))
    first = fit_cached(gen, half, (1, "UM"), tmp_path)
    asked = [
        (small_site, (0, "NYU")),
        (half, (1, "UM")),
        (half, (2, "UM")),
        (half, (2, "UM")),
    ]
    monkeypatch.setattr(cache, "LANES", 1)
    assert fit_together(gen, asked, tmp_path, "cpu") == 2
    assert len(CALLS) == 3
    assert fit_together(gen, asked, tmp_path, "cpu") == 0
    again = [fit_cached(gen, batch, names, tmp_path) for batch, names in asked]
    assert len(CALLS) == 3
    assert torch.equal(again[1].model.x, first.model.x)
    alone = gen.fit(small_site, torch.Generator().manual_seed(_seed((0, "NYU"))))
    assert torch.equal(again[0].model.x, alone.model.x)


def test_a_site_that_cannot_be_learnt_leaves_nothing(small_site, tmp_path) -> None:
    asked = [(small_site, (0, "NYU")), (small_site.select(slice(0, 2)), (0, "UM"))]
    with pytest.raises(DataError, match="too few"):
        fit_together(Counting(), asked, tmp_path, "cpu")
    assert not list(tmp_path.iterdir())
