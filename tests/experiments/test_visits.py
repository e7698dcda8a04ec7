"""Sites that return: disjoint portions, one tree, one memory per visit, one report."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.names import with_visits
from fcforge.core.spec import Conditions, RunSpec, Training
from fcforge.data.simulated import simulate
from fcforge.data.splits import make_sites
from fcforge.evaluation.resampling import subject_weights
from fcforge.experiments.collect import collect
from fcforge.experiments.config import Experiment, load_experiment
from fcforge.experiments.plan import make_plan
from fcforge.experiments.run import prepare
from fcforge.experiments.run_keys import run_key
from fcforge.experiments.store import Store
from fcforge.experiments.trainer import Trainer
from fcforge.methods import METHODS
from fcforge.methods.base import Lane
from fcforge.report.methods_text import methods_paragraphs
from real_runs import chain_config, fcforge
from small_world import R, learner_spec, run_spec

TRAINING = Training(epochs=1, batch_size=8)


@cache
def cohort():
    """Three sites with people enough for two visits."""
    return simulate("easy", n_rois=R, n_sites=3, scale=0.3, seed=3)


def order():
    return cohort().site_names


def run_plan(plan, folder):
    trainer = Trainer(cohort(), Store(folder))
    for node in plan.nodes.values():
        trainer.run([node])


def visiting(method="finetune", n_sites=2, reverse=False) -> RunSpec:
    spec = run_spec(learner_spec(method), n_sites, training=TRAINING)
    sites = order()[:n_sites]
    sites = sites[::-1] if reverse else sites
    return replace(spec, visits=2, order=with_visits(sites, 2))


def plan_of(*specs):
    return make_plan(specs, with_visits(cohort().site_names, 2))


def test_visits_share_the_test_subjects_and_no_others():
    whole = make_sites(cohort(), 0)
    cut = make_sites(cohort(), 0, Conditions(visits=2))
    assert list(cut) == list(with_visits(whole, 2))
    for name, site in whole.items():
        first, second = cut[name], cut[f"{name} (visit 2)"]
        for part in ("train", "val"):
            ids = [set(visit.subject_ids[part]) for visit in (first, second)]
            assert not ids[0] & ids[1]
            assert ids[0] | ids[1] == set(site.subject_ids[part])
        assert abs(len(first.train) - len(second.train)) <= 2
        for visit in (first, second):
            assert visit.subject_ids["test"] == site.subject_ids["test"]
            np.testing.assert_array_equal(visit.test.fc, site.test.fc)
            assert set(visit.train.y.tolist()) == {0, 1}
            for part in ("train", "val"):
                places = [
                    site.subject_ids[part].index(i) for i in visit.subject_ids[part]
                ]
                mine = getattr(visit, part)
                np.testing.assert_array_equal(mine.fc, getattr(site, part).fc[places])
    again = make_sites(cohort(), 0, Conditions(visits=2))
    other = make_sites(cohort(), 1, Conditions(visits=2))
    name = next(iter(cut))
    assert again[name].subject_ids == cut[name].subject_ids
    assert other[name].subject_ids != cut[name].subject_ids


def test_more_visits_than_subjects_are_refused():
    with pytest.raises(DataError, match="too few training subjects for 400 visits"):
        make_sites(cohort(), 0, Conditions(visits=400))
    with pytest.raises(ConfigError, match="visits"):
        Conditions(visits=0)


def test_one_visit_keeps_the_key_of_a_run():
    spec = run_spec(learner_spec("finetune"))
    assert run_key(replace(spec, visits=1)) == run_key(spec)
    assert run_key(replace(spec, visits=2)) != run_key(spec)
    stored = {k: v for k, v in spec.to_json().items() if k != "visits"}
    assert RunSpec.from_json(stored) == spec


@pytest.mark.parametrize(
    ("learner", "training", "message"),
    [
        ("forge", Training(), "needs 4"),
        ("finetune", replace(TRAINING, selection="inner_val"), "no validation subject"),
    ],
)
def test_visits_too_small_for_a_learner_are_refused_before_training(
    learner, training, message
):
    spec = learner_spec(learner)
    experiment = Experiment(
        title="visits",
        dataset=Component("simulated"),
        learners=(spec,),
        training=training,
        visits=2,
    )
    prepare(experiment, cohort())
    with pytest.raises(DataError, match=rf"\(visit \d+\)': has .*{message}"):
        prepare(replace(experiment, visits=8), cohort())


@pytest.mark.parametrize("method", ["er", "forge", "cumulative"])
def test_a_shared_prefix_of_visits_is_an_independent_run_bitwise(method, tmp_path):
    specs = [visiting(method), visiting(method, reverse=True)]
    tree = plan_of(*specs)
    run_plan(tree, tmp_path / "tree")
    alone = plan_of(specs[0])
    run_plan(alone, tmp_path / "alone")
    for key in alone.nodes:
        a, b = (Store(tmp_path / x).read_scores(key) for x in ("tree", "alone"))
        assert all(np.array_equal(a[site], b[site]) for site in a)
    (_, keys) = alone.stages[0]
    assert len(keys) == 5
    found = Store(tmp_path / "alone").read_scores(keys[-1])
    site = order()[0]  # one test split, whatever the visit
    np.testing.assert_array_equal(found[site], found[f"{site} (visit 2)"])


def test_memory_and_quotas_grow_by_a_place_with_every_visit(tmp_path):
    plan = plan_of(visiting("forge"))
    nodes = {key: replace(node, continued=True) for key, node in plan.nodes.items()}
    run_plan(replace(plan, nodes=nodes), tmp_path)
    (_, keys) = plan.stages[0]
    state = METHODS["forge"].State
    trainer = Trainer(cohort(), Store(tmp_path))
    for depth in (2, 3):
        node = nodes[keys[depth + 1]]
        lane = trainer.lanes.parent_lane(node)
        assert isinstance(lane, Lane)
        assert isinstance(lane.state, state)
        assert len(lane.state.choice.quota) == depth
        assert sorted(set(lane.state.memory.site.tolist())) == list(range(depth))
        assert all(q > 0 for q in lane.state.choice.quota.tolist())


def test_a_subject_has_one_weight_at_all_visits():
    ids, y = ("a", "b", "c", "d"), np.array([0, 1, 0, 1])
    np.testing.assert_array_equal(
        subject_weights("NYU", ids, y, 9), subject_weights("NYU (visit 2)", ids, y, 9)
    )


def test_visits_from_the_config_to_the_report(tmp_path):
    config = chain_config(tmp_path / "small.toml", "finetune")
    small = ("experiment.visits=2", "experiment.orders=2", "dataset.n_sites=2")
    words = [w for one in (*small, "dataset.n_rois=10") for w in ("--set", one)]
    folder = tmp_path / "run"
    done = fcforge("run", config, "--out", folder, *words, "--jobs", 1, "--log", "csv")
    assert done.code == 0, done.err
    results, asked = collect(Store(folder))
    assert len(results) == asked == 2
    sites = json.loads((folder / "experiment.json").read_text())["sites"]
    assert results[0].sites == with_visits(sites, 2)
    assert len(results[0].spec.order) == 4
    text = methods_paragraphs(results, 100)[0]
    assert "arrived in 2 visits" in text
    assert "2 sites" in text
    tested = sum(len(results[0].y[site]) for site in sites)
    assert f"({tested} test subjects" in text
    assert fcforge("status", folder).code == 0
    assert "(visit 2)" in (folder / "report.html").read_text()
    experiment = load_experiment(config, [*small, "dataset.n_rois=10"])
    assert experiment.visits == 2
    assert prepare(experiment).plan.trainings == 8
