"""Command-line options as dataclass fields.

A *request* is a dataclass that holds the options of one command, one field per option.
"""

import re
from dataclasses import MISSING, dataclass, fields
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Any, Literal

from fcforge.core.settings import Validated


def option(default: Any = MISSING, help: str = "", **more: Any) -> Any:
    """Return the dataclass field of one command-line option.

    Parameters
    ----------
    default
        Default value; without one the option is required.
    help : str
        Text for ``--help``.
    **more
        ``metavar`` makes it a positional argument. ``flag`` is the option's name if it is not the
        field's (several names separated by blanks). ``several`` lets it take several words.
    """
    metadata = {"help": help, **more}
    if isinstance(default, list):
        return dataclass_field(default_factory=default.copy, metadata=metadata)
    return dataclass_field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Request(Validated):
    """Base class of the options of a command."""

    @classmethod
    def where(cls) -> str:
        """Return the command's name for error messages."""
        name = cls.__name__.removesuffix("Request")
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()

    def given(self, part: Any = None) -> dict[str, Any]:
        """Return the options that differ from their defaults, by field name.

        Parameters
        ----------
        part : dataclass, optional
            Base class of the request; only its fields are returned. By default all fields.
        """
        values = {}
        for field in fields(part or self):
            value = getattr(self, field.name)
            factory = field.default_factory
            if value != (field.default if factory is MISSING else factory()):
                values[field.name] = value
        return values


# -- options that several commands share ----------------------------------------------------------
Kind = Literal["auto", "fc", "fisher_z", "timeseries"]
LogFormat = Literal["csv", "tensorboard"]
JSON = "Print JSON for a program to read."
KIND = "Content of the files: FC matrices, Fisher z or time series."


@dataclass(frozen=True, kw_only=True)
class JsonRequest(Request):
    """Choice between output for people and for programs."""

    as_json: bool = option(False, JSON, flag="--json")


@dataclass(frozen=True, kw_only=True)
class PeopleRequest(Request):
    """Options for reading the people of a hospital from its data folder."""

    kind: Kind = option("auto", KIND)
    positive: str | None = option(
        None,
        "Diagnosis that means patient, e.g. ASD; needed if it is neither 1 nor an obvious word.",
    )
    negative: str | None = option(
        None, "Diagnosis that means control; with --positive, others are left out."
    )
    columns: str = option(
        "", "Columns of the people's table, e.g. site=scanner_site,label=dx."
    )
    drop_unlabelled: bool = option(False, "Leave people without a diagnosis out.")
    leave_out: list[str] = option([], "Subject to leave out; may be repeated.")

    @property
    def loading(self) -> dict[str, Any]:
        """Given options as settings of `fcforge.data.datasets.load_people`."""
        return self.given(PeopleRequest)


ALLOW_CODE = "Import modules that lie beside the config; read them first."


@dataclass(frozen=True)
class CheckRequest(PeopleRequest, JsonRequest):
    """Options of ``fcforge check``."""

    target: Path = option(
        help="Config, .npz file, table of edges or data folder.", metavar="TARGET"
    )
    overrides: list[str] = option(
        [], "A setting, e.g. training.epochs=5.", flag="--set"
    )
    allow_code: bool = option(False, ALLOW_CODE)
    public: bool = option(
        False, "The data are for a base model only, so that no site has to be split."
    )
