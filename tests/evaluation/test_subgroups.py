"""Groups of test subjects by sex, age and other covariates."""

import json

import pytest
from typer.testing import CliRunner

import fake_runs
from fcforge.cli import app
from fcforge.core.component import Component
from fcforge.core.errors import StoreError
from fcforge.core.spec import LearnerSpec, Training
from fcforge.evaluation.subgroups import subgroup_tables, subgroups_of, subject_groups
from fcforge.experiments.config import Experiment
from fcforge.experiments.run import open_store, prepare, run_experiment
from small_world import cohort

FACTS = {
    "0": {
        "A": {
            "subject_ids": ["a", "b", "c"],
            "covariates": {"sex": [1, 2, 1], "age": [9.0, 12.5, 40.0]},
        },
        "B": {"subject_ids": ["a"], "covariates": {"sex": [2], "age": [float("nan")]}},
    },
    "1": {"A": {"subject_ids": ["d"], "covariates": {"sex": [2], "age": [12.0]}}},
}


def test_groups_by_hand():
    found = subject_groups(FACTS)
    assert found == {
        "sex 1": {("A", "a"), ("A", "c")},
        "sex 2": {("A", "b"), ("B", "a"), ("A", "d")},
        "age up to 12": {("A", "a"), ("A", "d")},
        "age 12 to 18": {("A", "b")},
        "age 18 and more": {("A", "c")},
    }


def test_a_covariate_of_many_values_makes_no_groups():
    many = {
        "subject_ids": list("abcdef"),
        "covariates": {"mean_fd": [1, 2, 3, 4, 5, 6]},
    }
    assert subject_groups({"0": {"A": many}}) == {}


def test_tables_of_groups_by_hand():
    """Of A's two right and one wrong, the wrong one is in the second group."""
    ids = {"A": ("a", "b", "c"), "B": ("a",)}
    y = {"A": [1, 1, 0], "B": [1]}
    scores = {"A": [[0.9, 0.1, 0.2]] * 2, "B": [[0.9]] * 2}
    groups = {"one": {("A", "a"), ("A", "c")}, "two": {("A", "b"), ("B", "a")}}
    share = {"A": 0.7, "B": 0.4}
    b_first = fake_runs.run(scores, y, subject_ids=ids, order="BA", train_mean=share)
    results = [b_first]  # nobody of the first group is at its first site
    accuracy, sensitivity, specificity = subgroup_tables(results, groups)
    row = accuracy.rows["finetune/gcn"]
    assert (row["one"].value, row["two"].value) == (1.0, 0.5)
    assert sensitivity.rows["finetune/gcn"]["two"].value == 0.5
    assert specificity.rows["finetune/gcn"]["one"].value == 1.0
    assert accuracy.columns == ["one", "two"]
    # (1 * .4 + 3 * .7) / 4 are patients: everybody is called one, whatever the group.
    majority = accuracy.rows["majority class"]
    assert (majority["one"].value, majority["two"].value) == (0.5, 1.0)


def test_subgroups_of_a_run_folder(tmp_path):
    learner = LearnerSpec(Component("analytic"), Component("linear"))
    data = Component("simulated", {"n_rois": 12, "n_sites": 2, "scale": 0.15})
    asked = Experiment(data, (learner,), training=Training(epochs=1))
    prepared = prepare(asked)
    known = bool(cohort().covariates.keys() - {"mean_fd"})
    run_experiment(prepared, open_store(prepared, tmp_path / "run"), group=1)
    if not known:
        with pytest.raises(StoreError) as raised:
            subgroups_of(tmp_path / "run")
        assert raised.value.where == str(tmp_path / "run")
    path = tmp_path / "run" / "experiment.json"
    stored = json.loads(path.read_text())
    for sites in stored["site_facts"].values():
        for about in sites.values():
            n = len(about["subject_ids"])
            about["covariates"]["sex"] = [1 + i % 2 for i in range(n)]
    path.write_text(json.dumps(stored))
    shown = CliRunner().invoke(app, ["analyse", "subgroups", str(tmp_path / "run")])
    assert shown.exit_code == 0, shown.output
    assert "sensitivity by group" in shown.output
    assert "sex 2" in shown.output
