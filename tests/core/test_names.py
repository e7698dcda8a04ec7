"""Names in any script, and names that a reader could confuse."""

import pytest

from fcforge.core.formatting import listed
from fcforge.core.names import (
    canonical_name,
    first_look_alikes,
    look_alike,
    misspelt_pairs,
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


ABIDE = listed(
    "PITT,OLIN,OHSU,SDSU,TRINITY,UM_1,UM_2,USM,YALE,CMU,LEUVEN_1,LEUVEN_2,KKI,NYU,STANFORD,"
    "UCLA_1,UCLA_2,MAX_MUN,CALTECH,SBL"
)
ABIDE_2 = {
    **{
        "ABIDEII-BNI_1": 58,
        "ABIDEII-EMC_1": 54,
        "ABIDEII-ETH_1": 37,
        "ABIDEII-GU_1": 106,
    },
    **{"ABIDEII-IP_1": 56, "ABIDEII-IU_1": 40, "ABIDEII-SU_2": 42, "ABIDEII-TCD_1": 42},
    **{
        "ABIDEII-UCD_1": 32,
        "ABIDEII-USM_1": 33,
        "ABIDEII-UPSM_1": 34,
        "ABIDEII-NYU_1": 78,
    },
}


@pytest.mark.parametrize(
    ("right", "n", "wrong", "m"),
    [
        ("NYU", 172, "NYUU", 1),
        ("NYU", 15, "NYUU", 10),
        ("NYU", 15, "NNYU", 10),
        ("NYU_1", 172, "NYV_1", 2),
        ("Stanford", 25, "stanfrd", 25),
        ("TRINITY", 44, "TRINITI", 30),
        ("UCLA_1", 64, "UCL_1", 3),
    ],
)
def test_names_that_differ_by_one_letter_are_pairs(right, n, wrong, m):
    for names in ({right: n, wrong: m, "PITT": 50}, {"PITT": 50, wrong: m, right: n}):
        (pair,) = misspelt_pairs(names)
        assert set(pair) == {right, wrong}
        assert pair[0] == right or n == m


@pytest.mark.parametrize(
    "names",
    [
        dict.fromkeys(ABIDE, 30) | {"NYU": 172, "CMU": 11},
        ABIDE_2,
        {"Site A": 90, "Site B": 3},
        {"siteA": 90, "siteB": 3},
        {"A": 90, "B": 3, "AA": 2},
        {"S1": 90, "S11": 3, "S2": 3},
        {"北京": 90, "南京": 3},
        {"NYU": 90, "UYN": 3},
        {"nyu": 90, "NYU": 3},  # `two_spellings` reports these
        {"Lodz": 90, "Łodz": 3},  # `first_look_alikes` reports these
    ],
)
def test_names_of_different_sites_are_no_pairs(names):
    assert misspelt_pairs(names) == []


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
