"""One spelling and one script per name, and no two that look alike."""

import pytest

from fcforge.errors import ConfigError, ExchangeError
from fcforge.exchange.names import fault, lookalike, require_distinct, site_name

GOOD = (
    "NYU",
    "UM_1",
    "MAX_MUN",
    "Universitätsklinikum Münster",
    "St. John's (North) & Co",
    "Łódź",
    "Νοσοκομείο",
    "НИИ 2",
    "東京ロボ大学",
    "서울대학교",
    "एम्स",
    "7",
)


@pytest.mark.parametrize("name", GOOD)
def test_names_of_real_hospitals_stay_as_they_are(name):
    assert site_name(name) == name
    assert fault(name) == ""


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("NYU ", "NYU"),
        ("\tNYU\u00a0Langone", "NYU Langone"),
        ("ＮＹＵ", "NYU"),
        ("𝐍𝐘𝐔", "NYU"),
        ("Zu\u0308rich", "Zürich"),
    ],
)
def test_what_is_typed_is_folded_and_what_is_written_must_be_folded(typed, name):
    assert site_name(typed) == name
    assert fault(name) == ""
    assert "plain spelling" in fault(typed)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("\u039dYU", "mixes scripts (Greek and Latin)"),
        ("NYU\u0405", "mixes scripts (Cyrillic and Latin)"),
        ("NYU\u202e", "RIGHT-TO-LEFT OVERRIDE"),
        ("N\u200bYU", "ZERO WIDTH SPACE"),
        ("N\u00adYU", "SOFT HYPHEN"),
        ("NYU\ufe0f", "VARIATION SELECTOR"),
        ("N\u034fYU", "GRAPHEME JOINER"),
        ("NYU\u1160", "FILLER"),
        ("NYU\u2800", "BRAILLE"),
        ("שיבא", "HEBREW"),
        ("مستشفى", "ARABIC"),
        ("\u0274yu", "SMALL CAPITAL N"),
        ("NYU\u0661", "ARABIC-INDIC DIGIT"),
        ("NYU\x1b", "U+001B"),
        ("a|b", "VERTICAL LINE"),
        ("<b>", "LESS-THAN"),
        ("", "0 characters"),
        ("-.-", "neither a letter nor a digit"),
        ("N" * 65, "65 characters"),
    ],
)
def test_what_hides_or_mixes_is_refused_and_named(name, why):
    assert why in fault(name)
    with pytest.raises(ConfigError) as told:
        site_name(name)
    assert why in told.value.what
    assert told.value.what.isascii()


@pytest.mark.parametrize(
    "other",
    ["nyu", "Nyu", "NYU.", "(NYU)", "\u039d\u03a5U", "\u039dYU", "NYÜ", "N\u0423U"],
)
def test_lookalikes_of_nyu(other):
    assert lookalike("NYU", other)
    assert lookalike(other, "NYU")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("АВС", "ABC"),
        ("ΟΗΣ", "ΟΗΣ"),
        ("ΝΥ", "νυ"),
        ("UM_1", "UM l"),
        ("H10", "HIO"),
        ("Burn", "Bum"),
        ("Łódź", "lodz"),
        ("Straße", "STRASSE"),
        ("ロ", "口"),
        ("Istanbul", "ıstanbul"),
    ],
)
def test_other_lookalikes(one, other):
    assert lookalike(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("UM_1", "UM_2"), ("1-11", "11-1"), ("S1", "S11"), ("कु", "कि"), ("NYU", "UNY")],
)
def test_different_names_are_different(one, other):
    assert not lookalike(one, other)


def test_two_lookalikes_in_one_file_are_refused_by_name():
    require_distinct(["NYU", "UM", "NYU"])
    with pytest.raises(ExchangeError, match="'NYU' and 'nyu'"):
        require_distinct(["nyu", "UM", "NYU"])
