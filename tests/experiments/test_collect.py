"""Results and progress, read from a run's folder as far as it is."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fcforge.core.component import Component
from fcforge.core.errors import StoreError
from fcforge.core.spec import Training
from fcforge.data.cohort import Cohort
from fcforge.data.splits import make_sites
from fcforge.experiments.collect import collect
from fcforge.experiments.config import Experiment
from fcforge.experiments.run import open_store, prepare, run_experiment
from fcforge.experiments.trainer import Trainer
from real_runs import small_experiment
from small_world import cohort, learner_spec, order

ODD = ("Site One", "a/b", "Würzburg · 東京")


def odd_cohort() -> Cohort:
    source = cohort()
    names = dict(zip(order(), ODD, strict=True))
    return replace(source, site=np.array([names[s] for s in source.site.tolist()]))


def odd_experiment(tmp_path) -> Experiment:
    made = odd_cohort()
    path = tmp_path / "odd.npz"
    np.savez(path, fc=made.fc, label=made.y, site=made.site, subject_id=made.subject_id)
    return Experiment(
        Component("folder", {"path": str(path)}),
        (learner_spec("finetune"), learner_spec("forge"), learner_spec("joint")),
        orders=(ODD, ODD[::-1]),
        training=Training(epochs=1, batch_size=16),
    )


def test_half_a_run_is_collected_as_far_as_it_is(tmp_path):
    prepared = prepare(odd_experiment(tmp_path))
    store = open_store(prepared, tmp_path / "run")
    with pytest.raises(StoreError, match="none of the 6 runs"):
        collect(store)
    trainer = Trainer(prepared.cohort, store)
    spec, keys = prepared.plan.stages[0]
    for key in keys:
        trainer.run([prepared.plan.nodes[key]])
    results, asked = collect(store)
    assert [r.spec for r in results] == [spec]
    assert asked == 6


def test_results_are_the_stored_scores_stage_by_stage(tmp_path):
    prepared = prepare(odd_experiment(tmp_path))
    store = open_store(prepared, tmp_path / "run")
    run_experiment(prepared, store, device="cpu", group=1)
    results, _ = collect(store)
    for result, (spec, keys) in zip(results, prepared.plan.stages, strict=True):
        assert result.spec == spec
        for stage, key in enumerate(keys[1:]):
            for site, values in store.read_scores(key).items():
                assert np.array_equal(result.scores[site][stage], values)
    joint = [r for r in results if r.spec.learner.method.name == "joint"]
    for result in joint:  # one network, shown at every stage
        assert all((s == s[0]).all() for s in result.scores.values())


@pytest.mark.parametrize("how", [{"group": 4}, {"jobs": 1}], ids=["lanes", "worker"])
def test_progress_counts_what_was_announced(how, tmp_path):
    """Two orders of two sites: four trainings, and an untrained network that is only scored."""
    prepared, seen = prepare(small_experiment()), []
    store = open_store(prepared, tmp_path)
    run_experiment(
        prepared,
        store,
        **how,
        progress=lambda done, total, what: seen.append((done, total)),
    )
    assert prepared.plan.trainings == 4
    assert seen[0] == (0, 4)
    assert seen[-1] == (4, 4)
    assert seen == sorted(seen)


def test_sites_may_have_any_name_from_data_to_results(tmp_path):
    prepared = prepare(odd_experiment(tmp_path))
    store = open_store(prepared, tmp_path / "run")
    run_experiment(prepared, store, device="cpu", group=2)
    results, asked = collect(store)
    assert len(results) == asked == 6
    sites = make_sites(odd_cohort(), 0)
    for result in results:
        assert sorted(result.sites) == sorted(ODD)
        for name in ODD:
            n = len(sites[name].test)
            assert result.scores[name].shape == (3, n)
            assert result.initial[name].shape == (n,)
            assert result.y[name].tolist() == sites[name].test.y.tolist()
            assert result.subject_ids[name] == sites[name].subject_ids["test"]
            patients = sites[name].learning(with_val=True).y.float().mean()
            assert result.train_mean[name] == pytest.approx(float(patients))
        assert result.seconds.shape == result.memory_bytes.shape == (3,)
        assert result.environment["torch"] == torch.__version__
