"""Identity of settings: what differs from the defaults, and the version of the defaults.

A field that is added with a default changes no identity. A default that changes must change the
identity of everything that relies on it: raise `defaults_version` of its class. The test
``tests/experiments/test_run_keys.py`` compares all defaults with pinned ones and fails until the
version is raised.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import SimpleNamespace
from typing import Any

from fcforge.core.settings import checked, field_types


def defaults_of(cls: type[Any]) -> dict[str, Any]:
    """Return the default of every field of a dataclass that has one, by name."""
    defaults = {}
    for field in fields(cls):
        if field.default is not MISSING:
            defaults[field.name] = field.default
        elif field.default_factory is not MISSING:
            defaults[field.name] = field.default_factory()
    return defaults


def identity(settings: Any) -> dict[str, Any]:
    """Return the settings of a dataclass instance that differ from their defaults.

    Parameters
    ----------
    settings : dataclass instance
        Nested dataclasses are treated alike.

    Returns
    -------
    dict
        Plain values by field name, and ``defaults_version`` where it is above 1.

    Examples
    --------
    >>> from fcforge.core.spec import Training
    >>> identity(Training(epochs=5))
    {'epochs': 5}
    """
    names = [field.name for field in fields(settings)]
    values = {name: getattr(settings, name) for name in names}
    return _differing(type(settings), values)


def settings_identity(
    cls: type[Any], params: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Return the identity of a registered class with the settings of a config.

    Parameters
    ----------
    cls : dataclass
        Class of a method, model or generator. It need not be complete: fields that a config
        cannot set (the number of ROIs) may be missing.
    params : mapping
        Settings of a config; a preset stands for its settings, a variant for another class.
    where : str
        Place of the settings, for error messages.
    """
    given = dict(params)
    variants = getattr(cls, "variants", {})
    if variants and "variant" in given:
        name = given.pop("variant")
        chosen = variants.get(name, cls)
        if chosen is not cls:
            return {"variant": name, **settings_identity(chosen, given, where)}
    presets = getattr(cls, "presets", {})
    if presets and "preset" in given:
        preset = presets.get(given.pop("preset"), {})
        given = {**preset, **given}
    base = SimpleNamespace(**defaults_of(cls))  # whose nested settings tables change
    return _differing(cls, checked(cls, given, where, base=base))


def _differing(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    defaults = defaults_of(cls)
    differing: dict[str, Any] = {}
    for name in field_types(cls):
        if name not in values:
            continue
        value = values[name]
        if is_dataclass(value) and not isinstance(value, type):
            nested = identity(value)
            if word := getattr(
                value, "variant", ""
            ):  # variants may agree in all fields
                nested = {"variant": word, **nested}
            is_default = name in defaults and defaults[name] == value
            if nested or not is_default:
                differing[name] = nested
        elif name not in defaults or defaults[name] != value:
            differing[name] = value
    version = getattr(cls, "defaults_version", 1)
    return {**differing, "defaults_version": version} if version > 1 else differing


def digest(value: Any, length: int = 16) -> str:
    """Return the first hex digits of SHA-256 over a plain value as canonical JSON.

    Equal numbers have equal digests: 2.0 is written as 2.
    """
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _canonical(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
