"""Traits of learners, and their way into a run folder."""

import json

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec
from fcforge.experiments.traits import Traits, read_traits, stored_traits, traits_of
from fcforge.methods import METHODS


def learner(name: str, **params) -> LearnerSpec:
    return LearnerSpec(Component(name, params), Component("linear"))


def test_every_method_has_the_traits_of_its_class():
    for name, method in METHODS.items():
        found = traits_of(learner(name))
        assert (found.depends_on, found.keeps) == (method.depends_on, method.keeps)
        assert found.grows is not method.from_scratch


def test_what_is_known_is_not_looked_up():
    known = {"mine": Traits("set", "statistics", grows=True)}
    assert traits_of(learner("mine"), known) == known["mine"]


def test_stored_as_they_are_read():
    both = (learner("ewc"), learner("joint"))
    stored = json.loads(json.dumps(stored_traits(both)))
    assert read_traits(stored) == {name: traits_of(learner(name)) for name in stored}
    assert set(stored) == {"ewc", "joint"}
