import json
from datetime import date

import pytest
from exchange_records import key_of
from pydantic import TypeAdapter, ValidationError

from fcforge.core.errors import ConfigError, DataError, ExchangeError
from fcforge.core.names import look_alike, name_fault
from fcforge.core.target import Target
from fcforge_consortium.aggregation.aggregators import card_of
from fcforge_consortium.records.canonical import read_canonical
from fcforge_consortium.records.fields import (
    Closed,
    Count,
    Number,
    PublicKey,
    Rational,
    Sha256,
    Share,
    Signature,
    SiteName,
    Text,
    Time,
    Version,
)
from fcforge_consortium.records.names import require_distinct, site_name
from fcforge_consortium.records.policy import Aggregator, Measured, Policy


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Sha256, "0a" * 32, ["0A" * 32, "0a" * 31, "0a" * 32 + "\n", " " + "0a" * 32]),
        (Signature, "0a" * 64, ["0a " * 64, "0A" * 64, ""]),
        (
            Time,
            "2026-11-16T09:00:00Z",
            ["2026-02-30T09:00:00Z", "2101-01-01T00:00:00Z"],
        ),
        (Version, "2.13.0+cpu", ["", "1.0\n", "x" * 41, "1 0"]),
        (Text, "", ["a\x1b[31m", "x" * 201, "\u202eUYN"]),
        (Rational, "12/5", ["1.5", "-1", "1/0", "01", "1e3", "9" * 41]),
        (Share, 0.5, [1.5, -0.1, float("nan"), "0.5", True]),
        (Number, -3.0, [1e10, float("inf")]),
        (Count, 3, [-1, 10**400, 1.0, "3"]),
    ],
)
def test_every_type_has_bounds(kind, good, bad):
    adapter = TypeAdapter(kind, config=Closed.model_config | {"frozen": None})
    assert adapter.validate_python(good) == good
    for value in bad:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


def test_weak_keys_and_lookalike_names_are_no_fields():
    for kind, bad in ((PublicKey, "01" + "00" * 31), (SiteName, "NYU ")):
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_python(bad)


class Table(Closed):
    a: int
    b: tuple[float, ...] = ()


def test_each_value_has_one_encoding():
    assert read_canonical(TypeAdapter(Table), b'{"a":1,"b":[0.5]}', "it") == Table(
        a=1, b=(0.5,)
    )
    reencoded = [b'{"b":[0.5],"a":1}', b'{"a":1, "b":[]}', b'{"a":1,"b":[1]}']
    for data in [*reencoded, b'{"a":1,"a":1,"b":[]}', b'{"a":1,"b":[5e-1]}']:
        with pytest.raises(ExchangeError, match="not in the canonical form"):
            read_canonical(TypeAdapter(Table), data, "it")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"a":1,"b":[],"c":0}', b'{"a":"1","b":[]}', b"\xff"]
)
def test_what_is_wrong_is_said_with_its_place(data):
    with pytest.raises(ExchangeError) as error:
        read_canonical(TypeAdapter(Table), data, "the table")
    assert "the table cannot be used" in str(error.value)


def test_a_long_value_is_cut_in_the_error():
    with pytest.raises(ExchangeError) as error:
        read_canonical(
            TypeAdapter(Table), json.dumps({"a": "x" * 10**5}).encode(), "it"
        )
    assert "a = 'xxx" in str(error.value)
    assert len(str(error.value)) < 300


def test_deep_json_is_no_traceback():
    with pytest.raises(ExchangeError):
        read_canonical(TypeAdapter(Table), b"[" * 10**5, "it")


GOOD = (
    "NYU",
    "UM_1",
    "MAX_MUN",
    "Universitätsklinikum Münster",
    "St. John's (North) & Co",
    "Hôpital Necker",
    "Łódź",
    "Νοσοκομείο",
    "НИИ 2",
    "北京",
    "東京ロボ大学",
    "서울대학교",
    "एम्स",
    "שיבא",
    "مستشفى ٢",
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
        ("N\u0489YU", "CYRILLIC MILLIONS SIGN"),
        ("NYU\u202e", "RIGHT-TO-LEFT OVERRIDE"),
        ("N\u200bYU", "ZERO WIDTH SPACE"),
        ("N\u00adYU", "SOFT HYPHEN"),
        ("NYU\ufe0f", "VARIATION SELECTOR"),
        ("N\u034fYU", "GRAPHEME JOINER"),
        ("NYU\u1160", "FILLER"),
        ("NYU\u2800", "BRAILLE"),
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


@pytest.mark.parametrize(
    "other",
    [
        *("nyu", "Nyu", "NYU.", "(NYU)", "NYÜ", "ÑýŰ", "\u0274yu"),
        *("\u039d\u03a5U", "\u039dYU", "N\u0423U", "NY\u01b2"),
    ],
)
def test_lookalikes_of_nyu(other):
    assert look_alike("NYU", other)
    assert look_alike(other, "NYU")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("АВС", "ABC"),
        ("AB", "ΆΒ"),
        ("UM_1", "UM l"),
        ("UM1", "UM_1"),
        ("UCLA_5", "UCLA_S"),
        ("UCLA_2", "UCLA-Z"),
        ("NYU Langone", "NYULangone"),
        ("H10", "HIO"),
        ("Burn", "Bum"),
        ("Straße", "STRASSE"),
        ("Istanbul", "\u0130stanbul"),
        ("Istanbul", "ıstanbul"),
        ("ΝΥ", "νυ"),
        ("ロ", "口"),
        ("Yale", "Уаӏе"),
        ("KKI", "ККӀ"),
        ("Yes", "Үеѕ"),
        ("Save", "Ѕаѵе"),
        ("ike", "їке"),
        ("B3", "ВЗ"),
        ("B6", "вб"),
        ("Yale", "Yàlé"),
        ("WU", "vv u".replace(" ", "")),
    ],
)
def test_other_lookalikes(one, other):
    assert look_alike(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("UM_1", "UM_2"),
        ("1-11", "11-1"),
        ("S_1-2", "S_12"),
        ("S5", "S25"),
        ("S1", "S11"),
        ("कु", "कि"),
        ("NYU", "UNY"),
    ],
)
def test_different_names_are_different(one, other):
    assert not look_alike(one, other)


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
    assert site_name(name) == name
    assert look_alike(name, plain)


# -- the policy of an exchange ---------------------------------------------------------------------
POLICY = Policy(disorder="autism", control="TC", patient="ASD")


@pytest.mark.parametrize(
    "theirs", [("TC", "ASD"), ("tc", "asd"), ("0", "1"), (0, 1), ("control", "patient")]
)
def test_words_that_mean_the_same(theirs):
    POLICY.require_target(Target(classes=tuple(map(str, theirs))))
    Policy().require_target(Target(classes=("HC", "MDD")))  # nothing was said


@pytest.mark.parametrize("theirs", [("HC", "MDD"), ("ASD", "TC"), ("1", "0")])
def test_another_disorder_is_refused_by_name(theirs):
    with pytest.raises(DataError) as error:
        POLICY.require_target(Target(classes=tuple(map(str, theirs))))
    assert "autism" in error.value.what
    assert f"'{theirs[1]}'" in error.value.what


def test_people_and_budgets_have_bounds():
    POLICY.require_people(10, 300)
    for n in (9, 301):
        with pytest.raises(DataError, match=f"{n} people"):
            POLICY.require_people(n, 300)
    POLICY.require_budget(8.0, 1e-5)
    for epsilon, delta in ((8.1, 1e-6), (1.0, 0.99), (None, 0.0)):
        with pytest.raises(ConfigError):
            POLICY.require_budget(epsilon, delta)
    Policy(exact_allowed=True).require_budget(None, 0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_delta": 2.0},
        {"most_people": 0},
        {"aggregators": "us"},
        {"patient": "control"},
        {"others": ("BP", "control")},
        {"control": "HC", "patient": "hc"},
        {"control": "HC", "patient": "НС"},  # Cyrillic
        {"others": ("BP",), "number": Measured(name="age", limits=(5.0, 65.0))},
    ],
)
def test_a_policy_has_bounds(wrong):
    with pytest.raises(ValidationError):
        Policy(**wrong)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), date(2020, 1, 1)])
def test_a_setting_that_json_cannot_hold_is_a_config_error(value):
    """TOML has all of them: --set policy.max_epsilon=inf."""
    with pytest.raises(ConfigError, match="the policy holds a value that JSON cannot"):
        Policy.of({"max_epsilon": value})


@pytest.mark.parametrize(
    "target",
    [
        Target("salary", (), (0.0, 1e12)),
        Target(classes=("HC/" * 30, "MDD")),
        Target(classes=("HC", "hc")),
    ],
)
def test_a_target_that_no_policy_can_say_is_a_config_error(target):
    with pytest.raises(ConfigError, match=f"the target '{target.name}' cannot be used"):
        Policy().about(target)


def test_a_sign_can_tell_diagnoses_apart():
    assert Policy(control="MCI-", patient="MCI+").target.classes == ("MCI-", "MCI+")


def test_two_aggregators_who_are_not_one():
    names = ("University", "Ministry", "Third")
    cards = [card_of(name, key_of(name)) for name in names]
    assert Policy.of({}) == Policy()
    assert Policy.of({}, cards[:2]).aggregators == tuple(cards[:2])
    wrong = {
        "one aggregator": cards[:1],
        "at most 2 items": cards,
        "same or look alike": [cards[0], card_of("Ministry", key_of("University"))],
        "'university' are the same": [
            cards[0],
            card_of("university", key_of("Ministry")),
        ],
    }
    for why, named in wrong.items():
        with pytest.raises(ConfigError, match=why):
            Policy.of({}, named)


def test_nobody_puts_an_encryption_key_beside_an_aggregators_key():
    """Whoever made a start could name known aggregators, and keys of his own to encrypt to."""
    card = card_of("University", key_of("University"))
    thief = card_of("University", key_of("thief"))
    said = dict(card)
    for change in (
        {"encryption_key": thief.encryption_key},
        {"encryption_key": thief.encryption_key, "proof": thief.proof},
        {"name": "Ministry"},
    ):
        with pytest.raises(ValidationError, match="encryption key"):
            Aggregator(**{**said, **change})
    assert Aggregator(**said) == card


def test_one_aggregator_under_two_names_is_refused_on_reading_too():
    twice = [card_of(name, key_of("University")) for name in ("University", "Ministry")]
    with pytest.raises(ValidationError, match="same or look alike"):
        Policy(aggregators=tuple(twice))


@pytest.mark.parametrize(
    "wrong",
    [
        {"limits": (65.0, 5.0)},
        {"limits": (0.0, 5e-324)},
        {"name": "diagnosis"},
        *({"name": name} for name in ("subject", "Status", "note", "strangeness")),
    ],
)
def test_a_number_has_limits_that_lie_apart_and_is_no_diagnosis(wrong):
    """Scaled by limits that are one to all purposes, everybody's number would be infinite."""
    with pytest.raises(ValidationError):
        Measured(**{"name": "age", "limits": (5.0, 65.0), **wrong})
