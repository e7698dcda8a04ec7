"""Protocol of the models that are computed from consortium files.

A file with a base model and contributions gives a `contributions.model.ContributionModel`, a file with a
chain a `chains.chain.Chain`. Code that predicts, evaluates or explains uses this protocol for either.

Shapes: n people, R ROIs, K classes.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from fcforge.core.errors import ConfigError
from fcforge.core.target import Target

if TYPE_CHECKING:
    from fcforge.data.cohort import Cohort
    from fcforge.evaluation.attribution import ScoredModel

Tick = Callable[[int, int, str], Any]  # done, in all, the current work
Covariates = Mapping[str, np.ndarray]


class Scores(NamedTuple):
    """Calibrated scores of n people, and reasons where there is none.

    Attributes
    ----------
    odds : ndarray of shape (n,), or (n, K) for more than two classes
        Calibrated log odds of "patient", log probabilities of the classes, or the number, scaled by
        its limits to -1 to 1; NaN where the model abstains.
    strangeness : ndarray of shape (n,)
        Distance from the people who were learned, in units of its limit; NaN where it cannot be
        measured.
    why : tuple of str
        Reason for abstaining; empty where the model does not abstain.
    """

    odds: np.ndarray
    strangeness: np.ndarray
    why: tuple[str, ...]


class Model(Protocol):
    """A model computed from the records of a consortium file.

    Attributes
    ----------
    target : Target
        The variable that is learned.
    """

    target: Target

    @property
    def n_rois(self) -> int:
        """Number of ROIs of every scan."""

    @property
    def roi_names(self) -> tuple[str, ...]:
        """Names of the ROIs; empty where unknown."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Hospitals that took part, or the public sites where none did."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Covariates that every scan must have."""
        return ()

    @property
    def temperature(self) -> float:
        """Divisor of scores that makes them log odds."""

    def check(self) -> None:
        """Raise `ExchangeError` unless arrays, budgets and counts are possible."""

    def summary(self) -> str:
        """Return a short description for `verify`."""

    def score(self, fc: np.ndarray, covariates: Covariates) -> Scores:
        """Return the scores of scans (n, R, R), or reasons why there are none."""

    def calibrated(self, fc: np.ndarray, covariates: Covariates) -> np.ndarray:
        """Return log odds (n,) without abstaining; raise `DataError` for a missing covariate."""

    def baselines(self) -> Mapping[str, Self]:
        """Return models to evaluate beside this one, by title."""
        return {}

    def reference(self) -> tuple[np.ndarray, str]:
        """Return the scan (R, R) that others are explained against, and its description."""

    def attribution(
        self, covariates: Covariates
    ) -> "tuple[ScoredModel, np.ndarray | float]":
        """Return the score function of scans, and the offset that the covariates add.

        The offset is the same for every edge pattern, so it is part of each scan's base.
        """

    def familiar(self, people: "Cohort") -> tuple[str, ...]:
        """Return warnings about people whom the model may have seen."""

    def absent(self) -> tuple[str, ...]:
        """Return a sentence about each contribution in the file that is not in the model."""
        return ()

    def require_two_classes(self, subject_and_verb: str) -> None:
        """Raise `ConfigError` unless the target has two classes.

        Parameters
        ----------
        subject_and_verb : str
            Beginning of the message, e.g. "a threshold is".
        """
        if self.target.kind != "two classes":
            message = (
                f"{subject_and_verb} for two classes, and this is about {self.target}."
            )
            raise ConfigError(message, do="Leave it out.")
