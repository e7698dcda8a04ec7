"""Zero-shot and leave-one-site-out values, and calibration, from stored scores."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import fake_runs
from fcforge.cli import app
from fcforge.core.component import Component
from fcforge.core.errors import StoreError
from fcforge.core.spec import LearnerSpec, Training
from fcforge.evaluation.calibration import calibration_tables
from fcforge.evaluation.forgetting import score_matrix
from fcforge.evaluation.unseen import (
    NEW_SITE,
    leave_one_out,
    unseen_of,
    unseen_tables,
    zero_shot,
)
from fcforge.experiments.config import Experiment
from fcforge.experiments.run import open_store, prepare, run_experiment
from fcforge.report.run_page import report_folder
from fcforge.report.tables import interval_table


def test_zero_shot_by_hand():
    full = np.array(
        [[0.5, 0.5, 0.5], [0.9, 0.6, 0.4], [0.8, 0.9, 0.7], [0.7, 0.8, 0.9]]
    )
    np.testing.assert_allclose(zero_shot(full), [0.5, 0.5, 0.7])


def test_after_k_sites_is_the_upper_triangle():
    runs = fake_runs.fake_learner("a", skill=2.0, seeds=(0, 1))
    found = list(unseen_tables(runs)[0].rows["a"].values())
    matrices = np.stack([score_matrix(r) for r in runs])
    for k in (1, 2, 3):
        assert found[k - 1].value == pytest.approx(matrices[:, k - 1, k:].mean())
        assert found[k - 1].low < found[k - 1].value < found[k - 1].high
    assert len(found) == 3


def test_leave_one_out_takes_the_stage_before():
    y = {"A": [0, 1], "B": [0, 1, 1, 0]}
    scores = {
        "A": [[0.1, 0.9], [0.9, 0.1]],
        "B": [[0.1, 0.9, 0.9, 0.9], [0.1, 0.9, 0.9, 0.1]],
    }
    forth = fake_runs.run(scores, y, order=("A", "B"))
    back = fake_runs.run(
        {"A": [[0.9, 0.9], [0.1, 0.9]], "B": scores["B"]}, y, order=("B", "A")
    )
    found = leave_one_out([forth, back])
    assert found["B"].value == pytest.approx(0.75)
    assert found["A"].value == pytest.approx(0.5)
    assert leave_one_out([forth]).keys() == {"B"}


def test_tables_name_every_learner_and_the_majority():
    results = fake_runs.fake_experiment(seeds=(0,))
    curve, sites = unseen_tables(results)
    assert curve.columns == ["after 1 site", "after 2 sites", "after 3 sites"]
    assert sites.columns == [*fake_runs.SITES, NEW_SITE]
    further = sites.rows["finetune/gcn"][NEW_SITE]
    assert further.low < further.value < further.high
    assert "majority class" in curve.rows
    assert len(curve.rows) == 7
    assert "| finetune/gcn | 0." in interval_table(curve).markdown()
    brier, ece, curve, decisions = calibration_tables(results)
    assert curve.columns[0] == "0 to 0.2"
    assert next(iter(decisions.rows)) == "everybody treated"
    constant = brier.rows["stuck/gcn"]["NYU"].value  # says 0.2 of everybody
    y = next(r for r in results if r.spec.learner.title == "stuck/gcn").y["NYU"]
    assert constant == pytest.approx(np.mean((0.2 - y) ** 2))
    assert ece.rows["stuck/gcn"]["NYU"].value == pytest.approx(
        abs(0.2 - y.mean()), abs=1e-6
    )


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unseen") / "run"
    learner = LearnerSpec(Component("analytic"), Component("linear"))
    data = Component(
        "simulated", {"preset": "easy", "n_rois": 12, "n_sites": 3, "scale": 0.15}
    )
    prepared = prepare(Experiment(data, (learner,), training=Training(epochs=1)))
    store = open_store(prepared, folder)
    with pytest.raises(StoreError, match="none of the 6 runs"):
        unseen_of(folder)
    run_experiment(prepared, store, group=1)
    return folder


def test_commands_on_a_run_folder(run_folder):
    runner = CliRunner()
    shown = runner.invoke(app, ["analyse", "unseen", str(run_folder)])
    assert shown.exit_code == 0, shown.output
    assert "| analytic/linear | " in shown.output
    assert "Leave-one-site-out accuracy" in shown.output
    machine = runner.invoke(
        app, ["analyse", "unseen", str(run_folder), "--metric", "auroc", "--json"]
    )
    tables = json.loads(machine.output)
    assert len(tables) == 2
    first = next(iter(tables.values()))
    assert 0 <= first["analytic/linear"]["after 2 sites"]["mean"] <= 1
    shown = runner.invoke(app, ["analyse", "calibration", str(run_folder)])
    assert shown.exit_code == 0, shown.output
    assert "Brier score per site" in shown.output
    assert "ECE per site" in shown.output
    assert report_folder(run_folder, run_folder / "r.html")
