"""Numbers behind a run's page, by hand."""

import numpy as np
import pytest

from fake_runs import run
from fcforge import stats
from fcforge.report.contents import About, contents, curves, mean_matrix
from fcforge.stats.table import WORDS

BASELINE = WORDS["two classes"].own


def test_the_baseline_is_the_harder_one():
    """A site with two thirds of patients among others without any: naming patients gets 2/3."""
    y = {"A": [1, 1, 0], "B": [0, 0, 0]}
    train = {"A": 2 / 3, "B": 0.0}
    stuck = [0.9, 0.9, 0.9]  # calls everybody a patient
    one = run({"A": [stuck, stuck], "B": [stuck, stuck]}, y, train_mean=train)
    found = contents([one], About(expected=1, n_draws=20))
    there = stats.per_site(found.groups[BASELINE], "accuracy")
    assert there["A"].value == pytest.approx(2 / 3)
    assert there["B"].value == pytest.approx(1.0)
    (difference,) = found.forests["baseline"].values()
    assert difference.difference < 0
    (text,) = [f.text for f in found.findings if "commonest" in f.text]
    assert text.startswith("is below always naming each site's")


def test_curves_by_hand():
    """A alone: all right; then half of A and all of B are, so a half of A is forgotten."""
    y = {"A": [1, 0], "B": [1, 1]}
    one = run({"A": [[0.9, 0.1], [0.9, 0.9]], "B": [[0.1, 0.1], [0.9, 0.9]]}, y)
    accuracy, forgetting = curves([one], n_draws=20)
    assert accuracy.mean == pytest.approx([1.0, 0.75])
    assert forgetting.mean == pytest.approx(
        [np.nan, 0.5], nan_ok=True
    )  # one site: nothing yet
    assert (accuracy.low <= accuracy.mean).all()
    assert (accuracy.mean <= accuracy.high).all()


def test_a_matrix_is_the_mean_over_orders():
    """Right at A, then half right there; the other way round in the turned order."""
    y = {"A": [1, 0], "B": [1, 1]}
    one = run({"A": [[0.9, 0.1], [0.9, 0.9]], "B": [[0.1, 0.1], [0.9, 0.9]]}, y)
    turned = run(
        {"A": [[0.1, 0.9], [0.9, 0.1]], "B": [[0.9, 0.9], [0.9, 0.9]]},
        y,
        order=("B", "A"),
    )
    np.testing.assert_allclose(mean_matrix([one, turned]), [[1.0, 0.0], [0.75, 1.0]])
