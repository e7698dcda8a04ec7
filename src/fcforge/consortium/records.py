"""What files of a consortium may say: the papers of a start, and the records of hospitals.

A record is the release of a site, the withdrawal of some, or the audit of one: canonical JSON,
signed by its own hospital over all of its content, which names the start it belongs to. Nobody can
rewrite another's record, and every number that left a hospital can be read on it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

from fcforge.capsule import ledger, lines
from fcforge.capsule.lines import MaybeSha256, Number, Sha256, Text, Time
from fcforge.consortium.few_start import StartSettings
from fcforge.errors import CapsuleError, at
from fcforge.privacy.accounting import DELTA, EPSILON
from fcforge.settings import Bound, Count, NotNegative, Share, read_json
from fcforge.studies.audit_result import Audit

MAX_NUMBERS = 1_026
ASK = "Nothing of it was used; ask the hospital for the record again."
SiteName = Annotated[
    str,
    Bound(
        lambda v: v.strip() and len(v) <= 80 and v.isprintable(),
        "is not a printable name",
        "",
    ),
]
Version = Annotated[str, lines.like(r"[\w.+-]{1,40}", "a version")]
Finite = Annotated[float, Bound(lambda v: abs(v) <= 1e300, "is not finite", "")]
Wave = Annotated[
    int, Bound(lambda v: 1 <= v <= 1_000, "is not the number of a release", "")
]


def limit_of(mechanism: str, epsilon: float) -> float | None:
    """Epsilon of a release, or None where its sums are exact (mechanism "none")."""
    return epsilon if mechanism == "gaussian" else None


@dataclass(frozen=True)
class Record:
    """What all records share.

    Attributes
    ----------
    site : str
    start : str
        Digest of the start.
    time : str
        UTC.
    fcforge : str
        Version that wrote it.
    key, signature : str
        Ed25519 public key and signature over everything else, hex; empty where unsigned.
    """

    site: SiteName
    start: Sha256
    time: Time
    fcforge: Version
    key: MaybeSha256 = ""
    signature: str = ""

    kind = "record"

    @property
    def title(self) -> str:
        """What it is and whose."""
        return f"{self.kind} of site '{self.site[:80]}'"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the record, signature and all: its name."""
        return ledger.sha256(ledger.canonical(self.to_json()))

    def to_json(self) -> dict[str, Any]:
        """Plain dict."""
        return {"kind": self.kind, **asdict(self)}

    def signed(self, key: ledger.PrivateKey | None) -> Any:
        """The record with a signature, or as it is without a key."""
        if key is None:
            return self
        return _made({**ledger.signed(self.to_json(), key), "kind": self.kind})

    def check(self) -> None:
        """Raise `CapsuleError` unless every field can be meant and the signature holds."""
        content = asdict(self)
        lines.check(type(self), content, self.title)
        lines.check_sizes({**content, "numbers": ()}, self.title)
        if self.key and self.signature:
            ledger.check_signed(self.to_json(), f"the {self.title}")
        with at(self.title):
            if bool(self.key) != bool(self.signature):
                raise CapsuleError("its signature was stripped.", do=ASK)
            if wrong := self.contradiction():
                raise CapsuleError(wrong)

    def contradiction(self) -> str:
        """What cannot be true together; empty where nothing is wrong."""
        return ""


@dataclass(frozen=True)
class Release(Record):
    """What one hospital gives: q + 2 numbers, and how they were made.

    Attributes
    ----------
    wave : int
        1 for a site's first release, 2 for one of further people, ...
    numbers : tuple of float
    mechanism : {"gaussian", "none"}
    epsilon, delta : float
        Budget of each person in this release; 0 and 0 under "none", which promises nothing.
    spent : float
        Most that one of these people has spent in all releases of this hospital (epsilon).
    noise_sd : float
        Standard deviation of the noise on each number.
    commitment : str
        Salted SHA-256 of people, scans and diagnoses, in order; the salt stays at home.
    """

    wave: Wave = 1
    numbers: tuple[Finite, ...] = ()
    mechanism: Literal["gaussian", "none"] = "gaussian"
    epsilon: NotNegative = EPSILON
    delta: NotNegative = DELTA
    spent: NotNegative = EPSILON
    noise_sd: NotNegative = 0.0
    commitment: Sha256 = ""

    kind = "release"

    def contradiction(self) -> str:
        """Too many numbers, or a budget that does not fit the mechanism."""
        if len(self.numbers) > MAX_NUMBERS:
            return "it holds too many numbers."
        fits = self.epsilon == self.delta == self.noise_sd == 0
        if self.mechanism == "gaussian":
            fits = self.epsilon > 0 and 0 < self.delta < 1
            fits = fits and self.noise_sd > 0 and self.epsilon <= self.spent < 1e9
        budget = f"epsilon {self.epsilon}, delta {self.delta} and noise {self.noise_sd}"
        return (
            ""
            if fits
            else f"mechanism '{self.mechanism}' with {budget} is not a budget."
        )


@dataclass(frozen=True)
class Withdrawal(Record):
    """A hospital takes its releases back; `releases` are the digests that no longer count."""

    releases: tuple[Sha256, ...] = ()

    kind = "withdrawal"

    def contradiction(self) -> str:
        """No release is named."""
        return "" if self.releases else "it names no release."


@dataclass(frozen=True)
class AuditRecord(Record):
    """A hospital attacked its own release and says what it found.

    Attributes
    ----------
    release : str
        Digest of the release.
    result : dict
        As `Audit.to_ledger` writes it.
    """

    release: Sha256 = ""
    result: dict[str, Any] = field(default_factory=dict)

    kind = "audit"

    def contradiction(self) -> str:
        """Another site's result, or none that can be read."""
        own = self.result.get("site") == self.site and Audit.from_ledger(self.result)
        return "" if own else "its result cannot be read."


KINDS: dict[str, type[Record]] = {c.kind: c for c in (Release, Withdrawal, AuditRecord)}


def read_record(data: bytes, what: str) -> Record:
    """A record from canonical JSON, every field of the right type, checked."""
    value = ledger.parse(data, what)
    cls = KINDS.get(str(value.get("kind")))
    if cls is None:
        raise CapsuleError(f"{what} is not a release, a withdrawal or an audit.")
    lines.check(cls, {k: v for k, v in value.items() if k != "kind"}, what)
    record = _made(value)
    record.check()
    return record


def _made(value: Mapping[str, Any]) -> Record:
    """A record whose fields are known to be of the right types."""
    cls = KINDS[value["kind"]]
    return read_json(cls, {k: v for k, v in value.items() if k != "kind"})


# -- the papers of a start: a file can hold these facts and nothing else -------------------------
Rois = Annotated[int, Bound(lambda v: 2 <= v <= 2_000, "is not a number of ROIs", "")]
Above = Annotated[float, Bound(lambda v: 0 < v <= 1e9, "would let every scan pass", "")]
BelowOne = Annotated[
    float, Bound(lambda v: -1e9 < v < 1, "would let every scan pass", "")
]
PAPERS = {
    "fcforge": Text,
    "dataset": Text,
    "people_sha256": Text,
    "left_out": list[Text],
    "people": Count,
    "ids": list[Text],
    "patients": Count,
    "sites": {Text: Count},
    "n_rois": Rois,
    "roi_names": list[Text],
    "classes": tuple[Text, Text],
    "removes": list[Text],
    "ranges": {Text: tuple[Number, Number]},
    "settings": StartSettings,
    # how far out, and how unlike the public mean, a scan or a site may be
    "limits": {"size": Above, "likeness": BelowOne, "site": BelowOne},
    # how good the public head is at a public site it has not seen
    "unseen_site": {"people": Count}
    | dict.fromkeys(("accuracy", "auroc", "majority"), Share | None),
}


def checked_papers(papers: Any) -> dict[str, Any]:
    """Papers of a start with exactly the fields they should have; else `CapsuleError`."""
    where = "the start's description"
    lines.check(PAPERS, papers, where)
    if len(papers["roi_names"]) not in (0, papers["n_rois"]):
        raise CapsuleError(f"{where}: 'n_rois' and 'roi_names' do not fit.")
    ranges = papers["ranges"]
    if sorted(ranges) != sorted(papers["removes"]) or any(
        a > b for a, b in ranges.values()
    ):
        raise CapsuleError(f"{where}: 'ranges' do not fit what is removed.")
    if not sum(papers["sites"].values()) == len(papers["ids"]) == papers["people"]:
        raise CapsuleError(f"{where}: its sites do not add up to its people.")
    return papers
