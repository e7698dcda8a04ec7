"""One site: shown, learned, sealed, scored; which epoch is kept; who may hold whom."""

import contextlib
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fcforge.core.component import Component
from fcforge.core.errors import DataError, SealedError
from fcforge.core.leaks import Leaks
from fcforge.core.randomness import torch_rng
from fcforge.core.spec import Training
from fcforge.core.subjects import FCBatch
from fcforge.data.splits import make_sites
from fcforge.experiments import run_parts
from fcforge.experiments.store import Store
from fcforge.methods import Lane, Method
from fcforge.methods.base import Learner
from fcforge.models.base import Model, Output
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.replay.state import Rows
from fcforge.training.evaluation import Evaluator
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import check_kept, learn_site, matmul_precision
from fcforge.training.schedule import minibatches
from small_world import (
    QUICK_MODELS,
    R,
    World,
    assert_same,
    cohort,
    learner_spec,
    make_model,
    order,
    plan_of,
    run_plan,
    run_spec,
    stored_lanes,
)

QUICK = Training(epochs=2, batch_size=8)


# -- sealing ---------------------------------------------------------------------------------------
def test_a_learned_site_is_sealed():
    world = World.of("finetune", training=QUICK)
    site = world.view(order()[0])
    assert len(site.rows) == len(site.y) == len(site.fc)
    learn_site(
        world.learner, [Job(world.lane, site, 0, (site.name,))], world.bank, QUICK
    )
    for look in ("rows", "y", "fc"):
        with pytest.raises(
            SealedError, match=f"of site '{site.name}' cannot be read after"
        ):
            getattr(site, look)
    with pytest.raises(SealedError, match="sealed"):
        site.inputs(world.learner.model)
    with pytest.raises(SealedError, match="sealed"):
        site.synthetic(3)


class Loot(NamedTuple):
    rows: Rows


@dataclass(frozen=True)
class Hoarder(Method):
    """Says that it keeps nothing, and keeps the rows of everybody."""

    name: ClassVar[str] = "hoarder"
    State: ClassVar[type] = Loot

    def end_site(self, model, lane, site):
        return lane._replace(state=Loot(site.rows))


@dataclass(frozen=True)
class Returner(Method):
    """Keeps the view of the first site and looks at it again at the second."""

    name: ClassVar[str] = "returner"
    seen: ClassVar[list[SiteView]] = []

    def begin_site(self, model, lane, site):
        self.seen.append(site)
        assert self.seen[0].fc.shape[0] > 0
        return lane


def test_a_method_that_hoards_subjects_is_caught():
    world = World.of("finetune", training=QUICK)
    world.learner = Learner(Hoarder(), world.learner.model)
    with pytest.raises(
        SealedError,
        match=r"'hoarder' declares that it keeps nothing but holds \d+ real",
    ):
        world.teach(order()[:1])


def test_a_method_that_comes_back_to_a_past_site_is_stopped():
    Returner.seen.clear()
    world = World.of("finetune", training=QUICK)
    world.learner = Learner(Returner(), world.learner.model)
    world.teach(order()[:1])
    with pytest.raises(SealedError, match=f"site '{order()[0]}'"):
        world.teach(order()[1:2])


@dataclass(frozen=True)
class Everybody(Method):
    """Trains on all rows of the bank, of sites to come as well."""

    name: ClassVar[str] = "everybody"

    def rows(self, lane, site):
        return torch.arange(len(site.bank))


def test_a_method_that_trains_on_other_sites_is_stopped():
    world = World.of("finetune", training=QUICK)
    world.teach(order()[:1])  # puts the first site into the bank
    world.learner = Learner(Everybody(), world.learner.model)
    words = (
        r"'everybody' takes \d+ real subjects in 'rows' that are neither of this site"
    )
    with pytest.raises(SealedError, match=words):
        world.teach(order()[1:2])


@dataclass(frozen=True)
class Launders(Method):
    """Puts real subjects into the bank as synthetic ones."""

    name: ClassVar[str] = "launders"

    def end_site(self, model, lane, site):
        name = PoolName("synthetic", site.name, 0, "train", 1)
        site.bank.add(name, FCBatch(site.fc, site.y))
        return lane


def test_a_method_cannot_add_subjects_to_the_bank():
    world = World.of("finetune", training=QUICK)
    world.learner = Learner(Launders(), world.learner.model)
    words = r"a method adds \d+ subjects to the bank as synthetic ones. Take .*site.synthetic"
    with pytest.raises(SealedError, match=words):
        world.teach(order()[:1])
    assert len(world.bank) == len(world.view(order()[0]).rows)
    world.view(order()[1])  # the bank is open again


@dataclass(frozen=True)
class LaundersPublicSubjects(Method):
    """Puts public subjects into the bank as synthetic ones."""

    name: ClassVar[str] = "launders-public-subjects"
    needs_public: ClassVar[bool] = True

    def start(self, model, lane, public=None):
        name = PoolName("synthetic", "x", 0, "train", 1)
        public.bank.add(name, FCBatch(public.bank.fc(public.rows), public.y))
        return lane


def test_a_method_cannot_add_subjects_at_the_start_either():
    world = World.of("base_model_alone")
    learner = Learner(LaundersPublicSubjects(), world.learner.model)
    with pytest.raises(SealedError, match="to the bank as synthetic ones"):
        start_lane(learner, 0, public=world.public())


def test_only_real_rows_count_as_hoarding():
    bank = Bank()
    real = make_sites(cohort(), 0)[order()[0]].train
    mine = bank.add(PoolName("synthetic", "x", 0, "g:5"), real.select(slice(0, 5)))
    theirs = bank.add(PoolName("real", "x", 0, "train"), real)
    test = bank.add(PoolName("test", "x", 0, "leak"), real)
    empty = torch.full((3,), -1)
    for rows, caught in ((mine, False), (empty, False), (theirs, True), (test, True)):
        lane = Lane({}, {}, Loot(torch.cat([rows, empty])))
        if caught:
            with pytest.raises(SealedError, match="hoarder"):
                check_kept(Hoarder(), lane, bank, "x")
        else:
            check_kept(Hoarder(), lane, bank, "x")


# -- which epoch is kept -----------------------------------------------------------------------
@dataclass(frozen=True)
class Clock(Model):
    """Logits depend on a counter alone: patient is likely in every epoch but `good`."""

    good: int = 2
    name: ClassVar[str] = "clock"

    def init(self, rng):
        return {"w": torch.zeros(1)}

    def prepare(self, fc):
        return {"fc": fc}

    def apply(self, params, stats, inputs, *, train=False, key=None):
        n = inputs["fc"].shape[0]
        right = torch.where(stats["epoch"] == self.good, 1.0, -1.0)
        # the first ROI pair was made to hold the label
        truth = inputs["fc"][:, 0, 1].sign() * right + params["w"].sum() * 0
        return Output(torch.stack([-truth, truth], 1), torch.zeros(n, 1), stats)

    def init_stats(self):
        return {"epoch": torch.tensor(-1)}


@dataclass(frozen=True)
class Ticking(Method):
    name: ClassVar[str] = "ticking"

    def begin_epoch(self, model, lane, bank, key):
        return lane._replace(stats={"epoch": lane.stats["epoch"] + 1})


def labelled(batch: FCBatch, sign: float = 1.0) -> FCBatch:
    fc = batch.fc.clone()
    fc[:, 0, 1] = fc[:, 1, 0] = sign * (2.0 * batch.y - 1.0) * 0.5
    return FCBatch(fc, batch.y)


def epoch_kept(
    training: Training,
    *,
    model: Model = Clock(n_rois=R),
    peek: bool = False,
    val_sign: float = 1.0,
    group: int = 1,
) -> int:
    """Epoch kept by a clock whose every epoch but 2 is wrong about val (and the test)."""
    learner, bank, name = Learner(Ticking(), model), Bank(), order()[0]
    jobs = []
    for seed in range(group):
        made = make_sites(cohort(), seed)[name]
        train = bank.add(PoolName("real", name, seed, "train"), labelled(made.train))
        val = bank.add(
            PoolName("real", name, seed, "val"), labelled(made.val, val_sign)
        )
        view = SiteView(name, 0, bank, train, val)
        test = labelled(made.test)
        seen = (learner.model.prepare(test.fc), test.y) if peek else None
        jobs.append(Job(start_lane(learner, seed), view, seed, (name,), seen))
    lanes = learn_site(learner, jobs, bank, training)
    kept = {int(lane.stats["epoch"]) for lane in lanes}
    assert len(kept) == 1
    return kept.pop()


@pytest.mark.parametrize("group", [1, 3])
def test_the_kept_epoch(group):
    fixed = Training(epochs=5, batch_size=8)
    inner = replace(fixed, selection="inner_val")
    assert epoch_kept(fixed, group=group) == 4
    assert epoch_kept(inner, group=group) == 2
    assert epoch_kept(fixed, peek=True, group=group) == 2
    # val says the opposite: the first of the equally good epochs, and 2 is not among them
    assert epoch_kept(inner, val_sign=-1.0, group=group) == 0
    # the leak looks at the test split, not at val
    assert epoch_kept(inner, peek=True, val_sign=-1.0, group=group) == 2


@dataclass(frozen=True)
class Timid(Clock):
    """Epoch 2 is right about everybody, but hardly; epoch 3 is sure, and wrong about a few."""

    def apply(self, params, stats, inputs, *, train=False, key=None):
        truth = inputs["fc"][:, 0, 1].sign()
        place = torch.arange(len(truth))
        few = torch.where(place % 10 == 0, -1.0, 1.0)
        sure = torch.where(
            stats["epoch"] == 3, 0.5 * few, 0.01 * torch.ones_like(truth)
        )
        logit = (
            torch.where(stats["epoch"] < 2, -truth, truth * sure)
            + params["w"].sum() * 0
        )
        return Output(
            torch.stack([-logit, logit], 1), torch.zeros(len(truth), 1), stats
        )


def test_inner_val_goes_by_loss_and_the_leak_by_accuracy():
    """As the authors' code does: the best test accuracy, not the best test loss."""
    inner = Training(epochs=4, batch_size=8, selection="inner_val")
    assert epoch_kept(inner, model=Timid(n_rois=R)) == 3
    assert epoch_kept(inner, model=Timid(n_rois=R), peek=True) == 2


def test_selection_happens_per_lane():
    """Two lanes of one group keep different epochs."""
    learner, bank, name = Learner(Ticking(), Clock(n_rois=R)), Bank(), order()[0]
    jobs = []
    for seed, sign in ((0, 1.0), (1, -1.0)):
        made = make_sites(cohort(), seed)[name]
        train = bank.add(PoolName("real", name, seed, "train"), labelled(made.train))
        val = bank.add(PoolName("real", name, seed, "val"), labelled(made.val, sign))
        view = SiteView(name, 0, bank, train, val)
        jobs.append(Job(start_lane(learner, seed), view, seed, (name,)))
    training = Training(epochs=4, batch_size=8, selection="inner_val")
    kept = [int(la.stats["epoch"]) for la in learn_site(learner, jobs, bank, training)]
    assert kept == [2, 0]


def test_no_epoch_is_chosen_on_an_empty_validation_part():
    world = World.of("finetune", training=QUICK)
    site = world.view(order()[0])
    nobody = SiteView(site.name, 0, world.bank, site.train, site.val[:0])
    job = Job(world.lane, nobody, 0, (site.name,))
    inner = replace(QUICK, selection="inner_val")
    with pytest.raises(DataError, match="has no validation subject"):
        learn_site(world.learner, [job], world.bank, inner)


def test_every_epoch_ticks_and_none_without_fitting():
    for method, expected in (("finetune", 2), ("analytic", 0), ("majority", 0)):
        world, ticks = World.of(method, training=QUICK), []
        site = world.view(order()[0])
        job = Job(world.lane, site, 0, (site.name,))
        learn_site(
            world.learner, [job], world.bank, QUICK, tick=lambda t=ticks: t.append(1)
        )
        assert len(ticks) == expected


def test_showing_a_site_without_fitting_changes_no_parameter():
    world = World.of("joint", training=QUICK)
    site = world.view(order()[0])
    job = Job(world.lane, site, 0, (site.name,))
    (lane,) = learn_site(world.learner, [job], world.bank, QUICK, fit=False)
    assert_same(lane.params, world.lane.params)
    assert len(lane.state.rows) == len(site.train)


# -- joint -----------------------------------------------------------------------------------------
def test_joint_is_one_training_on_everybody(tmp_path):
    plan = plan_of(run_spec(learner_spec("joint")))
    trainer = run_plan(plan, tmp_path)
    (node,) = [n for n in plan.nodes.values() if n.depth]
    assert node.shown == node.depth
    everybody = sum(
        len(s.learning(with_val=True)) for s in trainer.parts.sites(node.spec).values()
    )
    lane = trainer.load_lane(replace(node, parent=node.key, shown=1))
    assert len(lane.state.rows.unique()) == everybody
    # and it is what cumulative training ends with, had it gone through the sites in that order
    last = plan_of(replace(run_spec(learner_spec("cumulative")), order=node.spec.order))
    run_plan(last, tmp_path / "cumulative")
    end = list(stored_lanes(last, tmp_path / "cumulative").values())[-1]
    whole = stored_lanes(plan, tmp_path)[node.key]
    assert_same(
        {k: v for k, v in whole.items() if k.startswith(("params", "stats"))},
        {k: v for k, v in end.items() if k.startswith(("params", "stats"))},
    )


# -- the test split ----------------------------------------------------------------------------
def poison(monkeypatch) -> None:
    honest = run_parts.make_sites

    def poisoned(*args, **kwargs):
        return {
            name: replace(
                site,
                test=FCBatch(torch.full_like(site.test.fc, torch.nan), 1 - site.test.y),
            )
            for name, site in honest(*args, **kwargs).items()
        }

    monkeypatch.setattr(run_parts, "make_sites", poisoned)


@pytest.mark.parametrize(
    ("method", "selection"),
    [
        ("finetune", "inner_val"),
        ("cumulative", "inner_val"),
        ("joint", "fixed"),
        ("analytic", "fixed"),
        ("forge", "inner_val"),
    ],
)
def test_a_poisoned_test_split_changes_nothing(
    method, selection, tmp_path, monkeypatch
):
    training = replace(QUICK, selection=selection)
    plan = plan_of(run_spec(learner_spec(method), 2, training=training))
    run_plan(plan, tmp_path / "clean")
    poison(monkeypatch)
    run_plan(plan, tmp_path / "dirty")
    clean, dirty = (stored_lanes(plan, tmp_path / x) for x in ("clean", "dirty"))
    for key in clean:
        assert_same(clean[key], dirty[key])
    scores = Store(tmp_path / "dirty").read_scores(list(plan.nodes)[-1])
    assert all(
        (s != s).all() for s in scores.values()
    )  # the poison was there to be read


@pytest.mark.parametrize(
    "leak", ["select_on_test", "generator_sees_test", "context_on_test"]
)
def test_the_poison_shows_where_a_leak_is_on(leak, tmp_path, monkeypatch):
    """The test above can fail: with a leak on, what is learned depends on the test split."""
    training = replace(QUICK, epochs=4, lr=0.03)  # fast enough for accuracies to move
    spec = run_spec(learner_spec("forge"), 3, training=training)
    plan = plan_of(replace(spec, leaks=Leaks(**{leak: True})))
    run_plan(plan, tmp_path / "clean")
    honest = run_parts.make_sites

    def swapped(*args, **kwargs):  # finite poison: generators refuse NaN
        made = honest(*args, **kwargs)
        return {
            n: replace(s, test=FCBatch(s.test.fc.flip(0) * 0.5, 1 - s.test.y))
            for n, s in made.items()
        }

    monkeypatch.setattr(run_parts, "make_sites", swapped)
    run_plan(plan, tmp_path / "dirty")
    clean, dirty = (stored_lanes(plan, tmp_path / x) for x in ("clean", "dirty"))
    same = [
        torch.equal(v, dirty[key][name])
        for key, tensors in clean.items()
        for name, v in tensors.items()
        if isinstance(v, torch.Tensor)
    ]
    assert not all(same)


def test_the_evaluator_scores_every_site_and_every_subject():
    sites = make_sites(cohort(), 0)
    model = make_model(Component("gcn", QUICK_MODELS["gcn"]), R)
    learner = Learner(Method(), model)
    lane = start_lane(learner, 0)
    scores = Evaluator(sites, learner).scores(lane)
    assert list(scores) == list(sites)
    for name, site in sites.items():
        out = model.apply(lane.params, lane.stats, model.prepare(site.test.fc))
        expected = torch.softmax(out.logits, -1)[:, 1].numpy()
        assert scores[name].shape == (len(site.test),)
        assert (scores[name] == expected).all()


# -- minibatches -----------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 200), size=st.integers(1, 64), epochs=st.integers(1, 4))
def test_every_subject_every_epoch(n, size, epochs):
    plan = minibatches(n, size, epochs, torch_rng(0, "x"))
    steps = -(-n // size)
    assert plan.shape[:2] == (epochs, steps)
    assert plan.shape[2] <= size
    for epoch in plan.reshape(epochs, -1):
        counts = torch.bincount(epoch, minlength=n)
        assert len(counts) == n
        assert counts.min() >= 1
        # nobody is wrapped around twice, and never more than one batch's worth is
        assert counts.max() <= 2
        assert int((counts == 2).sum()) == plan[0].numel() - n < steps
    for batch in plan.reshape(-1, plan.shape[2]):
        assert len(batch.unique()) == len(batch)


def test_the_last_batch_wraps_around_to_the_first_subjects():
    plan = minibatches(10, 4, 3, torch_rng(1, "x"))
    assert plan.shape == (3, 3, 4)
    for epoch in plan:
        assert torch.equal(epoch.flatten()[10:], epoch.flatten()[:2])


def test_epochs_differ_and_repeat_by_seed():
    a, b = (minibatches(30, 8, 4, torch_rng(2, "x")) for _ in range(2))
    assert torch.equal(a, b)
    assert not torch.equal(a[0], a[1])
    assert not torch.equal(a, minibatches(30, 8, 4, torch_rng(3, "x")))


def test_a_longer_training_begins_like_a_shorter_one():
    long, short = (minibatches(30, 8, e, torch_rng(2, "x")) for e in (9, 4))
    assert torch.equal(long[:4], short)


def test_scores_are_the_networks_probabilities_of_all_sites():
    world = World.of("finetune").teach(order()[:1])
    sites = make_sites(cohort(), 0)
    found = Evaluator(sites, world.learner).scores(world.lane)
    assert list(found) == list(sites)
    model = world.learner.model
    for name, site in sites.items():
        logits = model.apply(
            world.lane.params, world.lane.stats, model.prepare(site.test.fc)
        ).logits
        expected = torch.sigmoid(logits[:, 1] - logits[:, 0]).numpy()
        np.testing.assert_allclose(found[name], expected, rtol=1e-5)
        assert found[name].dtype == np.float32


def test_peek_hands_out_one_sites_test_split():
    world = World.of("finetune")
    sites = make_sites(cohort(), 0)
    _, y = Evaluator(sites, world.learner).peek(order()[1])
    assert torch.equal(y, sites[order()[1]].test.y)


@pytest.mark.parametrize(
    ("precision", "rounds"), [("tf32", "high"), ("float32", "highest")]
)
def test_precision_is_put_back_whatever_happens(precision, rounds):
    before = torch.get_float32_matmul_precision()
    with contextlib.suppress(ZeroDivisionError), matmul_precision(precision):
        assert torch.get_float32_matmul_precision() == rounds
        _ = 1 / 0
    assert torch.get_float32_matmul_precision() == before
