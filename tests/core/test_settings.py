"""Settings: what a field's annotation says holds, however the value got there."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.settings import (
    FRACTION,
    SHARE_BELOW_ONE,
    Bound,
    Checked,
    above,
    at_least,
    build,
    checked,
    field_limits,
    field_types,
    limits,
    make,
    validation_error,
    within,
)
from fcforge.core.spec import Training
from fcforge.data.datasets import load_dataset
from fcforge.experiments.config import Experiment
from fcforge.generators import GENERATORS, make_generator
from fcforge.imaging.options import FCRequest
from fcforge.methods import METHODS, make_method
from fcforge.models import MODELS
from small_world import make_model


@limits(length=above(0))
@dataclass(frozen=True)
class Clapper(Checked):
    kind: ClassVar[str] = "clapper"
    length: float = 1.0
    metal: Literal["iron", "bronze"] = "iron"


@limits(weight=at_least(0))
@dataclass(frozen=True)
class Bell(Checked):
    kind: ClassVar[str] = "thing"
    name: ClassVar[str] = "bell"
    presets: ClassVar[dict[str, dict]] = {
        "church": {"weight": 500.0, "clapper": Clapper(30.0)}
    }
    weight: float = 1.0
    tones: tuple[int, ...] = (1,)
    clapper: Clapper = field(default_factory=lambda: Clapper(2.0, "bronze"))
    spare: Clapper | None = None


ACCEPTED = [
    (int, 3),
    (int, np.int64(3)),
    (float, 3),
    (float, np.float32(0.5)),
    (float, math.inf),
    (bool, True),
    (str, "x"),
    (None | str, None),
    (Literal["a", 2], 2),
    (tuple[int, ...], (1, 2)),
    (tuple[int, str], [1, "x"]),
    (list[str], []),
    (Sequence[str] | None, ["NYU"]),
    (Mapping[str, Any], {"a": 1}),
    (Any, object()),
]


@pytest.mark.parametrize(("hint", "value"), ACCEPTED)
def test_what_fits_is_accepted(hint, value):
    assert validation_error(hint, value) is None


REFUSED = [
    (int, True, "is not a whole number"),
    (int, 3.0, "is not a whole number"),
    (float, "3", "is not a number"),
    (float, False, "is not a number"),
    (float, math.nan, "is not a number"),
    (bool, 1, "is not true or false"),
    (str, 1, "is not text"),
    (Literal["batch", "none"], "bacth", "is unknown"),
    (tuple[int, ...], 3, "is not a list"),
    (tuple[int, int], [1], "has 1 entries"),
    (list[int], [1, "x"], "has an entry that is not a whole number"),
    (Sequence[str], "NYU", "is not a list"),
    (Mapping[str, Any], 3, "is not a table of settings"),
    (Clapper, 3, "is not a table of settings"),
]


@pytest.mark.parametrize(("hint", "value", "wrong"), REFUSED)
def test_what_does_not_fit_is_refused_in_words(hint, value, wrong):
    assert validation_error(hint, value)[0] == wrong


NOT_EMPTY = Bound(bool, "is empty", "Give one.")
WITHIN_BOUNDS = [
    (int, at_least(1), 1),
    (int, at_least(0), 0),
    (float, above(0), 1e-9),
    (float | None, above(0), None),
    (float | Literal["gcv"], within(1, 8), "gcv"),
    (float, within(0, 1), 1.0),
    (float, within(1, 8), 8),
    (float, SHARE_BELOW_ONE, 0.0),
    (tuple[int, ...], NOT_EMPTY, (0,)),
]


@pytest.mark.parametrize(("hint", "bound", "value"), WITHIN_BOUNDS)
def test_bounds_accept_their_ends_none_and_words(hint, bound, value):
    assert validation_error(hint, value, [bound]) is None


OUT_OF_BOUNDS = [
    (int, at_least(1), 0, "is too small"),
    (int, at_least(0), -1, "is too small"),
    (float, above(0), 0, "is too small"),
    (float | None, above(0), -1.0, "is too small"),
    (float, at_least(0), math.nan, "is not a number"),
    (float, FRACTION, 1.0, "is not a fraction"),
    (float, FRACTION, 0, "is not a fraction"),
    (float, within(0, 1), 1.1, "is out of bounds"),
    (float, SHARE_BELOW_ONE, 1.0, "is not a share below 1"),
    (float | Literal["gcv"], within(1, 8), 8.5, "is out of bounds"),
    (tuple[int, ...], NOT_EMPTY, (), "is empty"),
]


@pytest.mark.parametrize(("hint", "bound", "value", "wrong"), OUT_OF_BOUNDS)
def test_bounds_refuse_in_words(hint, bound, value, wrong):
    assert validation_error(hint, value, [bound])[0] == wrong


def test_subclasses_inherit_limits_and_change_them():
    @limits(tail=at_least(1))
    @dataclass(frozen=True)
    class Kite(Bell):
        tail: int = 2

    @limits(weight=above(5))
    @dataclass(frozen=True)
    class Heavy(Kite):
        pass

    assert field_limits(Kite).keys() == {"weight", "tail"}
    assert Kite(weight=0.0).weight == 0
    for wrong in ({"weight": 5.0}, {"tail": 0}):
        with pytest.raises(ConfigError, match="is too small"):
            Heavy(**wrong)


def test_a_limit_of_no_field_is_refused():
    with pytest.raises(TypeError, match=r"limits of Bell: no field named \['wieght'\]"):
        limits(wieght=at_least(0))(Bell)


SETTINGS = [
    *METHODS.values(),
    *MODELS.values(),
    *GENERATORS.values(),
    Training,
    Experiment,
    FCRequest,
]


@pytest.mark.parametrize("cls", SETTINGS, ids=lambda cls: cls.__name__)
def test_signatures_show_plain_types(cls):
    """`help` and tooltips show ``d_model: int = 48``, without bounds."""
    signature = str(inspect.signature(cls))
    assert "Annotated" not in signature
    assert " at 0x" not in signature
    assert field_limits(cls).keys() <= field_types(cls).keys()


def test_what_to_do_names_the_bound_and_the_nearest_choice():
    assert validation_error(int, 1, [at_least(2)])[1] == "Use 2 or more."
    assert validation_error(float, 0.0, [above(0)])[1] == "Use a number above 0."
    assert validation_error(Literal["batch", "none"], "bacth")[1].startswith(
        "Did you mean 'batch'?"
    )


def test_python_is_checked_like_a_config():
    for wrong in (
        lambda: Bell(weight=-1),
        lambda: make(Bell, {"weight": -1}, Bell.where()),
    ):
        with pytest.raises(ConfigError) as caught:
            wrong()
        assert (
            str(caught.value)
            == "thing 'bell': weight = -1 is too small. Use 0 or more."
        )


def test_a_table_changes_the_fields_own_default():
    bell = make(Bell, {"clapper": {"length": 3.0}, "tones": [1, 2]}, "bell")
    assert bell == Bell(tones=(1, 2), clapper=Clapper(3.0, "bronze"))
    assert make(Bell, {"spare": {"length": 4}}, "bell").spare == Clapper(4)


def test_a_preset_is_what_other_settings_change():
    assert make(Bell, {"preset": "church"}, "bell") == Bell.from_preset("church")
    assert make(Bell, {"preset": "default"}, "bell") == Bell()
    changed = make(Bell, {"preset": "church", "clapper": {"metal": "bronze"}}, "bell")
    assert changed == Bell(weight=500.0, clapper=Clapper(30.0, "bronze"))


@pytest.mark.parametrize(
    ("params", "says"),
    [
        (
            {"clapper": {"lenght": 1}},
            "b: clapper: unknown setting 'lenght'. Did you mean 'length",
        ),
        (
            {"clapper": {"length": 0}},
            "b: clapper: length = 0 is too small. Use a number above 0.",
        ),
        (
            {"clapper": 1},
            "b: clapper = 1 is not a table of settings. Use { name = value, ... }.",
        ),
        (
            {"preset": "curch"},
            "b: unknown preset 'curch'. Did you mean 'church'? Known: chur",
        ),
        (
            {"prest": 1},
            "b: unknown setting 'prest'. Did you mean 'preset'? Known: clapper, preset",
        ),
    ],
)
def test_mistakes_in_tables_say_where(params, says):
    with pytest.raises(ConfigError) as caught:
        make(Bell, params, "b")
    assert str(caught.value).startswith(says)


def test_parameters_of_a_function_are_settings_too():
    @limits(times=at_least(1))
    def ring(times: int, *, loud: bool = False) -> None: ...

    assert checked(ring, {"times": 2, "loud": True}, "ring") == {
        "times": 2,
        "loud": True,
    }
    with pytest.raises(
        ConfigError, match=r"^ring: times = 0 is too small. Use 1 or more.$"
    ):
        checked(ring, {"times": 0}, "ring")
    with pytest.raises(
        ConfigError, match=r"^ring: unknown setting 'return'. Known: loud, times."
    ):
        checked(ring, {"return": 0}, "ring")


# -- things by name ------------------------------------------------------------------------------
MAKERS = {
    "model": (lambda c: make_model(c, 4), "gcn"),
    "generator": (make_generator, "corr_gauss"),
    "method": (make_method, "ewc"),
    "dataset": (load_dataset, "simulated"),
}


@limits(weight=at_least(0))
@dataclass(frozen=True)
class Drum:
    size: int
    weight: float = 1.0


TABLE = {"drum": Drum, "empty": dataclass(type("Empty", (), {}))}


def test_build_takes_settings_and_what_the_caller_gives():
    assert build("thing", Component("drum", {"weight": 2.0}), TABLE, size=3) == Drum(
        3, 2.0
    )


@pytest.mark.parametrize(
    ("component", "says"),
    [
        (
            Component("dru"),
            "unknown thing 'dru'. Did you mean 'drum'? Known: drum, empty.",
        ),
        (
            Component("drum", {"wait": 1}),
            "thing 'drum': unknown setting 'wait'. Did you mean 'weight'? Known: weight.",
        ),
        # what the caller gives is not a setting
        (
            Component("drum", {"size": 1}),
            "thing 'drum': unknown setting 'size'. Known: weight.",
        ),
        (
            Component("drum", {"weight": -1}),
            "thing 'drum': weight = -1 is too small. Use 0 or more.",
        ),
        (
            Component("drum", {"weight": "heavy"}),
            "thing 'drum': weight = 'heavy' is not a number. Use a number.",
        ),
        (
            Component("empty", {"x": 1}),
            "thing 'empty': unknown setting 'x'. Known: none.",
        ),
    ],
)
def test_build_refuses_in_one_line(component, says):
    given = {"size": 3} if component.name == "drum" else {}
    with pytest.raises(ConfigError) as caught:
        build("thing", component, TABLE, **given)
    assert str(caught.value) == says


@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_of_thing_is_refused_in_the_same_words(kind):
    make, name = MAKERS[kind]
    with pytest.raises(
        ConfigError, match=rf"^unknown {kind} '{name}x'\. Did you mean '{name}'\?"
    ):
        make(Component(f"{name}x"))
    with pytest.raises(
        ConfigError, match=rf"^{kind} '{name}': unknown setting 'colour'\. "
    ):
        make(Component(name, {"colour": 1}))
