import pytest
from exchange_records import key_of
from pydantic import ValidationError

from fcforge.errors import ConfigError, DataError, ExchangeError
from fcforge.exchange.keeping.keepers import card_of
from fcforge.exchange.policy import Keeper, Measured, Policy
from fcforge.types import Target

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
    POLICY.require_people(10)
    for n in (9, 10_001):
        with pytest.raises(DataError, match=f"{n} people"):
            POLICY.require_people(n)
    POLICY.require_budget(8.0, 1e-5)
    for epsilon, delta in ((8.1, 1e-6), (1.0, 0.99), (None, 0.0)):
        with pytest.raises(ConfigError):
            POLICY.require_budget(epsilon, delta)
    Policy(exact_allowed=True).require_budget(None, 0.0)


def test_a_keeper_is_known_by_name():
    with pytest.raises(ExchangeError, match="'Ministry' is no keeper"):
        POLICY.keeper("Ministry")


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_delta": 2.0},
        {"most_people": 0},
        {"keepers": "us"},
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


def test_two_keepers_who_are_not_one():
    names = ("University", "Ministry", "Third")
    cards = [card_of(name, key_of(name)) for name in names]
    assert Policy.of({}) == Policy()
    assert Policy.of({}, cards[:2]).keepers == tuple(cards[:2])
    wrong = {
        "one keeper": cards[:1],
        "at most 2 items": cards,
        "one and the same": [cards[0], card_of("Ministry", key_of("University"))],
        "'university' are one": [cards[0], card_of("university", key_of("Ministry"))],
    }
    for why, named in wrong.items():
        with pytest.raises(ConfigError, match=why):
            Policy.of({}, named)


def test_nobody_puts_an_encryption_key_beside_a_keepers_key():
    """Whoever made a start could name known keepers, and keys of his own to encrypt to."""
    card = card_of("University", key_of("University"))
    thief = card_of("University", key_of("thief"))
    said = dict(card)
    for change in (
        {"encryption_key": thief.encryption_key},
        {"encryption_key": thief.encryption_key, "proof": thief.proof},
        {"name": "Ministry"},
    ):
        with pytest.raises(ValidationError, match="encryption key"):
            Keeper(**{**said, **change})
    assert Keeper(**said) == card


def test_one_keeper_under_two_names_is_refused_on_reading_too():
    twice = [card_of(name, key_of("University")) for name in ("University", "Ministry")]
    with pytest.raises(ValidationError, match="one and the same"):
        Policy(keepers=tuple(twice))


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
