"""Tuning: what it tries, what it may see, what it writes."""

import tomllib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeClassifier

import small_world
from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.leaks import Leaks
from fcforge.core.spec import LearnerSpec, Training
from fcforge.data.cohort import write_people
from fcforge.data.datasets import load_dataset
from fcforge.data.splits import make_sites
from fcforge.evaluation import tuning
from fcforge.experiments.config import Experiment, parse_experiment
from fcforge.experiments.execute import Place
from fcforge.experiments.pipelines import read_pipeline
from fcforge.experiments.public_subjects import load_public
from fcforge.methods import METHODS, make_method
from fcforge.models import MODELS

DATA = Component(
    "simulated",
    {"preset": "easy", "n_rois": 12, "n_sites": 3, "scale": 0.15, "seed": 3},
)
QUICK = Component("gcn", small_world.QUICK_MODELS["gcn"])
GRIDS = tomllib.loads(files("fcforge.evaluation").joinpath("grids.toml").read_text())


def experiment(*learners: LearnerSpec) -> Experiment:
    return Experiment(DATA, learners, training=Training(epochs=2, batch_size=8))


def lwf(**params) -> LearnerSpec:
    return LearnerSpec(Component("lwf", params), QUICK)


# -- what it may see ---------------------------------------------------------------------------
def test_no_test_subject_is_handed_over(tmp_path):
    whole = experiment(lwf())
    prepared = tuning.prepare_tuning(whole, tmp_path, repeats=2)
    cohort = load_dataset(DATA)
    sites = make_sites(cohort, 0)
    inner = set(prepared.cohort.subject_id.tolist())
    for name in prepared.cohort.site_names:
        split = sites[name].subject_ids
        assert not inner & set(split["test"])
        assert inner >= {*split["train"], *split["val"]}
    assert len(inner) == sum(
        len(sites[s].train) + len(sites[s].val) for s in prepared.cohort.site_names
    )


def test_no_other_seeds_test_subject_is_handed_over_either(tmp_path):
    data = replace(DATA, params={**DATA.params, "scale": 0.4})
    whole = replace(experiment(lwf()), dataset=data, seeds=(0, 1, 4))
    prepared = tuning.prepare_tuning(whole, tmp_path, repeats=2)
    inner = set(prepared.cohort.subject_id.tolist())
    cohort = load_dataset(data)
    for seed in whole.seeds:
        for name, site in make_sites(cohort, seed).items():
            assert not inner & set(site.subject_ids["test"]), (seed, name)
    with pytest.raises(ConfigError, match="fewer than 5 of a class are left"):
        tuning.prepare_tuning(
            replace(whole, seeds=tuple(range(20))), tmp_path, repeats=2
        )
    with pytest.raises(ConfigError, match="fewer than 5 of a class are left"):
        tuning.prepare_tuning(
            replace(whole, folds=3, seeds=(0, 1, 2)), tmp_path, repeats=2
        )


def test_nobody_of_a_tested_site_is_public_while_tuning(tmp_path):
    """Two orders of two sites leave tested sites over, which "others" must not mean."""
    params = {**DATA.params, "n_sites": 7, "scale": 0.3}
    names = load_dataset(replace(DATA, params=params)).site_names
    data = {**params, "name": "simulated", "sites": list(names[:5])}
    learner = {"method": "replay_ridge", "model": "linear"}

    def tuned(public: object):
        table = {"base_model": {"sites": public}, "dataset": data}
        config = {**table, "learner": [learner]}
        whole = parse_experiment(config, tmp_path / "config.toml")
        return tuning.prepare_tuning(whole, tmp_path, repeats=1)

    prepared = tuned("others")
    assert len(prepared.cohort.site_names) < 5
    assert prepared.experiment.base_model is not None
    public = load_public(prepared.experiment.base_model)
    assert public.site_names == names[5:]
    with pytest.raises(DataError, match="public subjects are among the tested"):
        tuned(list(names[4:]))


def test_tuning_removes_confounds_and_accepts_what_the_config_accepts(tmp_path):
    cohort = load_dataset(DATA)
    path = tmp_path / "people.npz"
    age = 6.0 + np.arange(len(cohort)) % 50
    write_people(path, replace(cohort, covariates={"age": age}), ("age", "mean_fd"))
    config = {
        "dataset": {"name": "folder", "path": str(path), "allow_duplicates": True},
        "confounds": {"remove": ["age"]},
        "learner": [{"method": "replay_ridge", "model": "linear"}],
    }
    whole = parse_experiment(config, tmp_path / "config.toml")
    prepared = tuning.prepare_tuning(whole, tmp_path / "out", repeats=1)
    inner = prepared.cohort
    age_of = dict(zip(cohort.subject_id.tolist(), age.tolist(), strict=True))
    assert inner.covariates["age"].tolist() == [
        age_of[i] for i in inner.subject_id.tolist()
    ]
    assert inner.allow_duplicates
    assert not inner.allow_unlike_sites


def test_a_budget_draws_no_training_setting_that_the_config_states():
    data = {
        "dataset": {"name": "simulated"},
        "training": {"epochs": 100},
        "learner": [{"method": "ewc", "model": dict(name=QUICK.name, **QUICK.params)}],
    }
    experiment = parse_experiment(data, Path("here"))
    stated = tuning.stated_training(experiment)
    assert stated == {"epochs"}
    (learner,) = experiment.learners
    tried = tuning.candidates(learner, 12, stated)
    assert len(tried) == 12
    assert all("epochs" not in candidate.training for candidate in tried)
    assert len({candidate.training["lr"] for candidate in tried}) > 1
    assert any("epochs" in free.training for free in tuning.candidates(learner, 12))


def test_one_budget_for_every_learner():
    for method in ("finetune", "lwf", "ewc", "forge", "cumulative"):
        tried = tuning.candidates(LearnerSpec(Component(method), QUICK), budget=12)
        assert len(tried) == 12
        settings = [repr((t.method.params, t.training)) for t in tried]
        assert len(set(settings)) == 12
        assert tried[0].training == {
            "lr": MODELS["gcn"].lr,
            "weight_decay": 2e-4,
            "epochs": 100,
        }
        assert {t.training["epochs"] for t in tried} <= {50, 100, 200}
    closed = LearnerSpec(Component("replay_ridge"), Component("linear"))
    assert tuning.candidates(closed, budget=12)[0].method.params["penalty"] == 0.5
    assert len(tuning.candidates(closed, budget=12)) == 5
    own = LearnerSpec(Component("finetune"), QUICK, training={"lr": 0.5})
    assert {t.training["lr"] for t in tuning.candidates(own, budget=12)} == {0.5}


def test_only_two_classes_are_tuned(tmp_path):
    cohort = load_dataset(DATA)
    path = tmp_path / "people.npz"
    age = 6.0 + np.arange(len(cohort.y)) % 50
    people = {"fc": cohort.fc, "site": cohort.site, "subject_id": cohort.subject_id}
    np.savez(path, **people, label=cohort.y, age=age)
    of_age = {"path": str(path), "target": "age", "limits": (5, 65)}
    three = {**DATA.params, "disorders": 2, "preset": "realistic"}
    for name, params, kind in (
        ("folder", of_age, "age, number"),
        ("simulated", three, "diagnosis, more classes"),
    ):
        asked = replace(experiment(lwf()), dataset=Component(name, params))
        with pytest.raises(ConfigError, match=kind):
            tuning.prepare_tuning(asked, tmp_path / "out", repeats=1)
    assert not (tmp_path / "out").exists()


def test_two_orders_of_two_sites():
    orders = tuning.first_sites(["A", "B", "C", "D"])
    assert len(set(orders)) == 2
    assert all(len(set(order)) == 2 for order in orders)
    assert orders == tuning.first_sites(["A", "B", "C", "D"])
    assert len(tuning.first_sites(["A", "B"])) == 2
    with pytest.raises(ConfigError, match="two sites"):
        tuning.first_sites(["A"])


def test_leaks_are_off_and_nothing_to_tune_is_said():
    leaky = replace(experiment(lwf()), leaks=Leaks(True, True, True))
    inner = tuning.inner_experiment(leaky, ["A", "B", "C"], 2)
    assert not inner.leaks.active()
    assert inner.test_fraction == leaky.val_fraction
    with pytest.raises(ConfigError, match="anything to tune"):
        tuning.inner_experiment(experiment(lwf(strength=1.0)), ["A", "B"], 2)
    with pytest.raises(ConfigError, match="validation part"):
        tuning.inner_experiment(replace(leaky, val_fraction=0.0), ["A", "B"], 2)


# -- what it chooses ---------------------------------------------------------------------------
def trials(*rows: tuple[float, float]) -> pd.DataFrame:
    """Trials of one learner: AAA and Brier score of each, by strength."""
    found = []
    for k, row in enumerate(rows):
        found.append(("LwF", lwf(strength=k), *row))
    return pd.DataFrame(found, columns=["learner", "candidate", "aaa", "brier"])


def test_best_trial():
    nan, low, high = (np.nan, np.nan), (0.6, 0.2), (0.7, 0.3)
    tied = (0.7, 0.25)
    for rows, best in (
        ([nan, low, high], 2),
        ([low, high, tied], 2),
        ([low, tied, tied], 1),  # the default comes first
        ([nan, low], 1),
        ([nan, nan], 0),
    ):
        found = tuning.best_trials(trials(*rows))
        assert found.index.tolist() == [best]
    both = pd.concat([trials(low, high), trials(tied, nan).assign(learner="A")])
    found = tuning.best_trials(both.reset_index(drop=True))
    assert found["learner"].tolist() == ["LwF", "A"]  # as the config lists them


def test_toml_can_be_read_back():
    learner = LearnerSpec(
        Component("forge", {"l1": 0.2, "sampling": "uniform", "teach_current": False}),
        Component("linear", {"features": "centred"}),
        Component("corr_gauss", {"shrink": 1e-5}),
        title='FORGE "quoted"',
        training={"epochs": 3},
    )
    rows = [(learner.title, learner, 0.7, 0.2)]
    tried = pd.DataFrame(rows, columns=["learner", "candidate", "aaa", "brier"])
    text = tuning.as_toml(tried, ["A > B"], 3)
    data = {**tomllib.loads(text), "dataset": {"name": "simulated"}}
    (read,) = parse_experiment(data, Path("here")).learners
    assert read == learner


def test_an_estimator_has_nothing_to_tune(tmp_path):
    row = {"estimator": RidgeClassifier(), "keeps": "cumulative"}
    learner = read_pipeline(row, "here", tmp_path)
    assert tuning.candidates(learner, budget=5) == []


def test_tune_from_end_to_end(tmp_path):
    learners = (lwf(), LearnerSpec(Component("finetune"), QUICK))
    said = []
    text = tuning.tune(experiment(*learners), tmp_path, Place(), 1, say=said.append)
    assert (tmp_path / "tuned.toml").read_text() == text
    (table,) = tomllib.loads(text)["learner"]  # fine-tuning has nothing to tune
    assert table["method"]["strength"] in (0.1, 0.5, 1.0, 2.0)
    rows = (tmp_path / "trials.csv").read_text().splitlines()
    assert len(rows) == 1 + 4
    assert sum(row.endswith(",1") for row in rows[1:]) == 1
    assert "4 settings" in said[0]
    # the same command again trains nothing and says the same
    assert tuning.tune(experiment(*learners), tmp_path, Place(), 1) == text


# -- grids: settings that exist, beginning with the default -------------------------------------
@pytest.mark.parametrize("name", GRIDS)
def test_grids_hold_settings_that_exist_and_begin_with_the_default(name):
    grid = tuning.grid_of(Component(name))
    plain = make_method(Component(name))
    for settings in grid:
        make_method(Component(name, settings))
    first = make_method(Component(name, grid[0]))
    if name == "forge":
        assert first.weights == plain.weights
    else:
        assert first == plain
    assert len({repr(s) for s in grid}) == len(grid) > 1


def test_every_method_with_a_weight_has_a_grid():
    of_the_paper = {
        "er",
        "der",
        "derpp",
        "ewc",
        "si",
        "lwf",
        "packnet",
        "twp",
        "ugcl",
        "forge",
    }
    assert set(GRIDS) == of_the_paper | {"forge_ridge", "replay_ridge"}
    assert of_the_paper <= set(METHODS)


def test_forge_grid_is_the_papers_around_each_datasets_weights():
    for name, centre in (("asd", (0.2, 0.35, 0.15)), ("mdd", (0.3, 0.3, 0.2))):
        method = Component("forge", {"lambdas": name})
        points = [tuple(s.values()) for s in tuning.grid_of(method)]
        assert points[0] == centre
        assert len(points) == 13


def test_what_the_config_sets_stays():
    free = tuning.candidates(LearnerSpec(Component("derpp", {"memory": 9}), QUICK))
    assert len(free) == 8
    assert all(c.method.params["memory"] == 9 for c in free)
    half = tuning.candidates(LearnerSpec(Component("derpp", {"beta": 0.7}), QUICK))
    assert [c.method.params for c in half] == [
        {"beta": 0.7, "alpha": a} for a in (0.5, 0.1, 0.2, 1.0)
    ]
    ablation = tuning.candidates(LearnerSpec(Component("forge", {"l3": 0.0}), QUICK))
    assert {c.method.params["l3"] for c in ablation} == {0.0}
    fixed = LearnerSpec(Component("ewc", {"strength": 5.0}), QUICK)
    assert tuning.candidates(fixed) == []
