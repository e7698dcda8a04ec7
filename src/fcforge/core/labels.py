"""Labels of classes in arrays: cells without a value, spellings, and kinds of values."""

import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np

from fcforge.core.errors import DataError
from fcforge.core.formatting import listed
from fcforge.core.names import two_spellings

# Cells that stand for a missing value.
MISSING = ("", *listed("., n/a, #n/a, #nv, na, nan, null, -999, -9999, -9999.0"))
# kinds of values that `y` may hold, and their types; a truth value is an int, too
KINDS: dict[str, tuple[type, ...]] = {
    "truth values": (bool, np.bool_),
    "numbers": (int, float, np.number),
    "texts": (str,),
}


def is_missing(value: str) -> bool:
    """Return whether a cell of a table stands for a missing value."""
    return plain_word(value) in MISSING


def plain_word(word: str) -> str:
    """Return a word in the form in which words are compared: NFKC, lower case, no outer spaces."""
    return unicodedata.normalize("NFKC", word).strip().casefold()


def text_of(value: Any) -> str:
    """Return a value as text, empty where there is none; pandas writes <NA>."""
    return "" if value is None else str(value).strip("<> ")


def refuse_spellings(role: str, names: Iterable[str]) -> None:
    """Raise `DataError` if two names differ in spelling alone; `role` is "site" or "class"."""
    if pair := two_spellings(names):
        raise DataError(
            f"{role} holds {pair}: one {role} in two spellings.",
            do=f"Spell each {role} in one way.",
        )


def refuse_missing(y: Any, arrays: str = "X and y") -> None:
    """Raise `DataError` if labels have a missing value, or one class in two spellings.

    Parameters
    ----------
    y : array-like
        Labels.
    arrays : str
        Arrays that the user should leave a subject out of, for the advice.

    Examples
    --------
    >>> refuse_missing(["HC", ""], "all")
    Traceback (most recent call last):
    fcforge.core.errors.DataError: y[1] is '', which stands for a missing value. Leave the subject out of all.
    """
    values = np.asarray(y, dtype=object).ravel().tolist()
    for place, value in enumerate(values):
        if is_missing(text_of(value)):
            message = f"y[{place}] is {value!r}, which stands for a missing value."
            raise DataError(message, do=f"Leave the subject out of {arrays}.")
    refuse_spellings("class", (value for value in values if isinstance(value, str)))


def refuse_mixed_types(y: Any) -> None:
    """Raise `DataError` if `y` holds values of two kinds: texts, numbers or truth values."""
    first: dict[str, Any] = {}
    for value in np.asarray(y, dtype=object).ravel().tolist():
        for kind, types in KINDS.items():
            if isinstance(value, types):
                first.setdefault(kind, value)
                break
    if len(first) > 1:
        (one, a), (other, b), *_ = first.items()
        message = f"y holds {one} and {other}, for example {a!r} and {b!r}."
        hint = "Write every class in one way, all as texts or all as numbers."
        raise DataError(message, do=hint)


def refuse_fractions(y: Any) -> None:
    """Raise `DataError` if `y` holds a number with a fraction, which is no class.

    Examples
    --------
    >>> refuse_fractions([0.0, 1.0])
    >>> refuse_fractions([0.0, 0.25])
    Traceback (most recent call last):
    fcforge.core.errors.DataError: y[1] is 0.25, which is a measurement, not a class. Give the diagnoses.
    """
    for place, value in enumerate(np.asarray(y, dtype=object).ravel().tolist()):
        if isinstance(value, (float, np.floating)) and not float(value).is_integer():
            message = f"y[{place}] is {value!r}, which is a measurement, not a class."
            raise DataError(message, do="Give the diagnoses.")
