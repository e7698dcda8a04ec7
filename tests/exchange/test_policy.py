import pytest
from pydantic import ValidationError

from fcforge.errors import ConfigError, DataError, ExchangeError
from fcforge.exchange.policy import Policy

POLICY = Policy(disorder="autism", control="TC", patient="ASD")


@pytest.mark.parametrize(
    "theirs", [("TC", "ASD"), ("tc", "asd"), ("0", "1"), (0, 1), ("control", "patient")]
)
def test_words_that_mean_the_same(theirs):
    POLICY.require_classes(theirs)
    Policy().require_classes(("HC", "MDD"))  # nothing was said


@pytest.mark.parametrize("theirs", [("HC", "MDD"), ("ASD", "TC"), ("1", "0")])
def test_another_disorder_is_refused_by_name(theirs):
    with pytest.raises(DataError) as error:
        POLICY.require_classes(theirs)
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
    "wrong", [{"max_delta": 2.0}, {"most_people": 0}, {"keepers": "us"}]
)
def test_a_policy_has_bounds(wrong):
    with pytest.raises(ValidationError):
        Policy(**wrong)
