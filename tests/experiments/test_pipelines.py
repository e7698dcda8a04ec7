"""Estimators as rows: trained on what `keeps` allows, never near a test split, refused early."""

import os
import subprocess
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn import config_context
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, FCForgeError
from fcforge.core.spec import Training
from fcforge.core.subjects import FCBatch
from fcforge.data.splits import make_sites
from fcforge.estimator import SiteHarmoniser
from fcforge.experiments.collect import collect
from fcforge.experiments.config import Experiment, load_experiment
from fcforge.experiments.pipelines import (
    Pipeline,
    pipeline_of,
    read_pipeline,
    scores,
    train,
)
from fcforge.experiments.run import Prepared, open_store, prepare, run_experiment
from fcforge.experiments.run_keys import run_key
from fcforge.experiments.store import Store
from fcforge.experiments.timing import estimate
from fcforge.experiments.trainer import Trainer
from fcforge.experiments.traits import Traits, traits_of
from small_world import PUBLIC, cohort, learner_spec, order, plan_of, run_plan, run_spec

HERE = Path(__file__).parent
CONFIG = """
[dataset]
name = "simulated"
preset = "easy"
n_rois = 10
n_sites = 3
scale = 0.12
[experiment]
orders = 2
[training]
epochs = 1
[[learner]]
method = "analytic"
model = "linear"
[[learner]]
title = "logistic"
estimator = "own:logistic"
keeps = "cumulative"
"""
OWN = """
from sklearn.linear_model import LogisticRegression
def logistic():
    return LogisticRegression(C=1.0)
"""


def row(estimator, keeps="cumulative", **more):
    return read_pipeline(
        {"estimator": estimator, "keeps": keeps, **more}, "learner 0", HERE
    )


def spec_of(estimator, keeps="cumulative", **more):
    return run_spec(row(estimator, keeps, **more), 3, training=Training(epochs=1))


def times(k):
    """A function whose closure holds a number."""
    return lambda x: x * k


def run_one(spec, folder, people=None):
    """Scores of the stages of one run."""
    plan = plan_of(spec)
    Trainer(people or cohort(), Store(folder)).run(list(plan.nodes.values()))
    return [Store(folder).read_scores(key) for key in plan.stages[0][1]]


def by_hand(parts):
    x = np.concatenate([edges(p) for p in parts])
    return LogisticRegression().fit(x, np.concatenate([p.y.numpy() for p in parts]))


def edges(batch):
    below = np.tril_indices(batch.n_rois, -1)
    return batch.fc.numpy().astype(float)[:, below[0], below[1]]


@pytest.mark.parametrize("keeps", ["cumulative", "independent"])
def test_each_stage_is_the_estimator_fitted_by_hand(keeps, tmp_path):
    found = run_one(spec_of(LogisticRegression(), keeps), tmp_path)
    sites = make_sites(cohort(), 0)
    for stage in range(1, 4):
        seen = order()[:stage] if keeps == "cumulative" else order()[stage - 1 : stage]
        fitted = by_hand([sites[s].learning(with_val=True) for s in seen])
        for name, site in sites.items():
            wanted = fitted.predict_proba(edges(site.test))[:, 1]
            np.testing.assert_allclose(found[stage][name], wanted, atol=1e-6)
    assert all((p == 0.5).all() for p in found[0].values())  # nobody learned from yet


def test_partial_fit_goes_from_site_to_site(tmp_path):
    found = run_one(spec_of(SGDClassifier(loss="log_loss"), "partial_fit"), tmp_path)
    sites = make_sites(cohort(), 0)
    pipeline = pipeline_of(row(SGDClassifier(loss="log_loss"), "partial_fit"))
    first = sites[order()[0]].learning(with_val=True)
    model = train(pipeline, {order()[0]: first}, 0, order()[:1])
    for stage in (1, 2, 3):
        if stage > 1:
            part = sites[order()[stage - 1]].learning(with_val=True)
            model.partial_fit(edges(part), part.y.numpy())
        for name, site in sites.items():
            assert np.allclose(
                found[stage][name], scores(model, pipeline, site.test, name), atol=1e-6
            )


class Watcher(DummyClassifier):
    """Writes down what it is shown."""

    shown: list[np.ndarray] = []

    def fit(self, x, y, sample_weight=None):
        Watcher.shown.append(np.array(x))
        return super().fit(x, y)


@pytest.mark.parametrize("keeps", ["cumulative", "independent"])
def test_a_poisoned_test_split_changes_no_training(keeps, tmp_path):
    """With test scans and diagnoses replaced, an estimator is shown the very same numbers."""
    clean = cohort()
    tested = np.zeros(len(clean.y), bool)
    ids = {
        i for site in make_sites(clean, 0).values() for i in site.subject_ids["test"]
    }
    tested[[i in ids for i in clean.subject_id.tolist()]] = True
    fc = clean.fc.copy()
    fc[tested] = (fc[tested] + np.eye(fc.shape[-1], dtype=fc.dtype)) / 2
    shown = []
    for name, people in (("clean", clean), ("poisoned", replace(clean, fc=fc))):
        Watcher.shown = []
        run_one(spec_of(Watcher(), keeps), tmp_path / name, people)
        shown.append(Watcher.shown)
    assert all(np.array_equal(a, b) for a, b in zip(*shown, strict=True))
    each = {
        s: len(site.learning(with_val=True)) for s, site in make_sites(clean, 0).items()
    }
    sizes = [each[s] for s in order()]
    if keeps == "cumulative":
        sizes = np.cumsum(sizes).tolist()
    assert sorted(map(len, shown[0])) == sorted(sizes)


def test_public_people_are_learned_from_first(tmp_path):
    spec = replace(spec_of(LogisticRegression(), "independent"), base_model=PUBLIC)
    found = run_one(spec, tmp_path)
    assert any((p != 0.5).any() for p in found[0].values())


def test_matrices_come_whole_and_scores_of_a_decision_function_are_its_logistic():
    class Trace(RidgeClassifier):
        def fit(self, x, y):
            assert x.ndim == 3
            return super().fit(x[:, 0], y)

        def decision_function(self, x):
            return super().decision_function(x[:, 0])

    pipeline = pipeline_of(row(Trace(), input="matrices"))
    batch = make_sites(cohort(), 0)[order()[0]].train
    fitted = train(pipeline, {"a": batch}, 0, order()[:1])
    found = scores(fitted, pipeline, batch, "a")
    plain = fitted.decision_function(batch.fc.numpy().astype(float))
    assert np.allclose(found, 1 / (1 + np.exp(-plain)))
    assert ((found > 0.5) == (plain > 0)).all()


def test_randomness_is_the_seeds_and_a_rerun_agrees():
    sgd = make_pipeline(
        StandardScaler(), SGDClassifier(loss="log_loss", max_iter=3, tol=None)
    )
    pipeline = pipeline_of(row(sgd))
    batch = make_sites(cohort(), 0)[order()[0]].train
    one, same, other = (
        train(pipeline, {"a": batch}, s, ("a",))[-1].coef_ for s in (0, 0, 1)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_site_of_one_class_is_scored_as_never_a_patient():
    pipeline = pipeline_of(row(DummyClassifier()))
    batch = make_sites(cohort(), 0)[order()[0]].train
    controls = batch.select(batch.y == 0)
    fitted = train(pipeline, {"a": controls}, 0, ("a",))
    assert (scores(fitted, pipeline, batch, "a") == 0).all()


class OneNumber(DummyClassifier):
    def predict_proba(self, x):
        return super().predict_proba(x)[:, 0]


def test_probabilities_that_are_not_one_per_class_are_refused():
    batch = make_sites(cohort(), 0)[order()[0]].train
    pipeline = pipeline_of(row(OneNumber()))
    fitted = train(pipeline, {"a": batch}, 0, ("a",))
    with pytest.raises(
        FCForgeError, match=rf"shape \({len(batch)},\).*shape \({len(batch)}, 2\)"
    ):
        scores(fitted, pipeline, batch, "a")


def test_a_config_names_a_function_beside_it_and_other_code_is_another_run(tmp_path):
    (tmp_path / "a.toml").write_text(CONFIG)
    (tmp_path / "own.py").write_text(OWN)
    experiment = load_experiment(tmp_path / "a.toml")
    prepared = prepare(experiment)
    store = open_store(prepared, tmp_path / "run")
    run_experiment(prepared, store, group=1)
    results, asked = collect(store)
    assert len(results) == asked == 4
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "run/nodes").iterdir()}
    again = prepare(Experiment.from_json(experiment.to_json()))
    run_experiment(again, open_store(again, tmp_path / "run"), group=1)
    assert before == {
        p.name: p.stat().st_mtime_ns for p in (tmp_path / "run/nodes").iterdir()
    }
    (tmp_path / "own.py").write_text(OWN.replace("C=1.0", "C=0.5"))
    with pytest.raises(
        FCForgeError, match=r"settings or code \(own.py\) for learner 'logistic'"
    ):
        open_store(prepare(load_experiment(tmp_path / "a.toml")), tmp_path / "run")


def test_the_place_of_a_module_does_not_count():
    learner = row("sklearn.linear_model:LogisticRegression")
    moved = replace(
        learner,
        method=Component("pipeline", {**learner.method.params, "folder": "/elsewhere"}),
    )
    assert run_key(run_spec(learner, 2)) == run_key(run_spec(moved, 2))
    assert run_key(run_spec(row(LogisticRegression(C=2)), 2)) != run_key(
        run_spec(row(LogisticRegression()), 2)
    )


def test_settings_of_every_kind_tell_estimators_apart():
    def keys(*values):
        return {row(LogisticRegression(C=v)).method.params["sha256"] for v in values}

    big = np.zeros(5000)
    other = big.copy()
    other[2500] = 1.0  # numpy prints both alike
    assert (
        len(keys(1.0, 2.0, [1], {"a": 1}, {"a": 2}, big, other, np.sum, np.mean)) == 9
    )
    assert len(keys(lambda x: x + 1, lambda x: x + 2)) == 2
    assert len(keys(lambda x: np.tanh(x), lambda x: np.arctanh(x))) == 2
    assert len(keys(*(lambda x, k=k: x * k for k in (2, 3)))) == 2  # defaults
    assert len(keys(*(times(k) for k in (2, 3)))) == 2  # closures
    assert len(keys(partial(np.clip, a_max=1), partial(np.clip, a_max=2))) == 2
    assert len(keys(big, big.copy())) == 1


NOTEBOOK = """
from sklearn.linear_model import LogisticRegression
SCALE = {scale}
def scaled(X):
    return [[{body} for x in row] for row in X]
class Own(LogisticRegression):
    {attribute}
    def fit(self, X, y):
        return super().fit(scaled(X){inside}, y)
"""


@pytest.mark.parametrize(
    "change",
    [
        {"inside": "[:]"},
        {"scale": 2},
        {"body": "SCALE + x"},
        {"attribute": "power = 2"},
    ],
)
def test_a_class_that_is_defined_anew_is_another_estimator(change):
    """Its name and settings stay the same: what it does has to count."""

    def key(**values):
        usual = {
            "inside": "",
            "scale": 1,
            "body": "SCALE * x",
            "attribute": "power = 1",
        }
        notebook: dict = {"__name__": "__main__"}
        exec(NOTEBOOK.format(**{**usual, **values}), notebook)
        return row(notebook["Own"]()).method.params["sha256"]

    assert key() == key()
    assert key(**change) != key()


def test_the_code_of_an_estimator_is_told_alike_in_every_process():
    """Neither addresses nor the order of sets count, which differ between processes."""
    program = (
        "from sklearn.preprocessing import FunctionTransformer as F\n"
        "from fcforge.experiments.pipelines import _described\n"
        "f = F(lambda X: [(lambda v: v in {'a', 'b', 'c', 'd'})(x) for x in X])\n"
        "print(_described(f))"
    )
    texts = set()
    for seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        texts.add(answer.stdout)
    assert len(texts) == 1
    assert "lambda" in texts.pop()


def test_a_worker_process_finds_the_function_and_the_rows_say_what_is_kept(tmp_path):
    (tmp_path / "a.toml").write_text(CONFIG)
    (tmp_path / "own.py").write_text(OWN)
    prepared = prepare(load_experiment(tmp_path / "a.toml"))
    pipeline = pipeline_of(prepared.experiment.learners[1])
    learner = prepared.experiment.learners[1]
    assert traits_of(learner) == Traits("set", "real subjects")
    assert Experiment.from_json(prepared.experiment.to_json()).learners[1] == learner
    assert isinstance(Pipeline(**asdict(pipeline)).make(), LogisticRegression)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"estimator": "no_such_module_x:f"}, "No module named 'no_such_module_x'"),
        ({"estimator": "sklearn.svm:Nothing"}, "has no attribute 'Nothing'"),
        ({"estimator": "sklearn.svm"}, "handed over|no function"),
        ({"estimator": "builtins:list"}, r"\(list\) cannot fit"),
        ({"estimator": "gc:collect"}, r"\(int\) cannot fit"),
        ({"estimator": "gc:enable"}, r"\(NoneType\) cannot fit"),
        ({"estimator": "sklearn.pipeline:Pipeline"}, "it cannot be made .TypeError"),
        (
            {"estimator": "sklearn.cluster:KMeans"},
            "classifier with predict_proba or decision_function",
        ),
        ({"estimator": LogisticRegression}, r"\(type\) cannot fit"),
        (
            {"estimator": LogisticRegression(), "keeps": "partial_fit"},
            "cannot partial_fit",
        ),
        ({"estimator": LogisticRegression(), "keeps": "all"}, "keeps = 'all'"),
        ({"estimator": LogisticRegression(), "input": "edge"}, "Did you mean 'edges'"),
        (
            {"estimator": LogisticRegression(), "inputs": "edges"},
            "unknown setting 'inputs'",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_any_training(table, message):
    with pytest.raises(ConfigError, match=message):
        read_pipeline({"keeps": "cumulative", **table}, "learner 0", HERE)


def test_keeps_must_be_said():
    with pytest.raises(ConfigError, match=r"keeps = '' is unknown\. Known: cumulative"):
        read_pipeline({"estimator": LogisticRegression()}, "learner 0", HERE)


def test_an_estimator_that_fails_or_gives_nonsense_is_named():
    class Broken(LogisticRegression):
        def predict_proba(self, x):
            return np.full((len(x), 2), np.nan)

    batch = make_sites(cohort(), 0)[order()[0]].train
    bad = FCBatch(batch.fc, batch.y * 0)
    with pytest.raises(FCForgeError, match="sites a > b, seed 0"):
        train(pipeline_of(row(LogisticRegression())), {"a": bad}, 0, ("a", "b"))
    pipeline = pipeline_of(row(Broken()))
    with pytest.raises(FCForgeError, match="not all finite"):
        scores(train(pipeline, {"a": batch}, 0, ("a",)), pipeline, batch, "a")


def test_a_harmoniser_is_told_the_sites_in_training_and_scoring(tmp_path):
    with config_context(enable_metadata_routing=True):
        step = SiteHarmoniser(unseen="estimate").set_fit_request(site=True)
        step.set_transform_request(site=True)
        model = make_pipeline(step, LogisticRegression())
        found = run_one(spec_of(model, site=True), tmp_path)
    sites = make_sites(cohort(), 0)
    parts = {s: sites[s].learning(with_val=True) for s in order()[:2]}
    y = np.concatenate([p.y.numpy() for p in parts.values()])
    names = np.repeat(list(parts), [len(p) for p in parts.values()])
    x = np.concatenate([edges(p) for p in parts.values()])
    harmoniser = SiteHarmoniser(unseen="estimate").fit(x, y, site=names)
    fitted = LogisticRegression().fit(harmoniser.transform(x, site=names), y)
    for name, site in sites.items():  # the third site was not learned
        told = np.repeat(name, len(site.test))
        seen = harmoniser.transform(edges(site.test), site=told)
        wanted = fitted.predict_proba(seen)[:, 1]
        np.testing.assert_allclose(found[2][name], wanted, atol=1e-6)


def test_a_dry_run_times_an_estimator_by_its_subjects(tmp_path):
    plan = plan_of(
        spec_of(LogisticRegression()), spec_of(LogisticRegression(), "independent")
    )
    prepared = Prepared(Experiment(Component("simulated"), ()), cohort(), plan, "")
    cost = estimate(prepared, Store(tmp_path / "run"), 1)
    assert 0 < cost.seconds < 60
    assert cost.disk > 0


def test_ours_and_theirs_train_in_one_plan(tmp_path):
    spec = spec_of(LogisticRegression())
    ours = run_spec(learner_spec("analytic"), 3)
    run_plan(plan_of(spec, ours), tmp_path)
    assert len(list((tmp_path / "nodes").iterdir())) == 8
