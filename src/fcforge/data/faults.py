"""Faults of a dataset: what is wrong, where, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from fcforge.core.errors import DataError
from fcforge.core.formatting import some

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Fault:
    """A fault of a dataset: its place, a description and advice.

    Attributes
    ----------
    severity : {"error", "warning"}
        An error prevents training.
    what : str
        Description.
    do : str
        Advice to the user.
    subject, site : str
        Place; empty if the fault is not of one subject or site.
    count : int
        Number of subjects with this fault (see `grouped`).
    """

    severity: Severity
    what: str
    do: str = ""
    subject: str = ""
    site: str = ""
    count: int = 1

    @classmethod
    def of(cls, error: DataError, subject: str, site: str) -> "Fault":
        """Return the fault of a subject that could not be loaded."""
        message = f"{error.where}: {error.what}" if error.where else error.what
        return cls("error", message, error.do, subject, site)

    def __str__(self) -> str:
        places = (("site", self.site), ("subject", self.subject))
        where = " ".join(f"{kind} '{name}'" for kind, name in places if name)
        if self.count > 1:
            where = f"{self.count} subjects ({self.subject})"
        text = f"{where}: {self.what}" if where else self.what
        return f"{text} {self.do}".rstrip()


def grouped(faults: Iterable[Fault]) -> list[Fault]:
    """Return the faults with equal ones of several subjects as one, in the order of the first."""
    alike: dict[tuple[str, ...], list[Fault]] = {}
    for fault in faults:
        place = "" if fault.subject else fault.site
        alike.setdefault((fault.what, fault.do, place), []).append(fault)
    merged = []
    for equal in alike.values():
        subjects = some(fault.subject for fault in equal)
        merged.append(replace(equal[0], subject=subjects, count=len(equal)))
    return merged
