"""Numbers behind a run's page, by hand."""

import numpy as np
import pytest

from fake_runs import run
from fcforge.report.contents import curves, since_learned


def test_accuracy_since_a_site_was_learned():
    """Two orders of two sites; A is right with 1, then 1/2; B with 0 before, 1 when learned."""
    y = {"A": [1, 0], "B": [1, 1]}
    first = run({"A": [[0.9, 0.1], [0.9, 0.9]], "B": [[0.1, 0.1], [0.9, 0.9]]}, y)
    turned = run(
        {"A": [[0.1, 0.9], [0.9, 0.1]], "B": [[0.9, 0.9], [0.9, 0.1]]},
        y,
        order=("B", "A"),
    )
    found = since_learned([first, turned])
    assert found["A"] == pytest.approx(
        [0.0, 1.0, 0.5]
    )  # before, when learned, after one more
    assert found["B"] == pytest.approx([0.0, 1.0, 0.5])


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
