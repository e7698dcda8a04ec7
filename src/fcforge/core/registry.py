"""Registered methods, models and generators: classes of a package and of installed plug-ins."""

from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import Any

from fcforge.core.errors import ConfigError


def registered(package: str, base: type[Any]) -> dict[str, Any]:
    """Return all classes that derive from `base`, by their `name`.

    A class is registered by its file in the package, or by an entry point of the group that bears
    the package's name, e.g. ``fcforge.methods``.

    Parameters
    ----------
    package : str
        Package whose modules are imported, e.g. ``"fcforge.methods"``.
    base : type
        Base class. Only subclasses with a ``name`` of their own count.

    Raises
    ------
    ConfigError
        If a plug-in registers something else, or a name that is taken.
    """
    classes: dict[str, Any] = {}
    for place in iter_modules(import_module(package).__path__):
        module = import_module(f"{package}.{place.name}")
        for value in vars(module).values():
            derived = isinstance(value, type) and issubclass(value, base)
            if derived and value is not base and "name" in vars(value):
                classes[value.name] = value
    for entry in entry_points(group=package):
        plugin = entry.load()
        where = f"entry point '{entry.name}' of group {package}"
        if not (isinstance(plugin, type) and issubclass(plugin, base)):
            what = f"{entry.value} is not a subclass of {base.__name__}."
            raise ConfigError(what, where=where, do="Correct or uninstall the plug-in.")
        name = str(vars(plugin).get("name", entry.name))
        if classes.setdefault(name, plugin) is not plugin:
            what = f"the name '{name}' is already taken by {classes[name].__module__}."
            raise ConfigError(what, where=where, do="Rename or uninstall the plug-in.")
    return dict(sorted(classes.items()))
