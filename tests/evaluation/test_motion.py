"""The motion-only baseline: by hand, on simulated sites, and on ABIDE's phenotype table."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fcforge.core.component import Component
from fcforge.core.errors import DataError
from fcforge.core.spec import LearnerSpec
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import load_dataset
from fcforge.data.splits import make_sites
from fcforge.evaluation import motion
from fcforge.evaluation.forgetting import score_matrix
from fcforge.experiments.config import Experiment, load_experiment

DATA = Component(
    "simulated", {"preset": "easy", "n_rois": 8, "n_sites": 3, "scale": 0.3}
)


@cache
def cohort() -> Cohort:
    return load_dataset(DATA)


def experiment() -> Experiment:
    return Experiment(
        DATA, (LearnerSpec(Component("finetune"), Component("linear")),), seeds=(0, 1)
    )


def with_fd(fd: np.ndarray) -> Cohort:
    return replace(cohort(), covariates={"mean_fd": fd})


def test_motion_that_tells_everything_and_motion_that_tells_nothing():
    rng = np.random.default_rng(0)
    noise = rng.uniform(0.9, 1.1, len(cohort()))
    tells = motion.motion_results(
        experiment(), with_fd((0.1 + 0.2 * cohort().y) * noise)
    )
    assert len(tells) == 2 * 6
    assert all(score_matrix(r).min() == 1.0 for r in tells)
    nothing = motion.motion_results(experiment(), with_fd(0.1 * noise))
    assert np.mean([score_matrix(r, "auroc").mean() for r in nothing]) < 0.65


def test_splits_are_the_experiments():
    results = motion.motion_results(experiment(), cohort())
    sites = make_sites(cohort(), 1)
    for r in (r for r in results if r.spec.seed == 1):
        for name, site in sites.items():
            assert r.subject_ids[name] == site.subject_ids["test"]
            assert r.y[name].tolist() == site.test.y.tolist()
            assert r.scores[name].shape == (3, len(site.test))


def test_a_test_subjects_motion_changes_its_own_score_alone():
    results = motion.motion_results(experiment(), cohort())
    site, who = next(iter(results[0].subject_ids.items()))
    fd = cohort().covariates["mean_fd"].copy()
    fd[cohort().subject_id == who[0]] *= 5
    again = motion.motion_results(experiment(), with_fd(fd))
    changed = again[0].scores[site] != results[0].scores[site]
    assert changed[:, 0].all()
    assert not changed[:, 1:].any()


def test_missing_values():
    y = np.array([0, 0, 1, 1, 1])
    fd = np.array([0.1, 0.12, 0.3, np.nan, -9999.0])
    p = motion.fit_scores([(fd, y)], np.array([0.1, 0.3, np.nan, -9999.0]))
    assert p[0] < 0.1 < 0.9 < p[1]
    assert p[2] == p[3]
    assert np.isfinite(p).all()
    one_class = motion.fit_scores(
        [(np.array([0.1, np.nan]), np.array([0, 1]))], np.ones(3)
    )
    np.testing.assert_allclose(one_class, 0.5)
    with pytest.raises(DataError, match=r"gives no mean FD.*dataset.covariates"):
        motion.motion_results(experiment(), replace(cohort(), covariates={}))


def test_abide(shared_data):
    """Patients move more: motion alone beats chance on every seed, and stays a table row."""
    from pathlib import Path

    moved = shared_data / "abide1_aal116_dparsf.npz"
    path = Path(__file__).parents[2] / "paper" / "experiments" / "main_gcn_444.toml"
    asked = load_experiment(path, [f"dataset.covariates={moved}"])
    wanted = replace(asked, seeds=(0,), orders=2)
    with pytest.warns(UserWarning, match="5 subjects .* ROIs without signal"):
        found = {r.learner: r for r in motion.motion_rows(wanted)}
    majority = {"majority class", "majority class of each site"}
    assert found.keys() == {"motion only"} | majority
    assert found["motion only"].estimates["auroc"].value > 0.55
