"""BIDS filter files: which functional scans are used, chosen by the entities in their names.

Entities are the parts ``key-value`` of a BIDS file name, such as ``task-rest``. The format is that of
fMRIPrep's ``--bids-filter-file``.
"""

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
# Queries of fMRIPrep for other kinds of files. They are ignored, because FC is not made of these.
OTHER_QUERIES = ("fmap", "sbref", "flair", "t1w", "t2w", "roi", "dwi", "pet")
FIXED = {"datatype": "func", "suffix": "bold"}
ANY = "*"


class BIDSFilters(NamedTuple):
    """Entities that the name of a scan must have.

    Attributes
    ----------
    values : mapping of str to tuple
        Accepted values by the short name of an entity. None stands for "has no such entity", "*" for "has one
        of any value".
    """

    values: Mapping[str, tuple[str | None, ...]]

    def takes(self, entities: Mapping[str, str]) -> bool:
        """Return whether a file with these entities is wanted."""
        return all(
            any(_fits(entities.get(key), value) for value in accepted)
            for key, accepted in self.values.items()
        )


def _fits(value: str | None, wanted: str | None) -> bool:
    """Return whether the value of an entity, None if the name has none, is the wanted one."""
    if wanted is None or value is None:
        return wanted is value
    if value.isdigit() and wanted.isdigit():  # run 1 is run-01
        return int(value) == int(wanted)
    return wanted in (ANY, value)


def read_filters(path: Path) -> BIDSFilters:
    """Read the filters for functional scans (the query ``bold``) from a JSON file.

    Raises
    ------
    ConfigError
        If the file is not JSON, has an unknown query or entity, or its query ``bold`` asks for files that
        are no functional scans.
    """
    where = str(path)
    try:
        content = json.loads(read_plain(path, MAX_BYTES, ConfigError))
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(f"the file is not JSON ({reason}).", where=where) from None
    example = 'Write {"bold": {"task": "rest", "run": [1, 2], "acquisition": null}}.'
    queries = content if isinstance(content, dict) else {"": content}
    if not all(isinstance(query, dict) for query in queries.values()):
        raise ConfigError(
            "the file is not a mapping of queries to entities.", where=where, do=example
        )
    check_names("query", queries, ("bold", *OTHER_QUERIES), where=where)
    values: dict[str, tuple[str | None, ...]] = {}
    for name, wanted in queries.get("bold", {}).items():
        accepted = wanted if isinstance(wanted, list) else [wanted]
        # Any extension passes: it follows from the layout and the atlas.
        if name in FIXED or name == "extension":
            if name in FIXED and accepted != [FIXED[name]]:
                raise ConfigError(
                    f"the query bold asks for {name} {wanted!r}, but FC is made of {FIXED[name]}.",
                    where=where,
                    do="Leave it out.",
                )
            continue
        check_names("entity", [name], ENTITIES, where=where)
        values[ENTITIES[name]] = tuple(_word(value, where) for value in accepted)
    return BIDSFilters(values)


def _word(value: Any, where: str) -> str | None:
    """Return an accepted value of an entity as text, or None for "has no such entity"."""
    if value is None or isinstance(value, str):
        text = value if value is None else value.strip()
        # how PyBIDS writes these queries
        named = {"Query.NONE": None, "Query.ANY": ANY, "Query.REQUIRED": ANY}
        return named.get(text, text) if text is not None else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ConfigError(f"{value!r} cannot be the value of an entity.", where=where)
