"""Options of the consortium's commands as dataclasses."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fcforge.core.options import (
    ALLOW_CODE,
    KIND,
    JsonRequest,
    Kind,
    PeopleRequest,
    Request,
    option,
)
from fcforge.core.settings import FRACTION, Bound, at_least, limits

EPSILON = Bound(
    lambda value: 0 < value < math.inf,
    "is not a privacy budget",
    "Use a number above 0, such as 1.",
)
SIGN = "Private key (PEM) to sign with."
LEDGER = "The hospital's ledger, which stays here (fcforge.private beside DATA)."
THRESHOLD_OF = "The hospital's ledger: adds results with its own threshold."


@dataclass(frozen=True, kw_only=True)
class TrustRequest(Request):
    """Conditions that the signatures of a file must meet before it is used."""

    trust: list[Path] = option(
        [], "Public key (PEM) that must have signed; may be repeated."
    )
    require_signature: bool = option(
        False, "Refuse anything unsigned (default: only if something else is signed)."
    )


@dataclass(frozen=True)
class FileRequest(TrustRequest):
    """A consortium file to read."""

    file: Path = option(help="Consortium file.", metavar="FILE")


@dataclass(frozen=True)
class SiteRequest(PeopleRequest):
    """A hospital's people and the file that leaves it."""

    site: str = option(help="Name of the hospital's site.")
    data: Path = option(help="Data of the site: .npz file or folder.")
    out: Path = option(help="File to write; NAME.record holds the new records alone.")
    ledger: Path | None = option(None, LEDGER)
    new_ledger: bool = option(
        False, "Begin a ledger: none of these people was contributed before."
    )
    sign: Path | None = option(None, SIGN)


@dataclass(frozen=True, kw_only=True)
class ContinueRequest(SiteRequest, TrustRequest):
    """A hospital's people and the consortium file to which they are added."""

    state: Path = option(help="Consortium file to add to.")
    accept_labels: bool = option(
        False, "Continue although diagnoses look swapped; a chain records it."
    )
    yes: bool = option(
        False, "Continue without asking; needed where there is no terminal."
    )


@limits(epsilon=EPSILON, delta=FRACTION)
@dataclass(frozen=True, kw_only=True)
class ContributeRequest(ContinueRequest):
    """A hospital's contribution to a base model, published alone or as shares of a round."""

    epsilon: float | None = option(None, "Privacy budget of each person (1).")
    delta: float | None = option(None, "Delta of the budget (1e-06).")
    mechanism: Literal["gaussian", "none"] | None = option(
        None, "Noise of the contribution; none promises nothing."
    )
    round: str = option("", "Round of the two aggregators to contribute to.")


@dataclass(frozen=True, kw_only=True)
class ChainBeginRequest(SiteRequest):
    """The first hospital of a chain, which chooses method, model and training."""

    config: Path = option(help="Config (TOML) to take a learner from.")
    learner: str | None = option(None, "Title of the learner in the config.")
    allow_code: bool = option(False, ALLOW_CODE)
    allow_real_subjects: bool = option(
        False, "Allow a method that keeps real subjects; recorded."
    )


@dataclass(frozen=True, kw_only=True)
class ChainContinueRequest(ContinueRequest):
    """A later hospital of a chain, which trains the model that it received."""

    accept_scans: bool = option(
        False, "Continue although the scans look odd; recorded."
    )
    allow_real_subjects: bool = option(
        False, "Allow a method that keeps real subjects; recorded."
    )


@dataclass(frozen=True)
class MergeRequest(TrustRequest):
    """Files whose records are joined."""

    files: list[Path] = option(
        help="Consortium files and single records.", metavar="FILES..."
    )
    out: Path = option(help="File to write.")


@dataclass(frozen=True)
class WithdrawRequest(TrustRequest):
    """A site that withdraws its contributions."""

    site: str = option(help="Site whose contributions are withdrawn.", metavar="SITE")
    state: Path = option(help="Consortium file with its contributions.")
    out: Path = option(help="File to write; NAME.record: the withdrawal alone.")
    sign: Path | None = option(None, "Private key that signed the contributions.")


@dataclass(frozen=True)
class RotateRequest(TrustRequest):
    """A site's old key and the new one that replaces it.

    The new key vouches for the site's records in `state`, and for no others.
    """

    old: Path = option(help="Private key that signed so far.", metavar="OLD")
    new: Path = option(help="Private key that signs from now on.", metavar="NEW")
    site: str = option(help="Name of your site.")
    state: Path = option(help="Consortium file with all your records.")
    out: Path = option(help="File to write; NAME.record: the rotation alone.")


@dataclass(frozen=True)
class CloseRequest(TrustRequest):
    """The hospitals' shares of one round, whose set an aggregator signs before publication."""

    shares: list[Path] = option(help="Share files of one round.", metavar="SHARES...")
    state: Path = option(
        help="Base model or consortium file; second aggregator: what the first wrote."
    )
    key: Path = option(help="The aggregator's private key.")
    out: Path = option(help="File to write; NAME.record holds the new records alone.")
    rounds: Path | None = option(None, "List of rounds (KEY.rounds).")


@dataclass(frozen=True)
class AggregateRequest(TrustRequest):
    """The hospitals' shares of one closed round, to be added by one of the two aggregators."""

    shares: list[Path] = option(help="Share files of one round.", metavar="SHARES...")
    state: Path = option(help="Consortium file with both closing records.")
    key: Path = option(help="The aggregator's private key.")
    out: Path = option(help="Aggregate share to write, e.g. university.record.")
    rounds: Path | None = option(None, "List of rounds (KEY.rounds).")


@dataclass(frozen=True)
class AuditRequest(PeopleRequest, TrustRequest, JsonRequest):
    """Attacks on a hospital's own contribution or chain step, run by that hospital."""

    file: Path = option(help="Consortium file.", metavar="FILE")
    data: Path = option(help="The hospital's data: .npz file or folder.")
    site: str = option(help="Name of the hospital's site.")
    reference: Path | None = option(
        None, "Chain: people who were not learned, for comparison."
    )
    ledger: Path | None = option(None, LEDGER)
    seed: int = option(0, "Seed of the attacks.")
    out: Path | None = option(None, "Folder for audit.json.")


@dataclass(frozen=True)
class PredictRequest(FileRequest, JsonRequest):
    """Scans to be predicted by the model of a consortium file."""

    scans: list[Path] = option(help="Files or folders of scans.", metavar="SCANS...")
    out: Path | None = option(None, "File to write (standard output).")
    ledger: Path | None = option(None, THRESHOLD_OF)
    explain: Path | None = option(
        None, "Folder for a page and tables that explain the predictions."
    )
    atlas: str = option("", "Atlas of the scans, for --explain [AAL by its ROI names].")
    kind: Kind = option("auto", KIND)


@dataclass(frozen=True)
class EvaluateRequest(PeopleRequest, FileRequest, JsonRequest):
    """People with known diagnoses, on whom the model of a consortium file is evaluated."""

    data: Path = option(
        help="People with diagnoses: .npz file or folder.", metavar="DATA"
    )
    site: str = option("", "Sites to use, separated by commas (all).")
    ledger: Path | None = option(None, THRESHOLD_OF)


@dataclass(frozen=True)
class ThresholdRequest(PeopleRequest, FileRequest):
    """A hospital's people, on whom its own threshold is fitted."""

    data: Path = option(help="The hospital's own people: .npz file or folder.")
    site: str = option(help="Name of its site.")
    ledger: Path = option(help="Its ledger, to which the threshold is written.")
    sign: Path | None = option(None, "Private key that seals the ledger.")


@limits(people=at_least(1), hospitals=at_least(1), epsilon=EPSILON)
@dataclass(frozen=True, kw_only=True)
class BaseModelRequest(Request):
    """The public people of a base model, its policy and the plan it is made for."""

    out: Path | None = option(None, "File to write (of --public: in ~/.cache/fcforge).")
    public: str = option("", "Published people: abide-aal, abide-cc200; fetched once.")
    data: Path | None = option(None, "Public people: .npz file or folder.")
    sites: str = option("", "Public sites, separated by commas (all).")
    without: str = option("", "Sites to leave out, separated by commas.")
    remove: str = option("", "Covariates to remove, e.g. mean_fd,age,sex.")
    dataset: str = option("folder", "Loader; see `fcforge list datasets`.")
    overrides: list[str] = option(
        [], "E.g. base_model.axes=8, policy.max_epsilon=2.", flag="--set"
    )
    sign: Path | None = option(None, SIGN)
    aggregator: list[Path] = option(
        [], "Card of one of the two aggregators of rounds; give both."
    )
    people: int = option(600, "People planned in all.")
    hospitals: int = option(10, "Hospitals planned in all.")
    epsilon: float | None = option(None, "Planned for each person (1).")
    exact: bool = option(
        False, "Plan sums without noise, and let the policy allow them."
    )


@dataclass(frozen=True)
class LedgerShowRequest(JsonRequest):
    """A hospital's ledger to be shown."""

    file: Path = option(help="Ledger, e.g. fcforge.private.", metavar="LEDGER")


@dataclass(frozen=True)
class LedgerNewRequest(Request):
    """A further ledger of a hospital, for people who are in none of its other ledgers."""

    file: Path = option(help="Ledger to write.", metavar="LEDGER")
    cohort: str = option(help="Name of these people, e.g. follow-up.")
    site: str = option(help="Name of the hospital's site.")
    sign: Path = option(help="Private key that seals the hospital's ledgers.")


@dataclass(frozen=True)
class LedgerRegisterRequest(Request):
    """A ledger whose place is written into the list beside its key."""

    file: Path = option(help="Ledger, e.g. fcforge.private.", metavar="LEDGER")
    sign: Path = option(help="Private key that seals it.")


@dataclass(frozen=True)
class VerifyRequest(FileRequest, JsonRequest):
    """A file to be verified."""

    expect: Path | None = option(
        None, "Earlier file or ledger; all records it names must be here."
    )


@dataclass(frozen=True)
class InspectRequest(FileRequest, JsonRequest):
    """A file to be described: a consortium file, single records, or a share."""

    html: Path | None = option(
        None, "Write its page, for an ethics board, to this file."
    )
