"""What a command can be asked, as settings: every option once, with its bounds and its help.

The command line is made from the fields (`fcforge.cli`), and Python fills the same dataclass:
both are checked by the fields' annotations (`fcforge.settings`). Nothing heavy is imported here,
nor may it be where requests are defined.
"""

import math
from dataclasses import MISSING, dataclass, field
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
NewSite = Literal["refuse", "leave", "estimate"]
TRUST = "Public key (PEM) the capsule must be signed by; may be repeated."
SIGN = "Private key (PEM) to sign with."
HOME = "The hospital's home file: adds results with its own threshold."
JSON = "Print JSON for a program to read."
KIND = "Content of the files: FC matrices or time series."
NEW = "Harmonised capsule: what to do with scans of a new site."
POSITIVE = "Diagnosis that means patient, e.g. ASD; needed if it is neither 1 nor an obvious word."
REQUIRE = "Refuse anything unsigned (default: only if something else is signed)."
RELEASE = ("epsilon", "delta", "mechanism", "local", "again", "accept_labels")
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
    "harmonise",
    "harmonise_to",
)


@dataclass(frozen=True)
class LearnRequest(Request):
    """One hospital's turn: a release around a public start, or the next link of a chain.

    Only the first of a chain chooses method, model and training.
    """

    site: str = option(help="Name of the site to learn.")
    data: Path = option(help="Data of the site: .npz file or folder.")
    out: Path = option(help="Capsule to write (without a suffix: a folder).")
    state: Path | None = option(
        None, "Public start, or capsule of the sites before this one."
    )
    epsilon: Epsilon | None = option(
        None, "Privacy: the most that each person may spend (1)."
    )
    delta: Fraction | None = option(None, "Privacy: delta of a release (1e-06).")
    mechanism: Mechanism | None = option(
        None, "Noise of a release; none promises nothing."
    )
    local: Path | None = option(
        None, "Release: file that stays here [SITE.home.json by DATA]."
    )
    register: Path | None = option(
        None, "Private record that stays here [fcforge.private by DATA]."
    )
    round: str = option("", "Release: give to this round of the start's two keepers.")
    again: bool = option(
        False, "Release people of an earlier release again; budgets add up."
    )
    accept_labels: bool = option(
        False, "Go on though diagnoses look swapped; a chain records it."
    )
    accept_scans: bool = option(
        False, "Chain: continue although the scans look odd; recorded."
    )
    positive: str | None = option(None, POSITIVE)
    template: Path | None = option(
        None, "Chain: your copy of the public template in the settings."
    )
    config: Path | None = option(
        None, "First site: config (TOML) to take a learner from."
    )
    learner: str | None = option(
        None, "First site: title of the learner in the config."
    )
    method: str | None = option(None, "First site: method.")
    model: str | None = option(None, "First site: model.")
    generator: str | None = option(None, "First site: generator.")
    epochs: Size | None = option(None, "First site: epochs.")
    seed: int | None = option(None, "First site: seed.")
    held_out: Count | None = option(None, "First site: synthetic held-out subjects.")
    calibrate: str | None = option(None, "First site: inner_val, synthetic or none.")
    harmonise: str | None = option(None, "First site: none, site_demean or combat.")
    harmonise_to: Path | None = option(
        None, "First site: public people to harmonise to."
    )
    kind: Kind = option("auto", KIND)
    sign: Path | None = option(None, SIGN)
    trust: list[Path] = option([], TRUST)
    require_signature: bool = option(False, REQUIRE)
    allow_real_subjects: bool = option(
        False, "Allow a method that keeps real subjects; recorded."
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
        return self._said(FIRST_SITE)

    @property
    def release(self) -> dict[str, Any]:
        """Options of a release that were given."""
        return self._said(RELEASE)

    def _said(self, names: tuple[str, ...]) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in names}
        return {k: v for k, v in found.items() if v is not None and v is not False}


@dataclass(frozen=True)
class AuditRequest(Request):
    """An audit of generators on a hospital's data, or of a capsule against them."""

    data: Path = option(help="The hospital's data: .npz file or folder.")
    site: list[str] = option(help="Site of the data; repeat to audit several as one.")
    generator: list[str] = option(
        [], "Generator, e.g. corr_gauss:rank=8; may be repeated."
    )
    capsule: Path | None = option(None, "Audit this capsule instead.")
    halves: Path | None = option(
        None, "Two halves of each run (.npz), for fingerprinting."
    )
    reference: Path | None = option(
        None, "Capsule: people who were not learned, for comparison."
    )
    local: Path | None = option(
        None, "Capsule: the receipt, or the home file of the site."
    )
    register: Path | None = option(
        None, "Exchange: the private record of the site [fcforge.private by DATA]."
    )
    positive: str | None = option(None, POSITIVE)
    record: Path | None = option(
        None, "Capsule: seal it again here, with the audit inside."
    )
    sign: Path | None = option(None, SIGN)
    trust: list[Path] = option([], TRUST)
    require_signature: bool = option(False, REQUIRE)
    kind: Kind = option("auto", KIND)
    worlds: Size = option(8, "How often each generator is trained again.")
    multiple: Size = option(4, "Synthetic subjects per training subject.")
    seed: int = option(0, "Seed of splits and generators.")
    device: str = option("cpu", "Where to fit generators: cpu or cuda.")
    out: Path | None = option(None, "Folder for audit.json and audit.md.")
    as_json: bool = option(False, JSON, flag="--json")


@dataclass(frozen=True)
class PredictRequest(Request):
    """Scans to be predicted with either kind of capsule."""

    capsule: Path = option(help="Capsule file or folder.", metavar="CAPSULE")
    scans: list[Path] = option(help="Files or folders of scans.", metavar="SCANS...")
    out: Path | None = option(None, "File to write (standard output).")
    local: Path | None = option(None, HOME)
    site: str | None = option(None, "Harmonised capsule: the site of the scans.")
    unseen: NewSite = option("refuse", NEW)
    explain: Path | None = option(
        None, "Folder for a page and tables that explain them."
    )
    atlas: str = option("", "Atlas of the scans, for --explain [AAL by its ROI names].")
    kind: Kind = option("auto", KIND)
    trust: list[Path] = option([], TRUST)
    as_json: bool = option(False, JSON, flag="--json")
