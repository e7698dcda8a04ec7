"""Errors: what happened, where, what to do. Numbers and foreign text, worked out by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcforge.core.errors import ConfigError, DataError, at, optional
from fcforge.core.formatting import (
    bracket,
    counted,
    duration,
    memory,
    no_formula,
    number,
    p_value,
    percent,
    printable,
    with_interval,
)
from fcforge.core.names import check_names, look_up, unknown_name


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


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("NYU\x1b[2J", "NYU?[2J"),
        ("a\u202eb", "a?b"),  # right-to-left override
        ("a\u2066b\u2069", "a?b?"),  # isolates
        ("pay\u200bpal", "pay?pal"),  # zero width
        ("a\ufeffb\u00adc", "a?b?c"),
        ("\ud800", "?"),
        ("line\nbreak\r\t", "line?break??"),
        ("a\u00a0b\u2003c", "a b c"),
        ("Zürich – Nîmes 北京", "Zürich – Nîmes 北京"),
    ],
)
def test_what_cannot_be_seen_is_shown_as_a_question_mark(raw, shown):
    assert printable(raw) == shown


@given(st.text())
def test_printable_text_is_printable_and_stays_as_it_is(text):
    once = printable(text)
    assert once.isprintable()
    assert printable(once) == once
    assert len(once) == len(text)


def test_errors_cannot_drive_a_terminal():
    error = DataError("bad \x1b[31m", where="sub\u202e-1", do="go\non")
    assert str(error) == "sub?-1: bad ?[31m go\non"


@pytest.mark.parametrize(
    "cell", ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "\uff1d1", "\uff20x"]
)
def test_a_spreadsheet_runs_no_cell(cell):
    assert no_formula(cell) == f"'{cell}"
    assert no_formula("NYU") == "NYU"
    assert no_formula("") == ""


def test_numbers():
    assert number(-0.0004) == "0.000"
    assert number(-0.25, 2) == "\N{MINUS SIGN}0.25"
    assert number(0.5, 1, sign=True) == "+0.5"
    assert number(math.nan) == "n/a"
    assert bracket(math.nan, 1.0) == ""
    assert bracket(0.12345, 1, digits=1) == "[0.1, 1.0]"
    assert with_interval(0.5, 0.4, 0.6) == "0.500 [0.400, 0.600]"
    assert with_interval(0.5, math.nan, 0.6) == "0.500"
    assert p_value(1 / 1001) == "≤ 0.001"
    assert p_value(0.0421) == "0.042"
    assert p_value(15 / 501, at_floor=True) == "≤ 0.030"
    assert p_value(0.0421, at_floor=True) == "≤ 0.043"
    assert (percent(0.627), percent(0.5, 0), percent(None)) == ("62.7 %", "50 %", "n/a")
    for noise in (-1e-15, 0.0, 1e-15):  # machines differ in the last bit, tables do not
        assert number(0.6435 + noise) == number(0.6435)


def test_units_a_person_would_say():
    sizes = [memory(x) for x in (0, 16, 178_000, 18_800_000, 2e9)]
    assert sizes == ["0", "16 B", "178 kB", "18.8 MB", "2 GB"]
    assert [duration(x) for x in (0, 4, 600, 9000)] == ["0", "4 s", "10 min", "2.5 h"]
    assert [counted(n, "site") for n in (0, 1, 2)] == ["0 sites", "1 site", "2 sites"]
