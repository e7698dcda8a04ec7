"""Starts that everybody can have: of public people, fetched once, kept in a folder of the user's.

``FCFORGE_CACHE`` names that folder; by default it is ``~/.cache/fcforge``. What is promised of a
start is who it is made of: the scans, rounded to 16 bits, have the published SHA-256, or there is
no start. Its arrays are rounded to 12 bits, and came out the same bit by bit on four kinds of
processors (results/public_start.json); where they do not, it is said.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fcforge.exchange import exchange, records
from fcforge.exchange.schema import Policy
from fcforge.exchange.starts.public_start import make_public
from fcforge.files import whole_file
from fcforge.messages import DataError, look_up
from fcforge.sites.abide import PUBLISHED, DownloadError, rebuild, subjects_sha256
from fcforge.sites.datasets import without_twins
from fcforge.sites.folder import load_folder


class Source(NamedTuple):
    """What a public start is made of.

    Attributes
    ----------
    data : str
        Published file of its people.
    people, arrays : str
        SHA-256 of the people's scans and of the start's arrays; empty where not published.
    """

    data: str
    people: str = ""
    arrays: str = ""


STARTS = {
    "abide-aal": Source(
        "abide-871",
        people="efa193f8f5e1efdf346bea5ae10309d2556e8c6c972ddb827e408bc6f97aff47",
        arrays="38a029374a091008fdf0088d34cf833496f2db41318a233a4fa099046933b712",
    ),
    "abide-cc200": Source("abide-871-cc200"),
}
POLICY = Policy(exact_allowed=True)


def cache_folder() -> Path:
    """Where public people and starts are kept."""
    return Path(os.environ.get("FCFORGE_CACHE") or Path.home() / ".cache" / "fcforge")


def public_people(name: str) -> Path:
    """File with the people of a public start, fetched where it is not there.

    Raises
    ------
    DataError
        Where somebody could not be fetched; what is there is kept for the next time.
    """
    source = look_up("public start", name, STARTS)
    place = cache_folder() / f"{source.data}.npz"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        do = (
            "Connect to the internet and run the same again: what was fetched is kept. Or run "
            f"`fcforge start --public {name}` where there is a network, and copy {name}.fcx and "
            f"{place.name} from its cache folder into {place.parent}, or give the path of that "
            f"{name}.fcx as start=."
        )
        with whole_file(place) as part:
            try:
                different = rebuild(source.data, part)
            except DownloadError as error:
                raise DataError(error.what, where=name, do=do) from error
            if different:
                raise DataError("; ".join(different) + ".", where=name, do=do)
    everybody = load_folder(place)
    people = without_twins(everybody)[0].content_sha256()
    _require_published(name, people, everybody.subject_id.tolist(), place)
    return place


def _require_published(name: str, people: str, ids: Sequence[str], place: Path) -> None:
    """Raise `DataError` where a file in the cache is of other people than published.

    Where there is no SHA-256 of their scans, they are known by their ids.
    """
    source = STARTS[name]
    same = people == source.people
    if not source.people:
        same = subjects_sha256(ids) == PUBLISHED[source.data].subjects_sha256
    if not same:
        what = f"its people are not those of '{name}' as published (SHA-256 {people})."
        do = "Remove it to fetch it again, or use it as your own: `fcforge start --data`."
        raise DataError(what, where=place, do=do)


def public_start(name: str, say: Callable[[str], Any] = lambda text: None) -> Path:
    """File of a public start with exact sums allowed, made where it is not there.

    Parameters
    ----------
    name : str
        One of `STARTS`.
    say : callable
        Told where its arrays are not, bit by bit, the published ones.
    """
    source = look_up("public start", name, STARTS)
    place = cache_folder() / f"{name}.fcx"
    if place.exists():  # anybody may have put it there
        found = exchange.open_exchange(place)
        root = found.root
        if found.records or root.kind != "start" or root.policy != POLICY:
            what = f"is not a start by itself with the policy of '{name}'."
            raise DataError(what, where=place, do="Remove it to make it again.")
        ids = [*root.ids, *root.left_out]
        _require_published(name, root.people_sha256, ids, place)
    else:
        cohort = load_folder(public_people(name))
        found = make_public(cohort, policy=POLICY, plan=records.Plan(epsilon=None))
        exchange.save(found, place)
    one_file = "in one consortium all use one file, and compare its id."
    if not source.arrays:
        say(f"no SHA-256 of '{name}' is published: {one_file}")
    elif found.root.payload != source.arrays:
        what = f"the arrays of '{name}' are not, bit by bit, the published ones"
        why = f"as on another processor, or where somebody put others into {place}"
        say(f"{what}, {why}: {one_file}")
    return place
