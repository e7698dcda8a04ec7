"""Nodes: a shared prefix is an independent run; groups fit the card."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, FCForgeError
from fcforge.core.leaks import Leaks
from fcforge.core.spec import Conditions, LearnerSpec, Training
from fcforge.data.splits import make_sites
from fcforge.experiments.execute import run_lanes
from fcforge.experiments.site_loader import synthetic_name
from fcforge.experiments.store import Store
from fcforge.experiments.trainer import Trainer
from fcforge.experiments.work import Work
from fcforge.methods import METHODS, build_learner
from fcforge.replay.state import named
from small_world import (
    assert_same,
    cohort,
    learner_spec,
    order,
    plan_of,
    run_plan,
    run_spec,
    stored_lanes,
)


@pytest.mark.parametrize(
    "method", ["finetune", "er", "forge", "cumulative", "analytic"]
)
def test_a_shared_prefix_is_an_independent_run_bitwise(method, tmp_path):
    """Every order trained on its own, in a folder and a trainer of its own, gives the tree."""
    base = run_spec(learner_spec(method), training=Training(epochs=1, batch_size=16))
    specs = [replace(base, order=o) for o in permutations(order())]
    tree = plan_of(*specs)
    run_plan(tree, tmp_path / "tree")
    shared = stored_lanes(tree, tmp_path / "tree")
    for i, spec in enumerate(specs[:: 1 if method == "finetune" else 3]):
        alone = plan_of(spec)
        run_plan(alone, tmp_path / str(i))
        for key, tensors in stored_lanes(alone, tmp_path / str(i)).items():
            assert_same(tensors, shared[key])
        for key in alone.nodes:
            mine, theirs = (
                Store(tmp_path / x).read_scores(key) for x in (str(i), "tree")
            )
            assert all(np.array_equal(mine[s], theirs[s]) for s in mine)
    assert len(tree.nodes) < sum(len(plan_of(s).nodes) for s in specs)


def test_orders_and_seeds_are_different_runs(tmp_path):
    base = run_spec(learner_spec("finetune"), 2)
    specs = [base, replace(base, order=base.order[::-1]), replace(base, seed=1)]
    plan = plan_of(*specs)
    run_plan(plan, tmp_path)
    store = Store(tmp_path)
    ends = [store.read_lane(keys[-1]) for _, keys in plan.stages]
    for a, b in ((0, 1), (0, 2)):
        assert any(not torch.equal(ends[a][k], ends[b][k]) for k in ends[a])


def test_a_worker_that_did_other_things_before_writes_the_same_state(tmp_path):
    """Whom a stored node remembers does not depend on the history of its worker."""
    plan = plan_of(run_spec(learner_spec("er"), 3))
    run_plan(plan, tmp_path / "plain")
    other = replace(run_spec(learner_spec("er"), 3), order=order()[::-1])
    both = plan_of(other, run_spec(learner_spec("er"), 3))
    run_plan(both, tmp_path / "mixed")
    mixed = stored_lanes(both, tmp_path / "mixed")
    for key, tensors in stored_lanes(plan, tmp_path / "plain").items():
        assert_same(mixed[key], tensors)


# -- memory, pools, learners -------------------------------------------------------------------
def test_synthetic_subjects_count_no_more_than_their_generator_and_leave_with_the_run(
    tmp_path,
):
    spec = run_spec(learner_spec("forge_ridge", {"candidates": 200, "dev": 10}), 2)
    plan = plan_of(spec)
    trainer = run_plan(plan, tmp_path)
    node = list(plan.nodes.values())[-1]
    state = sum(trainer.parts.loader.state_bytes.values())
    edges = cohort().n_rois * (cohort().n_rois - 1) // 2
    assert len(trainer.parts.loader.state_bytes) == 2
    kept = Store(tmp_path).read_meta(node.key)["memory_bytes"]
    assert state < kept < 2 * 210 * edges * 4
    files = list(trainer.store.generators.glob("subjects-*"))
    assert len(files) == 2
    again = Trainer(cohort(), Store(tmp_path / "again"))
    again.store.generators.mkdir(parents=True)
    for file in files:  # another process reads what this one drew
        (again.store.generators / file.name).write_bytes(file.read_bytes())
    again.run(list(plan.nodes.values())[:2])
    key = list(plan.nodes)[1]
    mine, theirs = (s.read_scores(key) for s in (trainer.store, again.store))
    assert all(np.array_equal(mine[s], theirs[s]) for s in mine)
    Work(plan, trainer.store, lambda *step: None).done([], "")
    assert not list(trainer.store.generators.glob("subjects-*"))


def test_memory_counts_edges_of_remembered_subjects(tmp_path):
    plan = plan_of(run_spec(learner_spec("er", {"memory": 7}), 1))
    trainer = run_plan(plan, tmp_path)
    node = list(plan.nodes.values())[-1]
    lane = trainer.load_lane(replace(node, parent=node.key))
    others = sum(
        v.numel() * v.element_size()
        for k, v in named(lane.state).items()
        if k != "memory.rows"
    )
    edges = cohort().n_rois * (cohort().n_rois - 1) // 2
    assert Store(tmp_path).read_meta(node.key)["memory_bytes"] == 7 * edges * 4 + others
    nothing = plan_of(run_spec(learner_spec("finetune"), 1))
    run_plan(nothing, tmp_path)
    assert Store(tmp_path).read_meta(list(nothing.nodes)[-1])["memory_bytes"] == 0


def test_a_pool_is_named_by_all_that_decides_it():
    spec = run_spec(learner_spec("forge"))
    name = synthetic_name(spec, "A", 5)
    other = LearnerSpec(
        spec.learner.method, spec.learner.model, Component("edge_gauss")
    )
    changed = [
        synthetic_name(spec, "B", 5),
        synthetic_name(spec, "A", 6),
        synthetic_name(replace(spec, seed=1), "A", 5),
        synthetic_name(replace(spec, learner=other), "A", 5),
        synthetic_name(replace(spec, test_fraction=0.4), "A", 5),
        synthetic_name(replace(spec, leaks=Leaks(generator_sees_test=True)), "A", 5),
        synthetic_name(replace(spec, training=Training(selection="inner_val")), "A", 5),
    ]
    assert len({name, *changed}) == 8
    # neither the method nor the order does
    er = replace(spec, learner=replace(spec.learner, method=Component("ewc")), order=())
    assert synthetic_name(er, "A", 5) == name


@pytest.mark.parametrize(
    ("learner", "says"),
    [
        (LearnerSpec(Component("forge"), Component("gcn")), "needs a generator"),
        (LearnerSpec(Component("nope"), Component("gcn")), "unknown method"),
        (LearnerSpec(Component("ewc"), Component("nope")), "unknown model"),
        (
            LearnerSpec(Component("ewc"), Component("gcn"), Component("nope")),
            "unknown generator",
        ),
    ],
)
def test_a_learner_that_cannot_be_built_says_so_before_training(learner, says):
    with pytest.raises(ConfigError, match=says):
        build_learner(learner, 9)


# -- groups of lanes ---------------------------------------------------------------------------
def _small_card(monkeypatch, most: int) -> list[int]:
    """A device that runs out of memory with more than `most` lanes; returns the sizes tried."""
    from fcforge.experiments import trainer as trainer_module

    tried, learn = [], trainer_module.learn_site

    def limited(learner, jobs, *args, **kwargs):
        tried.append(len(jobs))
        if len(jobs) > most:
            raise torch.OutOfMemoryError("no room")
        return learn(learner, jobs, *args, **kwargs)

    monkeypatch.setattr(trainer_module, "learn_site", limited)
    return tried


def _several_seeds():
    base = run_spec(
        learner_spec("finetune"), 1, training=Training(epochs=1, batch_size=16)
    )
    return plan_of(*(replace(base, seed=s) for s in range(5)))


def test_folds_of_unequal_size_do_not_train_together(tmp_path):
    base = run_spec(
        learner_spec("finetune"), 1, training=Training(epochs=1, batch_size=16)
    )
    plan = plan_of(*(replace(base, seed=s, folds=3) for s in range(3)))
    sizes = {
        len(make_sites(cohort(), s, Conditions(folds=3))[base.order[0]].train.y)
        for s in range(3)
    }
    assert len(sizes) > 1
    run_plan(plan, tmp_path / "alone", group=1)
    run_plan(plan, tmp_path / "together", group=3)
    together = stored_lanes(plan, tmp_path / "together")
    for key, tensors in stored_lanes(plan, tmp_path / "alone").items():
        for name in tensors:
            torch.testing.assert_close(
                together[key][name], tensors[name], rtol=1e-4, atol=1e-5
            )


def _sizes_of_groups(monkeypatch) -> list[int]:
    sizes, honest = [], Trainer.learn_group

    def counted(trainer, members):
        sizes.append(len(members))
        honest(trainer, members)

    monkeypatch.setattr(Trainer, "learn_group", counted)
    return sizes


def _assert_close(plan, folder) -> dict:
    together = stored_lanes(plan, folder / "together")
    for key, tensors in stored_lanes(plan, folder / "alone").items():
        assert tensors.keys() == together[key].keys()
        for name, value in tensors.items():
            if name.startswith("params"):
                torch.testing.assert_close(
                    together[key][name], value, rtol=1e-3, atol=1e-4
                )
    return together


def test_learners_that_differ_in_loss_weights_alone_train_together(
    monkeypatch, tmp_path
):
    settings = [{"l1": 0.2}, {"l1": 0.4}, {"l3": 0.0}, {"lambdas": "mdd"}]
    settings += [{"l1": 0.0, "l2": 0.0, "l3": 0.0}, {"replay": 4}]  # other trainings
    forges = [learner_spec("forge", chosen) for chosen in settings]
    titled = [replace(spec, title=f"{i}") for i, spec in enumerate(forges)]
    plan = plan_of(*(run_spec(spec, 2) for spec in titled))
    run_plan(plan, tmp_path / "alone", group=1)
    sizes = _sizes_of_groups(monkeypatch)
    run_plan(plan, tmp_path / "together", group=8)
    assert sorted(sizes) == [1, 1, 1, 1, 4, 4]
    lanes = list(_assert_close(plan, tmp_path).values())
    last = [lane for lane in lanes if len(lane["state/choice.quota"]) == 2]
    heads = [lane["params/conv0.weight"] for lane in last]
    assert len(heads) == 6
    for i, head in enumerate(heads):
        assert not any(torch.equal(head, other) for other in heads[:i])


FACTORS = [name for name, method in METHODS.items() if method.factors]


@pytest.mark.parametrize("method", FACTORS)
def test_every_factor_is_a_lanes_own(method, monkeypatch, tmp_path):
    """Each lane ends as its learner alone, whichever of the factors they differ in."""
    names = METHODS[method].factors
    changed = [{name: 0.7} for name in names]
    chosen = [{}, *changed, dict.fromkeys(names, 0.4)]
    plan = plan_of(*(run_spec(learner_spec(method, one), 2) for one in chosen))
    assert len(plan.runs) == len(chosen)
    run_plan(plan, tmp_path / "alone", group=1)
    sizes = _sizes_of_groups(monkeypatch)
    run_plan(plan, tmp_path / "together", group=8)
    assert sizes == [len(chosen)] * 2
    _assert_close(plan, tmp_path)


def test_a_factor_of_zero_is_another_training_where_a_draw_depends_on_it(tmp_path):
    """DER++ draws once per term."""
    parts = run_plan(plan_of(run_spec(learner_spec("derpp"), 1)), tmp_path).parts

    def alike(**settings):
        return parts.alike(run_spec(learner_spec("derpp", settings)))

    assert alike(beta=0.2) == alike(alpha=0.9) != alike(beta=0.0)


def test_learners_share_a_stage_in_run_lanes(tmp_path):
    learners = [
        replace(learner_spec("ewc", {"strength": s}), title=f"EWC {s}") for s in (1, 9)
    ]
    specs = [run_spec(one, 2) for one in (*learners, learner_spec("finetune"))]
    plan, said = plan_of(*specs), []
    store = Store(tmp_path)
    work = Work(plan, store, lambda done, total, last: said.append((done, last)))
    run_lanes(work, Trainer(cohort(), store, "cpu", 8))
    assert [done for done, last in said if last] == [0, 2, 4, 4, 5, 6]


def test_a_card_too_small_gets_smaller_groups(monkeypatch, tmp_path):
    plan = _several_seeds()
    run_plan(plan, tmp_path / "plain", group=1)
    tried = _small_card(monkeypatch, most=2)
    run_plan(plan, tmp_path / "small", group=5)
    assert tried == [5, 3, 2, 2, 1]
    small = stored_lanes(plan, tmp_path / "small")
    for key, tensors in stored_lanes(plan, tmp_path / "plain").items():
        for name in tensors:
            torch.testing.assert_close(
                small[key][name], tensors[name], rtol=1e-4, atol=1e-5
            )


def test_a_card_too_small_for_one_lane_says_so(monkeypatch, tmp_path):
    _small_card(monkeypatch, most=0)
    with pytest.raises(FCForgeError, match="no memory for a single lane"):
        run_plan(_several_seeds(), tmp_path, group=4)
    assert not any(
        n.depth for n in map(_several_seeds().nodes.get, Store(tmp_path).done())
    )


@pytest.mark.parametrize(("fit", "measured_at"), [(32, [1]), (31, [1, 2])])
def test_memory_is_measured_again_where_it_is_scarce(
    fit, measured_at, monkeypatch, tmp_path
):
    """Groups of two lanes: room for 16 times as many is room at the next site, too."""
    from fcforge.experiments import trainer as trainer_module

    depths = []

    def measured(learner, job, bank, training):
        depths.append(len(job.prefix))
        return fit

    monkeypatch.setattr(trainer_module, "lanes_that_fit", measured)
    base = run_spec(
        learner_spec("finetune"), 2, training=Training(epochs=1, batch_size=16)
    )
    plan = plan_of(*(replace(base, seed=s) for s in range(2)))
    run_plan(plan, tmp_path, group=4)
    assert depths == measured_at


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_groups_are_sized_to_what_the_card_has_free(tmp_path):
    from fcforge.training.capacity import lanes_that_fit

    plan = _several_seeds()
    trainer = Trainer(cohort(), Store(tmp_path), "cuda", 64)
    node = next(n for n in plan.nodes.values() if n.depth == 1)
    trainer.run([n for n in plan.nodes.values() if n.depth == 0])
    job, learner = (
        trainer.parts.job(node.spec, trainer.load_lane(node)),
        trainer.parts.learner(node.spec),
    )
    whole = lanes_that_fit(learner, job, trainer.parts.loader.bank, node.spec.training)
    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(free * 3 // 4, dtype=torch.uint8, device="cuda")
    quarter = lanes_that_fit(
        learner, job, trainer.parts.loader.bank, node.spec.training
    )
    del held
    assert 1 < quarter < whole / 2
