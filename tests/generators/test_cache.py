from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch

from fcforge.errors import StoreError
from fcforge.generators.base import Generator
from fcforge.generators.cache import fit_cached, fit_key
from fcforge.generators.corr_gauss import CorrGauss
from fcforge.types import FCBatch

CALLS: list[int] = []


@dataclass(frozen=True)
class Counting(Generator):
    name: ClassVar[str] = "counting"
    a: int = field(default=1)

    def learn(self, batch, rng):
        CALLS.append(1)
        return {"x": torch.randn(3, generator=rng), "n": torch.tensor(len(batch))}

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
    assert a.keys() == b.keys()
    assert all(torch.equal(a[k], b[k]) for k in a)
    c = fit_cached(gen, small_site, (0, "UM"), folder)
    assert len(CALLS) == 2
    assert not torch.equal(a["x"], c["x"])
    if on_disk:
        assert len(list(folder.iterdir())) == 2


def test_damaged_state_is_reported(small_site, tmp_path) -> None:
    fit_cached(Counting(), small_site, (0,), tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(StoreError, match="damaged"):
        fit_cached(Counting(), small_site, (0,), tmp_path)
