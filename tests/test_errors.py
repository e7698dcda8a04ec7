"""Errors: what happened, where, what to do; packages that are not installed."""

import pytest

from fcforge.errors import (
    ConfigError,
    DataError,
    at,
    check_names,
    look_up,
    optional,
    unknown_name,
)


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


def test_look_up_and_names_say_what_is_known():
    assert look_up("number", "one", {"one": 1}) == 1
    with pytest.raises(
        ConfigError, match=r"^a.toml: unknown number 'onne'. Did you mean 'one'"
    ):
        look_up("number", "onne", {"one": 1}, where="a.toml")
    check_names("site", ["NYU"], ["NYU", "UM"])
    with pytest.raises(ConfigError, match=r"^unknown site 'NYC'. Did you mean 'NYU'\?"):
        check_names("site", ["NYU", "NYC"], ["NYU", "UM"])
