"""Requests: every option once; what Python gives is checked as the command line checks it."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import pytest

from fcforge.core.errors import ConfigError
from fcforge.core.options import Request, option
from fcforge.core.settings import at_least, limits, within
from fcforge.imaging.options import FCRequest, PreprocessRequest
from fcforge_consortium.options import (
    AuditRequest,
    ChainContinueRequest,
    ContributeRequest,
    PredictRequest,
)
from fcforge_consortium.privacy.noise import DELTA, EPSILON

REQUESTS = (
    AuditRequest,
    ChainContinueRequest,
    ContributeRequest,
    FCRequest,
    PredictRequest,
    PreprocessRequest,
)
FILES = (Path("a.npz"), Path("a.fcx"))


@limits(portions=within(1, 9), spice=at_least(0))
@dataclass(frozen=True)
class Order(Request):
    dish: str = option(help="What to cook.")
    size: Literal["small", "large"] = option("small", "How much.")
    portions: int = option(1, "How many.")
    spice: float | None = option(None, "How hot.")
    extras: list[str] = option([], "What else; may be repeated.")


def test_defaults_are_not_shared():
    one, two = Order("soup"), Order("soup")
    assert one == two
    assert one.extras is not two.extras


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"size": "lage"}, "size = 'lage' is unknown. Did you mean 'large'?"),
        ({"portions": 0}, "portions = 0 is out of bounds. Use 1 to 9."),
        ({"portions": 10}, "portions = 10 is out of bounds. Use 1 to 9."),
        ({"portions": "2"}, "portions = '2' is not a whole number."),
        ({"spice": -1.0}, "spice = -1.0 is too small. Use 0 or more."),
        ({"spice": float("nan")}, "spice = nan is not a number."),
    ],
)
def test_what_is_out_of_bounds_is_refused(given, says):
    with pytest.raises(ConfigError) as caught:
        Order("soup", **given)
    assert str(caught.value).startswith(f"order: {says}")


@pytest.mark.parametrize(
    "given",
    [
        {"epsilon": float("nan")},
        {"epsilon": float("inf")},
        {"epsilon": 0.0},
        {"delta": 1.0},
        {"delta": float("nan")},
        {"mechanism": "laplace"},
    ],
)
def test_a_budget_that_promises_nothing_is_refused(given):
    with pytest.raises(ConfigError) as caught:
        ContributeRequest("NYU", *FILES, state=Path("b.fcx"), **given)
    (name,) = given
    assert caught.value.where == "contribute"
    assert caught.value.what.startswith(f"{name} = ")


def test_bounds_are_allowed_themselves():
    assert Order("soup", portions=9, spice=0.0).portions == 9
    with pytest.raises(TypeError, match="dish"):
        Order()  # type: ignore[call-arg]


@pytest.mark.parametrize("request_type", REQUESTS)
def test_every_option_says_what_it_is(request_type):
    for one in fields(request_type):
        text = one.metadata["help"]
        assert text.endswith("."), one.name
        assert text[0].isupper() or text.split()[0] in (
            "none,",
            "participant",
            "inner_val,",
        ), text


def test_the_help_names_the_budget_of_a_release():
    """The requests stand below the room that knows it."""
    shown = {f.name: str(f.metadata) for f in fields(ContributeRequest)}
    assert f"({EPSILON:g})" in shown["epsilon"]
    assert f"({DELTA:g})" in shown["delta"]


def test_what_was_given_is_told_from_defaults():
    assert Order("soup").given() == {"dish": "soup"}
    given = {"dish": "soup", "spice": 0.0, "extras": ["salt"]}
    assert Order(**given).given() == given
    request = ChainContinueRequest("A", *FILES, state=Path("b.fcx"), positive="x")
    assert request.loading == {"positive": "x"}
    assert type(request).where() == "chain-continue"


def test_an_error_names_the_command_as_it_is_typed():
    names = [request.where() for request in (FCRequest, ChainContinueRequest)]
    assert names == ["fc", "chain-continue"]
