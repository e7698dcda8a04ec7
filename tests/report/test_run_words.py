"""What is said of a run: what a reader must know, and what was run, for a paper."""

from dataclasses import replace

import numpy as np

from fake_runs import fake_learner
from fcforge.core.component import Component
from fcforge.core.spec import Leaks, Training
from fcforge.evaluation.comparison import compare
from fcforge.evaluation.majority import with_majority
from fcforge.evaluation.tables import by_learner, results_rows
from fcforge.experiments.site_thresholds import OWN
from fcforge.report.methods_text import methods_paragraphs
from fcforge.report.run_warnings import leaks_on, run_warnings


def texts(results, **kwargs):
    return "\n".join(f"{f.learner}: {f.text}" for f in run_warnings(results, **kwargs))


def test_findings_name_what_is_wrong():
    good = fake_learner("good", skill=1.5)
    assert texts(good, expected=72) == ""
    assert "only 1 seed" in texts(fake_learner("good", seeds=(0,), skill=1.5))
    assert "28 of 100 runs are missing" in texts(good, expected=100)
    stuck = fake_learner("stuck", constant=True)
    assert "stuck: calls everybody the same in 720 of 720" in texts([*good, *stuck])
    assert "good: calls" not in texts([*good, *stuck])
    leaky = fake_learner("leaky", skill=1.5, leaks=Leaks(select_on_test=True))
    assert "leaky: was run with test data leaking in: select_on_test" in texts(
        [*good, *leaky]
    )
    assert leaks_on([*good, *leaky]) == {"leaky": ("select_on_test",)}
    assert "lacks 2 of 72 (order, seed) pairs" in texts([*good, *leaky[2:]])


def test_diverged_runs_are_counted_and_left_out():
    good = fake_learner("x", skill=1.5)
    broken = {s: v.copy() for s, v in good[0].scores.items()}
    broken["UM"][2, 5] = np.nan
    runs = [replace(good[0], scores=broken), *good[1:]]
    assert "1 of 72 runs diverged" in texts(runs)
    row = results_rows(runs, n_draws=20)[2]
    assert (row.n_runs, row.n_left_out) == (71, 1)
    assert np.isfinite(row.estimates["aaa"].value)


def test_worse_than_majority_is_said():
    runs = fake_learner("weak", skill=0.1)
    majority = by_learner(with_majority(runs, own=True))["majority class of each site"]
    c = compare(runs, majority, n_draws=200)
    assert "weak: is below always naming each site's commonest class" in texts(
        runs, against_majority={"weak": c}
    )


# -- methods for a paper ---------------------------------------------------------------------------
def test_what_was_run_is_said():
    runs = fake_learner("mine", seeds=(0, 1))
    run, measured, sure = methods_paragraphs(runs, 500)
    for said in ("4 sites", "24 orders", "2 random seeds", "60 epochs per site"):
        assert said in run
    assert "published learning rate" in run
    assert run.endswith("nothing but the final scores.")
    assert "commonest class of each site's own training part" in measured
    assert "over test subjects (500 draws" in sure


def test_settings_change_the_words():
    found = fake_learner("mine", seeds=(0, 1, 2))
    training = Training(epochs=1, lr=0.01, selection="inner_val")
    said = {"training": training, "leaks": Leaks(select_on_test=True)}
    runs = [replace(r, spec=replace(r.spec, **said)) for r in found]
    run, _, sure = methods_paragraphs(runs, 500)
    assert "learning rate 0.01" in run
    assert "1 epoch per site; the epoch with the lowest loss" in run
    assert "leak in on purpose (select_on_test)" in run
    assert "test subjects and trainings" in sure


def test_a_file_and_own_thresholds_are_said():
    runs = []
    for run in fake_learner("mine") + fake_learner(f"mine{OWN}"):
        data = Component("folder", {"path": "/data/ours.npz"})
        runs.append(replace(run, spec=replace(run.spec, dataset=data)))
    said = methods_paragraphs(runs, 500)[0]
    assert "Data: ours.npz, 4 sites" in said
    assert "1 learner (mine, each also with every site's own threshold" in said


def test_a_finding_is_one_line():
    found = run_warnings(fake_learner("x", seeds=(0,), constant=True))
    assert str(found[0]).startswith("serious: x calls everybody the same")
    assert str(found[1]).startswith("caution: only 1 seed")
