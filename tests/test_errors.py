"""Errors: what happened, where, what to do; packages that are not installed."""

import pytest

from fcforge.errors import DataError, at, optional, unknown_name


def test_an_outer_place_stands_before_the_inner_one_and_advice_is_kept():
    with pytest.raises(DataError) as caught, at("folder", do="Ask again."), at("file"):
        raise DataError("is damaged.")
    assert caught.value.where == "folder: file"
    assert caught.value.do == "Ask again."


def test_a_missing_package_is_named_with_the_extra_that_brings_it():
    with pytest.raises(DataError, match="nosuchpackage") as caught:
        optional("nosuchpackage.part", "train", DataError)
    assert "[train]" in caught.value.do


def test_an_installed_package_is_handed_over():
    assert optional("json", "train").loads("[1]") == [1]


def test_long_lists_of_names_are_cut():
    known = [f"subject-{i}" for i in range(100)]
    error = unknown_name("subject", "subject-x", known)
    assert "60 more" in error.do
    assert error.do.count(",") < 50
