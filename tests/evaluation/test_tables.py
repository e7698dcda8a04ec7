"""The table has every column, both majority references, and says what it left out."""

from dataclasses import replace

import numpy as np
import pytest

from fake_runs import KEEPS, fake_experiment, fake_learner, run, two_site_run
from fcforge.core.component import Component
from fcforge.core.errors import DataError
from fcforge.core.spec import LearnerSpec
from fcforge.evaluation.columns import columns_of
from fcforge.evaluation.forgetting import score_matrix, summary
from fcforge.evaluation.majority import majority_result, with_majority
from fcforge.evaluation.tables import results_frame, results_rows


def test_table_has_the_majority_row_and_all_columns():
    df = results_frame(fake_experiment(seeds=(0,)), keeps=KEEPS, n_draws=50)
    assert df.learner[0] == "majority class"
    assert df.aaa[0] == pytest.approx(1 - np.mean(0.4), abs=0.06)
    assert df.learner[1] == "majority class of each site"
    assert list(df.learner[2:]) == list(
        df[2:].sort_values("aaa", ascending=False).learner
    )
    for c in columns_of("two classes"):
        assert {c.key, f"{c.key}_low", f"{c.key}_high", f"{c.key}_sd"} <= set(df)
    at = df.set_index("learner")
    assert at.keeps["cumulative/gcn"] == "real subjects"
    assert at.fm["finetune/gcn"] > at.fm["FORGE/gcn"] > at.fm["cumulative/gcn"]
    assert at.memory_bytes["ewc/gcn"] == 420_000
    assert at.seconds["ewc/gcn"] == 4.0
    assert at.intransigence["cumulative/gcn"] == 0
    assert np.isnan(at.intransigence["analytic ridge"])


def test_majority_is_not_added_twice():
    runs = fake_learner("x", seeds=(0,))
    own = LearnerSpec(Component("majority"), Component("none"), title="mine")
    own_runs = [replace(r, spec=replace(r.spec, learner=own)) for r in runs]
    assert len(with_majority([*runs, *own_runs])) == 48
    assert len(with_majority(runs)) == 48
    with pytest.raises(DataError, match="no finished run"):
        with_majority([])


def test_both_majority_classes_with_their_forgetting():
    """Priors drift: naming the commonest class so far forgets, each site's own does not."""
    y = {"A": np.repeat([0, 1], [14, 6]), "B": np.repeat([0, 1], [6, 34])}
    scores = {s: np.tile(np.linspace(0.1, 0.9, len(v)), (2, 1)) for s, v in y.items()}
    one = run(scores, y, order="AB", train_mean={"A": 0.3, "B": 0.85})
    first, second = results_rows([one], n_draws=5)[:2]
    assert [r.learner for r in (first, second)] == [
        "majority class",
        "majority class of each site",
    ]
    assert first.is_majority
    assert second.is_majority
    assert first.estimates["fm"].value == pytest.approx(0.7 - 0.3)
    assert first.estimates["bacc_fm"].value == pytest.approx(0)
    assert second.estimates["fm"].value == pytest.approx(0)
    assert second.estimates["acc"].value == pytest.approx((0.7 + 0.85) / 2)


def test_forgetting_of_auroc_and_balanced_accuracy_has_its_columns():
    runs = fake_learner("x", forgets=0.4, seeds=(0,))
    row = results_rows(runs, n_draws=5)[-1]
    for key, metric in (("bacc_fm", "balanced_accuracy"), ("auroc_fm", "auroc")):
        expected = np.mean([summary(r, metric)["fm"] for r in runs])
        assert row.estimates[key].value == pytest.approx(expected)
    assert row.estimates["fm_split"].value < row.estimates["fm"].value


# -- other targets ---------------------------------------------------------------------------------
def test_columns_and_baselines_of_a_number():
    """Two sites; the baseline of each says its mean, and has R² 0 where the split keeps it."""
    y = {s: np.array([10.0, 20.0, 30.0]) for s in "AB"}
    said = {s: np.array([[10.0, 20.0, 30.0], [20.0, 20.0, 20.0]]) for s in "AB"}
    one = replace(
        run({s: said[s] for s in "AB"}, {s: [0, 0, 0] for s in "AB"}, order="AB"),
        y=y,
        train_mean=dict.fromkeys("AB", 20.0),
    )
    found = {row.learner: row.estimates for row in results_rows([one], n_draws=20)}
    assert set(found) == {"mean of all sites", "mean of each site", "finetune/gcn"}
    assert found["mean of each site"]["aaa"].value == pytest.approx(0.0)
    learner = found["finetune/gcn"]
    # R² is 1 after A, then 0 at both sites; MAE 0, then 20 / 3
    assert learner["aaa"].value == pytest.approx(0.5)
    assert learner["mae"].value == pytest.approx(10 / 3)
    assert learner["fm"].value == pytest.approx(1.0)


def test_a_metric_of_two_classes_refuses_others():
    even = np.full((3, 3), 1 / 3)
    how = {"initial": {"A": even}, "train_mean": {"A": even[0]}}
    three = run({"A": even[None]}, {"A": [0, 1, 2]}, **how)
    found = {row.learner: row.estimates for row in results_rows([three], n_draws=20)}
    assert found["majority class"]["auroc"].value == pytest.approx(0.5)
    with pytest.raises(DataError, match="Brier score is for two classes"):
        score_matrix(three, "brier")


def test_majority_follows_the_sites_learned_so_far():
    result = two_site_run("AB")
    majority = majority_result(result)
    # After A: .7 -> patients. After A and B: (4 * .7 + 2 * .4) / 6 = .6 -> patients.
    assert majority.scores["B"][:, 0] == pytest.approx([0.7, 0.6])
    majority = majority_result(two_site_run("BA"))
    assert majority.scores["A"][:, 0] == pytest.approx([0.4, 0.6])
    assert score_matrix(majority).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert majority.spec.learner.title == "majority class"
    assert score_matrix(majority, "auroc").tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_own_majority_is_the_same_at_every_stage():
    own = majority_result(two_site_run("AB"), per_site=True)
    assert own.scores["A"][:, 0] == pytest.approx([0.7, 0.7])
    assert own.scores["B"][:, 0] == pytest.approx([0.4, 0.4])
    assert summary(own)["fm"] == 0
