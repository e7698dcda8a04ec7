"""Settings: dataclass fields and parameters with types, choices and limits that are enforced.

A field states its type and its choices (``Literal``) in the annotation. Numeric limits stand in the
decorator `limits`, so that ``help()`` shows plain signatures. The same checks apply wherever a value
comes from: a config (`checked`, used by `build`), the command line (`fcforge.core.options`) or Python
(`Validated`).
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
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
    """Condition that a setting's value must meet.

    Attributes
    ----------
    holds : callable
        Returns whether a value meets the condition.
    wrong : str
        Predicate for the error message, e.g. "is too small".
    use : str
        Advice for the error message, e.g. "Use 1 or more."
    """

    holds: Callable[[Any], bool]
    wrong: str
    use: str


def at_least(low: float) -> Bound:
    """Return the bound of numbers from `low` on."""
    return Bound(lambda value: value >= low, "is too small", f"Use {low:g} or more.")


def above(low: float) -> Bound:
    """Return the bound of numbers greater than `low`."""
    return Bound(
        lambda value: value > low, "is too small", f"Use a number above {low:g}."
    )


def within(low: float, high: float) -> Bound:
    """Return the bound of numbers from `low` to `high`, both allowed."""
    return Bound(
        lambda value: low <= value <= high,
        "is out of bounds",
        f"Use {low:g} to {high:g}.",
    )


FRACTION = Bound(
    lambda value: 0 < value < 1, "is not a fraction", "Use a number between 0 and 1."
)
SHARE_BELOW_ONE = Bound(
    lambda value: 0 <= value < 1,
    "is not a share below 1",
    "Use a number from 0 to below 1.",
)


def limits(**bounds: Bound | tuple[Bound, ...]) -> Callable[[T], T]:
    """Return a decorator that sets limits of a dataclass's fields or a function's parameters.

    Subclasses inherit the limits. A limit applies to numbers and lists. None and text pass where the
    field's type allows them. The decorator stands above ``@dataclass``.

    Parameters
    ----------
    **bounds
        By name of the field or parameter, its bound, or a tuple of bounds that are checked in turn.

    Examples
    --------
    >>> @limits(legs=at_least(0))
    ... @dataclass
    ... class Dog(Validated):
    ...     legs: int = 4
    >>> Dog(-1)
    Traceback (most recent call last):
    fcforge.core.errors.ConfigError: Dog: legs = -1 is too small. Use 0 or more.
    """

    def decorate(target: Any) -> Any:
        """Store the bounds with the class or function; `field_limits` reads them."""
        if is_dataclass(target):
            names = {field.name for field in fields(target)}
        else:
            names = set(inspect.signature(target).parameters)
        if unknown := bounds.keys() - names:
            raise TypeError(
                f"limits of {target.__name__}: no field named {sorted(unknown)}."
            )
        target._limits = {
            name: bound if isinstance(bound, tuple) else (bound,)
            for name, bound in bounds.items()
        }
        return target

    return decorate


@cache
def field_limits(target: Any) -> Mapping[str, tuple[Bound, ...]]:
    """Return the bounds of a dataclass's fields or a function's parameters, by name.

    Parameters
    ----------
    target : dataclass or callable
        Those that `limits` decorated; of a dataclass, its base classes count, too.
    """
    merged: dict[str, tuple[Bound, ...]] = {}
    for owner in reversed(getattr(target, "__mro__", (target,))):
        merged |= vars(owner).get("_limits", {})
    return merged


# Conditions of the plain types, in the words of TOML.
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
    """Reason why a value is refused, e.g. "is too small", and advice on what to use instead."""

    wrong: str
    use: str


def validation_error(
    hint: Any, value: Any, bounds: Sequence[Bound] = ()
) -> Invalid | None:
    """Return why `value` does not fit a type and bounds; None if it fits.

    Parameters
    ----------
    hint : type
        Annotation: a type, a union, a ``Literal`` of choices, or a list, tuple or mapping.
    value
        Value to check.
    bounds : sequence of Bound
        Conditions that the value must meet unless it is None or text.
    """
    if invalid := _type_error(hint, value):
        return invalid
    if value is None or isinstance(value, str):
        return None
    return _bounds_error(bounds, value)


def _type_error(hint: Any, value: Any) -> Invalid | None:
    """Return why a value does not fit the annotation `hint`; None if it fits."""
    origin = get_origin(hint)
    args = get_args(hint)
    if origin in (Union, UnionType):
        errors = [_type_error(alternative, value) for alternative in args]
        fits_one = None in errors
        return None if fits_one else errors[0]
    if origin is Literal:
        if value in args:
            return None
        return Invalid("is unknown", unknown_name("", str(value), map(str, args)).do)
    if origin in (tuple, list, Sequence):
        # ``tuple[int, str]`` has one type per item; ``tuple[int, ...]`` has one for all, as a list
        one_per_item = origin is tuple and args[-1] is not Ellipsis
        return _items_error(args, one_per_item, value)
    return _plain_type_error(origin or hint, value)


def _bounds_error(bounds: Sequence[Bound], value: Any) -> Invalid | None:
    """Return the first bound that a value does not meet, as reason and advice; None if it meets all."""
    for bound in bounds:
        if not bound.holds(value):
            return Invalid(bound.wrong, bound.use)
    return None


def _items_error(args: tuple[Any, ...], fixed: bool, value: Any) -> Invalid | None:
    """Return why a value is not a list or tuple with items of the right types; None if it is.

    Parameters
    ----------
    args : tuple of type
        Arguments of the annotation, e.g. ``(int, str)`` of ``tuple[int, str]``.
    fixed : bool
        Whether `args` has one type per item; otherwise its first type is that of all items.
    value
    """
    if not isinstance(value, (list, tuple)):
        return Invalid("is not a list", "Use [...].")
    if fixed and len(value) != len(args):
        return Invalid(f"has {len(value)} entries", f"Use {len(args)}.")
    hints = args if fixed else args[:1] * len(value)
    for hint, item in zip(hints, value, strict=True):
        if invalid := _type_error(hint, item):
            return Invalid(f"has an entry that {invalid.wrong}", invalid.use)
    return None


def _plain_type_error(kind: Any, value: Any) -> Invalid | None:
    """Return why a value is not an instance of a class without type arguments; None if it is.

    Annotations that are no classes, and ``Any``, accept every value.
    """
    if kind in _PLAIN:
        return _bounds_error((_PLAIN[kind],), value)
    if kind is Any or not isinstance(kind, type) or isinstance(value, kind):
        return None
    if is_dataclass(kind) or kind is dict or issubclass(kind, Mapping):
        return Invalid("is not a table of settings", "Use { name = value, ... }.")
    return Invalid(f"is not a {kind.__name__}", f"Give a {kind.__name__}.")


@cache
def field_types(target: Any) -> Mapping[str, Any]:
    """Return the annotations of a dataclass's fields or a function's parameters, by name."""
    hints = get_type_hints(target)
    if is_dataclass(target):
        return {field.name: hints[field.name] for field in fields(target)}
    return {name: hint for name, hint in hints.items() if name != "return"}


def _require(target: Any, name: str, value: Any, where: str) -> None:
    """Raise `ConfigError` if a value does not fit the field or parameter `name` of `target`.

    `where` is the place of the setting, for the error message.
    """
    hint, bounds = field_types(target)[name], field_limits(target).get(name, ())
    if invalid := validation_error(hint, value, bounds):
        as_in_toml = list(value) if isinstance(value, tuple) else value
        message = f"{name} = {as_in_toml!r} {invalid.wrong}."
        raise ConfigError(message, where=where, do=invalid.use)


class Validated:
    """Base class of dataclasses whose instances are checked against their fields' types and limits."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for the first field whose value does not fit."""
        cls: Any = type(self)
        for name in field_types(cls):
            _require(cls, name, getattr(self, name), self.where())

    @classmethod
    def where(cls) -> str:
        """Return the name of the settings for error messages."""
        return cls.__name__


class Checked(Validated):
    """Base class of validated dataclasses that a config can name and fill.

    Attributes
    ----------
    kind : str
        Class attribute: kind of component for error messages. "method" gives "method 'ewc'" with
        the class's `name`.
    presets : mapping of name to settings
        Class attribute: named sets of values that differ from the defaults. A config chooses one
        with ``preset = "..."``.
    defaults_version : int
        Class attribute: part of the keys of runs. Raise it when a default changes
        (`fcforge.core.identity`).
    variant : str
        Class attribute: name of the class among its `variants`.
    variants : mapping of name to class
        Class attribute: classes that a config chooses from with ``variant = "..."``.
    """

    kind: ClassVar[str] = ""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    defaults_version: ClassVar[int] = 1
    variant: ClassVar[str] = ""
    variants: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def where(cls) -> str:
        """Return the name of the settings for error messages, e.g. "method 'ewc'"."""
        kind = cls.kind or cls.__name__
        name = getattr(cls, "name", None)
        return f"{kind} '{name}'" if isinstance(name, str) else kind

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> Self:
        """Return an instance with the values of a preset, some of them replaced.

        Parameters
        ----------
        name : str
            A preset of the class, or "default" for all defaults.
        **changes
            Values in place of the preset's.
        """
        preset = cls.presets.get(name, {})  # "default" has no entry
        return cls(**{**preset, **changes})


def checked(
    target: Any,
    params: Mapping[str, Any],
    where: str,
    *,
    base: Any = None,
    hidden: Any = (),
) -> dict[str, Any]:
    """Check settings from a config and return them as keyword arguments of a dataclass or function.

    A list becomes a tuple where the type is a tuple, and a table becomes the nested dataclass. The
    function therefore also inverts `dataclasses.asdict` followed by ``json.dumps``.

    Parameters
    ----------
    target : dataclass or callable
        What the keyword arguments are for.
    params : mapping
        Settings by name, as TOML or JSON has them.
    where : str
        Place of the settings for error messages.
    base : instance of target, optional
        Instance whose nested dataclasses the tables change; by default, the target's defaults.
    hidden : collection of str
        Fields that a config cannot set.

    Returns
    -------
    dict of str to value

    Raises
    ------
    ConfigError
        When a setting is unknown or its value does not fit.
    """
    hints = {
        name: hint for name, hint in field_types(target).items() if name not in hidden
    }
    values = {}
    for name, value in params.items():
        if name not in hints:
            # `make` understands these words, too, for classes that have presets or variants
            attribute_of = {"preset": "presets", "variant": "variants"}
            words = [
                word
                for word, attribute in attribute_of.items()
                if getattr(target, attribute, None)
            ]
            raise unknown_name("setting", name, [*hints, *words], where=where)
        values[name] = _read(
            hints[name], value, f"{where}: {name}", getattr(base, name, None)
        )
        _require(target, name, values[name], where)
    return values


def _read(hint: Any, value: Any, where: str, base: Any = None) -> Any:
    """Return a value of a config as the annotation `hint` needs it.

    A table becomes a dataclass and a list a tuple, where the annotation has one. Other values are
    returned as they are; `_require` checks them.

    Parameters
    ----------
    hint : type
        Annotation of the setting.
    value
        Value as TOML or JSON has it.
    where : str
        Place of the value for error messages.
    base : object, optional
        Present value of the setting: a table changes this dataclass.
    """
    for kind in (hint, *get_args(hint)):
        if is_dataclass(kind) and isinstance(value, Mapping):
            return make(kind, value, where, base=_instance(kind, base))
        if get_origin(kind) is tuple and isinstance(value, list):
            item_type = get_args(kind)[0]
            return tuple(_read(item_type, item, where) for item in value)
    return value


def _instance(kind: Any, value: Any) -> Any:
    """Return a value if it is an instance of the dataclass `kind`, or the variant that it names.

    Other values give None.
    """
    variants = getattr(kind, "variants", {})
    if isinstance(value, str) and value in variants:
        return variants[value]()
    return value if isinstance(value, kind) else None


def make(
    cls: Any, params: Mapping[str, Any], where: str, *, base: Any = None, **given: Any
) -> Any:
    """Return a dataclass instance made from the settings of a config.

    Parameters
    ----------
    cls : dataclass
        Class of the instance, or the one that has the variants.
    params : mapping
        Settings by name. ``variant`` chooses one of the class's variants, and ``preset`` one of its
        presets, whose values the other settings replace.
    where : str
        Place of the settings for error messages.
    base : instance of cls, optional
        Instance that the settings change.
    **given
        Fields that the caller sets and a config cannot.
    """
    params = dict(params)
    if "variant" in params and getattr(cls, "variants", None):
        name = str(params.pop("variant"))
        check_names("variant", [name], cls.variants, where=where)
        cls = cls.variants[name]
        # settings of another variant do not carry over
        base = base if type(base) is cls else None
    elif base is not None:
        cls = type(base)
    if "preset" in params and getattr(cls, "presets", None):
        name = params.pop("preset")
        check_names("preset", [str(name)], ("default", *cls.presets), where=where)
        base = cls.from_preset(name)
    # nested tables change the defaults; fields in `given` may be needed to make an instance at all
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
    """Return an instance of the dataclass that a component names, with the component's settings.

    Parameters
    ----------
    kind : str
        Kind of component that the table holds, for error messages.
    component : Component
        Name and settings, as a config has them.
    table : mapping of name to dataclass
        Classes of all components of the kind.
    **given
        Fields that the caller sets and a config cannot.

    Raises
    ------
    ConfigError
        When the name or a setting is unknown (the message names the nearest known one), or a value
        has the wrong type, is out of bounds or is none of the choices.

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
