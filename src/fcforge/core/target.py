"""The prediction target: two classes, several classes, or a number."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fcforge.core.errors import ConfigError

Kind = Literal["two classes", "more classes", "number"]


@dataclass(frozen=True)
class Target:
    """What is learned of a person: one of several classes, or a number between two limits.

    The one place that says what kind a target is; loss, scores, metrics and tables follow from
    it. Learners see a number scaled so that its limits are -1 and +1, where the closed forms put
    controls and patients: penalties and sensitivities are those of two classes.

    Attributes
    ----------
    name : str
        ``"diagnosis"``, or the covariate that is predicted.
    classes : tuple of str
        What the data call the classes, controls first; none where the target is a number.
    limits : (float, float)
        Agreed in advance, known to all; nobody's number lies outside.
    """

    name: str = "diagnosis"
    classes: tuple[str, ...] = ("0", "1")
    limits: tuple[float, float] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        """Refuse limits of a number that are not two finite ones, the smaller first."""
        try:
            low, high = self.limits
            increasing = -math.inf < low < high < math.inf
        except (TypeError, ValueError):
            increasing = False
        if not increasing:
            what = f"limits={self.limits!r} of target '{self.name}' are not two finite numbers"
            do = "Give the least and the most, e.g. --set 'dataset.limits=[5, 65]'."
            raise ConfigError(f"{what}, the smaller first.", do=do)

    def __str__(self) -> str:
        low, high = self.limits
        words = ", ".join(self.classes) or f"{low:g} to {high:g}"
        return f"{self.name} ({words})"

    @property
    def kind(self) -> Kind:
        """Two classes, more of them, or a number."""
        if not self.classes:
            return "number"
        return "two classes" if len(self.classes) == 2 else "more classes"

    @property
    def outputs(self) -> int:
        """Numbers that a model gives of a person: a logit of each class, or the number itself."""
        return len(self.classes) or 1

    @property
    def columns(self) -> int:
        """Numbers that a release is about: one, or one less than there are classes."""
        return max(1, self.outputs - 1)

    def fits(self, other: "Target") -> bool:
        """Whether another is learned as this one is.

        Of two classes each has words of its own; more have a word in common each, in one order.
        """
        same = (self.name, self.outputs, self.limits)
        if same != (other.name, other.outputs, other.limits):
            return False
        words = zip(self.classes, other.classes, strict=True)
        if self.kind != "more classes":
            return True
        return all(set(a.split("/")) & set(b.split("/")) for a, b in words)

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Numbers as learners see them: -1 to 1 between the limits."""
        low, high = self.limits
        return (2 * values - low - high) / (high - low)

    def restored(self, values: np.ndarray) -> np.ndarray:
        """Inverse of `scaled`."""
        low, high = self.limits
        return (values * (high - low) + low + high) / 2


TWO_CLASSES = Target()


def kind_of(scores: np.ndarray, y: np.ndarray) -> Kind:
    """What scores (n,) or (n, K) and truths (n,) are of."""
    if scores.ndim == 2:
        return "more classes"
    return "number" if y.dtype.kind == "f" else "two classes"


def strata(y: np.ndarray) -> np.ndarray:
    """Groups (n,) whose shares splits and resampling keep: classes, or fifths of the numbers.

    Fewer than five of at least eight people each where there are fewer people.
    """
    if y.dtype.kind != "f":
        return y
    n = len(y)
    place = np.argsort(np.argsort(y, kind="stable"))
    return place * max(1, min(5, n // 8)) // max(n, 1)
