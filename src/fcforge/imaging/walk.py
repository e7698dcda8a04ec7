"""Subject after subject: one scan in memory at a time, what is done is not done again.

One subject's trouble is one line; the others finish; the caller learns how many failed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcforge.errors import FCForgeError

Say = Callable[[str], None]
Progress = Callable[[Iterable[Any], int], Iterable[Any]]
# What numpy, scipy, nilearn and the disk may throw at one subject's odd data: that subject fails
# with the type named, the others go on. Anything else is a bug of ours and stops the program.
SURPRISES = (ValueError, OSError, RuntimeError, LookupError, ArithmeticError, MemoryError)


@dataclass(frozen=True)
class Outcome:
    """What a walk over subjects came to.

    Attributes
    ----------
    made, kept : tuple of str
        Subjects made now, and found finished from an earlier run.
    failed : tuple of (subject, reason)
    """

    made: tuple[str, ...]
    kept: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]

    @property
    def code(self) -> int:
        """Exit code: 0 all subjects done, 1 some failed, 2 all of them failed."""
        return 0 if not self.failed else 1 if self.made or self.kept else 2

    def summary(self, out: Path, what: str) -> list[str]:
        """How many are done, and where the reasons of the others are."""
        done = len(self.made) + len(self.kept)
        lines = [
            f"{done} of {done + len(self.failed)} subjects {what} in {out} "
            f"({len(self.made)} made now, {len(self.kept)} from before)"
        ]
        if self.failed:
            log = out / "logs" / "failed.tsv"
            lines.append(f"{len(self.failed)} failed; reasons above and in {log}")
        return lines


def no_progress(items: Iterable[Any], total: int) -> Iterable[Any]:
    """Draw nothing."""
    return items


def walk(
    subjects: Sequence[str], make: Callable[[str], bool], progress: Progress, say: Say
) -> Outcome:
    """Call ``make(subject)`` for each; it returns False for one that was made before."""
    made: list[str] = []
    kept: list[str] = []
    failed: list[tuple[str, str]] = []
    for subject in progress(subjects, len(subjects)):
        try:
            (made if make(subject) else kept).append(subject)
        except (FCForgeError, *SURPRISES) as error:
            failed.append((f"sub-{subject}", _one_line(error)))
            say(f"sub-{subject} failed: {_one_line(error)}")
    return Outcome(tuple(made), tuple(kept), tuple(failed))


def wanted(labels: Iterable[str], *known: Iterable[str]) -> list[str]:
    """Subjects to make: those named, else all that are listed or found."""
    named = {label.removeprefix("sub-") for label in labels}
    return sorted(named or {subject for source in known for subject in source})


def _one_line(error: BaseException) -> str:
    """Message of an error on one line, with its type unless it is one of our own."""
    text = " ".join(str(error).split())
    return text if isinstance(error, FCForgeError) else f"{type(error).__name__}: {text[:200]}"
