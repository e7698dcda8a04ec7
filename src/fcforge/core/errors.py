"""Exceptions that state the problem, its place and the remedy."""

import contextlib
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fcforge.core.formatting import printable


class FCForgeError(Exception):
    """Base class of the errors that fcforge raises on purpose.

    Parameters
    ----------
    what : str
        The problem, with the offending value.
    where : str or Path, optional
        File, subject, site or setting that has the problem.
    do : str, optional
        Advice to the user.
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
    """Error of a scan, matrix, table or dataset that cannot be used as it is."""


class ConfigError(FCForgeError):
    """Error of a setting: an unknown name, or a value that it cannot have."""


class SealedError(FCForgeError):
    """Error of code that reads data it must not see: past subjects or a test split."""


class StoreError(FCForgeError):
    """Error of a run folder that is damaged, of another program, or in use."""


class ExchangeError(FCForgeError):
    """Error of an exchange: a file, record or key is damaged, forged or not allowed."""


@contextlib.contextmanager
def at(
    where: object = "", do: str = "", kind: type[FCForgeError] | None = None
) -> Iterator[None]:
    """Add a place to every `FCForgeError` that the block raises, and advice to those without.

    Parameters
    ----------
    where : object
        Place, e.g. a file; it stands before the place that the error already names.
    do : str
        Advice for errors that give none.
    kind : type of FCForgeError, optional
        Class that the errors are converted to; by default each keeps its own.

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
        place = ": ".join(dict.fromkeys(places))  # a place that both name stands once
        raised = kind or type(error)
        raise raised(error.what, where=place, do=error.do or do) from error


def refuse(faults: Mapping[str, bool]) -> None:
    """Raise `ExchangeError` for the first fault that is present.

    Parameters
    ----------
    faults : mapping of str to bool
        By message (without its full stop), whether the fault is present.
    """
    for message, present in faults.items():
        if present:
            raise ExchangeError(f"{message}.")


def needs(
    package: str, extra: str, error: type[FCForgeError] = FCForgeError
) -> FCForgeError:
    """Return the error for a missing optional package; it names the extra that installs it.

    Parameters
    ----------
    package : str
        Package that cannot be imported, e.g. "torch".
    extra : str
        Extra of fcforge, e.g. "train".
    error : type of FCForgeError
        Class of the error.

    Examples
    --------
    >>> print(needs("torch", "train"))
    this needs the package 'torch'. Install fcforge with its extra: pip install '.[train]' ...
    """
    hint = f"Install fcforge with its extra: pip install '.[{extra}]' (or 'FILE.whl[{extra}]')."
    return error(f"this needs the package '{package}'.", do=hint)


def optional(module: str, extra: str, error: type[FCForgeError] = FCForgeError) -> Any:
    """Import and return a module of an optional package, or raise the error of `needs`.

    Parameters
    ----------
    module : str
        Module to import, e.g. "torch" or "nibabel.freesurfer".
    extra, error
        As in `needs`.
    """
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise needs(module.split(".")[0], extra, error) from missing
