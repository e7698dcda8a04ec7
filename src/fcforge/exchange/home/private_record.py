"""What stays at home: whom a hospital gave, what each of them has spent, its own threshold.

One file per hospital, beside the data, that never travels (`journal`). Its receipts say who is
behind a record, by id and by scan. They are the budget register: people are known under whatever
site they are given, and epsilon and delta add up over everything they were part of.

A record that travels holds a salted hash of the people behind it, their scans and diagnoses (the
commitment). It tells nobody anything without the salt, which stays at home in the receipt, as does
the list. An audit must be of the same people, or it would find nothing and look reassuring.

A scan is known again by its sketch, a few hundred bytes: its edges, without their mean and scaled
to length 1, are projected on fixed random signs. Products of sketches estimate correlations of
edges (standard error 0.02 at 0.75, 0.001 at 0.99): on 1,098 people of ABIDE all pairs but three
(above 0.9: they look like one person each) stay below 0.77, while the same scan with a changed
edge, or under another id, stays at 1.
"""

import base64
import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy import ndarray as Array
from pydantic import Field, TypeAdapter, ValidationError

from fcforge.errors import ConfigError, DataError, at
from fcforge.exchange import schema
from fcforge.exchange.home.journal import Header, Intent, Journal
from fcforge.exchange.policy import Policy
from fcforge.exchange.scan_checks import unit_rows
from fcforge.exchange.schema import (
    Budget,
    Closed,
    Name,
    Number,
    Sha256,
    Share,
    SiteName,
    Text,
)
from fcforge.sites.cohort import Cohort, upper_from_fc

if TYPE_CHECKING:
    from fcforge.exchange.exchange import Exchange


NAME = "fcforge.private"  # of the file, beside the data
SIZE = 480  # projections, one byte each
ALIKE = 0.87  # correlation from which two scans are of one person
ALIKE_FEW = 0.98  # with fewer edges strangers are alike
FEW = 1_000
_UNIT = 32  # steps of a byte per standard deviation

Sketch = Annotated[str, Field(pattern=f"^[01][A-Za-z0-9+/]{{{SIZE * 4 // 3}}}$")]


class Person(Closed):
    """Somebody who was given: id, SHA-256 and sketch of the scan, diagnosis (or scaled number)."""

    id: Text
    scan: Sha256
    diagnosis: Annotated[str, Field(pattern=r"^(1?[0-9]|-?[01]\.[0-9]{6})$")]
    sketch: Sketch


People = tuple[Person, ...]


def people_of(fc: Array, ids: Sequence[str], y: Array) -> People:
    """People by id, scan and diagnosis, in order; `fc` is (n, R, R)."""
    scans = np.ascontiguousarray(fc, dtype="<f4")
    found = []
    for who, scan, sketch, label in zip(ids, scans, sketches_of(fc), y, strict=True):
        digest = schema.sha256(scan.tobytes())
        said = f"{label:.6f}" if y.dtype.kind == "f" else str(int(label))
        try:
            person = Person(id=str(who), scan=digest, diagnosis=said, sketch=sketch)
        except ValidationError as error:
            what = f"a subject {schema.said(error)}."
            raise DataError(what, do="Give people shorter or plainer ids.") from error
        found.append(person)
    return tuple(found)


def people_in(cohort: Cohort) -> People:
    """The people of a cohort, in order."""
    return people_of(cohort.fc, cohort.subject_id.tolist(), cohort.y)


def same_people(people: People, others: People) -> Array:
    """(n,): which of `people` are among `others`, by id or by scan."""
    ids = {person.id for person in others} - {""}
    named = np.array([person.id in ids for person in people], dtype=bool)
    known = same_scans([p.sketch for p in people], [p.sketch for p in others])
    return named | known.any(axis=1)


class Receipt(Closed):
    """Who is behind a record, and what it cost each of them.

    Attributes
    ----------
    site : str
    number : int
        Of the site's records of this kind.
    people : tuple of Person
        In the order learned; ids are empty where none were known.
    epsilon : float or None
        What each person spends; None where nothing was promised.
    delta : float
    round : str
        Of keepers; empty for what was published at once.
    salt : str
        128 random bits.
    seen : tuple of str
        Ids of the records that the exchange held when this one joined, with its own.
    """

    kind: Literal["receipt"] = "receipt"
    site: SiteName
    number: Annotated[int, Field(ge=0, le=100_000)]
    people: People
    epsilon: Budget | None
    delta: Share
    round: Name | Literal[""] = ""
    salt: str = Field(
        pattern="^[0-9a-f]{32}$", default_factory=lambda: secrets.token_hex(16)
    )
    seen: tuple[Sha256, ...] = ()

    def said(self, spent: "Spent") -> dict[str, Any]:
        """What a record says of people and budget; the most that one of them has spent."""
        return {
            "mechanism": "none" if self.epsilon is None else "gaussian",
            "epsilon": self.epsilon or 0.0,
            "delta": self.delta,
            "spent_epsilon": spent.epsilon,
            "spent_delta": spent.delta,
            "commitment": self.commitment,
        }

    @cached_property
    def commitment(self) -> str:
        """What a record says of its people: nothing without the salt."""
        people = [[p.id, p.scan, p.diagnosis] for p in self.people]
        return schema.sha256(schema.canonical([self.salt, people]))

    def having_seen(self, exchange: "Exchange") -> Self:
        """The receipt with the records that the exchange holds now."""
        ids = sorted(record.id for record in exchange.everything)
        return self.model_copy(update={"seen": tuple(ids)})

    def places(self, people: People) -> Array:
        """Where the people of the receipt are among these; else `DataError` by name."""
        key = "id" if any(person.id for person in self.people) else "scan"
        place = {getattr(person, key): k for k, person in enumerate(people)}
        found = [place.get(getattr(person, key), -1) for person in self.people]
        differ: dict[str, list[str]] = {}
        for person, k in zip(self.people, found, strict=True):
            if k < 0:
                differ.setdefault("are not in the data", []).append(person.id)
            elif people[k].scan != person.scan:
                differ.setdefault("have another scan", []).append(person.id)
            elif people[k].diagnosis != person.diagnosis:
                differ.setdefault("have another diagnosis", []).append(person.id)
        said = [f"{len(who)} {what} (first: {who[0]})" for what, who in differ.items()]
        if said:
            raise DataError(
                f"these are not the {len(self.people)} people that were learned: "
                f"{' and '.join(said)}.",
                where=f"site '{self.site}'",
                do="Give exactly the data that `fcforge learn` was given: the same scans under "
                "the same ids with the same diagnoses.",
            )
        return np.array(found)


class Threshold(Closed):
    """A hospital's own threshold: log odds = intercept + slope * the exchange's log odds.

    It was fitted on `people` of `site` and the state `exchange` (an id).
    """

    kind: Literal["threshold"] = "threshold"
    intercept: Number
    slope: Number
    people: Annotated[int, Field(ge=1)]
    exchange: Sha256
    site: SiteName

    def odds(self, shared: Array) -> Array:
        """The hospital's own log odds from those of the exchange."""
        return self.intercept + self.slope * shared

    def require_site(self, sites: Iterable[str]) -> None:
        """Raise `DataError` where people say that they are of another site."""
        others = sorted({name for name in sites if name not in ("", self.site)})
        if others:
            raise DataError(
                f"the threshold is of site '{self.site}', these people are of "
                f"{', '.join(others)}.",
                do="Name the private record of their own hospital with --register.",
            )

    def stale(self, exchange: str) -> list[str]:
        """What to say where it was fitted on another state of the exchange."""
        if self.exchange == exchange:
            return []
        said = "The threshold was fitted with another state of the exchange; "
        return [said + "`fcforge threshold` fits it again at home, at no cost."]


# -- sketches of scans -----------------------------------------------------------------------------
def sketches_of(fc: Array) -> list[str]:
    """Sketches of scans (n, R, R): whether they have many edges, then base64."""
    x = upper_from_fc(np.asarray(fc)).astype(np.float64)
    x -= x.mean(1, keepdims=True)
    # +1 and -1, alike on every machine
    stream = hashlib.shake_256(b"fcforge sketch 1").digest(x.shape[1] * SIZE // 8)
    bits = np.unpackbits(np.frombuffer(stream, np.uint8)).reshape(-1, SIZE)
    projected = unit_rows(x) @ (bits.astype(np.float64) * 2 - 1)
    steps = np.rint(_UNIT * projected).clip(-127, 127)
    many = int(x.shape[1] >= FEW)
    rows = steps.astype(np.int8)
    return [f"{many}{base64.b64encode(row.tobytes()).decode()}" for row in rows]


def same_scans(one: Sequence[str], other: Sequence[str]) -> Array:
    """(n, m): which sketches are of scans of one person."""
    many = [sketch[0] == "1" for sketch in one]
    limit = np.where(many, ALIKE, ALIKE_FEW)
    return _read(one) @ _read(other).T > limit[:, None]


def _read(sketches: Sequence[str]) -> Array:
    """(n, SIZE), each of length 1."""
    data = b"".join(base64.b64decode(sketch[1:]) for sketch in sketches)
    rows = np.frombuffer(data, np.int8).reshape(-1, SIZE)
    return unit_rows(rows.astype(np.float64))


# -- the file -------------------------------------------------------------------------------------
class Spent(NamedTuple):
    """What somebody has spent; epsilon is infinite where something was given without noise."""

    epsilon: float = 0.0
    delta: float = 0.0


class PrivateRecord(Journal):
    """The receipts of one hospital and its threshold.

    ``with PrivateRecord.open(path) as private:`` locks the file, for whoever adds to it;
    `PrivateRecord.read` is for whoever looks. ``private.publish(receipt, files)`` charges.
    """

    format = "fcforge-private"
    title = "a private record of fcforge"
    pays = Receipt
    kinds = TypeAdapter(
        Annotated[Header | Intent | Receipt | Threshold, Field(discriminator="kind")]
    )
    keep = "Nothing else knows what its people have spent: bring back your copy of it."

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Of everything that was given, first to last."""
        return tuple(line for line in self.lines if isinstance(line, Receipt))

    @property
    def threshold(self) -> Threshold | None:
        """The one that was fitted last."""
        fitted = (line for line in self.lines[::-1] if isinstance(line, Threshold))
        return next(fitted, None)

    def require_threshold(self) -> Threshold:
        """The one that was fitted last; else `ConfigError`."""
        if self.threshold is not None:
            return self.threshold
        raise ConfigError(
            "holds no threshold of the hospital's own.",
            where=self.path,
            do="Fit one after a round (`fcforge threshold`), or leave --register out.",
        )

    # -- the budget register ---------------------------------------------------------------------
    def spent(
        self, people: People, times: Mapping[str, int] = MappingProxyType({})
    ) -> list[Spent | None]:
        """What each of these people has spent, by id or scan; None for somebody new.

        Parameters
        ----------
        people : tuple of Person
        times : mapping of commitment to int
            How often that was published, where it was not once (`rounds.times_published`).
        """
        found: list[Spent | None] = [None] * len(people)
        for receipt in self.receipts:
            often = times.get(receipt.commitment, 1)
            if not often:
                continue
            epsilon = inf if receipt.epsilon is None else often * receipt.epsilon
            delta = often * receipt.delta
            for k in np.flatnonzero(same_people(people, receipt.people)):
                before = found[k] or Spent()
                found[k] = Spent(before.epsilon + epsilon, before.delta + delta)
        return found

    def require_room(
        self,
        people: People,
        epsilon: float | None,
        delta: float,
        policy: Policy,
        *,
        again: bool = False,
        times: Mapping[str, int] = MappingProxyType({}),
    ) -> Spent:
        """Most that one of these people will have spent; `ConfigError` beyond the policy.

        Parameters
        ----------
        people : tuple of Person
        epsilon : float or None
            What each is about to spend; None without noise.
        delta : float
        policy : Policy
            Its `max_epsilon` and `max_delta` hold for everything a person was ever part of.
        again : bool
            Whether people of an earlier record may be given again; what they spend adds up.
        times : mapping of commitment to int
            As in `spent`.
        """
        policy.require_budget(epsilon, delta)
        before = [spent for spent in self.spent(people, times) if spent is not None]
        with at(self.path):
            if before and not again:
                raise ConfigError(
                    f"{len(before)} of these {len(people)} people were given before, by id or by "
                    "scan.",
                    do="Give new people only, or add --again: what they have spent adds up.",
                )
            if epsilon is None:
                return Spent()
            epsilons, deltas = zip(Spent(), *before, strict=True)
            _require_end(epsilons)
            total = Spent(epsilon + max(epsilons), delta + max(deltas))
            policy.require_budget(*total)
        return total

    def receipt_for(self, commitment: str, what: str) -> Receipt:
        """The receipt that a record commits to; else `DataError`."""
        for receipt in self.receipts:
            if receipt.commitment == commitment:
                return receipt
        raise DataError(
            f"there is no receipt for {what}, so that nobody can tell whether these are the people "
            "it learned.",
            where=self.path,
            do="Name the private record that `fcforge learn` wrote to: --register FILE.",
        )


def _require_end(spent: Sequence[float]) -> None:
    """Raise `ConfigError` for people who were given without noise."""
    if exact := spent.count(inf):
        raise ConfigError(
            f"{exact} of these people were given without noise: no noise now can promise them "
            "anything.",
            do="Give the others, or use --mechanism none.",
        )


def default_place(data: str | Path) -> Path:
    """Where the private record of these data lies: one for all that is in their folder."""
    place = Path(data)
    return (place if place.is_dir() else place.parent) / NAME
