"""A start of public people: the same from rows in any order, and who is unlike them."""

import numpy as np
import pytest
from small_consortium import people, sites, start

from fcforge.consortium.few_start import StartSettings
from fcforge.consortium.public import from_parts, likeness, make_public


def test_likeness_by_hand():
    """Three ROIs: three edges that count and three diagonals that do not."""
    mean = np.array([2.0, 4.0, 6.0, 9.0, 0.0, 9.0])
    scans = np.array([[1.0, 2, 3, 0, 7, 0], [3.0, 2, 1, 9, 0, 9], [5.0, 5, 5, 9, 0, 9]])
    assert likeness(scans, mean).tolist() == pytest.approx([1.0, -1.0, 0.0])


def test_rows_in_any_order_are_the_same_start():
    turned = people().select(np.arange(len(people()))[::-1])
    again = make_public(turned, sites()[:2], (), StartSettings(axes=4))
    assert again.digest == start().digest
    assert (
        make_public(turned, sites()[1:3], (), StartSettings(axes=4)).digest
        != again.digest
    )


def test_arrays_and_papers_are_all_of_it():
    made = start(("age", "sex"))
    read = from_parts(made.tensors(), made.papers)
    assert read.digest == made.digest
    assert read.removes == ("age", "sex")


def test_covariates_that_cannot_be_meant_are_named():
    values = {"age": np.array([20.0, np.nan, 240.0]), "sex": np.array([1.0, 2.0, 1.0])}
    fine, missing, months = start(("age", "sex")).wrong_covariates(values, 3)
    assert fine == ""
    assert missing == "has no age, which the start removes"
    assert months.startswith("its age 240 is far outside the public people's (")
