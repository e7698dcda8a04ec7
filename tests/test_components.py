"""Things by name: found, built, or refused with the nearest known name."""

from dataclasses import dataclass

import pytest

from fcforge.components import build, check_names, classes_in, look_up
from fcforge.errors import ConfigError
from fcforge.generators import make_generator
from fcforge.methods import Method, make_method
from fcforge.models import make_model
from fcforge.settings import NotNegative
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
    weight: NotNegative = 1.0


TABLE = {"bell": Bell, "empty": dataclass(type("Empty", (), {}))}


def test_build_takes_settings_and_what_the_caller_gives():
    assert build("thing", Component("bell", {"weight": 2.0}), TABLE, size=3) == Bell(
        3, 2.0
    )


@pytest.mark.parametrize(
    ("component", "says"),
    [
        (
            Component("bel"),
            "unknown thing 'bel'. Did you mean 'bell'? Known: bell, empty.",
        ),
        (
            Component("bell", {"wait": 1}),
            "thing 'bell': unknown setting 'wait'. Did you mean 'weight'? Known: weight.",
        ),
        # what the caller gives is not a setting
        (
            Component("bell", {"size": 1}),
            "thing 'bell': unknown setting 'size'. Known: weight.",
        ),
        (
            Component("bell", {"weight": -1}),
            "thing 'bell': weight = -1 is too small. Use 0 or more.",
        ),
        (
            Component("bell", {"weight": "heavy"}),
            "thing 'bell': weight = 'heavy' is not a number. Use a number.",
        ),
        (
            Component("empty", {"x": 1}),
            "thing 'empty': unknown setting 'x'. Known: none.",
        ),
    ],
)
def test_build_refuses_in_one_line(component, says):
    given = {"size": 3} if component.name == "bell" else {}
    with pytest.raises(ConfigError) as caught:
        build("thing", component, TABLE, **given)
    assert str(caught.value) == says


def test_look_up_and_names_say_what_is_known():
    assert look_up("number", "one", {"one": 1}) == 1
    with pytest.raises(
        ConfigError, match=r"^a.toml: unknown number 'onne'. Did you mean 'one'"
    ):
        look_up("number", "onne", {"one": 1}, where="a.toml")
    check_names("site", ["NYU"], ["NYU", "UM"])
    with pytest.raises(ConfigError, match=r"^unknown site 'NYC'. Did you mean 'NYU'\?"):
        check_names("site", ["NYU", "NYC"], ["NYU", "UM"])


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


def test_classes_of_a_package_are_found_by_their_own_names():
    found = classes_in("fcforge.methods", Method)
    assert list(found) == sorted(found)
    assert {"er", "derpp", "joint", "forge_ridge"} <= set(found)
    assert all(
        cls.name == name and issubclass(cls, Method) for name, cls in found.items()
    )
    # what only serves others has no name of its own
    assert not {"Rehearsal", "TwoBatches", "SyntheticMemory"} & {
        c.__name__ for c in found.values()
    }
    assert found["finetune"] is not Method
