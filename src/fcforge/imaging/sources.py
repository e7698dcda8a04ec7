"""One run of one subject as a tool left it, and which of them are wanted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_ENTITY = re.compile(r"([a-zA-Z]+)-([a-zA-Z0-9+]+)")


@dataclass(frozen=True)
class Source:
    """One run of one subject, as a tool left it.

    Attributes
    ----------
    subject : str
        Without the ``sub-`` prefix.
    path : Path
        4D scan or ROI time series.
    kind : {"scan", "series"}
    tool : str
        Layout it was found in.
    session, task, run, space : str
        BIDS entities, "" where the name has none.
    denoised : bool
        The tool has already regressed and filtered; nothing more is taken out.
    motion, mask, sidecar : Path or None
        Table with framewise displacement, brain mask, JSON with the TR.
    """

    subject: str
    path: Path
    kind: Literal["scan", "series"]
    tool: str
    session: str = ""
    task: str = ""
    run: str = ""
    space: str = ""
    denoised: bool = False
    motion: Path | None = None
    mask: Path | None = None
    sidecar: Path | None = None


@dataclass(frozen=True)
class Choice:
    """Which of the files found are wanted; an empty string takes any."""

    atlas: str = "AAL116"
    task: str = ""
    session: str = ""
    space: str = ""
    select: str = ""
    aroma: bool = False

    def takes(self, source: Source) -> bool:
        """Whether `source` is wanted."""
        return (
            (not self.task or source.task == self.task)
            and (not self.session or source.session == self.session.removeprefix("ses-"))
            and (not self.space or source.space == self.space)
            and self.select in source.path.name
        )


def loose_source(path: Path, subject: str, **fields: Any) -> Source:
    """Source of a file that need not have a BIDS name: what the name does not say is default.

    Parameters
    ----------
    path : Path
    subject : str
        Taken where the name has no ``sub-``.
    **fields
        Other attributes of `Source`.
    """
    found = entities(path.name)
    return Source(
        subject=found.get("sub", subject),
        path=path,
        session=found.get("ses", ""),
        task=found.get("task", "rest"),
        run=found.get("run", ""),
        **fields,
    )


def entities(name: str) -> dict[str, str]:
    """BIDS entities of a file name: ``{"sub": "01", "task": "rest", ...}``."""
    stem = name.split(".")[0]
    return {k: v for part in stem.split("_") for k, v in _ENTITY.findall(part)[:1]}
