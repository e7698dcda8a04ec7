"""Read TOML, and apply settings of the form ``a.b=c`` to its tables (``--set``)."""

import sys
import tomllib
from collections.abc import Sequence
from typing import Any

from fcforge.core.errors import ConfigError

MOST_LEVELS = 32  # deepest nesting of tables and lists in a config


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises
    ------
    ValueError
        If the text is no TOML (`tomllib.TOMLDecodeError`), if its tables or lists are nested more
        than `MOST_LEVELS` deep, or if it holds a number with thousands of digits.
    """
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # the limit of Python, whose message speaks of Python's settings
        most = sys.get_int_max_str_digits()
        raise ValueError(f"a number has more than {most} digits") from None
    values: list[Any] = [data]  # all values at one depth
    for _ in range(MOST_LEVELS):
        deeper: list[Any] = []
        for value in values:
            if isinstance(value, dict):
                deeper += value.values()
            elif isinstance(value, list):
                deeper += value
        if not deeper:
            return data
        values = deeper
    raise ValueError(
        f"its tables or lists are nested more than {MOST_LEVELS} levels deep"
    )


def override(data: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Apply settings of the form ``a.b=c`` to a nested dictionary, in place, and return it.

    Parameters
    ----------
    data : dict
        Config; missing tables are created.
    settings : sequence of str
        Each of the form ``path=value``, e.g. ``training.epochs=5``. Values are read as TOML; a bare
        word is text.

    Raises
    ------
    ConfigError
        When a setting has another form, or its path leads through something that is not a table.
    """
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise ConfigError(f"--set {setting}: not of the form a.b=c.")
        try:
            value = parse_toml(f"v = {text}")["v"]
        except tomllib.TOMLDecodeError:
            value = text
        except ValueError as error:
            raise ConfigError(f"--set {path}: {error}.") from error
        table: Any = data
        *table_names, last = path.strip().split(".")
        for name in table_names:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                message = f"--set {path}: {name} = {table!r} is not a table."
                raise ConfigError(message)
        table[last] = value
    return data


def override_only(data: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Apply settings as `override` does, but only within tables that `data` already has.

    Parameters
    ----------
    data, settings
        As in `override`.

    Raises
    ------
    ConfigError
        Also when a setting would create a table.
    """
    tables_before = list(data)
    changed = override(data, settings)
    for name, table in changed.items():
        if name not in tables_before or not isinstance(table, dict):
            known = ", ".join(f"{known_name}.*" for known_name in tables_before)
            raise ConfigError(f"--set {name}: only {known} can be set here.")
    return changed
