"""Registries: tables of the methods, models and so on that a config or the command line can name.

The members of a registry come from fcforge itself and from plug-ins: installed packages that have an
entry point of the group ``fcforge.methods``, ``fcforge.models``, ``fcforge.generators``,
``fcforge.datasets`` or ``fcforge.commands``. A registry can also import a member by the name
``"module:object"``. This runs the module's code, so that only a config of the user may request it
(`Registry.import_member`).
"""

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from inspect import isabstract
from pathlib import Path
from pkgutil import iter_modules
from sysconfig import get_path
from threading import RLock
from typing import Any, TypeVar

from fcforge.core.errors import ConfigError

T = TypeVar("T")
OURS = "fcforge"
REMOVE = "Correct or uninstall the plug-in."


class Registry(MutableMapping[str, T]):
    """Table of the members of one kind (methods, models, ...) by name, in alphabetical order.

    Plug-ins are imported when the table is first read, and not while the package that makes the
    table is imported: a plug-in's module imports that package, so that a module imported first
    would not have defined its members yet.

    Parameters
    ----------
    group : str
        Entry-point group, e.g. ``"fcforge.methods"``.
    adopt : callable
        Called with an imported object, its name and its place for error messages. Returns the
        member, or raises `ConfigError` if the object is of another kind.
    builtin : mapping of str to member
        Members of the package itself.
    """

    def __init__(
        self, group: str, adopt: Callable[[Any, str, str], T], builtin: Mapping[str, T]
    ) -> None:
        self.group = group
        self._adopt = adopt
        self._members = dict(sorted(builtin.items()))
        self._is_loaded = False
        self._lock = RLock()  # another thread waits until all plug-ins are there

    def _table(self) -> dict[str, T]:
        """Return the members by name; import the plug-ins at the first call.

        A plug-in that reads the table while it is imported sees the members of the package alone.
        An error of a plug-in is raised at every call.
        """
        with self._lock:
            if self._is_loaded:
                return self._members
            self._is_loaded = True
            try:
                self._members = dict(sorted(self._with_plugins().items()))
            except BaseException:
                self._is_loaded = False
                raise
            return self._members

    def _with_plugins(self) -> dict[str, T]:
        """Return the members of the package and of the plug-ins, which may take no name twice."""
        members = dict(self._members)
        for name, plugin, where in load_plugins(self.group):
            member = self._adopt(plugin, name, where)
            name = str(getattr(member, "name", name))
            # a class that its package defines and registers as an entry point, too, is no clash
            if members.setdefault(name, member) is not member:
                taken = getattr(members[name], "__module__", self.group)
                message = f"the name '{name}' is already taken by {taken}."
                hint = "Rename or uninstall the plug-in."
                raise ConfigError(message, where=where, do=hint)
        return members

    def __getitem__(self, name: str) -> T:
        return self._table()[name]

    def __setitem__(self, name: str, member: T) -> None:
        self._table()[name] = member

    def __delitem__(self, name: str) -> None:
        del self._table()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table())

    def __len__(self) -> int:
        return len(self._table())

    @property
    def former_names(self) -> dict[str, str]:
        """Present names of renamed members by the names that they had (`former_name`)."""
        present_names = {}
        for name, member in self.items():
            # only a class's own attribute counts: a subclass was not renamed with its base
            own = vars(member) if isinstance(member, type) else {}
            if "former_name" in own:
                present_names[own["former_name"]] = name
        return present_names

    def import_member(self, name: str) -> None:
        """Import and register the member named ``"module:object"``; do nothing for other names.

        Call it only with names from the user's own config. Names from files of others are looked up
        among the registered members and never imported.
        """
        if ":" in name and name not in self:
            where = f"'{name}'"
            self[name] = self._adopt(import_object(name), name, where)


def load_plugins(
    group: str, on_error: Callable[[ConfigError], None] | None = None
) -> Iterator[tuple[str, Any, str]]:
    """Yield name, object and place (for error messages) of every entry point of a group.

    Parameters
    ----------
    group : str
        Entry-point group, e.g. ``"fcforge.methods"``.
    on_error : callable, optional
        Called with the error of a plug-in that cannot be imported; the others are still yielded.
        Without it the error is raised.

    Yields
    ------
    (str, object, str)
    """
    for entry in entry_points(group=group):
        where = f"entry point '{entry.name}' of group {group}"
        try:
            plugin = entry.load()
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name == "torch":
                raise  # reported as a missing extra of fcforge
            reason = f"{type(error).__name__}: {error}"
            message = f"{entry.value} cannot be imported ({reason})."
            problem = ConfigError(message, where=where, do=REMOVE)
            if on_error is None:
                raise problem from error
            on_error(problem)
            continue
        yield entry.name, plugin, where


def import_object(name: str) -> Any:
    """Import ``"module:object"`` and return the object.

    Raises
    ------
    ConfigError
        If the module cannot be imported or has no such object.
    """
    module, _, attribute = name.partition(":")
    message = f"'{name}' cannot be imported"
    absent = object()
    try:
        found = import_module(module)
        result = getattr(found, attribute, absent)
    except Exception as error:
        hint = "The module itself fails: correct it, or install what it needs."
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            hint = f"Install the module, or put {module}.py beside the config."
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{message} ({reason}).", do=hint) from error
    if result is absent:
        place = getattr(found, "__file__", None) or module
        names = {known.lower(): known for known in vars(found)}
        close = get_close_matches(attribute.lower(), names, n=1)
        hint = (
            f"Did you mean '{module}:{names[close[0]]}'?"
            if close
            else "Check the name."
        )
        raise ConfigError(f"{message}: {place} has no '{attribute}'.", do=hint)
    return result


def source_file(name: str) -> str | None:
    """Return the source file of ``"module:object"``; None if the module is not imported."""
    module = sys.modules.get(name.partition(":")[0])
    return getattr(module, "__file__", None)


def source_files(name: str) -> list[Path]:
    """Return the source files of ``"module:object"`` that a user may edit; empty if it is not imported.

    These are that of the module, and those of other modules that define the object or its bases.
    """
    first = source_file(name)
    if first is None:
        return []
    module, _, attribute = name.partition(":")
    member = getattr(sys.modules[module], attribute, None)
    bases = member.__mro__ if isinstance(member, type) else (member,)
    homes = [str(getattr(base, "__module__", "")) for base in bases]
    package = module.partition(".")[0]
    further = [
        source_file(home) or ""
        for home in homes
        if is_of_user(home) or (home.partition(".")[0] == package != OURS)
    ]
    paths = [Path(file) for file in dict.fromkeys([first, *further])]
    return [path for path in paths if path.is_file()]


def is_of_user(module: str | None) -> bool:
    """Return whether a module is a user's: a notebook, a script or a file that is not installed."""
    # of a notebook or script, or made without a module
    if module is None or module == "__main__":
        return True
    if module.partition(".")[0] in ("builtins", OURS, f"{OURS}_consortium"):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    installed = [Path(get_path(kind)) for kind in ("stdlib", "purelib", "platlib")]
    return file is None or not any(map(Path(file).is_relative_to, installed))


def registered(
    package: str, base: type[Any], convert: Callable[[Any, str], Any] | None = None
) -> Registry[Any]:
    """Return the registry of the classes that derive from `base`, by their `name`.

    A class is registered by being defined in a module of the package, or by an entry point of the
    group that bears the package's name, e.g. ``fcforge.methods``.

    Parameters
    ----------
    package : str
        Package whose modules are imported, e.g. ``"fcforge.methods"``.
    base : type
        Base class. Only subclasses that are not abstract and have a ``name`` of their own count.
    convert : callable, optional
        Called with a plug-in's object and its name. Returns the object, or a class made from it
        (e.g. from a `torch.nn.Module`).

    Raises
    ------
    ConfigError
        If a plug-in registers something else, or a name that is taken.
    """

    def adopt(candidate: Any, name: str, where: str) -> Any:
        """Return a plug-in's class, with a name; raise `ConfigError` for anything else."""
        if convert is not None:
            candidate = convert(candidate, name)
        if not (isinstance(candidate, type) and issubclass(candidate, base)):
            message = f"'{name}' is not a subclass of {base.__name__}."
            raise ConfigError(message, where=where, do=REMOVE)
        if "name" not in vars(candidate):
            candidate.name = name  # type: ignore[attr-defined]
        return candidate

    classes: dict[str, Any] = {}
    for submodule in iter_modules(import_module(package).__path__):
        module = import_module(f"{package}.{submodule.name}")
        for value in vars(module).values():
            derived = isinstance(value, type) and issubclass(value, base)
            concrete = derived and value is not base and not isabstract(value)
            if concrete and "name" in vars(value):
                classes[value.name] = value
    return Registry(package, adopt, classes)
