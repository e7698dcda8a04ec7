import json

import pytest
from pydantic import TypeAdapter, ValidationError

from fcforge.errors import ConfigError, ExchangeError
from fcforge.exchange import schema
from fcforge.exchange.schema import lookalike, name_fault, require_distinct, site_name


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (
            schema.Sha256,
            "0a" * 32,
            ["0A" * 32, "0a" * 31, "0a" * 32 + "\n", " " + "0a" * 32],
        ),
        (schema.Signature, "0a" * 64, ["0a " * 64, "0A" * 64, ""]),
        (
            schema.Time,
            "2026-11-16T09:00:00Z",
            ["2026-02-30T09:00:00Z", "2101-01-01T00:00:00Z"],
        ),
        (schema.Version, "2.13.0+cpu", ["", "1.0\n", "x" * 41, "1 0"]),
        (schema.Text, "", ["a\x1b[31m", "x" * 201, "\u202eUYN"]),
        (schema.Rational, "12/5", ["1.5", "-1", "1/0", "01", "1e3", "9" * 41]),
        (schema.Share, 0.5, [1.5, -0.1, float("nan"), "0.5", True]),
        (schema.Number, -3.0, [1e10, float("inf")]),
        (schema.Count, 3, [-1, 10**400, 1.0, "3"]),
    ],
)
def test_every_type_has_bounds(kind, good, bad):
    adapter = TypeAdapter(kind, config=schema.Closed.model_config | {"frozen": None})
    assert adapter.validate_python(good) == good
    for value in bad:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


def test_weak_keys_and_lookalike_names_are_no_fields():
    for kind, bad in ((schema.PublicKey, "01" + "00" * 31), (schema.SiteName, "NYU ")):
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_python(bad)


class Table(schema.Closed):
    a: int
    b: tuple[float, ...] = ()


def test_one_spelling():
    assert schema.read(TypeAdapter(Table), b'{"a":1,"b":[0.5]}', "it") == Table(
        a=1, b=(0.5,)
    )
    respelled = [b'{"b":[0.5],"a":1}', b'{"a":1, "b":[]}', b'{"a":1,"b":[1]}']
    for data in [*respelled, b'{"a":1,"a":1,"b":[]}', b'{"a":1,"b":[5e-1]}']:
        with pytest.raises(ExchangeError, match="is not written as"):
            schema.read(TypeAdapter(Table), data, "it")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"a":1,"b":[],"c":0}', b'{"a":"1","b":[]}', b"\xff"]
)
def test_what_is_wrong_is_said_with_its_place(data):
    with pytest.raises(ExchangeError) as error:
        schema.read(TypeAdapter(Table), data, "the table")
    assert "the table cannot be used" in str(error.value)


def test_a_long_value_is_cut_in_the_error():
    with pytest.raises(ExchangeError) as error:
        schema.read(TypeAdapter(Table), json.dumps({"a": "x" * 10**5}).encode(), "it")
    assert "a = 'xxx" in str(error.value)
    assert len(str(error.value)) < 300


def test_deep_json_is_no_traceback():
    with pytest.raises(ExchangeError):
        schema.read(TypeAdapter(Table), b"[" * 10**5, "it")


GOOD = (
    "NYU",
    "UM_1",
    "MAX_MUN",
    "Universitätsklinikum Münster",
    "St. John's (North) & Co",
    "Hôpital Necker",
    "7",
)


@pytest.mark.parametrize("name", GOOD)
def test_names_of_real_hospitals_stay_as_they_are(name):
    assert site_name(name) == name
    assert name_fault(name) == ""


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
    assert name_fault(name) == ""
    assert "plain spelling" in name_fault(typed)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("\u039dYU", "GREEK CAPITAL LETTER NU"),
        ("NYU\u0405", "CYRILLIC CAPITAL LETTER DZE"),
        ("Уаӏе", "CYRILLIC CAPITAL LETTER U"),
        ("ККӀ", "CYRILLIC CAPITAL LETTER KA"),
        ("東京大学", "CJK"),
        ("N\u0489YU", "CYRILLIC MILLIONS SIGN"),
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
    assert why in name_fault(name)
    with pytest.raises(ConfigError) as told:
        site_name(name)
    assert why in told.value.what
    assert told.value.what.isascii()


@pytest.mark.parametrize("other", ["nyu", "Nyu", "NYU.", "(NYU)", "NYÜ", "ÑýŰ"])
def test_lookalikes_of_nyu(other):
    assert lookalike("NYU", other)
    assert lookalike(other, "NYU")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("АВС", "ABC"),
        ("AB", "ΆΒ"),
        ("UM_1", "UM l"),
        ("H10", "HIO"),
        ("Burn", "Bum"),
        ("Straße", "STRASSE"),
        ("Istanbul", "\u0130stanbul"),
        ("Yale", "Yàlé"),
        ("WU", "vv u".replace(" ", "")),
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


@pytest.mark.parametrize(
    ("name", "plain"),
    [("Łódź", "Lodz"), ("Tromsø", "Tromso"), ("Gießen", "Giessen"), ("Ærǿ", "Aero")],
)
def test_letters_of_latin_alphabets_are_letters(name, plain):
    """A hospital writes its town as it is written; its plain spelling looks the same."""
    assert schema.site_name(name) == name
    assert schema.lookalike(name, plain)


@pytest.mark.parametrize("name", ["Yalе", "NYƲ", "ꝉ", "ƛ", "ƻ", "Þ", "\u0131"])
def test_other_letters_are_refused(name):
    with pytest.raises(ConfigError, match="holds"):
        schema.site_name(name)
