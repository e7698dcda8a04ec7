"""The records of a consortium: a release of a site, the withdrawal of some, the audit of one.

A record is canonical JSON, signed by its own hospital over all of its content, which names the
start it belongs to. Nobody can rewrite another's record, and every number that left a hospital
can be read on it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fcforge.capsule import ledger
from fcforge.capsule.lines import check_sizes
from fcforge.errors import CapsuleError
from fcforge.studies.audit_result import Audit

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NAME = 80  # longest name of a site
MAX_NUMBERS = 1_026
_HEX = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"[\w.+-]{1,40}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True)
class Record:
    """What releases and withdrawals share.

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

    site: str
    start: str
    time: str
    fcforge: str
    key: str = ""
    signature: str = ""

    kind = "record"

    @cached_property
    def content(self) -> bytes:
        """What is signed: everything but the signature."""
        data = {"kind": self.kind, **asdict(self)}
        data.pop("signature")
        return ledger.canonical(data)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the record, signature and all: its name."""
        return ledger.sha256(ledger.canonical(self.to_json()))

    def to_json(self) -> dict[str, Any]:
        """Plain dict."""
        return {"kind": self.kind, **asdict(self)}

    def signed(self, key: Ed25519PrivateKey | None) -> Any:
        """The record with a signature, or as it is without a key."""
        if key is None:
            return self
        from fcforge.capsule.signing import public_hex, sign

        named = replace(self, key=public_hex(key.public_key()), signature="")
        return replace(named, signature=sign(key, ledger.sha256(named.content))[1])

    def check(self) -> None:
        """Raise `CapsuleError` unless every field can be meant and the signature holds."""
        where = f"{self.kind} of site '{self.site[:NAME]}'"
        if not self.site.strip() or len(self.site) > NAME or not self.site.isprintable():
            raise CapsuleError("its site has no printable name.", where=where)
        for name, pattern in (("start", _HEX), ("time", _TIME), ("fcforge", _VERSION)):
            if not pattern.fullmatch(getattr(self, name)):
                raise CapsuleError(f"its {name} is malformed.", where=where)
        if bool(self.key) != bool(self.signature):
            raise CapsuleError(
                "its signature was stripped.",
                where=where,
                do="Nothing of it was used; ask the hospital for the record again.",
            )
        if self.key:
            from fcforge.capsule.signing import check_signature

            try:
                check_signature(self.key, self.signature, ledger.sha256(self.content))
            except CapsuleError as error:
                raise CapsuleError(
                    "its signature does not fit its content: it was changed, or signed by another.",
                    where=where,
                    do="Nothing of it was used; ask the hospital for the record again.",
                ) from error


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
        Salted SHA-256 of the people and scans, in order; the salt stays at home.
    """

    wave: int = 1
    numbers: tuple[float, ...] = ()
    mechanism: str = "gaussian"
    epsilon: float = 1.0
    delta: float = 1e-3
    spent: float = 1.0
    noise_sd: float = 0.0
    commitment: str = ""

    kind = "release"

    def check(self) -> None:
        """Also: numbers that are numbers, a budget that fits the mechanism."""
        super().check()
        where = f"release {self.wave} of site '{self.site}'"
        numbers = (*self.numbers, self.epsilon, self.delta, self.spent, self.noise_sd)
        if not all(math.isfinite(v) for v in numbers) or len(self.numbers) > MAX_NUMBERS:
            raise CapsuleError("holds NaN, infinity or too many numbers.", where=where)
        if not (1 <= self.wave <= 1_000 and _HEX.fullmatch(self.commitment)):
            raise CapsuleError("its wave or commitment is malformed.", where=where)
        if self.mechanism == "none":
            fits = self.epsilon == self.delta == self.noise_sd == 0
        else:
            fits = self.mechanism == "gaussian" and self.epsilon > 0 and 0 < self.delta < 1
            fits = fits and self.noise_sd > 0 and self.spent >= self.epsilon
        if not fits:
            raise CapsuleError(
                f"mechanism '{self.mechanism}' with epsilon {self.epsilon}, delta {self.delta} and "
                f"noise {self.noise_sd} is not a budget.",
                where=where,
            )


@dataclass(frozen=True)
class Withdrawal(Record):
    """A hospital takes its releases back.

    Attributes
    ----------
    releases : tuple of str
        Digests of the releases that no longer count.
    """

    releases: tuple[str, ...] = ()

    kind = "withdrawal"

    def check(self) -> None:
        """Also: it names releases."""
        super().check()
        if not self.releases or not all(_HEX.fullmatch(r) for r in self.releases):
            raise CapsuleError("names no release.", where=f"withdrawal of site '{self.site}'")


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

    release: str = ""
    result: dict[str, Any] = field(default_factory=dict)

    kind = "audit"

    def check(self) -> None:
        """Also: it is an audit of this site."""
        super().check()
        check_sizes(self.result, self.kind)
        known = _HEX.fullmatch(self.release) and self.result.get("site") == self.site
        if not known or Audit.from_ledger(self.result) is None:
            raise CapsuleError("cannot be read.", where=f"audit of site '{self.site}'")


KINDS: dict[str, type[Record]] = {
    "release": Release, "withdrawal": Withdrawal, "audit": AuditRecord,
}  # fmt: skip


def read_record(data: bytes, what: str) -> Record:
    """A record from canonical JSON, every field of the right type, checked."""
    return record_of(ledger.parse(data, what), what)


def record_of(value: Mapping[str, Any], what: str) -> Record:
    """The same from a parsed object."""
    content = dict(value)
    cls = KINDS.get(str(content.pop("kind", "")))
    if cls is None:
        raise CapsuleError(f"{what} is not a release, a withdrawal or an audit.")
    known = {f.name: f.type for f in fields(cls)}
    if set(content) != set(known):
        odd = sorted(set(content) ^ set(known))[0]
        raise CapsuleError(f"{what} has a field too many or too few ('{odd}').")
    record = cls(**{name: _typed(content[name], str(known[name]), what) for name in known})
    record.check()
    return record


def _typed(value: Any, wanted: str, what: str) -> Any:
    """A JSON value as the type a field is declared with."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if wanted == "str" and isinstance(value, str):
        return value
    if wanted == "int" and whole:
        return value
    if wanted == "float" and (whole or isinstance(value, float)):
        return float(value)
    if wanted.startswith("dict") and isinstance(value, dict):
        return value
    if wanted.startswith("tuple") and isinstance(value, list):
        inside = wanted.removeprefix("tuple[").split(",")[0]
        return tuple(_typed(item, inside, what) for item in value)
    raise CapsuleError(f"{what} holds {value!r:.60} where a {wanted} belongs.")
