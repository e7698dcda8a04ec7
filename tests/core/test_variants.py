"""Classes in variants: one word picks the class, and the signature says so."""

import inspect
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

import fcforge
from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.variants import Variants
from fcforge.methods import make_method
from fcforge.methods.forge import AuthorsForge, Forge, PaperForge
from fcforge.replay.hcts import HCTS, AuthorsHCTS, PaperHCTS


@dataclass(frozen=True)
class Dog(metaclass=Variants):
    legs: int = 4

    variants: ClassVar[dict[str, type]] = {}
    variant: ClassVar[str] = "large"


@dataclass(frozen=True)
class SmallDog(Dog):
    legs: int = 3

    variant: ClassVar[str] = "small"


def test_the_word_picks_the_class_and_settings_still_apply():
    assert type(Dog()) is type(Dog(variant="large")) is Dog
    assert Dog(variant="small") == SmallDog() == SmallDog(3)
    assert type(SmallDog(variant="large")) is Dog
    assert Dog(variant="small", legs=2) == replace(SmallDog(), legs=2)
    assert Dog.variants == {"large": Dog, "small": SmallDog}


def test_a_wrong_word_names_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'small'"):
        Dog(variant="smal")


def test_the_signature_has_the_settings_and_the_word():
    assert list(inspect.signature(Dog).parameters) == ["legs", "variant"]
    assert "legs: int = 3" in str(inspect.signature(SmallDog))


@pytest.mark.parametrize(
    ("root", "classes"),
    [
        (HCTS, (HCTS, PaperHCTS, AuthorsHCTS)),
        (Forge, (Forge, PaperForge, AuthorsForge)),
    ],
)
def test_the_sampler_and_forge_have_three_variants(root, classes):
    for word, cls in zip(("stable", "paper", "authors"), classes, strict=True):
        assert type(root(variant=word)) is cls
    assert fcforge.HCTS is HCTS


@pytest.mark.parametrize("word", ["stable", "paper", "authors"])
def test_single_switches_work_in_every_variant(word):
    switches = {"l3": 0.0, "sampling": "uniform", "refresh": 3, "sampler": "stable"}
    method = make_method(Component("forge", {"variant": word, **switches}))
    assert method == Forge(variant=word, **switches)
    assert (method.weights[2], method.refresh, method.sampling) == (0.0, 3, "uniform")
    assert method.hcts == HCTS()
