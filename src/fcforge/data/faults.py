"""Faults of a dataset: what is wrong, where, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from fcforge.core.errors import DataError
from fcforge.core.formatting import some

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a dataset: where, what, and what to do about it."""

    severity: Severity
    what: str
    do: str = ""
    subject: str = ""
    site: str = ""
    count: int = 1
    """Subjects it is wrong with, where it is more than one (`grouped`)."""

    @classmethod
    def of(cls, error: DataError, subject: str, site: str) -> "Fault":
        """The trouble with one subject, as a loader met it."""
        what = f"{error.where}: {error.what}" if error.where else error.what
        return cls("error", what, error.do, subject, site)

    def __str__(self) -> str:
        places = (("site", self.site), ("subject", self.subject))
        where = " ".join(f"{kind} '{name}'" for kind, name in places if name)
        if self.count > 1:
            where = f"{self.count} subjects ({self.subject})"
        text = f"{where}: {self.what}" if where else self.what
        return f"{text} {self.do}".rstrip()


def grouped(faults: Iterable[Fault]) -> list[Fault]:
    """The same complaint about several subjects as one, in the order of the first."""
    alike: dict[tuple[str, ...], list[Fault]] = {}
    for fault in faults:
        place = "" if fault.subject else fault.site
        alike.setdefault((fault.what, fault.do, place), []).append(fault)
    found = []
    for own in alike.values():
        subjects = some(f.subject for f in own)
        found.append(replace(own[0], subject=subjects, count=len(own)))
    return found
