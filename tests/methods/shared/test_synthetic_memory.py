"""A memory of synthetic subjects: who is in it, what is kept with them, when it is chosen anew."""

from dataclasses import replace

import pytest
import torch
from forge_world import SITES, TRAINING, VARIANTS, World, learner, subjects

from fcforge.core.errors import ConfigError, SealedError
from fcforge.methods.forge import Forge
from fcforge.methods.shared.synthetic_memory import LEAKED, HeldOut
from fcforge.replay.bank import PoolName
from fcforge.replay.hcts import AuthorsHCTS
from fcforge.replay.state import named, rows_of
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site


# -- what it keeps -----------------------------------------------------------------------
@pytest.mark.parametrize("variant", VARIANTS)
def test_memory_is_synthetic_and_within_budget(variant, monkeypatch):
    monkeypatch.setattr(AuthorsHCTS, "LIMITS", (3, 8))
    world = World()
    for t, lane in enumerate(world.learn(learner(**VARIANTS[variant]), SITES), start=1):
        state = lane.state
        for rows in rows_of(state).values():
            assert len(world.bank.real_rows(rows)) == 0
        filled = state.memory.rows >= 0
        assert int(filled.sum()) == (
            min(12, 10 * t) if variant == "reservoir" else 10 * t
        )
        active = state.choice.active
        most = min(12, (8 if "authors" in variant else 10) * t)
        assert len(set(active.tolist())) == most == int(state.choice.quota.sum())
        assert filled[active].all()
        assert torch.equal(
            state.memory.y[filled], world.bank.y[state.memory.rows[filled]]
        )
        site = active // 10
        assert torch.bincount(site, minlength=t).tolist() == state.choice.quota.tolist()
        assert site.tolist() == sorted(site.tolist())


def test_engine_refuses_a_generator_that_hands_out_real_subjects():
    world = World()
    view = world.view("A", 0)
    cheat = view.__class__(
        "A", 0, world.bank, view.train, view.val, lambda n: torch.arange(n)
    )
    chosen = learner()
    job = Job(start_lane(chosen, 0), cheat, 0, ("A",))
    with pytest.raises(SealedError, match="real subjects"):
        learn_site(chosen, [job], world.bank, TRAINING)


def test_candidates_and_held_out_subjects_are_different_people():
    state = World().learn(learner(), SITES)[-1].state
    assert not set(state.memory.rows.tolist()) & set(state.held_out.rows.tolist())
    assert len(set(state.held_out.rows.tolist())) == 18
    assert state.held_out.y.reshape(3, 6).sum(1).tolist() == [2, 2, 2]  # .4 of 6


@pytest.mark.parametrize("variant", ["stable", "uniform"])
def test_teacher_outputs_are_those_at_the_end_of_the_site(variant):
    world, chosen = World(), learner("gcn", **VARIANTS[variant])
    lanes = world.learn(chosen, SITES)
    last = lanes[-1].state
    for t, lane in enumerate(lanes):
        rows = last.memory.rows[10 * t : 10 * t + 10]
        x = {k: v[rows] for k, v in world.bank.inputs(chosen.model).items()}
        out = chosen.model.apply(lane.params, lane.stats, x)
        assert torch.equal(last.memory.logits[10 * t : 10 * t + 10], out.logits)
        assert torch.equal(last.memory.embedding[10 * t : 10 * t + 10], out.embedding)
        assert (last.memory.site[10 * t : 10 * t + 10] == t).all()


def test_reservoir_wipes_what_it_does_not_keep():
    state = World().learn(learner(sampling="reservoir"), SITES)[-1].state
    gone = state.memory.rows < 0
    assert int(gone.sum()) == 18
    assert not state.memory.logits[gone].any()
    assert not state.memory.embedding[gone].any()
    assert not len(state.held_out.rows)


# -- the sampler in the engine -----------------------------------------------------------
def test_best_accuracy_is_that_at_the_ends_of_sites():
    world, chosen = World(), learner("gcn")
    lanes = world.learn(chosen, SITES)
    rows, y = lanes[-1].state.held_out.rows[:6], lanes[-1].state.held_out.y[:6]
    x = {k: v[rows] for k, v in world.bank.inputs(chosen.model).items()}
    right = [
        (chosen.method.logits(chosen.model, lane, x).argmax(-1) == y).float().mean()
        for lane in lanes
    ]
    assert float(lanes[-1].state.hcts.best[0]) == pytest.approx(
        float(max(right)), abs=1e-6
    )


def test_refresh_happens_every_so_many_epochs():
    chosen = Forge(refresh=3)
    assert [e for e in range(8) if chosen.updates_at(e, 8)] == [0, 3, 6]
    assert not Forge(sampling="reservoir").updates_at(0, 8)
    assert not Forge(l1=0, l2=0, l3=0).updates_at(0, 8)
    literal = Forge(variant="paper")
    assert all(literal.updates_at(e, 100) for e in range(100))  # "at each round"
    code = Forge(variant="authors")
    assert [e for e in range(100) if code.updates_at(e, 100)] == [0, 80]


def test_rewards_arrive_only_for_sites_that_were_replayed():
    lanes = World().learn(learner(), SITES)
    assert lanes[0].state.hcts.seen.tolist() == [False]
    assert lanes[2].state.hcts.seen.tolist() == [True, True, False]
    assert lanes[2].state.hcts.sites.s[0].any()
    assert not lanes[2].state.hcts.sites.s[2].any()


def test_contexts_come_from_test_subjects_only_under_the_leak():
    world, chosen = World(), learner()
    test = world.bank.add(PoolName("test", "A", 0, "test"), subjects(4, "A", "test"))
    view = world.view("A", 0)
    leaky = view.__class__(
        "A", 0, world.bank, view.train, view.val, view.synthesise, test
    )
    held = {}
    for kind, site in (("leaky", leaky), ("strict", view)):
        job = Job(start_lane(chosen, 0), site, 0, ("A",))
        (lane,) = learn_site(chosen, [job], world.bank, TRAINING)
        held[kind] = lane.state.held_out.rows.tolist()
    empty = LEAKED - len(test)
    assert held["leaky"] == [*held["strict"], *test.tolist(), *[-1] * empty]
    assert len(held["strict"]) == 6  # synthetic, with the leak and without
    assert not len(world.bank.real_rows(torch.tensor(held["strict"])))


def test_larger_test_parts_widen_the_places_of_smaller_ones():
    method = learner(dev=2).method
    lane = start_lane(learner(), 0)
    lane = lane.with_state(
        choice=lane.state.choice._replace(quota=torch.tensor([4])),
        held_out=HeldOut(torch.tensor([5, 6]), torch.tensor([0, 1])),
    )
    rows, y = method._with_held_out(
        lane, torch.tensor([7, 8, 9]), torch.tensor([1, 1, 1])
    )
    assert rows.tolist() == [5, 6, -1, 7, 8, 9]
    assert y.tolist() == [0, 1, 0, 1, 1, 1]


def test_shapes_depend_on_the_number_of_sites_alone():
    world, chosen = World(), learner()
    a, b = (
        named(world.learn(chosen, order)[-1].state)
        for order in (("A", "B"), ("C", "A"))
    )
    assert {k: v.shape for k, v in a.items()} == {k: v.shape for k, v in b.items()}


# -- a limit over all sites ----------------------------------------------------------------
@pytest.mark.parametrize("sampling", ["hcts", "uniform"])
def test_the_candidates_of_all_sites_stay_below_a_total(sampling):
    """Ten of each site fit in 15 once; then seven of two sites, then five of three."""
    world = World()
    chosen = learner(max_candidates=15, sampling=sampling)
    lanes = world.learn(chosen, SITES)
    for n_sites, (lane, kept) in enumerate(zip(lanes, (10, 7, 5), strict=True), 1):
        memory, choice = lane.state.memory, lane.state.choice
        assert memory.site.tolist() == [t for t in range(n_sites) for _ in range(kept)]
        share = memory.y.reshape(n_sites, kept).float().mean(1)
        assert (share - 0.4).abs().max() <= 1 / kept  # the sites' share of patients
        assert torch.equal(memory.y, world.bank.y[memory.rows])
        assert len(set(choice.active.tolist())) == min(12, n_sites * kept)
        assert int(choice.active.max()) < n_sites * kept
        held_out = lane.state.held_out
        if sampling == "hcts":
            assert len(held_out.rows) == n_sites * (6, 4, 3)[n_sites - 1]
            assert torch.equal(held_out.y, world.bank.y[held_out.rows])
            assert not set(held_out.rows.tolist()) & set(memory.rows.tolist())
    first = lanes[0].state.memory
    kept = lanes[-1].state.memory
    assert set(kept.rows[:5].tolist()) <= set(first.rows.tolist())
    where = [first.rows.tolist().index(row) for row in kept.rows[:5].tolist()]
    assert torch.equal(kept.logits[:5], first.logits[where])  # the teacher's, as stored


def test_below_the_total_nothing_changes():
    a = World().learn(learner(), SITES)[-1]
    b = World().learn(learner(max_candidates=30), SITES)[-1]
    for name, value in named(a.state).items():
        assert torch.equal(value, named(b.state)[name]), name
    assert Forge().candidates_per_site(20) == 256
    assert Forge().candidates_per_site(100) == 51


def test_the_leaked_test_subjects_stay_when_proxies_go():
    world, chosen = World(), learner(max_candidates=15)
    leaked, lane = {}, start_lane(chosen, 0)
    for i, name in enumerate(SITES):
        pool = PoolName("test", name, 0, "test")
        leaked[name] = world.bank.add(pool, subjects(4, name, "test"))
        view = world.view(name, i)
        leaky = view.__class__(
            name, i, world.bank, view.train, view.val, view.synthesise, leaked[name]
        )
        (lane,) = learn_site(
            chosen, [Job(lane, leaky, 0, SITES[: i + 1])], world.bank, TRAINING
        )
    by_site = lane.state.held_out.rows.reshape(3, -1)
    assert by_site.shape[1] == 3 + LEAKED
    for rows, name in zip(by_site, SITES, strict=True):
        assert not len(world.bank.real_rows(rows[:3]))
        assert rows[3:7].tolist() == leaked[name].tolist()
        assert (rows[7:] == -1).all()


# -- running averages of the paper's sampler ---------------------------------------------
@pytest.mark.parametrize("sampler", ["paper", "authors"])
def test_running_averages_are_kept_for_readouts_that_are_learned(sampler):
    for model, width in (("mlp", 256), ("linear", None)):
        chosen = learner(model, sampler=sampler)
        lanes = World().learn(chosen, SITES)
        for t, lane in enumerate(lanes, start=1):
            prototypes = lane.state.hcts.prototypes
            if width is None:
                assert prototypes == ()
                continue
            assert prototypes.mean.shape == (t, 2, width)
            assert prototypes.covariance.shape == (t, 2, width, width)
            learned = lane.state.hcts.seen
            assert torch.equal(prototypes.mean.abs().sum((1, 2)) > 0, learned)
    assert learner("mlp", sampler="stable").method.hcts.averages(None) is None


def test_a_readout_too_long_for_a_covariance_matrix_is_refused():
    chosen = learner("mlp", sampler="paper")
    long = replace(chosen, model=replace(chosen.model, hidden=2049))
    with pytest.raises(ConfigError, match="readout has 2049 numbers"):
        start_lane(long, 0)
    start_lane(replace(long, method=Forge()), 0)
