"""Config files: TOML, merged with the files that it names as its base and with ``--set`` overrides."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fcforge.core.errors import ConfigError
from fcforge.core.overrides import override, parse_toml


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises
    ------
    ConfigError
        If the file does not exist, is not TOML (the message has the line), is nested too deeply, or holds a
        number that is too long.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError("no such file.", where=path, do="`fcforge init` writes one.")
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"not a TOML file: {error}.", where=path) from error


def read_config(path: str | Path, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Read a config file, merged with its base files and with ``--set`` overrides.

    A file with ``base = "other.toml"`` changes that file, whose path is relative to its own. Tables are merged
    key by key (`merge`), and values of the file win over those of the base. Paths of data are relative to the
    file that states them.

    Parameters
    ----------
    path : path
    settings : sequence of str
        Overrides, each like ``"training.epochs=5"``.
    """
    return override(_on_its_base(Path(path), ()), settings)


def _on_its_base(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """Return the tables of a file merged with its bases; `above` are the files that it is a base of."""
    if path.resolve() in above:
        chain = " > ".join(p.name for p in (*above, path))
        raise ConfigError(
            f"the file is its own base ({chain}).",
            where=path,
            do="Remove `base` from one of these files.",
        )
    data = read_toml(path)
    dataset = data.get("dataset")
    if isinstance(dataset, dict) and isinstance(dataset.get("path"), str):
        dataset["path"] = resolve_data(dataset["path"], path.resolve().parent)
    if "base" not in data:
        return data
    base = data.pop("base")
    if not isinstance(base, str) or not (path.parent / base).is_file():
        raise ConfigError(
            f"base = {base!r} is not a file.",
            where=path,
            do=f"Give the name of a config file, relative to {path.resolve().parent}.",
        )
    below = _on_its_base(path.parent / base, (*above, path.resolve()))
    return merge(below, data)


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of two configs, merged key by key; values of `above` win.

    Lists (of learners, too) are replaced as a whole. So is a table that names something else, for example
    ``name = "simulated"`` above ``name = "folder"``.

    Parameters
    ----------
    below, above : mapping

    Examples
    --------
    >>> merge({"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"y": 3}, "b": [2, 3]})
    {'a': {'x': 1, 'y': 3}, 'b': [2, 3]}
    >>> merge({"d": {"name": "cat", "lives": 9}}, {"d": {"name": "dog"}})
    {'d': {'name': 'dog'}}
    """
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = value
        if isinstance(value, dict) and isinstance(under, dict):
            renamed = value.get("name", under.get("name")) != under.get("name")
            merged[key] = value if renamed else merge(under, value)
    return merged


def resolve_data(path: str, folder: Path) -> str:
    """Return the absolute path of a data file that a config names.

    Parameters
    ----------
    path : str
        Absolute, relative to the config, or under ``$FCFORGE_DATA``. Without that environment variable,
        ``shared/data`` in a folder above the config is used.
    folder : Path
        Folder of the config.
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
