"""The set of releases around one start, and the head that follows from it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from fcforge import __version__
from fcforge.capsule import ledger
from fcforge.capsule.ledger import PrivateKey
from fcforge.consortium import few_vector as vector
from fcforge.consortium.public import PublicStart
from fcforge.consortium.records import (
    AuditRecord,
    Record,
    Release,
    Withdrawal,
    limit_of,
)
from fcforge.errors import CapsuleError, at
from fcforge.studies.audit_result import Audit

LUCK = 8.0  # standard deviations of the noise that no honest release exceeds
MOST_PEOPLE = 1e6  # of one release
MOVE = "Releases around one start cannot be moved to another; release again."


@dataclass(frozen=True)
class Consortium:
    """A start, the releases of its hospitals, what was withdrawn, and what audits found.

    The head is a function of the set alone: any order of hospitals, any tree of merges ends in the
    same head, bit by bit (sums are exact, `math.fsum`). It is never stored, so it cannot be forged.

    Attributes
    ----------
    start : PublicStart
    releases : tuple of Release
        Sorted by site, wave and digest.
    withdrawals : tuple of Withdrawal
    audits : tuple of AuditRecord
        Of releases that are here; they do not change the head.
    """

    start: PublicStart
    releases: tuple[Release, ...] = ()
    withdrawals: tuple[Withdrawal, ...] = ()
    audits: tuple[AuditRecord, ...] = ()

    @property
    def records(self) -> tuple[Record, ...]:
        """All of them, as they stand in a file."""
        return (*self.releases, *self.withdrawals, *self.audits)

    @cached_property
    def total(self) -> np.ndarray:
        """Exact sum of all releases, (q + 2,)."""
        columns = zip(*(r.numbers for r in self.releases), strict=True)
        found = [math.fsum(c) for c in columns] or [0.0] * (
            self.start.arrays.n_axes + 2
        )
        return np.array(found)

    @cached_property
    def beta(self) -> np.ndarray:
        """Step from the public head to the consortium's, (q + 1,)."""
        return self.solve(self.total)

    def solve(self, total: np.ndarray) -> np.ndarray:
        """The step that a sum (q + 2,) of these releases gives."""
        variance = math.fsum(r.noise_sd**2 for r in self.releases)
        return vector.solve(self.start.arrays, total, variance, len(self.releases))

    @cached_property
    def head(self) -> vector.Head:
        """The consortium's head on standardised features."""
        return vector.head(self.start.arrays, self.beta)

    @property
    def sites(self) -> tuple[str, ...]:
        """Sites with a release, sorted."""
        return tuple(dict.fromkeys(r.site for r in self.releases))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over start, releases and withdrawals: names this state of the consortium."""
        records = [r.digest for r in (*self.releases, *self.withdrawals)]
        return ledger.sha256(ledger.canonical([self.start.digest, records]))

    def of_site(self, site: str) -> tuple[Release, ...]:
        """Releases of a site by wave; `CapsuleError` where there is none."""
        found = tuple(r for r in self.releases if r.site == site)
        if not found:
            do = f"Sites here: {', '.join(self.sites) or 'none'}."
            raise CapsuleError(f"there is no release of site '{site}'.", do=do)
        return found

    def only(self, site: str) -> Self:
        """The start with this site's releases alone, to look at."""
        audits = tuple(a for a in self.audits if a.site == site)
        return replace(self, releases=self.of_site(site), withdrawals=(), audits=audits)

    def joined(self, records: Iterable[Record]) -> Self:
        """The union with some records; whatever does not fit raises `CapsuleError` by name."""
        every = {r.digest: r for r in self.records}
        for record in records:
            record.check()
            with at(record.title):
                self._require_start(record)
            every[record.digest] = record
        _require_one_voice(list(every.values()))
        withdrawals = [w for w in every.values() if isinstance(w, Withdrawal)]
        gone = {d for w in withdrawals for d in w.releases}
        for own, d in (
            (w.site, d) for w in withdrawals for d in w.releases if d in every
        ):
            if every[d].site != own:  # a hospital takes back what it has given itself
                what = (
                    f"site '{own}' cannot withdraw a release of site '{every[d].site}'."
                )
                do = "A hospital withdraws what it has given itself; nothing was changed."
                raise CapsuleError(what, do=do)
        releases = [
            r for r in every.values() if isinstance(r, Release) and r.digest not in gone
        ]
        return replace(
            self,
            releases=tuple(sorted(releases, key=lambda r: (r.site, r.wave, r.digest))),
            withdrawals=tuple(sorted(withdrawals, key=lambda w: (w.site, w.digest))),
            audits=_audits_of(every, gone),
        )

    def merged(self, *others: Self) -> Self:
        """The union of branches; the same release twice is one."""
        for other in others:
            if other.start.digest != self.start.digest:
                both = f"{self.start.digest[:12]} and {other.start.digest[:12]}"
                raise CapsuleError(
                    f"the capsules begin from different starts ({both}).", do=MOVE
                )
        return self.joined(r for other in others for r in other.records)

    def made(
        self, kind: type[Record], site: str, key: PrivateKey | None, **said: Any
    ) -> Any:
        """A record of a site around this start, signed where there is a key."""
        base = {"site": site, "start": self.start.digest, "time": ledger.now()}
        return kind(**base, fcforge=__version__, **said).signed(key)

    def withdrawn(self, site: str, key: PrivateKey | None = None) -> Self:
        """The consortium as if `site` had never given anything, with the withdrawal on record."""
        releases = self.of_site(site)
        ledger.require_author(
            site, releases[0].key, ledger.public_hex(key), "withdrawal"
        )
        gone = tuple(r.digest for r in releases)
        return self.joined([self.made(Withdrawal, site, key, releases=gone)])

    def audited(self, found: Audit, key: PrivateKey | None = None) -> Self:
        """The consortium with what an audit of one of its releases found.

        What was tried at other budgets than the release's own is not of this release.
        """
        release = next(r for r in self.releases if r.digest == found.about["release"])
        ledger.require_author(
            release.site, release.key, ledger.public_hex(key), "audit"
        )
        own = found.about["released"]
        rows = tuple(
            row for row in found.rows if row.is_reference or row.release == own
        )
        result = replace(found, rows=rows).to_ledger()
        made = self.made(
            AuditRecord, release.site, key, release=release.digest, result=result
        )
        return self.joined([made])

    def _require_start(self, record: Record) -> None:
        if record.start != self.start.digest:
            what = f"was made for start {record.start[:12]}, not for {self.start.digest[:12]}."
            raise CapsuleError(what, do=MOVE)
        if not isinstance(record, Release):
            return
        arrays, epsilon = (
            self.start.arrays,
            limit_of(record.mechanism, record.epsilon),
        )
        if len(record.numbers) != arrays.n_axes + 2:
            asked = f"the start asks for {arrays.n_axes + 2}"
            raise CapsuleError(f"has {len(record.numbers)} numbers, {asked}.")
        wanted = vector.noise_sd(arrays, epsilon, record.delta)
        if not math.isclose(record.noise_sd, wanted, rel_tol=1e-6, abs_tol=1e-12):
            raise CapsuleError(
                f"states noise of {record.noise_sd:.4g} where epsilon {record.epsilon} asks for "
                f"{wanted:.4g}.",
                do="Its budget is not what it says; ask the hospital for a new release.",
            )
        self._require_possible(record)

    def _require_possible(self, release: Release) -> None:
        """Refuse sums that no group of people can give: each moves them by at most the clip."""
        *moved, last = release.numbers
        clip, people = (self.start.arrays.clip, vector.people(self.start.arrays, last))
        most = max(people, 0.0) * clip
        room = (
            LUCK * release.noise_sd * (1 / vector.COUNT + math.sqrt(len(moved))) + 1e-6
        )
        if math.hypot(*moved) > most + room or most > MOST_PEOPLE * clip:
            raise CapsuleError(
                f"its numbers are larger than {people:.0f} people can give.",
                do="It was not made by `fcforge learn`; ask the hospital for a new release.",
            )


def _audits_of(every: Mapping[str, Record], gone: set[str]) -> tuple[AuditRecord, ...]:
    """Audits of the releases that are here; those of withdrawn ones are withdrawn with them."""
    audits = [
        a
        for a in every.values()
        if isinstance(a, AuditRecord) and a.release not in gone
    ]
    for audit in audits:
        release = every.get(audit.release)
        if not isinstance(release, Release) or release.site != audit.site:
            what = f"an audit of site '{audit.site}' is of a release that is not here."
            raise CapsuleError(
                what, do="Merge the capsule that holds this release, too."
            )
    return tuple(sorted(audits, key=lambda a: (a.site, a.time, a.digest)))


def _require_one_voice(records: Sequence[Record]) -> None:
    """One release per site and number, one key per site."""
    seen: dict[tuple[str, int], Release] = {}
    voice: dict[str, str] = {}
    for record in records:
        if isinstance(record, Release):
            twin = seen.setdefault((record.site, record.wave), record)
            if twin.digest != record.digest:
                raise CapsuleError(
                    f"site '{record.site}' has two different releases with number {record.wave}.",
                    do="One of them is not the hospital's, or it must be withdrawn first; ask it.",
                )
        if voice.setdefault(record.site, record.key) != record.key:
            do = "A hospital speaks with one key; ask it which records are its own."
            what = f"records of site '{record.site}' are signed by different keys."
            raise CapsuleError(what, do=do)
