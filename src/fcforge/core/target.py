"""The prediction target: two classes, several classes, or a number."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fcforge.core.errors import ConfigError

Kind = Literal["two classes", "more classes", "number"]


@dataclass(frozen=True)
class Target:
    """The prediction target of each person: one of several classes, or a number between limits.

    Loss, scores, metrics and tables follow from the kind of the target. Learners receive a number
    scaled so that its limits are -1 and +1. Ridge regression codes controls and patients by the same
    two values, so that its penalty and its bound for privacy apply to both kinds of target.

    Attributes
    ----------
    name : str
        ``"diagnosis"``, or the covariate that is predicted.
    classes : tuple of str
        Names of the classes as the data write them, controls first; empty if the target is a number.
    limits : (float, float)
        Limits of the number, agreed in advance and known to all. No person may lie outside.
    """

    name: str = "diagnosis"
    classes: tuple[str, ...] = ("0", "1")
    limits: tuple[float, float] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        """Raise `ConfigError` unless the limits are two finite numbers, the smaller first."""
        try:
            low, high = self.limits
            increasing = -math.inf < low < high < math.inf
        except (TypeError, ValueError):
            increasing = False
        if not increasing:
            raise ConfigError(
                f"limits={self.limits!r} of target '{self.name}' are not two finite numbers, "
                "the smaller first.",
                do="Give the least and the most, e.g. --set 'dataset.limits=[5, 65]'.",
            )

    def __str__(self) -> str:
        low, high = self.limits
        words = ", ".join(self.classes) or f"{low:g} to {high:g}"
        return f"{self.name} ({words})"

    @property
    def kind(self) -> Kind:
        """Kind of the target: two classes, more classes, or a number."""
        if not self.classes:
            return "number"
        return "two classes" if len(self.classes) == 2 else "more classes"

    @property
    def outputs(self) -> int:
        """Number of a model's outputs: one logit per class, or one for a number."""
        return len(self.classes) or 1

    @property
    def columns(self) -> int:
        """Number of target columns of a ridge regression: classes minus one, or one for a number."""
        return max(1, self.outputs - 1)

    def fits(self, other: "Target") -> bool:
        """Return whether one model can learn this target and `other`.

        Name, number of outputs and limits must agree. Two classes may be called differently. Of more
        than two, each must share a name with the class in the same place; a class has several names
        if they are joined by slashes.
        """
        must_agree = (self.name, self.outputs, self.limits)
        if must_agree != (other.name, other.outputs, other.limits):
            return False
        pairs = zip(self.classes, other.classes, strict=True)
        if self.kind != "more classes":
            return True
        return all(set(a.split("/")) & set(b.split("/")) for a, b in pairs)

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Return numbers as learners receive them: -1 at the lower limit, +1 at the upper."""
        low, high = self.limits
        return (2 * values - low - high) / (high - low)

    def restored(self, values: np.ndarray) -> np.ndarray:
        """Return scaled numbers in their own unit: the inverse of `scaled`."""
        low, high = self.limits
        return (values * (high - low) + low + high) / 2


TWO_CLASSES = Target()


def kind_of(scores: np.ndarray, y: np.ndarray) -> Kind:
    """Return the kind of target that stored scores and targets of n subjects belong to.

    Parameters
    ----------
    scores : ndarray of shape (n,) or (n, K)
        K probabilities per subject if there are K > 2 classes.
    y : ndarray of shape (n,)
        Classes (integers), or numbers (floats).
    """
    if scores.ndim == 2:
        return "more classes"
    return "number" if y.dtype.kind == "f" else "two classes"


def strata(y: np.ndarray) -> np.ndarray:
    """Return the stratum of each of n people, shape (n,): the class, or the quintile of a number.

    Splits and resampling keep the shares of the strata. With fewer than 40 people a number has
    fewer than five strata, of at least eight people each.
    """
    if y.dtype.kind != "f":
        return y
    n = len(y)
    rank = np.argsort(np.argsort(y, kind="stable"))  # 0 for the smallest number
    n_strata = max(1, min(5, n // 8))
    return rank * n_strata // max(n, 1)
