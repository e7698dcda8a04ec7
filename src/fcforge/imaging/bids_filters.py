"""Filter files of BIDS Apps: which entities of functional scans are taken, as fMRIPrep reads them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fcforge.core.errors import ConfigError
from fcforge.core.files import read_plain
from fcforge.core.names import check_names

MAX_BYTES = 1 << 20
# PyBIDS' names of entities, and the short ones in file names.
ENTITIES = {
    "subject": "sub",
    "session": "ses",
    "task": "task",
    "acquisition": "acq",
    "ceagent": "ce",
    "reconstruction": "rec",
    "direction": "dir",
    "run": "run",
    "echo": "echo",
    "part": "part",
    "space": "space",
    "resolution": "res",
    "density": "den",
    "desc": "desc",
}
# Queries of fMRIPrep for other files, which no FC is made of.
OTHER_QUERIES = ("fmap", "sbref", "flair", "t1w", "t2w", "roi", "dwi", "pet")
FIXED = {"datatype": "func", "suffix": "bold"}
ANY = "*"


class BIDSFilters(NamedTuple):
    """Entities of the scans that are taken.

    Attributes
    ----------
    values : mapping of str to tuple
        By short entity: accepted values, with None for "has no such entity" and "*" for "has one".
    """

    values: Mapping[str, tuple[str | None, ...]]

    def takes(self, entities: Mapping[str, str]) -> bool:
        """Return whether a file with these entities is wanted."""
        return all(
            any(_fits(entities.get(key), value) for value in accepted)
            for key, accepted in self.values.items()
        )


def _fits(value: str | None, wanted: str | None) -> bool:
    if wanted is None or value is None:
        return wanted is value
    if value.isdigit() and wanted.isdigit():  # run 1 is run-01
        return int(value) == int(wanted)
    return wanted in (ANY, value)


def read_filters(path: Path) -> BIDSFilters:
    """Read the filters for functional scans (``bold``) of a JSON file.

    Raises
    ------
    ConfigError
        Not JSON, an unknown query or entity, or a query for files that are no functional scans.
    """
    where = str(path)
    try:
        content = json.loads(read_plain(path, MAX_BYTES, ConfigError))
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(f"no JSON can be read ({reason}).", where=where) from None
    example = 'Write {"bold": {"task": "rest", "run": [1, 2], "acquisition": null}}.'
    queries = content if isinstance(content, dict) else {"": content}
    if not all(isinstance(query, dict) for query in queries.values()):
        raise ConfigError(
            "is no mapping of queries to entities.", where=where, do=example
        )
    check_names("query", queries, ("bold", *OTHER_QUERIES), where=where)
    values: dict[str, tuple[str | None, ...]] = {}
    for name, wanted in queries.get("bold", {}).items():
        accepted = wanted if isinstance(wanted, list) else [wanted]
        if name in FIXED or name == "extension":
            if name in FIXED and accepted != [FIXED[name]]:
                raise ConfigError(
                    f"asks for {name} {wanted!r}; FC is made of {FIXED[name]}.",
                    where=where,
                    do="Leave it out.",
                )
            continue
        check_names("entity", [name], ENTITIES, where=where)
        values[ENTITIES[name]] = tuple(_word(value, where) for value in accepted)
    return BIDSFilters(values)


def _word(value: Any, where: str) -> str | None:
    if value is None or isinstance(value, str):
        text = value if value is None else value.strip()
        # PyBIDS' own spelling of its queries
        named = {"Query.NONE": None, "Query.ANY": ANY, "Query.REQUIRED": ANY}
        return named.get(text, text) if text is not None else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ConfigError(f"{value!r} is no value of an entity.", where=where)
