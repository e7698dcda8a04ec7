"""Command-line options as dataclass fields, and the requests that several packages share."""

import re
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from fcforge.core.settings import Validated


def option(default: Any = MISSING, help: str = "", **more: Any) -> Any:
    """Field of a request.

    Parameters
    ----------
    default
        Without one the option must be given.
    help : str
        What ``--help`` says.
    **more
        ``metavar`` makes a positional argument; ``flag`` is the option's name where it is not the
        field's.
    """
    metadata = {"help": help, **more}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Request(Validated):
    """Options of one command."""

    @classmethod
    def where(cls) -> str:
        """The command, for error messages."""
        name = cls.__name__.removesuffix("Request")
        return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()

    def given(self, part: Any = None) -> dict[str, Any]:
        """Values that are not left at their defaults; of the fields of one `part` where named."""
        found = {}
        for one in fields(part or self):
            value = getattr(self, one.name)
            made = one.default_factory
            if value != (one.default if made is MISSING else made()):
                found[one.name] = value
        return found


# -- what commands around exchange files can be asked ---------------------------------------------
Kind = Literal["auto", "fc", "fisher_z", "timeseries"]
JSON = "Print JSON for a program to read."
KIND = "Content of the files: FC matrices, Fisher z or time series."


@dataclass(frozen=True, kw_only=True)
class JsonRequest(Request):
    """What is found is printed for people, or for programs."""

    as_json: bool = option(False, JSON, flag="--json")


@dataclass(frozen=True, kw_only=True)
class PeopleRequest(Request):
    """How a hospital's people are read."""

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
        """Settings of `fcforge.data.datasets.load_people`."""
        return self.given(PeopleRequest)


ALLOW_CODE = "Import modules that lie beside the config; read them first."


@dataclass(frozen=True)
class CheckRequest(PeopleRequest, JsonRequest):
    """A config or data to be checked."""

    target: Path = option(
        help="Config, .npz file, table of edges or data folder.", metavar="TARGET"
    )
    overrides: list[str] = option(
        [], "A setting, e.g. training.epochs=5.", flag="--set"
    )
    allow_code: bool = option(False, ALLOW_CODE)
