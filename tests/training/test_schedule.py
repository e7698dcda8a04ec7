"""Which subjects the steps of a site see, and public subjects that join every batch."""

from dataclasses import replace

import pytest
import torch

from fcforge.core.spec import Training
from fcforge.methods.finetune import Finetune
from fcforge.replay.bank import PoolName, PublicView, SiteView
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site
from fcforge.training.schedule import batch_rows, minibatches, weighted_minibatches
from small_world import World, assert_same, order, public_subjects

PLAIN = Training(epochs=4, batch_size=8)
WITH = replace(PLAIN, public_replay=3)


def rng():
    return torch.Generator().manual_seed(3)


def test_a_subject_comes_as_often_as_its_weight_says() -> None:
    weight = torch.tensor([0.5, 1.0, 1.5, 3.0, 4.0], dtype=torch.float64)
    plan = weighted_minibatches(weight, 2, 200, rng())
    assert plan.shape == minibatches(5, 2, 200, rng()).shape
    epochs = plan.flatten(1)[:, :5]  # the last place of the six wraps around
    counts = torch.stack([torch.bincount(one, minlength=5) for one in epochs])
    due = 5 * weight / weight.sum()
    assert bool(((counts >= due.floor()) & (counts <= due.ceil())).all())
    torch.testing.assert_close(counts.double().mean(0), due, atol=0.1, rtol=0)


def test_equal_weights_show_everybody_once_per_epoch() -> None:
    plan = weighted_minibatches(torch.full((7,), 0.3).double(), 7, 20, rng())
    assert bool((plan.sort(-1).values == torch.arange(7)).all())
    assert len({tuple(epoch.flatten().tolist()) for epoch in plan}) > 15


@pytest.mark.parametrize("n", [1, 2, 33])
def test_any_number_of_subjects(n) -> None:
    plan = weighted_minibatches(torch.rand(n, generator=rng()).double(), 8, 3, rng())
    assert 0 <= int(plan.min()) <= int(plan.max()) < n


# -- public subjects ---------------------------------------------------------------------
def jobs(world: World, *, public: bool = True) -> list[Job]:
    """Two lanes of two seeds about to learn one site, in a run with public subjects or without."""
    found = public_subjects()
    rows = world.bank.add(PoolName("public", "(public)", 0, ""), found.batch)
    people = PublicView(found.subjects, world.bank, rows) if public else None
    made = []
    for seed in (0, 1):
        site = world.view(order()[0])
        shown = SiteView(
            site.name, 0, world.bank, site.rows, site.rows[:0], public=people
        )
        lane = start_lane(world.learner, seed)
        made.append(Job(lane, shown, seed, (site.name,)))
    return made


def test_so_many_public_subjects_join_every_batch():
    world = World.of("finetune")
    both = jobs(world)
    plain = batch_rows(Finetune(), both, PLAIN, world.bank)
    rows = batch_rows(Finetune(), both, WITH, world.bank)
    b = plain.shape[-1]
    assert rows.shape == (*plain.shape[:-1], b + 3)
    assert torch.equal(rows[..., :b], plain)  # the site's own batches stay
    people = both[0].site.public
    assert people is not None
    joined = rows[..., b:]
    assert torch.isin(joined, people.rows).all()
    assert not torch.isin(plain, people.rows).any()
    assert not torch.equal(joined[0], joined[1])  # lanes of two seeds
    assert len(joined.unique()) > 20  # of 2 * 4 * steps * 3 draws
    alone = batch_rows(Finetune(), both[1:], WITH, world.bank)
    assert torch.equal(alone, rows[1])


def test_without_public_subjects_nothing_joins():
    world = World.of("finetune")
    both = jobs(world, public=False)
    plain = batch_rows(Finetune(), both, PLAIN, world.bank)
    assert torch.equal(batch_rows(Finetune(), both, WITH, world.bank), plain)


def test_public_subjects_change_what_is_learned_and_are_not_kept():
    world = World.of("er", {"memory": 4})
    lanes = {}
    for training in (PLAIN, WITH):
        made = jobs(world)
        lanes[training] = learn_site(world.learner, made[:1], world.bank, training)[0]
    plain, joined = lanes[PLAIN], lanes[WITH]
    assert any(not torch.equal(joined.params[k], v) for k, v in plain.params.items())
    assert torch.equal(plain.state.memory.rows, joined.state.memory.rows)
    made = jobs(world, public=False)
    (nobody,) = learn_site(world.learner, made[:1], world.bank, WITH)
    assert_same(nobody.params, plain.params)
