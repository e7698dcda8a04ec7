"""What a command can be asked, as settings: every option once, with its bounds and its help.

The command line is made from the fields (`fcforge.cli`), and Python fills the same dataclass:
both are checked by the fields' annotations (`fcforge.settings`). Nothing heavy is imported here,
nor may it be where requests are defined.
"""

import math
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from fcforge.settings import Bound, Count, Fraction, Size, Validated


def option(default: Any = MISSING, help: str = "", **more: Any) -> Any:
    """Field of a request.

    Parameters
    ----------
    default
        Without one the option must be given.
    help : str
        What ``--help`` says; bounds are added from the field's annotation.
    **more
        ``metavar`` makes a positional argument; ``flag`` is the option's name where it is not the
        field's.
    """
    metadata = {"help": help, **more}
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


class Request(Validated):
    """Options of one command."""

    @classmethod
    def where(cls) -> str:
        """The command, for error messages."""
        return cls.__name__.removesuffix("Request").lower()


# -- what ``fcforge learn``, ``audit`` and ``predict`` can be asked ------------------------------
Kind = Literal["auto", "fc", "timeseries"]
Mechanism = Literal["gaussian", "none"]
Epsilon = Annotated[
    float,
    Bound(
        lambda value: 0 < value < math.inf,
        "is not a privacy budget",
        "Use a number above 0, such as 1.",
    ),
]
FILE = "Exchange file."
TRUST = "Public key (PEM) that must have signed; may be repeated."
SIGN = "Private key (PEM) to sign with."
REGISTER = "The hospital's private record: adds results with its own threshold."
PRIVATE = "Private record, which stays here (fcforge.private beside DATA)."
JSON = "Print JSON for a program to read."
KIND = "Content of the files: FC matrices or time series."
POSITIVE = "Diagnosis that means patient, e.g. ASD; needed if it is neither 1 nor an obvious word."
NEGATIVE = "Diagnosis that means control; with --positive, others are left out."
COLUMNS = "Columns of the people's table, e.g. site=scanner_site,label=dx."
DROP = "Leave people without a diagnosis out."
REQUIRE = "Refuse anything unsigned (default: only if something else is signed)."
FIRST_SITE = (
    "config",
    "learner",
    "method",
    "model",
    "generator",
    "epochs",
    "seed",
    "held_out",
    "calibrate",
)


@dataclass(frozen=True, kw_only=True)
class VerifyRequest(Request):
    """What a signed file must show before it is used."""

    trust: list[Path] = option([], TRUST)
    require_signature: bool = option(False, REQUIRE)


@dataclass(frozen=True, kw_only=True)
class PeopleRequest(Request):
    """How a hospital's people are read."""

    kind: Kind = option("auto", KIND)
    positive: str | None = option(None, POSITIVE)
    negative: str | None = option(None, NEGATIVE)
    columns: str = option("", COLUMNS)
    drop_unlabelled: bool = option(False, DROP)
    leave_out: list[str] = option([], "Subject to leave out; may be repeated.")

    @property
    def loading(self) -> dict[str, Any]:
        """Settings of `fcforge.sites.load_people`."""
        names = [one.name for one in fields(PeopleRequest)]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class LearnRequest(PeopleRequest, VerifyRequest):
    """One hospital's step: a release around a public start, or the next step of a chain.

    Only the first of a chain chooses method, model and training.
    """

    site: str = option(help="Name of the site to learn.")
    data: Path = option(help="Data of the site: .npz file or folder.")
    out: Path = option(help="File to write; NAME.record holds the new records alone.")
    state: Path | None = option(
        None, "Public start, or exchange file of the sites before this one."
    )
    epsilon: Epsilon | None = option(
        None, "Start: the most that each person may spend (1)."
    )
    delta: Fraction | None = option(None, "Start: delta of a release (1e-06).")
    mechanism: Mechanism | None = option(
        None, "Start: noise of a release; none promises nothing."
    )
    register: Path | None = option(None, PRIVATE)
    round: str = option("", "Start: give to this round of its two keepers.")
    again: bool = option(
        False, "Start: release people of an earlier release again; budgets add up."
    )
    accept_labels: bool = option(
        False, "Continue although diagnoses look swapped; a chain records it."
    )
    accept_scans: bool = option(
        False, "Chain: continue although the scans look odd; recorded."
    )
    config: Path | None = option(
        None, "First site of a chain: config (TOML) to take a learner from."
    )
    learner: str | None = option(
        None, "First site of a chain: title of the learner in the config."
    )
    method: str | None = option(None, "First site of a chain: method.")
    model: str | None = option(None, "First site of a chain: model.")
    generator: str | None = option(None, "First site of a chain: generator.")
    epochs: Size | None = option(None, "First site of a chain: epochs.")
    seed: int | None = option(None, "First site of a chain: seed.")
    held_out: Count | None = option(
        None, "First site of a chain: synthetic held-out subjects."
    )
    calibrate: str | None = option(
        None, "First site of a chain: inner_val, synthetic or none."
    )
    sign: Path | None = option(None, SIGN)
    allow_real_subjects: bool = option(
        False, "Chain: allow a method that keeps real subjects; recorded."
    )
    overwrite: bool = option(False, "Replace OUT.")
    yes: bool = option(
        False, "Continue without asking; needed where there is no terminal."
    )

    @property
    def accept(self) -> tuple[str, ...]:
        """What may look odd."""
        return tuple(n for n in ("accept_labels", "accept_scans") if getattr(self, n))

    @property
    def chosen(self) -> dict[str, Any]:
        """Choices of a first site that were made."""
        found = {name: getattr(self, name) for name in FIRST_SITE}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class KeepRequest(VerifyRequest):
    """A keeper's half of a round."""

    shares: list[Path] = option(help="Share files of one round.", metavar="SHARES...")
    state: Path = option(help="The start, or the exchange as it is now.")
    key: Path = option(help="The keeper's private key.")
    out: Path = option(help="Half to write, e.g. half.record.")
    rounds: Path | None = option(None, "List of rounds published (KEY.rounds).")
    again: bool = option(
        False, "Publish once more without those who withdrew; everybody spends again."
    )
    overwrite: bool = option(False, "Replace OUT.")


@dataclass(frozen=True)
class AuditRequest(PeopleRequest, VerifyRequest):
    """An audit of generators on a hospital's data, or of what it gave to an exchange."""

    data: Path = option(help="The hospital's data: .npz file or folder.")
    site: list[str] = option(help="Site of the data; repeat to audit several as one.")
    generator: list[str] = option(
        [], "Generator, e.g. corr_gauss:rank=8; may be repeated."
    )
    state: Path | None = option(
        None, "Audit what the site gave to this exchange file instead."
    )
    halves: Path | None = option(
        None, "Two halves of each run (.npz), for fingerprinting."
    )
    reference: Path | None = option(
        None, "Chain: people who were not learned, for comparison."
    )
    register: Path | None = option(
        None, f"Exchange file: {PRIVATE[0].lower()}{PRIVATE[1:]}"
    )
    record: Path | None = option(
        None, "Exchange file to write with the audit inside (NAME.record: it alone)."
    )
    sign: Path | None = option(None, SIGN)
    worlds: Size = option(8, "How often each generator is trained again.")
    multiple: Size = option(4, "Synthetic subjects per training subject.")
    seed: int = option(0, "Seed of splits and generators.")
    device: str = option("cpu", "Where to fit generators: cpu or cuda.")
    out: Path | None = option(None, "Folder for audit.json and audit.md.")
    as_json: bool = option(False, JSON, flag="--json")


@dataclass(frozen=True)
class PredictRequest(VerifyRequest):
    """Scans to be predicted with an exchange file."""

    file: Path = option(help=FILE, metavar="FILE")
    scans: list[Path] = option(help="Files or folders of scans.", metavar="SCANS...")
    out: Path | None = option(None, "File to write (standard output).")
    register: Path | None = option(None, REGISTER)
    explain: Path | None = option(
        None, "Folder for a page and tables that explain them."
    )
    atlas: str = option("", "Atlas of the scans, for --explain [AAL by its ROI names].")
    kind: Kind = option("auto", KIND)
    as_json: bool = option(False, JSON, flag="--json")


@dataclass(frozen=True)
class EvaluateRequest(PeopleRequest, VerifyRequest):
    """People with known diagnoses, to measure the model of an exchange file on."""

    file: Path = option(help=FILE, metavar="FILE")
    data: Path = option(
        help="People with diagnoses: .npz file or folder.", metavar="DATA"
    )
    site: str = option("", "Sites to use, separated by commas (all).")
    register: Path | None = option(None, REGISTER)
    as_json: bool = option(False, JSON, flag="--json")


@dataclass(frozen=True)
class ThresholdRequest(PeopleRequest, VerifyRequest):
    """A hospital's own threshold, to be fitted again for a newer exchange file."""

    file: Path = option(help=FILE, metavar="FILE")
    data: Path = option(help="The hospital's own people: .npz file or folder.")
    site: str = option(help="Name of its site.")
    register: Path = option(help="Its private record, which is updated.")


@dataclass(frozen=True)
class StartRequest(Request):
    """A public start, and what it is made for."""

    out: Path | None = option(None, "File to write (of --public: in ~/.cache/fcforge).")
    public: str = option("", "Published people: abide-aal, abide-cc200; fetched once.")
    data: Path | None = option(None, "Public people: .npz file or folder.")
    sites: str = option("", "Public sites, separated by commas (all).")
    without: str = option("", "Sites to leave out, separated by commas.")
    remove: str = option("", "Covariates to remove, e.g. mean_fd,age,sex.")
    dataset: str = option("folder", "Loader; see `fcforge list datasets`.")
    overrides: list[str] = option(
        [], "E.g. start.axes=8, policy.max_epsilon=2.", flag="--set"
    )
    maker: str = option("public", "Who makes it.")
    sign: Path | None = option(None, SIGN)
    keeper: list[Path] = option(
        [], "Card (.keeper) of one of the two keepers of rounds; give both."
    )
    people: Size = option(600, "People planned in all.")
    hospitals: Size = option(10, "Hospitals planned in all.")
    epsilon: Epsilon | None = option(None, "Planned for each person (1).")
    exact: bool = option(
        False, "Plan sums without noise, and let the policy take them."
    )
    overwrite: bool = option(False, "Replace OUT.")


@dataclass(frozen=True)
class InspectRequest(VerifyRequest):
    """A file to be described: an exchange, single records, or a share."""

    file: Path = option(help=FILE, metavar="FILE")
    full: bool = option(False, "Print every number that left a hospital, too.")
    html: Path | None = option(
        None, "Write its page, for an ethics board, to this file."
    )
    as_json: bool = option(False, JSON, flag="--json")
