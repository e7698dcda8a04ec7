"""Estimated cost of training an experiment."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Estimated cost of what an experiment still has to train.

    Attributes
    ----------
    todo : int
        Number of site trainings.
    seconds : float
    disk : int
        Largest number of bytes on disk at any time.
    """

    todo: int
    seconds: float = 0.0
    disk: int = 0
