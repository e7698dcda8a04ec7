"""Sentences about a run: warnings for readers, and a methods text for a paper."""

from dataclasses import replace

import numpy as np

from fake_runs import fake_learner
from fcforge.core.leaks import Leaks
from fcforge.evaluation.comparison import compare
from fcforge.evaluation.majority import with_majority
from fcforge.evaluation.tables import by_learner, results_rows
from fcforge.report.run_warnings import leaks_on, run_warnings


def texts(results, **kwargs):
    return "\n".join(f"{f.learner}: {f.text}" for f in run_warnings(results, **kwargs))


def test_findings_name_what_is_wrong():
    good = fake_learner("good", skill=1.5)
    assert texts(good, expected=72) == ""
    assert "only 1 seed" in texts(fake_learner("good", seeds=(0,), skill=1.5))
    assert "28 of 100 runs are missing" in texts(good, expected=100)
    stuck = fake_learner("stuck", constant=True)
    assert "stuck: predicts a single class in 720 of 720" in texts([*good, *stuck])
    assert "good: predicts a single" not in texts([*good, *stuck])
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
    majority = by_learner(with_majority(runs, per_site=True))[
        "majority class of each site"
    ]
    c = compare(runs, majority, n_draws=200)
    assert "weak: is below always naming each site's commonest class" in texts(
        runs, against_majority={"weak": c}
    )


def test_a_finding_is_one_line():
    found = run_warnings(fake_learner("x", seeds=(0,), constant=True))
    assert str(found[0]).startswith("serious: x predicts a single class")
    assert str(found[1]).startswith("caution: only 1 seed")
