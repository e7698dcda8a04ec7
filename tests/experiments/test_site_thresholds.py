"""Each site's own threshold: fitted on training people by models that have not seen them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fake_runs import run
from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.spec import LearnerSpec, Training
from fcforge.core.subjects import FCBatch
from fcforge.data.splits import make_sites
from fcforge.experiments import run_parts
from fcforge.experiments.collect import collect
from fcforge.experiments.config import Experiment, load_experiment
from fcforge.experiments.run import open_store, prepare, run_experiment
from fcforge.experiments.site_thresholds import (
    OWN,
    OWN_FOLDS,
    fit_line,
    fold_of_each,
    log_odds,
    with_own_thresholds,
    without_fold,
)
from small_world import cohort, order

CONFIG = """
[dataset]
name = "simulated"
n_rois = 8
[evaluation]
own_threshold = true
[[learner]]
method = "analytic"
model = "linear"
"""


def site():
    return make_sites(cohort(), 0)[order()[0]]


def test_folds_share_out_everybody_and_both_classes():
    y = np.array([0] * 11 + [1] * 6)
    found = fold_of_each(y, 0, "A", "train")
    assert np.array_equal(found, fold_of_each(y, 0, "A", "train"))
    assert not np.array_equal(found, fold_of_each(y, 1, "A", "train"))
    for label, most in ((0, 3), (1, 2)):
        counts = np.bincount(found[y == label], minlength=OWN_FOLDS)
        assert counts.min() >= 1
        assert counts.max() == most


def test_whoever_is_left_out_is_tested_once_and_the_test_people_are_gone():
    whole = site()
    tested = []
    for fold in range(OWN_FOLDS):
        part = without_fold(whole, fold, 0)
        assert not set(part.subject_ids["train"]) & set(part.subject_ids["test"])
        assert len(part.train) + len(part.val) + len(part.test) == len(
            whole.train
        ) + len(whole.val)
        assert len(part.subject_ids["test"]) == len(part.test)
        tested += part.subject_ids["test"]
    training = [*whole.subject_ids["train"], *whole.subject_ids["val"]]
    assert sorted(tested) == sorted(training)
    assert not set(tested) & set(whole.subject_ids["test"])


def test_scans_diagnoses_and_covariates_stay_with_their_people():
    whole = site()
    age = {part: np.arange(len(getattr(whole, part))) for part in ("train", "val")}
    whole = replace(whole, covariates={k: {"age": v} for k, v in age.items()})
    part = without_fold(whole, 2, 0)
    ids = [*whole.subject_ids["train"], *whole.subject_ids["val"]]
    fc = torch.cat([whole.train.fc, whole.val.fc])
    ages = np.concatenate([age["train"], age["val"]])
    for name in ("train", "val", "test"):
        rows = [ids.index(who) for who in part.subject_ids[name]]
        assert torch.equal(getattr(part, name).fc, fc[rows])
        assert np.array_equal(part.covariates[name]["age"], ages[rows])


def test_the_line_is_found_where_people_are_many():
    rng = np.random.default_rng(0)
    z = rng.normal(size=4000)
    y = rng.random(4000) < 1 / (1 + np.exp(-(0.8 + 2.0 * z)))
    assert fit_line(z, y) == pytest.approx((0.8, 2.0), abs=0.2)
    few = fit_line(np.array([1.0, -1.0]), np.array([1, 0]))  # nothing to correct
    assert few == pytest.approx((0.0, 1.0), abs=0.5)
    assert np.isfinite(log_odds(np.array([0.0, 0.5, 1.0]))).all()


def test_a_shifted_site_is_put_right_by_hand():
    """All scores lie above one half; the training people tell where the middle is."""
    y = np.tile([0, 1], 20)
    p = np.where(y == 1, 0.9, 0.7)
    result = run({"A": [p]}, {"A": y})
    folds = [{"A": p[None, k::OWN_FOLDS]} for k in range(OWN_FOLDS)]
    labels = {"A": [y[k::OWN_FOLDS].tolist() for k in range(OWN_FOLDS)]}
    own = with_own_thresholds(result, folds, labels)
    assert ((own.scores["A"][0] > 0.5) == (y == 1)).all()
    assert own.spec.learner.title == result.spec.learner.title + OWN
    assert (result.scores["A"][0] > 0.5).all()


def small(**more):
    learner = LearnerSpec(Component("analytic"), Component("linear"))
    data = Component("simulated", {"n_rois": 8, "n_sites": 2, "scale": 0.15})
    return Experiment(data, (learner,), training=Training(epochs=1), **more)


def test_a_run_shows_both_and_the_plain_rows_stay_bit_for_bit(tmp_path):
    prepared = prepare(small(own_threshold=True))
    assert len(prepared.plan.runs) == 2
    assert len(prepared.plan.stages) == 2 * (1 + OWN_FOLDS)
    store = open_store(prepared, tmp_path / "own")
    run_experiment(prepared, store, group=1)
    results, asked = collect(store)
    titles = [r.spec.learner.title for r in results]
    assert titles == ["analytic/linear"] * 2 + ["analytic/linear" + OWN] * 2
    assert asked == 4
    plain = prepare(small())
    other = open_store(plain, tmp_path / "plain")
    run_experiment(plain, other, group=1)
    for one, two in zip(results, collect(other)[0], strict=False):
        for name in one.sites:
            np.testing.assert_array_equal(one.scores[name], two.scores[name])


def test_no_test_person_decides_a_threshold(tmp_path, monkeypatch):
    """Other scans and diagnoses of the test people leave all that is fitted as it is."""
    honest = run_parts.make_sites

    def poisoned(*args):
        return {
            name: replace(s, test=FCBatch(s.test.fc * float("nan"), 1 - s.test.y))
            for name, s in honest(*args).items()
        }

    prepared = prepare(small(own_threshold=True))
    stores = []
    for name, split in (("clean", honest), ("dirty", poisoned)):
        monkeypatch.setattr(run_parts, "make_sites", split)
        stores.append(open_store(prepared, tmp_path / name))
        run_experiment(prepared, stores[-1], group=1)
    for spec, keys in prepared.plan.stages:
        for key in keys if spec.left_out is not None else ():
            clean, dirty = (store.read_scores(key) for store in stores)
            for name in clean:
                np.testing.assert_array_equal(clean[name], dirty[name])


def test_the_config_asks_for_it_and_not_under_a_leak(tmp_path):
    path = tmp_path / "e.toml"
    path.write_text(CONFIG)
    assert load_experiment(path).own_threshold
    path.write_text(CONFIG + "[leaks]\nselect_on_test = true\n")
    with pytest.raises(ConfigError) as raised:
        load_experiment(path)
    assert str(path) in raised.value.where
    assert "own_threshold" in raised.value.what
