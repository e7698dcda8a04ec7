"""Options of the consortium's commands as dataclasses."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fcforge.core.options import (
    KIND,
    JsonRequest,
    Kind,
    PeopleRequest,
    Request,
    of_chain,
    of_exchange,
    of_generators,
    of_start,
    option,
)
from fcforge.core.settings import FRACTION, Bound, at_least, limits

EPSILON = Bound(
    lambda value: 0 < value < math.inf,
    "is not a privacy budget",
    "Use a number above 0, such as 1.",
)
SIGN = "Private key (PEM) to sign with."
REGISTER = "The hospital's private record: adds results with its own threshold."
PRIVATE = "Private record, which stays here (fcforge.private beside DATA)."


@dataclass(frozen=True, kw_only=True)
class TrustRequest(Request):
    """What a signed file must show before it is used."""

    trust: list[Path] = of_exchange(
        [], "Public key (PEM) that must have signed; may be repeated."
    )
    require_signature: bool = of_exchange(
        False, "Refuse anything unsigned (default: only if something else is signed)."
    )


@dataclass(frozen=True)
class FileRequest(TrustRequest):
    """An exchange file that is read."""

    file: Path = option(help="Exchange file.", metavar="FILE")


@limits(epsilon=EPSILON, delta=FRACTION)
@dataclass(frozen=True)
class LearnRequest(PeopleRequest, TrustRequest):
    """One hospital's step: a release around a public start, or the next step of a chain.

    Only the first of a chain chooses method, model and training, by a config.
    """

    site: str = option(help="Name of the site to learn.")
    data: Path = option(help="Data of the site: .npz file or folder.")
    out: Path = option(help="File to write; NAME.record holds the new records alone.")
    state: Path | None = option(
        None, "Public start, or exchange file of the sites before this one."
    )
    config: Path | None = of_chain(
        None, "First site of a chain: config (TOML) to take a learner from."
    )
    learner: str | None = of_chain(
        None, "First site of a chain: title of the learner in the config."
    )
    epsilon: float | None = of_start(
        None, "Start: the most that each person may spend (1)."
    )
    delta: float | None = of_start(None, "Start: delta of a release (1e-06).")
    mechanism: Literal["gaussian", "none"] | None = of_start(
        None, "Start: noise of a release; none promises nothing."
    )
    register: Path | None = option(None, PRIVATE)
    round: str = of_start("", "Start: give to this round of its two keepers.")
    again: bool = of_start(
        False, "Start: release people of an earlier release again; budgets add up."
    )
    accept_labels: bool = option(
        False, "Continue although diagnoses look swapped; a chain records it."
    )
    accept_scans: bool = of_chain(
        False, "Chain: continue although the scans look odd; recorded."
    )
    sign: Path | None = option(None, SIGN)
    allow_real_subjects: bool = of_chain(
        False, "Chain: allow a method that keeps real subjects; recorded."
    )
    yes: bool = option(
        False, "Continue without asking; needed where there is no terminal."
    )

    @property
    def accept(self) -> tuple[str, ...]:
        """What may look odd."""
        return tuple(n for n in ("accept_labels", "accept_scans") if getattr(self, n))


@dataclass(frozen=True)
class MergeRequest(TrustRequest):
    """Files whose records are joined."""

    files: list[Path] = option(
        help="Exchange files and single records.", metavar="FILES..."
    )
    out: Path = option(help="File to write.")


@dataclass(frozen=True)
class WithdrawRequest(TrustRequest):
    """A site that takes back what it gave."""

    site: str = option(help="Site whose part is taken back.", metavar="SITE")
    state: Path = option(help="Exchange file with its part.")
    out: Path = option(help="File to write; NAME.record: the withdrawal alone.")
    sign: Path | None = option(None, "Private key that signed its part.")


@dataclass(frozen=True)
class RotateRequest(TrustRequest):
    """A site's old key, which signs the new one.

    What is not in `state` of what the site gave is not vouched for.
    """

    old: Path = option(help="Private key that signed so far.", metavar="OLD")
    new: Path = option(help="Private key that signs from now on.", metavar="NEW")
    site: str = option(help="Name of your site.")
    state: Path = option(help="Exchange with all that you gave.")
    out: Path = option(help="File to write; .record: the rotation alone.")


@dataclass(frozen=True)
class KeepRequest(TrustRequest):
    """A keeper's half of a round."""

    shares: list[Path] = option(help="Share files of one round.", metavar="SHARES...")
    state: Path = option(help="The start, or the exchange as it is now.")
    key: Path = option(help="The keeper's private key.")
    out: Path = option(help="Half to write, e.g. half.record.")
    rounds: Path | None = option(None, "List of rounds published (KEY.rounds).")
    again: bool = option(
        False, "Publish once more without those who withdrew; everybody spends again."
    )


@dataclass(frozen=True)
class AuditRequest(PeopleRequest, TrustRequest, JsonRequest):
    """An audit of generators on a hospital's data, or of what it gave to an exchange."""

    data: Path = option(help="The hospital's data: .npz file or folder.")
    site: list[str] = option(help="Site of the data; repeat to audit several as one.")
    generator: list[str] = option([], "Generator, e.g. corr_gauss; may be repeated.")
    state: Path | None = option(
        None, "Audit what the site gave to this exchange file instead."
    )
    halves: Path | None = of_generators(
        None, "Two halves of each run (.npz), for fingerprinting."
    )
    reference: Path | None = of_chain(
        None, "Chain: people who were not learned, for comparison."
    )
    register: Path | None = of_exchange(None, PRIVATE)
    record: Path | None = of_exchange(
        None, "Exchange file to write with the audit inside (NAME.record: it alone)."
    )
    sign: Path | None = of_exchange(None, SIGN)
    seed: int = option(0, "Seed of splits and generators.")
    device: str = of_generators("cpu", "Where to fit generators: cpu or cuda.")
    out: Path | None = option(None, "Folder for audit.json.")


@dataclass(frozen=True)
class PredictRequest(FileRequest, JsonRequest):
    """Scans to be predicted with an exchange file."""

    scans: list[Path] = option(help="Files or folders of scans.", metavar="SCANS...")
    out: Path | None = option(None, "File to write (standard output).")
    register: Path | None = option(None, REGISTER)
    explain: Path | None = option(
        None, "Folder for a page and tables that explain them."
    )
    atlas: str = option("", "Atlas of the scans, for --explain [AAL by its ROI names].")
    kind: Kind = option("auto", KIND)


@dataclass(frozen=True)
class EvaluateRequest(PeopleRequest, FileRequest, JsonRequest):
    """People with known diagnoses, to measure the model of an exchange file on."""

    data: Path = option(
        help="People with diagnoses: .npz file or folder.", metavar="DATA"
    )
    site: str = option("", "Sites to use, separated by commas (all).")
    register: Path | None = option(None, REGISTER)


@dataclass(frozen=True)
class ThresholdRequest(PeopleRequest, FileRequest):
    """A hospital's own threshold, to be fitted for an exchange file."""

    data: Path = option(help="The hospital's own people: .npz file or folder.")
    site: str = option(help="Name of its site.")
    register: Path = option(help="Its private record, which is updated.")


@limits(people=at_least(1), hospitals=at_least(1), epsilon=EPSILON)
@dataclass(frozen=True, kw_only=True)
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
    sign: Path | None = option(None, SIGN)
    keeper: list[Path] = option(
        [], "Card (.keeper) of one of the two keepers of rounds; give both."
    )
    people: int = option(600, "People planned in all.")
    hospitals: int = option(10, "Hospitals planned in all.")
    epsilon: float | None = option(None, "Planned for each person (1).")
    exact: bool = option(
        False, "Plan sums without noise, and let the policy take them."
    )


@dataclass(frozen=True)
class VerifyRequest(FileRequest, JsonRequest):
    """A file to be checked."""

    expect: Path | None = option(
        None, "Earlier file or private record; all it has seen must be here."
    )


@dataclass(frozen=True)
class InspectRequest(FileRequest, JsonRequest):
    """A file to be described: an exchange, single records, or a share."""

    html: Path | None = option(
        None, "Write its page, for an ethics board, to this file."
    )
