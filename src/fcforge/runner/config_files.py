"""Config files: TOML on a base, ``--set`` on top, and where each value was written."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fcforge.errors import ConfigError, unknown_name
from fcforge.settings import checked, field_types, override

T = TypeVar("T")


@dataclass(frozen=True)
class ConfigFiles:
    """A config file and the files it is based on, the file itself first.

    Attributes
    ----------
    data : dict
        All of them merged, less the key ``base``.
    files : tuple of (str, dict)
        Every file's name and what it says itself.
    """

    data: dict[str, Any]
    files: tuple[tuple[str, dict[str, Any]], ...]

    def where(self, *place: str) -> str:
        """Name of the file that says what stands at `place`; the first where none does."""
        for name, data in self.files:
            found: Any = data
            for step in place:
                found = found.get(step) if isinstance(found, dict) else None
            if found is not None:
                return name
        return self.files[0][0]

    def require(self, known: Mapping[str, type], needed: Sequence[str]) -> None:
        """Refuse a config with other tables than the known ones, or without a needed one."""
        for name in needed:
            if not self.data.get(name):
                shown = f"[{name}]" if known[name] is dict else f"[[{name}]]"
                raise ConfigError(f"{shown} is missing.", where=self.where())
        for name, value in self.data.items():
            where = self.where(name)
            if name not in known:
                raise unknown_name("key", name, known, where=where)
            if not isinstance(value, known[name]):
                kind = "table" if known[name] is dict else "list"
                raise ConfigError(f"{name} = {value!r} is not a {kind}.", where=where)

    def checked(
        self, target: Any, name: str, only: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Keys and values of a table as the fields of a dataclass; a mistake names its file."""
        known = only or field_types(target)
        values: dict[str, Any] = {}
        for key, value in self.data.get(name, {}).items():
            where = f"{self.where(name, key)}: [{name}]"
            if key not in known:
                raise unknown_name("key", key, known, where=where)
            values |= checked(target, {key: value}, where)
        return values

    def table(self, target: type[T], name: str) -> T:
        """The dataclass that a table fills."""
        return target(**self.checked(target, name))


def read_toml(path: str | Path) -> dict[str, Any]:
    """Parse a TOML file; a syntax error names the file and line."""
    path = Path(path)
    if not path.is_file():
        raise ConfigError("no such file.", where=path, do="`fcforge init` writes one.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not a TOML file: {error}.", where=path) from error


def read_config(path: str | Path, settings: Sequence[str] = ()) -> ConfigFiles:
    """A config file on top of its bases, with ``--set`` overrides on top of that.

    ``base = "other.toml"`` starts from another file, named relative to the one that says it.
    Tables are merged key by key; a list (the learners too) replaces the base's, and so does a
    table that names something else (``name = "simulated"`` over ``name = "folder"``). Data paths
    are relative to the file that states them.
    """
    files = _with_bases(Path(path), ())
    data: dict[str, Any] = {}
    for _, said in reversed(files):
        data = merge(data, said)
    data.pop("base", None)
    named = tuple((str(file), said) for file, said in files)
    return ConfigFiles(override(deepcopy(data), settings), named)


def _with_bases(
    path: Path, above: tuple[Path, ...]
) -> list[tuple[Path, dict[str, Any]]]:
    """The file and what it is based on, nearest first."""
    if path.resolve() in above:
        chain = " > ".join(p.name for p in (*above, path))
        raise ConfigError(
            f"the file is its own base ({chain}).", where=path, do="Cut the circle."
        )
    data = read_toml(path)
    dataset = data.get("dataset")
    if isinstance(dataset, dict) and isinstance(dataset.get("path"), str):
        dataset["path"] = resolve_data(dataset["path"], path.resolve().parent)
    if "base" not in data:
        return [(path, data)]
    base = data["base"]
    if not isinstance(base, str) or not (path.parent / base).is_file():
        raise ConfigError(
            f"base = {base!r} is not a file.",
            where=path,
            do=f"Give the name of a config file, relative to {path.resolve().parent}.",
        )
    seen = (*above, path.resolve())
    below = _with_bases(path.parent / base, seen)
    return [(path, data), *below]


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of two configs, key by key; what `above` says wins.

    Examples
    --------
    >>> merge({"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"y": 3}, "b": [2, 3]})
    {'a': {'x': 1, 'y': 3}, 'b': [2, 3]}
    >>> merge({"d": {"name": "cat", "lives": 9}}, {"d": {"name": "dog"}})
    {'d': {'name': 'dog'}}
    """
    found = dict(below)
    for key, value in above.items():
        under = found.get(key)
        found[key] = value
        if isinstance(value, dict) and isinstance(under, dict):
            renamed = value.get("name", under.get("name")) != under.get("name")
            found[key] = value if renamed else merge(under, value)
    return found


def resolve_data(path: str, folder: Path) -> str:
    """Place of a data file: absolute, beside the config, or under ``$FCFORGE_DATA``.

    ``$FCFORGE_DATA/x`` falls back to ``../shared/data/x`` beside the repository.
    """
    if path.startswith("$FCFORGE_DATA"):
        rest = path.removeprefix("$FCFORGE_DATA").lstrip("/")
        root = os.environ.get("FCFORGE_DATA")
        if root:
            return str(Path(root, rest).resolve())
        for parent in (folder, *folder.parents):
            if (parent / "shared" / "data" / rest).exists():
                return str(parent / "shared" / "data" / rest)
        return str(folder / rest)
    return str((folder / Path(path).expanduser()).resolve())
