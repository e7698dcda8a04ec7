"""Identity of settings, from which the keys of stored runs are made.

The identity consists of the settings that differ from their defaults and, where it is above 1, the
version of the defaults (`defaults_version` of the class). A field that is added with a default
therefore changes no identity. A default that changes must change the identity of everything that
relies on it: raise `defaults_version` of its class. The test
``tests/experiments/test_run_keys.py`` compares all defaults with pinned ones and fails until the
version is raised.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import SimpleNamespace
from typing import Any, get_args

from fcforge.core.settings import checked, field_types


def defaults_of(cls: type[Any]) -> dict[str, Any]:
    """Return the defaults of a dataclass by field name; fields without a default are left out."""
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
        A nested dataclass is represented by its own identity.

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
    """Return the identity that a registered class has with the settings of a config.

    No instance is made, so that fields that a config cannot set (the number of ROIs) may be missing.

    Parameters
    ----------
    cls : dataclass
        Class of a method, model or generator.
    params : mapping
        Settings of a config; a preset stands for its settings, a variant for another class.
    where : str
        Place of the settings, for error messages.

    Returns
    -------
    dict
        As `identity` returns it for an instance.
    """
    settings = dict(params)
    variants = getattr(cls, "variants", {})
    if variants and "variant" in settings:
        name = settings.pop("variant")
        variant_class = variants.get(name, cls)
        if variant_class is not cls:
            return {
                "variant": name,
                **settings_identity(variant_class, settings, where),
            }
    presets = getattr(cls, "presets", {})
    if presets and "preset" in settings:
        preset = presets.get(settings.pop("preset"), {})
        settings = {**preset, **settings}
    # Tables of a config change nested settings of this object.
    base = SimpleNamespace(**defaults_of(cls))
    return _differing(cls, checked(cls, settings, where, base=base))


def _differing(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that differ from the defaults of `cls`, and the version of its defaults.

    Parameters
    ----------
    cls : dataclass
        Class of the settings.
    values : mapping
        Values by field name; fields that are missing count as defaults.
    """
    defaults = defaults_of(cls)
    differing: dict[str, Any] = {}
    for name, hint in field_types(cls).items():
        if name not in values:
            continue
        value = values[name]
        version = _version_of_variant(hint, value)
        if version > 1:
            # a word for a variant whose defaults have changed
            differing[name] = {"variant": value, "defaults_version": version}
        elif is_dataclass(value) and not isinstance(value, type):
            nested = identity(value)
            # Two variants may agree in all fields, so the identity names the variant.
            if variant := getattr(value, "variant", ""):
                nested = {"variant": variant, **nested}
            # an empty `nested` means the defaults of its own class, which need not be the field's
            is_default = name in defaults and defaults[name] == value
            if nested or not is_default:
                differing[name] = nested
        elif name not in defaults or defaults[name] != value:
            differing[name] = value
    version = getattr(cls, "defaults_version", 1)
    return {**differing, "defaults_version": version} if version > 1 else differing


def _version_of_variant(hint: Any, value: Any) -> int:
    """Return the version of the defaults that a word stands for, as in ``sampler = "paper"``.

    It is 1 for a value that names no variant of a class in the field's type `hint`.
    """
    if not isinstance(value, str):
        return 1
    for kind in get_args(hint):
        variants = getattr(kind, "variants", {})
        if value in variants:
            return getattr(variants[value], "defaults_version", 1)
    return 1


def digest(value: Any, length: int = 16) -> str:
    """Return the first hex digits of the SHA-256 of a plain value, written as canonical JSON.

    Equal numbers have equal digests: 2.0 is written as 2.

    Parameters
    ----------
    value
        Mappings, lists, text, numbers, booleans and None, nested as needed.
    length : int
        Number of hex digits.
    """
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _canonical(value: Any) -> Any:
    """Return a plain value with text as keys, lists for tuples, and integers for whole floats."""
    if isinstance(value, Mapping):
        return {str(name): _canonical(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
