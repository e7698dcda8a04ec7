"""Names in any script, and names that a reader could confuse."""

import pytest

from fcforge.core.names import (
    canonical_name,
    first_look_alikes,
    look_alike,
    name_fault,
    two_spellings,
    unknown_name,
)


@pytest.mark.parametrize(
    "name", ["北京", "Münster", "Łódź", "Αθήνα", "Москва", "서울", "القاهرة", "UM_1"]
)
def test_a_name_may_be_in_any_script(name):
    assert name_fault(canonical_name(name)) == ""


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("NYU|2", "VERTICAL LINE"),
        ("NYU\u202e", "RIGHT-TO-LEFT OVERRIDE"),
        ("NYU\u200b", "ZERO WIDTH SPACE"),
        ("\u3164", "plain spelling"),
        ("--", "neither a letter nor a digit"),
        ("", "0 characters"),
    ],
)
def test_what_no_reader_sees_is_refused(name, fault):
    faults = name_fault(name)
    assert fault in faults


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("NYU", "\u039dYU"),  # Greek Nu
        ("KKI", "\u041a\u041aI"),  # Cyrillic Ka
        ("UM_1", "UM1"),
        ("UCLA1", "UCLAl"),
        ("Lodz", "Łódź"),
        ("SBL5", "SBLS"),
        ("Kern", "Kem"),
        ("NYU", "ɴYU"),  # small capital N
        ("Yale", "Уаӏе"),
        ("KKI", "ККӀ"),
        ("Save", "Ѕаѵе"),
        ("AB", "ΆΒ"),
        ("B3", "ВЗ"),
        ("B6", "вб"),
        ("ロ", "口"),
        ("Istanbul", "ıstanbul"),
    ],
)
def test_confusable_names_are_found(one, other):
    assert look_alike(one, other)
    assert set(first_look_alikes(["USM", one, other])) == {one, other}


@pytest.mark.parametrize(
    ("one", "other"),
    [("NYU", "UM"), ("北京", "南京"), ("1-11", "11-1"), ("UM1", "UM2")],
)
def test_other_names_are_told_apart(one, other):
    assert not look_alike(one, other)
    assert first_look_alikes([one, other]) is None


@pytest.mark.parametrize(
    "other",
    ["nyu", "NYU ", "NYU\u200b", "N\u00adYU", "\ufeffNYU", "NY\ufe0fU", "NYU\u3164"],
)
def test_what_no_reader_sees_makes_no_second_name(other):
    pair = two_spellings(["UM", "NYU", other])
    assert pair.startswith("'NYU' and '")
    shown = pair.removeprefix("'NYU' and ")
    assert shown != "'NYU'", "a reader must see what differs"
    assert shown.isprintable()


@pytest.mark.parametrize(("one", "other"), [("1", "01"), ("0", "00"), ("7", "007")])
def test_leading_zeros_of_a_whole_number_do_not_count(one, other):
    assert two_spellings([one, other]) == ""
    assert first_look_alikes([one, other, "23"]) == tuple(sorted((one, other)))


@pytest.mark.parametrize(
    ("one", "other"), [("1", "10"), ("10", "010x"), ("UM1", "UM01")]
)
def test_other_zeros_count(one, other):
    assert first_look_alikes([one, other]) is None


@pytest.mark.parametrize(
    ("typed", "meant"), [("LR", "lr"), ("ER", "er"), ("gnc", "gcn")]
)
def test_a_name_in_other_case_is_suggested(typed, meant):
    error = unknown_name("setting", typed, ["lr", "er", "gcn", "clip"])
    assert f"Did you mean '{meant}'?" in str(error)
