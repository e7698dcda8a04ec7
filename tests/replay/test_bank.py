"""The bank: rows of pools, prepared once, addressed by name; a sealed site shows nothing."""

import pytest
import torch

from fcforge.core.component import Component
from fcforge.core.errors import SealedError
from fcforge.core.randomness import torch_rng
from fcforge.core.subjects import FCBatch
from fcforge.replay.bank import Bank, PoolName, SiteView
from small_world import make_model

REAL, MADE = PoolName("real", "A", 0, "train"), PoolName("synthetic", "A", 0, "x:3")


def batch(n: int, seed: int) -> FCBatch:
    x = torch.randn(n, 4, 20, generator=torch_rng(seed))
    return FCBatch(torch.stack([torch.corrcoef(s) for s in x]), torch.arange(n) % 2)


def filled() -> Bank:
    bank = Bank()
    bank.add(REAL, batch(5, 0))
    bank.add(MADE, batch(3, 1))
    return bank


def test_rows_follow_each_other_and_a_name_is_added_once():
    bank = filled()
    assert bank.rows(REAL).tolist() == [0, 1, 2, 3, 4]
    assert bank.add(MADE, batch(9, 2)).tolist() == [5, 6, 7]  # what was there stays
    assert len(bank) == 8
    assert MADE in bank
    torch.testing.assert_close(bank.fc(torch.tensor([6])), batch(3, 1).fc[1:2])
    mixed = bank.fc(torch.tensor([7, 0, 5]))  # of both pools, in the order asked for
    assert torch.equal(
        mixed, torch.stack([batch(3, 1).fc[2], batch(5, 0).fc[0], batch(3, 1).fc[0]])
    )
    assert bank.fc(torch.empty(0, dtype=torch.int64)).shape == (0, 4, 4)
    assert bank.y[torch.tensor([4, 5])].tolist() == [0, 0]


def test_a_closed_bank_accepts_no_new_pool():
    bank = filled()
    new = PoolName("synthetic", "B", 0, "x")
    with bank.closed():
        assert bank.add(MADE, batch(9, 2)).tolist() == [5, 6, 7]
        with pytest.raises(SealedError, match="site 'B': a method adds 2 subjects to"):
            bank.add(new, batch(2, 3))
        with bank.closed(False):
            bank.add(PoolName("synthetic", "C", 0, "x"), batch(1, 3))
        with pytest.raises(SealedError):
            bank.add(new, batch(2, 3))
    assert len(bank) == 9
    assert bank.add(new, batch(2, 3)).tolist() == [9, 10]


class Counting:
    """A model whose preparation is counted."""

    def __init__(self) -> None:
        self.model, self.prepared = make_model(Component("linear"), 4), 0

    def prepare(self, fc: torch.Tensor):
        self.prepared += len(fc)
        return self.model.prepare(fc)


def test_every_subject_is_prepared_once():
    bank, model = filled(), Counting()
    first = bank.inputs(model)["edges"]
    bank.inputs(model)
    assert model.prepared == 8
    bank.add(PoolName("real", "B", 0, "train"), batch(2, 3))
    grown = bank.inputs(model)["edges"]
    assert model.prepared == 10
    assert torch.equal(grown[:8], first)
    torch.testing.assert_close(grown[8:], model.model.prepare(batch(2, 3).fc)["edges"])


def test_addresses_survive_another_order_of_pools():
    rows = torch.tensor([6, -1, 0, 4])
    pools, pool, item = filled().address(rows)
    assert (pools, pool.tolist(), item.tolist()) == (
        [REAL, MADE],
        [1, -1, 0, 0],
        [1, -1, 0, 4],
    )
    other = Bank()
    other.add(MADE, batch(3, 1))
    other.add(REAL, batch(5, 0))
    found = other.locate(pools, pool, item)
    assert found.tolist() == [1, -1, 3, 7]
    held = rows >= 0
    assert torch.equal(other.fc(found[held]), filled().fc(rows[held]))


def test_real_rows_are_those_that_no_generator_made():
    bank = filled()
    leaked = bank.add(PoolName("test", "A", 0, "t"), batch(2, 4))
    rows = torch.tensor([-1, 5, 2, int(leaked[0])])
    assert bank.real_rows(rows).tolist() == [2, 8]


def test_a_view_shows_its_site_until_it_is_sealed():
    bank = filled()
    view = SiteView("A", 0, bank, bank.rows(REAL), bank.rows(REAL)[:0])
    assert view.y.tolist() == [0, 1, 0, 1, 0]
    assert torch.equal(view.fc, batch(5, 0).fc)
    with pytest.raises(SealedError, match="has no generator"):
        view.synthetic(3)
    view.seal()
    for look in (lambda: view.rows, lambda: view.y, lambda: view.synthetic(3)):
        with pytest.raises(SealedError, match=r"site 'A'.*sealed"):
            look()


def test_products_of_pools_are_kept_and_are_the_products_of_their_edges():
    model = make_model(Component("linear"), 6)
    rng = torch.Generator().manual_seed(0)

    def some(n):
        x = torch.rand(n, 6, 6, generator=rng) - 0.5
        return FCBatch((x + x.mT) / 2 + torch.eye(6), torch.zeros(n, dtype=torch.int64))

    bank = Bank()
    a = bank.add(PoolName("real", "a", 0, "train"), some(4))
    b = bank.add(PoolName("synthetic", "b", 0, "x"), some(5))
    rows = torch.cat([b[[3, 1]], a[[0, 2]], b[[1]]])
    x = bank.inputs(model)["edges"][rows].double()
    for _ in range(2):
        assert torch.allclose(bank.products(model, rows), x @ x.T, atol=1e-12)
    assert bank.once("name", lambda: 1) == bank.once("name", lambda: 2) == 1
