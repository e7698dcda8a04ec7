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

    Loss, scores, metrics and tables follow from the kind of the target. Learners see a number
    scaled so that its limits are -1 and +1, the values of controls and patients in the closed
    forms. Penalties and sensitivities are therefore those of two classes.

    Attributes
    ----------
    name : str
        ``"diagnosis"``, or the covariate that is predicted.
    classes : tuple of str
        Words of the data for the classes, controls first; empty if the target is a number.
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
        """Number of regression targets in closed forms: classes minus one, or one for a number."""
        return max(1, self.outputs - 1)

    def fits(self, other: "Target") -> bool:
        """Return whether one model can learn this target and `other`.

        Name, number of outputs and limits must agree. Two classes may have other words; of more
        classes, each must share a word with the class in the same place.
        """
        same = (self.name, self.outputs, self.limits)
        if same != (other.name, other.outputs, other.limits):
            return False
        words = zip(self.classes, other.classes, strict=True)
        if self.kind != "more classes":
            return True
        return all(set(a.split("/")) & set(b.split("/")) for a, b in words)

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Return numbers as learners see them: -1 to 1 between the limits."""
        low, high = self.limits
        return (2 * values - low - high) / (high - low)

    def restored(self, values: np.ndarray) -> np.ndarray:
        """Invert `scaled`."""
        low, high = self.limits
        return (values * (high - low) + low + high) / 2


TWO_CLASSES = Target()


def kind_of(scores: np.ndarray, y: np.ndarray) -> Kind:
    """Return the kind of target that scores (n,) or (n, K) and truths (n,) belong to."""
    if scores.ndim == 2:
        return "more classes"
    return "number" if y.dtype.kind == "f" else "two classes"


def strata(y: np.ndarray) -> np.ndarray:
    """Return the stratum (n,) of each person: the class, or the fifth of a number.

    Splits and resampling keep the shares of the strata. With fewer than 40 people a number has
    fewer than five strata, of at least eight people each.
    """
    if y.dtype.kind != "f":
        return y
    n = len(y)
    place = np.argsort(np.argsort(y, kind="stable"))
    return place * max(1, min(5, n // 8)) // max(n, 1)
