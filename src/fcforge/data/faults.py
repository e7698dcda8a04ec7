"""Faults of a dataset: what is wrong, where, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from fcforge.core.errors import DataError
from fcforge.core.formatting import abbreviated

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Fault:
    """A fault of a dataset: its place, a description and advice.

    Attributes
    ----------
    severity : {"error", "warning"}
        An error prevents training.
    what : str
        Description, a sentence without its subject: "has no diagnosis."
    do : str
        Advice to the user.
    subject, site : str
        Subject or site that has the fault; empty if it does not belong to one.
    count : int
        Number of subjects with this fault (see `grouped`).
    file : str
        File that holds the subject's scan; empty if unknown.
    """

    severity: Severity
    what: str
    do: str = ""
    subject: str = ""
    site: str = ""
    count: int = 1
    file: str = ""

    @classmethod
    def of(cls, error: DataError, subject: str, site: str) -> "Fault":
        """Return the fault of a subject whose loading raised `error`."""
        message = f"{error.where}: {error.what}" if error.where else error.what
        return cls("error", message, error.do, subject, site)

    def __str__(self) -> str:
        owners = (("site", self.site), ("subject", self.subject))
        where = " ".join(f"{kind} '{name}'" for kind, name in owners if name)
        if self.file:
            where += f" ({self.file})"
        if self.count > 1:
            where = f"{self.count} subjects ({self.subject})"
        text = f"{where}: {self.what}" if where else self.what
        return f"{text} {self.do}".rstrip()


def grouped(faults: Iterable[Fault]) -> list[Fault]:
    """Return faults with the equal ones of several subjects merged into one.

    The merged fault lists the first subjects and counts all. Groups are in the order of their first
    fault.
    """
    groups: dict[tuple[str, ...], list[Fault]] = {}
    for fault in faults:
        site = "" if fault.subject else fault.site  # faults of sites stay apart
        groups.setdefault((fault.what, fault.do, site), []).append(fault)
    merged = []
    for equal in groups.values():
        subjects = abbreviated(fault.subject for fault in equal)
        merged.append(replace(equal[0], subject=subjects, count=len(equal)))
    return merged
