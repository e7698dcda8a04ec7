"""Estimated cost of a run."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Cost of a run: site trainings to do, seconds, and the most bytes on disk."""

    todo: int
    seconds: float = 0.0
    disk: int = 0
