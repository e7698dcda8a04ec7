"""Published base models: made from public people, fetched once and kept in the user's cache.

``FCFORGE_CACHE`` names the cache folder; by default it is ``~/.cache/fcforge``. The people of a
published base model are fixed: their scans, rounded to 16 bits, must have the published SHA-256.
Its arrays are rounded to 12 bits and came out the same bit by bit on four kinds of processors
(paper/results/published_base_model.json). Where they differ on another machine, the user is warned.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fcforge.core.errors import DataError
from fcforge.core.files import whole_file
from fcforge.core.names import look_up
from fcforge.data.abide import PUBLISHED, DownloadError, rebuild, subjects_sha256
from fcforge.data.checks import without_duplicates
from fcforge.data.folder import load_folder
from fcforge_consortium.base_model.record import make_base_model
from fcforge_consortium.records import exchange
from fcforge_consortium.records import kinds as records
from fcforge_consortium.records.policy import Policy


class Source(NamedTuple):
    """The people and the checksums of a published base model.

    Attributes
    ----------
    data : str
        Published file of its people.
    people, arrays : str
        SHA-256 of the people's scans and of the base model's arrays; empty where not published.
    """

    data: str
    people: str = ""
    arrays: str = ""


BASE_MODELS = {
    "abide-aal": Source(
        "abide-871",
        people="efa193f8f5e1efdf346bea5ae10309d2556e8c6c972ddb827e408bc6f97aff47",
        arrays="38a029374a091008fdf0088d34cf833496f2db41318a233a4fa099046933b712",
    ),
    "abide-cc200": Source("abide-871-cc200"),
}
# a base model for one user: the plan bounds nobody
POLICY = Policy(exact_allowed=True, most_planned=1_000)


def cache_folder() -> Path:
    """Return the folder in which public people and published base models are kept.

    It is ``$FCFORGE_CACHE`` or ``~/.cache/fcforge``; it need not exist.
    """
    return Path(os.environ.get("FCFORGE_CACHE") or Path.home() / ".cache" / "fcforge")


def published_people(name: str) -> Path:
    """Return the file with the people of a published base model; fetch it if it is missing.

    Parameters
    ----------
    name : str
        One of `BASE_MODELS`.

    Raises
    ------
    DataError
        If the scans of some people could not be fetched; the others are kept for the next attempt.

    Returns
    -------
    Path
    """
    source = look_up("published base model", name, BASE_MODELS)
    place = cache_folder() / f"{source.data}.npz"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        hint = (
            "Connect to the internet and run the same command again: everything fetched so far "
            f"is kept. Or run `fcforge consortium base-model --public {name}` where there is a "
            f"network, and copy {name}.fcx and {place.name} from its cache folder into "
            f"{place.parent}, or give the path of that {name}.fcx as base_model=."
        )
        with whole_file(place) as part:
            try:
                different = rebuild(source.data, part)
            except DownloadError as error:
                raise DataError(error.what, where=name, do=hint) from error
            if different:
                raise DataError("; ".join(different) + ".", where=name, do=hint)
    everybody = load_folder(place)
    people = without_duplicates(everybody)[0].content_sha256()
    _require_published(name, people, everybody.subject_id.tolist(), place)
    return place


def _require_published(name: str, people: str, ids: Sequence[str], place: Path) -> None:
    """Raise `DataError` if a file in the cache holds other people than the published ones.

    Parameters
    ----------
    name : str
        One of `BASE_MODELS`.
    people : str
        SHA-256 of the scans in the file.
    ids : sequence of str
        Subject ids in the file; compared where no SHA-256 of the scans is published.
    place : Path
        The file.
    """
    source = BASE_MODELS[name]
    same = people == source.people
    if not source.people:
        same = subjects_sha256(ids) == PUBLISHED[source.data].subjects_sha256
    if not same:
        message = (
            f"its people are not those of '{name}' as published (SHA-256 {people})."
        )
        hint = (
            "Remove it to fetch it again, or use it as your own: "
            "`fcforge consortium base-model --data`."
        )
        raise DataError(message, where=place, do=hint)


def published_base_model(
    name: str, warn: Callable[[str], Any] = lambda text: None
) -> Path:
    """Return the file of a published base model that allows exact sums; make it if missing.

    Parameters
    ----------
    name : str
        One of `BASE_MODELS`.
    warn : callable
        Called with a sentence if its arrays are not, bit by bit, the published ones.
    """
    source = look_up("published base model", name, BASE_MODELS)
    place = cache_folder() / f"{name}.fcx"
    if place.exists():  # anybody may have put it there
        opened = exchange.open_exchange(place)
        root = opened.root
        if opened.records or root.kind != "base_model" or root.policy != POLICY:
            message = f"is not a base model alone with the policy of '{name}'."
            raise DataError(message, where=place, do="Remove it to make it again.")
        ids = [*root.ids, *root.left_out]
        _require_published(name, root.people_sha256, ids, place)
    else:
        cohort = load_folder(published_people(name))
        opened = make_base_model(cohort, policy=POLICY, plan=records.Plan(epsilon=None))
        exchange.save(opened, place)
    one_file = "all hospitals of a consortium must use one file and compare its id."
    if not source.arrays:
        warn(f"no SHA-256 of '{name}' is published: {one_file}")
    elif opened.root.payload != source.arrays:
        message = f"the arrays of '{name}' are not, bit by bit, the published ones"
        why = f"as on another processor, or where somebody put others into {place}"
        warn(f"{message}, {why}: {one_file}")
    return place
