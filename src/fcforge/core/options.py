"""Command-line options as dataclass fields, and the requests that several packages share."""

from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

from fcforge.core.errors import ConfigError
from fcforge.core.settings import Validated

# what a command may be about, in words
KINDS = {
    "start": "a public start",
    "chain": "a chain",
    "generators": "an audit of generators",
}


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
        field's; ``only`` are the `KINDS` that honour it, where another does not.
    """
    metadata = {"help": help, **more}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


of_start = partial(option, only=["start"])  # which a start alone honours
of_chain = partial(option, only=["chain"])
of_exchange = partial(option, only=["start", "chain"])
of_generators = partial(option, only=["generators"])


@dataclass(frozen=True)
class Request(Validated):
    """Options of one command."""

    @classmethod
    def where(cls) -> str:
        """The command, for error messages."""
        return cls.__name__.removesuffix("Request").lower()

    def given(self, part: Any = None) -> dict[str, Any]:
        """Values that are not left at their defaults; of the fields of one `part` where named."""
        found = {}
        for one in fields(part or self):
            value = getattr(self, one.name)
            made = one.default_factory
            if value != (one.default if made is MISSING else made()):
                found[one.name] = value
        return found

    def require_for(self, kind: str) -> None:
        """Raise `ConfigError` for an option that one of the `KINDS` does not honour."""
        given = self.given()
        for one in fields(self):
            only = one.metadata.get("only", KINDS)
            if one.name in given and kind not in only:
                flag = one.name.replace("_", "-")
                honour = " or ".join(KINDS[each] for each in only)
                what = f"--{flag} is for {honour}; this is {KINDS[kind]}."
                raise ConfigError(what, do="Leave it out.")


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


@dataclass(frozen=True)
class CheckRequest(PeopleRequest, JsonRequest):
    """A config or data to be checked."""

    target: Path = option(
        help="Config, .npz file, table of edges or data folder.", metavar="TARGET"
    )
    overrides: list[str] = option(
        [], "A setting, e.g. training.epochs=5.", flag="--set"
    )
