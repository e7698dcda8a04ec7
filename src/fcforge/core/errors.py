"""Exceptions that name the problem, its place and the remedy."""

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fcforge.core.formatting import printable


class FCForgeError(Exception):
    """Base of every error fcforge raises on purpose.

    Parameters
    ----------
    what : str
        What happened, with the offending value.
    where : str or Path, optional
        File, subject, site or setting it happened in.
    do : str, optional
        What the user can do about it.
    """

    def __init__(self, what: str, *, where: str | Path = "", do: str = "") -> None:
        self.what = what
        self.where = str(where)
        self.do = do
        super().__init__(self.__str__())

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return printable(f"{text} {self.do}" if self.do else text, keep="\n")


class DataError(FCForgeError):
    """A scan, matrix, table or dataset that cannot be used as it is."""


class ConfigError(FCForgeError):
    """A setting with an unknown name, or with a value that it cannot have."""


class SealedError(FCForgeError):
    """Code asked for data it must not see: a past site's subjects or a test split."""


class StoreError(FCForgeError):
    """A run folder that is damaged, foreign or in use."""


class ExchangeError(FCForgeError):
    """A file, record or key of an exchange that is damaged, forged, or may not be used."""


@contextlib.contextmanager
def at(
    where: object = "", do: str = "", kind: type[FCForgeError] | None = None
) -> Iterator[None]:
    """Name a place in every error of the block, and give advice to those that have none.

    With `kind` all of them are of one kind.

    Examples
    --------
    >>> with at("a.exchange", do="Ask for it again."):
    ...     raise ExchangeError("is damaged.")
    Traceback (most recent call last):
    fcforge.core.errors.ExchangeError: a.exchange: is damaged. Ask for it again.
    """
    try:
        yield
    except FCForgeError as error:
        places = [place for place in (str(where), error.where) if place]
        whole = ": ".join(dict.fromkeys(places))
        raised = kind or type(error)
        raise raised(error.what, where=whole, do=error.do or do) from error


def refuse(faults: Mapping[str, bool]) -> None:
    """Raise `ExchangeError` for the first of these faults that is there."""
    for what, is_there in faults.items():
        if is_there:
            raise ExchangeError(f"{what}.")


def needs(
    package: str, extra: str, error: type[FCForgeError] = FCForgeError
) -> FCForgeError:
    """Error for a package that not everybody installs; it names the extra that brings it.

    Examples
    --------
    >>> print(needs("torch", "train"))
    this needs the package 'torch'. Install fcforge with its extra: pip install '.[train]' ...
    """
    do = f"Install fcforge with its extra: pip install '.[{extra}]' (or 'FILE.whl[{extra}]')."
    return error(f"this needs the package '{package}'.", do=do)


def optional(module: str, extra: str, error: type[FCForgeError] = FCForgeError) -> Any:
    """A module of a package that not everybody installs; else `needs`."""
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise needs(module.split(".")[0], extra, error) from missing
