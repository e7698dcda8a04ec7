"""Things by name: found, built, or refused with the nearest known name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from fcforge.components import build, check_choice, check_settings, look_up
from fcforge.errors import ConfigError
from fcforge.generators import make_generator
from fcforge.methods import make_method
from fcforge.models import make_model
from fcforge.sites import load_dataset
from fcforge.types import Component

MAKERS = {
    "model": (lambda c: make_model(c, 4), "gcn"),
    "generator": (make_generator, "corr_gauss"),
    "method": (make_method, "ewc"),
    "dataset": (load_dataset, "simulated"),
}


@dataclass(frozen=True)
class Bell:
    size: int
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise ConfigError("a negative weight.")


TABLE = {"bell": Bell, "empty": dataclass(type("Empty", (), {}))}


def test_build_takes_settings_and_what_the_caller_gives():
    assert build("thing", Component("bell", {"weight": 2.0}), TABLE, size=3) == Bell(3, 2.0)


@pytest.mark.parametrize(
    ("component", "says"),
    [
        (Component("bel"), "unknown thing 'bel'. Did you mean 'bell'? Known: bell, empty."),
        (
            Component("bell", {"wait": 1}),
            "thing 'bell': unknown setting 'wait'. Did you mean 'weight'? Known: weight.",
        ),
        # what the caller gives is no setting
        (Component("bell", {"size": 1}), "thing 'bell': unknown setting 'size'. Known: weight."),
        (Component("bell", {"weight": -1}), "a negative weight."),
    ],
)
def test_build_refuses_in_one_line(component, says):
    with pytest.raises(ConfigError) as caught:
        build("thing", component, TABLE, size=3)
    assert str(caught.value) == says


def test_a_thing_without_settings_says_so():
    with pytest.raises(ConfigError, match=r"thing 'empty': unknown setting 'x'. It has no sett"):
        build("thing", Component("empty", {"x": 1}), TABLE)
    check_settings("thing", Component("empty"), [])


def test_a_value_of_the_wrong_type_is_a_config_error():
    with pytest.raises(ConfigError, match=r"thing 'bell': settings {'weight': 'heavy'} cannot be"):
        build("thing", Component("bell", {"weight": "heavy"}), TABLE, size=3)


def test_look_up_and_choice_say_where():
    assert look_up("number", "one", {"one": 1}) == 1
    with pytest.raises(ConfigError, match=r"^a.toml: unknown number 'onne'. Did you mean 'one'"):
        look_up("number", "onne", {"one": 1}, where="a.toml")
    check_choice("model 'gcn'", "norm", "batch", ("batch", "none"))
    with pytest.raises(ConfigError, match=r"^m: norm = 'bacth' is unknown. Did you mean 'batch'"):
        check_choice("m", "norm", "bacth", ("batch", "none"))


@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_of_thing_is_refused_in_the_same_words(kind):
    make, name = MAKERS[kind]
    with pytest.raises(ConfigError, match=rf"^unknown {kind} '{name}x'\. Did you mean '{name}'\?"):
        make(Component(f"{name}x"))
    with pytest.raises(ConfigError, match=rf"^{kind} '{name}': unknown setting 'colour'\. "):
        make(Component(name, {"colour": 1}))
