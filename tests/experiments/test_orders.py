"""Site orders of a config: listed, all, or a random choice."""

import pytest

from fcforge.core.errors import ConfigError
from fcforge.experiments.orders import list_orders

FOUR = ("A", "B", "C", "D")


def test_orders():
    assert len(set(list_orders("all", FOUR))) == 24
    assert list_orders((("C", "A"), ("B",)), FOUR) == [("C", "A"), ("B",)]
    some = list_orders(5, FOUR)
    assert len(set(some)) == 5
    assert some == list_orders(5, FOUR)  # the same on every machine
    assert all(sorted(o) == list(FOUR) for o in some)
    assert list_orders(24, FOUR) == list_orders("all", FOUR)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (0, "Give 1 to 24"),
        (25, "Give 1 to 24"),
        ((("A", "X"),), r"unknown site in order .* 'X'.*Known: A, B, C, D"),
        ((("A", "B", "A"),), "repeats a site"),
        (((),), "is empty"),
        ((), "orders is empty"),
        ((("A",), ("A",)), "lists an order twice"),
    ],
)
def test_orders_that_cannot_be(value, says):
    with pytest.raises(ConfigError, match=says):
        list_orders(value, FOUR)


def test_many_sites_are_not_enumerated():
    """25 sites of REST-meta-MDD have 10^25 orders."""
    sites = tuple(f"S{i}" for i in range(25))
    some = list_orders(7, sites)
    assert len(set(some)) == 7
    assert all(sorted(o) == sorted(sites) for o in some)
    assert some[:3] == list_orders(3, sites)
    with pytest.raises(ConfigError, match=r"25 sites.*5040"):
        list_orders("all", sites)
