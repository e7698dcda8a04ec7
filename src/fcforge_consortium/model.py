"""What a root's records make: one small protocol, which two models speak.

Everything else asks a `Model` and never what kind it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fcforge.core.errors import ConfigError
from fcforge.core.target import Target
from fcforge_consortium.records.keys import Signer
from fcforge_consortium.records.kinds import Record

if TYPE_CHECKING:
    from fcforge.data.cohort import Cohort
    from fcforge.evaluation.attribution import ScoredModel
    from fcforge.evaluation.privacy.audit_result import AuditResult
    from fcforge_consortium.audit_target import AuditTarget
    from fcforge_consortium.ledger.ledger import PrivateRecord, Receipt, Threshold
    from fcforge_consortium.options import ContinueRequest
    from fcforge_consortium.records.exchange import Exchange
    from fcforge_consortium.report.description import Description

Tick = Callable[[int, int, str], Any]  # done, in all, what is going on
Covariates = Mapping[str, np.ndarray]


class Scores(NamedTuple):
    """What a model says about n people.

    Attributes
    ----------
    odds : ndarray of shape (n,), or (n, K) of more than two classes
        Calibrated log odds of "patient", log probabilities of the classes, or a number as it is
        learned (`answers_of` says them); NaN where it abstains.
    strangeness : ndarray of shape (n,)
        Distance from what was seen, limit 1; NaN where it cannot be measured.
    why : tuple of str
        Why it abstains; empty where it does not.
    """

    odds: np.ndarray
    strangeness: np.ndarray
    why: tuple[str, ...]


@dataclass(frozen=True)
class Learned:
    """What a hospital's step gives.

    Attributes
    ----------
    exchange : Exchange
        With the new records.
    new : tuple of Record
    receipt : Receipt
        Who is behind them, and what it cost: stays at home, on the disk before anything leaves.
    before : mapping
        Accuracy and AUROC on its own people of the model that came in; for the
        hospital's eyes.
    files : mapping of keeper to bytes
        Shares, where they are what leaves; `exchange` then holds the notice of them.
    """

    exchange: "Exchange"
    new: tuple[Record, ...]
    receipt: "Receipt"
    before: Mapping[str, float]
    files: Mapping[str, bytes] = field(default_factory=dict)


class Model(Protocol):
    """A start with releases and sums, or a chain of steps, as those who use it see it.

    Attributes
    ----------
    exchange : Exchange
    target : Target
        What is learned of a person.
    """

    exchange: "Exchange"
    target: Target

    @property
    def n_rois(self) -> int:
        """ROIs of every scan."""

    @property
    def roi_names(self) -> tuple[str, ...]:
        """Empty where unknown."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Hospitals that gave something, or the public sites where none did."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Covariates that every scan must have."""
        return ()

    @property
    def temperature(self) -> float:
        """Log odds are scores divided by it."""

    def check(self) -> None:
        """Raise `ExchangeError` unless arrays, budgets and counts can be meant."""

    def summary(self) -> str:
        """What follows from the records, in a few words."""

    def learn(
        self,
        people: "Cohort",
        private: "PrivateRecord",
        asked: Any,
        key: Signer,
        tick: Tick,
    ) -> Learned:
        """What the people of one site add; nothing is written."""

    def added(
        self, people: "Cohort", given: Mapping[str, Any], private: "PrivateRecord"
    ) -> tuple["Model", "Receipt"]:
        """The model after everybody of one more site, in memory; `given` are a step's settings."""

    def on_record(
        self, key: Signer = None, *, allow_real_subjects: bool = False
    ) -> "Exchange":
        """The exchange with all that was added in memory, signed and checked."""

    def parameters(self) -> Mapping[str, Any]:
        """How a `ForgeClassifier` is called that goes on from it."""

    def score(self, fc: np.ndarray, covariates: Covariates) -> Scores:
        """Log odds of scans (n, R, R), or why there are none."""

    def calibrated(self, fc: np.ndarray, covariates: Covariates) -> np.ndarray:
        """Log odds (n,) of whatever scan; `DataError` where a covariate is missing."""

    def baselines(self) -> Mapping[str, "Model"]:
        """Models to evaluate beside this one, by title."""
        return {}

    def reference(self) -> tuple[np.ndarray, str]:
        """The scan (R, R) that others are explained against, and who it is."""

    def attribution(
        self, covariates: Covariates
    ) -> "tuple[ScoredModel, np.ndarray | float]":
        """The score of some people's scans, to be explained, and what their covariates add.

        That is the same for every edge pattern, so that it is part of each scan's base.
        """

    def attack(self, asked: "AuditTarget") -> "AuditResult":
        """An audit of what a site gave, by that site."""

    def own_threshold(
        self, people: "Cohort", site: str, private: "PrivateRecord"
    ) -> "Threshold":
        """A hospital's own threshold for this state; `ConfigError` where there can be none."""

    def familiar(self, people: "Cohort") -> tuple[str, ...]:
        """Sentences about people whom the model may have seen: too good to be true."""

    def promise(self, asked: "ContinueRequest") -> str:
        """What each person of a site would spend, in words; read before anything is learned."""

    def cost(self, record: Record) -> str:
        """What people behind a record spend, in words; empty where it has none."""

    def describe(self) -> "Description":
        """In plain values, for `inspect` and pages."""

    def require_two_classes(self, what: str) -> None:
        """Raise `ConfigError` for what is made for controls and patients alone."""
        if self.target.kind != "two classes":
            said = f"{what} for two classes, and this is about {self.target}."
            raise ConfigError(said, do="Leave it out.")
