"""Models, methods, generators and datasets by name: found in a table, built, or refused clearly."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from fcforge.errors import ConfigError, unknown_name
from fcforge.types import Component

T = TypeVar("T")


def look_up(kind: str, name: str, table: Mapping[str, T], *, where: str = "") -> T:
    """Entry of a table, or a `ConfigError` with the nearest name and all known ones."""
    if name not in table:
        raise unknown_name(kind, name, table, where=where)
    return table[name]


def check_names(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise `ConfigError` for the first name that is not known."""
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, known)


def check_settings(
    kind: str, component: Component, known: Collection[str], *, where: str = ""
) -> None:
    """Raise `ConfigError` for a setting that a component of that kind does not have."""
    where = where or f"{kind} '{component.name}'"
    for name in component.params:
        if not known:
            raise ConfigError(f"unknown setting '{name}'.", where=where, do="It has no settings.")
        if name not in known:
            raise unknown_name("setting", name, known, where=where)


def build(kind: str, component: Component, table: Mapping[str, type[T]], **given: Any) -> T:
    """Instance of the dataclass that a component names, with its settings.

    Parameters
    ----------
    kind : str
        What the table holds, for error messages.
    component : Component
    table : mapping of name to dataclass
    **given
        Fields that the caller sets and a config cannot.

    Raises
    ------
    ConfigError
        When the name or a setting is unknown (the nearest known one is named), or a value
        cannot be used.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Dog:
    ...     legs: int = 4
    >>> build("animal", Component("dog", {"legs": 3}), {"dog": Dog})
    Dog(legs=3)
    >>> build("animal", Component("dog", {"leg": 3}), {"dog": Dog})
    Traceback (most recent call last):
    fcforge.errors.ConfigError: animal 'dog': unknown setting 'leg'. Did you mean 'legs'? ...
    """
    cls: Any = look_up(kind, component.name, table)
    check_settings(kind, component, [f.name for f in fields(cls) if f.name not in given])
    try:
        return cls(**given, **component.params)
    except TypeError as error:  # a value of a type that cannot be compared or multiplied
        raise ConfigError(
            f"settings {dict(component.params)} cannot be used ({error}).",
            where=f"{kind} '{component.name}'",
            do="Give numbers for numbers and names for names.",
        ) from error


def check_choice(where: str, field: str, value: str, known: Collection[str]) -> None:
    """Raise `ConfigError` when a setting is none of the known ones."""
    if value not in known:
        nearest = unknown_name(field, str(value), known)
        raise ConfigError(f"{field} = '{value}' is unknown.", where=where, do=nearest.do)
