"""Settings that a method cannot have."""

import pytest

from fcforge.errors import ConfigError
from fcforge.methods import make_method
from fcforge.types import Component
from small_world import R, cohort, order


@pytest.mark.parametrize(
    ("method", "params", "word"),
    [
        ("ewc", {"strength": -1.0}, "too small"),
        ("ewc", {"fisher": "exakt"}, "Did you mean 'exact'\\? Known: batched, empirical, exact"),
        ("si", {"damping": 0.0}, "too small"),
        ("lwf", {"temperature": 0.0}, "too small"),
        ("twp", {"beta": -1.0}, "too small"),
        ("packnet", {"prune_first": 1.0}, "fraction"),
        ("packnet", {"route": "best"}, "Known: entropy"),
        ("er", {"rule": "fifo"}, "Known: balanced, reservoir"),
        ("der", {"form": "max"}, "Known: mean"),
        ("pdgnn", {"sampler": "best"}, "Known: degree"),
        ("ugcl", {"tau": 0.0}, "too small"),
    ],
)
def test_wrong_settings_say_what_is_known(method, params, word):
    with pytest.raises(ConfigError, match=word):
        make_method(Component(method, params))


def test_the_small_world_is_what_the_numbers_above_assume():
    assert cohort().fc.shape[1:] == (R, R)
    assert len(order()) == 3
