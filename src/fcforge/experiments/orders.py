"""Site orders of a run: all of them, a random choice, or those that a config lists."""

import math
from collections.abc import Sequence
from itertools import permutations
from typing import Literal

import numpy as np

from fcforge.core.errors import ConfigError
from fcforge.core.names import check_names
from fcforge.core.randomness import numpy_rng

MOST_ORDERS = 5040  # all orders of 7 sites
Orders = Literal["all"] | int | tuple[tuple[str, ...], ...]
"""All, a number of random ones, or the orders themselves."""


def list_orders(asked: Orders, sites: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the site orders of a config, checked against the dataset's sites.

    Parameters
    ----------
    asked : "all", int or tuple of orders
        All orders, a number of random ones, or the orders themselves.
    sites : sequence of str
        All sites of the dataset.

    Raises
    ------
    ConfigError
        If an order has unknown or repeated sites, or there are too many orders.
    """
    if asked == "all" or isinstance(asked, int):
        return _pick_orders(sites, asked)
    known = f"The dataset has: {', '.join(sites)}."
    if not asked or len(set(asked)) < len(asked):
        raise ConfigError("orders is empty or lists an order twice.", do=known)
    for order in asked:
        check_names(f"site in order {list(order)}:", order, sites)
        if not order or len(set(order)) < len(order):
            message = f"order {list(order)} is empty or repeats a site."
            raise ConfigError(message, do=known)
    return [tuple(order) for order in asked]


def _pick_orders(
    sites: Sequence[str], wanted: Literal["all"] | int
) -> list[tuple[str, ...]]:
    """Return all orders, or `wanted` different random ones, which are the same on every machine."""
    there_are = math.factorial(len(sites))
    n = there_are if wanted == "all" else wanted
    if not 1 <= n <= there_are:
        message = f"orders = {wanted}, but {len(sites)} sites have {there_are} orders."
        raise ConfigError(message, do=f"Give 1 to {there_are}, or 'all'.")
    if n > MOST_ORDERS:
        message = f"orders = {wanted!r}: of {len(sites)} sites, more than {MOST_ORDERS} orders "
        hint = f"Give orders = a number up to {MOST_ORDERS}, or a list of orders."
        raise ConfigError(message + "are too many to run.", do=hint)
    rng = numpy_rng(0, "orders", *sites)
    if there_are <= MOST_ORDERS:
        every = list(permutations(sites))
        if wanted == "all":
            return every
        chosen = rng.choice(len(every), n, replace=False)
        return [every[i] for i in np.sort(chosen)]
    orders = dict[tuple[str, ...], None]()
    while len(orders) < n:  # far fewer than there are: hardly one is drawn twice
        places = rng.permutation(len(sites))
        order = tuple(sites[place] for place in places)
        orders[order] = None
    return list(orders)
