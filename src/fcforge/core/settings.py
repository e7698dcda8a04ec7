"""One truth for settings: a dataclass field states its type, choices and bounds, and they hold.

The same annotations are checked wherever a value comes from: a config (`checked`, by
`build`), the command line (`fcforge_consortium.options`) or Python (`Validated`).
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from fcforge.core.errors import ConfigError
from fcforge.core.names import check_names, look_up, unknown_name

if TYPE_CHECKING:
    from fcforge.core.component import Component

T = TypeVar("T")


@dataclass(frozen=True)
class Bound:
    """What a number must be, as ``Annotated[float, Bound(...)]``.

    Attributes
    ----------
    holds : callable
    wrong, use : str
        What is said of a number for which it does not hold, and what to use instead.
    """

    holds: Callable[[Any], bool]
    wrong: str
    use: str


def at_least(low: float) -> Bound:
    """Numbers from `low` on."""
    return Bound(lambda value: value >= low, "is too small", f"Use {low:g} or more.")


def within(low: float, high: float) -> Bound:
    """Numbers from `low` to `high`, both allowed."""
    return Bound(
        lambda value: low <= value <= high,
        "is out of bounds",
        f"Use {low:g} to {high:g}.",
    )


Size = Annotated[int, at_least(1)]
Count = Annotated[int, at_least(0)]
Positive = Annotated[
    float, Bound(lambda v: v > 0, "is too small", "Use a number above 0.")
]
NotNegative = Annotated[float, at_least(0)]
Fraction = Annotated[
    float,
    Bound(lambda v: 0 < v < 1, "is not a fraction", "Use a number between 0 and 1."),
]
Share = Annotated[float, within(0, 1)]
ShareBelowOne = Annotated[
    float,
    Bound(
        lambda v: 0 <= v < 1,
        "is not a share below 1",
        "Use a number from 0 to below 1.",
    ),
]

_PLAIN: dict[Any, Bound] = {
    bool: Bound(
        lambda v: isinstance(v, bool), "is not true or false", "Use true or false."
    ),
    int: Bound(
        lambda v: isinstance(v, Integral) and not isinstance(v, bool),
        "is not a whole number",
        "Use a whole number.",
    ),
    float: Bound(
        lambda v: isinstance(v, Real) and not isinstance(v, bool) and v == v,
        "is not a number",
        "Use a number.",
    ),
    str: Bound(lambda v: isinstance(v, str), "is not text", "Put it in quotes."),
    NoneType: Bound(lambda v: v is None, "is set", "Leave it out."),
}


class Invalid(NamedTuple):
    """What is wrong with a value, and what to use instead."""

    wrong: str
    use: str


def validation_error(hint: Any, value: Any) -> Invalid | None:
    """Why `value` cannot be a `hint` (a type with its choices and bounds); None if it can."""
    origin = get_origin(hint)
    args = get_args(hint)
    if origin is Annotated:
        return validation_error(args[0], value) or _of_bounds(args[1:], value)
    if origin in (Union, UnionType):
        found = [validation_error(h, value) for h in args]
        return None if None in found else found[0]
    if origin is Literal:
        if value in args:
            return None
        return Invalid("is unknown", unknown_name("", str(value), map(str, args)).do)
    if origin in (tuple, list, Sequence):
        return _of_items(args, origin is tuple and args[-1] is not Ellipsis, value)
    return _of_type(origin or hint, value)


def _of_bounds(extras: tuple[Any, ...], value: Any) -> Invalid | None:
    for bound in extras:
        if isinstance(bound, Bound) and not bound.holds(value):
            return Invalid(bound.wrong, bound.use)
    return None


def _of_items(args: tuple[Any, ...], fixed: bool, value: Any) -> Invalid | None:
    if not isinstance(value, (list, tuple)):
        return Invalid("is not a list", "Use [...].")
    if fixed and len(value) != len(args):
        return Invalid(f"has {len(value)} entries", f"Use {len(args)}.")
    hints = args if fixed else args[:1] * len(value)
    for hint, item in zip(hints, value, strict=True):
        if found := validation_error(hint, item):
            return Invalid(f"has an entry that {found.wrong}", found.use)
    return None


def _of_type(kind: Any, value: Any) -> Invalid | None:
    if kind in _PLAIN:
        return _of_bounds((_PLAIN[kind],), value)
    if kind is Any or not isinstance(kind, type) or isinstance(value, kind):
        return None
    if is_dataclass(kind) or kind is dict or issubclass(kind, Mapping):
        return Invalid("is not a table of settings", "Use { name = value, ... }.")
    return Invalid(f"is not a {kind.__name__}", f"Give a {kind.__name__}.")


@cache
def field_types(target: Any) -> Mapping[str, Any]:
    """Types of a dataclass's fields or a function's parameters, with their bounds, by name."""
    hints = get_type_hints(target, include_extras=True)
    if is_dataclass(target):
        return {f.name: hints[f.name] for f in fields(target)}
    return {name: hint for name, hint in hints.items() if name != "return"}


def _require(name: str, hint: Any, value: Any, where: str) -> None:
    if found := validation_error(hint, value):
        shown = list(value) if isinstance(value, tuple) else value  # as TOML writes it
        what = f"{name} = {shown!r} {found.wrong}."
        raise ConfigError(what, where=where, do=found.use)


class Validated:
    """Dataclass whose fields are checked by their annotations whenever one is made."""

    def __post_init__(self) -> None:
        own: Any = type(self)
        for name, hint in field_types(own).items():
            _require(name, hint, getattr(self, name), self.where())

    @classmethod
    def where(cls) -> str:
        """Place of its fields, for error messages."""
        return cls.__name__


class Checked(Validated):
    """Settings: a validated dataclass that a config can name and fill.

    Class attributes
    ----------------
    kind : str
        What it is, for error messages: "method" gives "method 'ewc'", from the class's `name`.
    presets : mapping of name to settings
        Other values than the defaults; a config asks for them with ``preset = "..."``.
    """

    kind: ClassVar[str] = ""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def where(cls) -> str:
        """Place of its settings, for error messages."""
        kind = cls.kind or cls.__name__
        name = getattr(cls, "name", None)
        return f"{kind} '{name}'" if isinstance(name, str) else kind

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> Self:
        """The instance a preset describes, changed where asked; "default" has the defaults."""
        return cls(**{**cls.presets.get(name, {}), **changes})


def checked(
    target: Any,
    params: Mapping[str, Any],
    where: str,
    *,
    base: Any = None,
    hidden: Any = (),
) -> dict[str, Any]:
    """Settings from a config as `target` (dataclass or function) takes them, or `ConfigError`.

    A list becomes a tuple where one is asked for, a table becomes the nested dataclass: so it is
    the inverse of `dataclasses.asdict` and ``json.dumps``, too.

    Parameters
    ----------
    target : dataclass or callable
    params : mapping
    where : str
        For error messages.
    base : instance of target, optional
        What nested tables change; by default the dataclass without settings.
    hidden : collection of str
        Fields that a config cannot set.
    """
    hints = {k: h for k, h in field_types(target).items() if k not in hidden}
    values = {}
    for name, value in params.items():
        if name not in hints:
            extra = ["preset"] if getattr(target, "presets", None) else []
            raise unknown_name("setting", name, [*hints, *extra], where=where)
        values[name] = _read(
            hints[name], value, f"{where}: {name}", getattr(base, name, None)
        )
        _require(name, hints[name], values[name], where)
    return values


def _read(hint: Any, value: Any, where: str, base: Any = None) -> Any:
    for kind in (hint, *get_args(hint)):
        if is_dataclass(kind) and isinstance(value, Mapping):
            return make(kind, value, where, base=base)
        if get_origin(kind) is tuple and isinstance(value, list):
            item = get_args(kind)[0]
            return tuple(_read(item, one, where) for one in value)
    return value


def make(
    cls: Any, params: Mapping[str, Any], where: str, *, base: Any = None, **given: Any
) -> Any:
    """Dataclass instance from settings: its preset (or `base`), changed by what is given."""
    params = dict(params)
    if "preset" in params and getattr(cls, "presets", None):
        name = params.pop("preset")
        check_names("preset", [str(name)], ("default", *cls.presets), where=where)
        base = cls.from_preset(name)
    if base is None and issubclass(cls, Checked) and not given:
        base = cls()
    values = checked(cls, params, where, base=base, hidden=given)
    if base is None:
        return cls(**given, **values)
    return replace(base, **values, **given)


# -- settings of a registered component ----------------------------------------------------------
def build(
    kind: str, component: "Component", table: Mapping[str, type[T]], **given: Any
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
    >>> from fcforge.core.spec import Component
    >>> @dataclass
    ... class Dog:
    ...     legs: int = 4
    >>> build("animal", Component("dog", {"legs": 3}), {"dog": Dog})
    Dog(legs=3)
    >>> build("animal", Component("dog", {"leg": 3}), {"dog": Dog})
    Traceback (most recent call last):
    fcforge.core.errors.ConfigError: animal 'dog': unknown setting 'leg'. Did you mean 'legs'? ...
    """
    cls: Any = look_up(kind, component.name, table)
    return make(cls, component.params, f"{kind} '{component.name}'", **given)


# -- what is set on top ----------------------------------------------------------------------------
def override(data: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Apply ``--set a.b=c``: values are read as TOML, bare words as text.

    A table that is not there is made.
    """
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise ConfigError(f"--set {setting}: not of the form a.b=c.")
        try:
            value = tomllib.loads(f"v = {text}")["v"]
        except tomllib.TOMLDecodeError:
            value = text
        node: Any = data
        *tables, last = path.strip().split(".")
        for name in tables:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                what = f"--set {path}: {name} = {node!r} is not a table."
                raise ConfigError(what)
        node[last] = value
    return data


def override_only(data: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """`override` within the tables of `data`; other tables are refused."""
    names = list(data)
    found = override(data, settings)
    for name, table in found.items():
        if name not in names or not isinstance(table, dict):
            known = ", ".join(f"{name}.*" for name in names)
            raise ConfigError(f"--set {name}: only {known} can be set here.")
    return found
