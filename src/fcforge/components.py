"""Models, methods, generators and datasets by name: found in a table, built, or refused clearly."""

import pkgutil
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from typing import Any, TypeVar

from fcforge import settings
from fcforge.errors import unknown_name
from fcforge.types import Component

T = TypeVar("T")


def look_up(kind: str, name: str, table: Mapping[str, T], *, where: str = "") -> T:
    """Entry of a table, or a `ConfigError` with the nearest name and all known ones."""
    if name not in table:
        raise unknown_name(kind, name, table, where=where)
    return table[name]


def check_names(
    kind: str, names: Iterable[str], known: Collection[str], *, where: str = ""
) -> None:
    """Raise `ConfigError` for the first name that is not known."""
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, known, where=where)


def classes_in(package: str, base: type[Any]) -> dict[str, Any]:
    """Classes of a package's modules that derive from `base` and have a name of their own."""
    places = import_module(package).__path__
    found: dict[str, Any] = {}
    for place in pkgutil.iter_modules(places):
        module = import_module(f"{package}.{place.name}")
        for thing in vars(module).values():
            derived = isinstance(thing, type) and issubclass(thing, base)
            if derived and thing is not base and "name" in vars(thing):
                found[thing.name] = thing
    return dict(sorted(found.items()))


def build(
    kind: str, component: Component, table: Mapping[str, type[T]], **given: Any
) -> T:
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
        When the name or a setting is unknown (the nearest known one is named), or a value is not
        what its field says: wrong type, out of bounds, none of the choices.

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
    return settings.make(cls, component.params, f"{kind} '{component.name}'", **given)
