"""The scikit-learn face for numbers: ``ForgeRegressor().fit(X, age, site=hospital)``."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin

from fcforge.core.errors import ConfigError
from fcforge.core.target import Target
from fcforge.estimator.inputs import InputError, as_input_error
from fcforge.estimator.learning import Learns


@dataclass(repr=False, eq=False)
class ForgeRegressor(RegressorMixin, Learns):
    """A continual learner of a number (age, severity) from FC, as `ForgeClassifier` is of classes.

    Settings are those of `ForgeClassifier` where they make sense for a number; those that speak of
    classes (`positive`, `calibrate`, `held_out`) are refused by name. Methods that
    learn numbers are those on edges, "analytic" first; the paper's networks learn none.

    Parameters
    ----------
    limits : (float, float) or None
        Between which numbers y lies, agreed in advance where several hospitals learn; None takes
        those of the start, or the least and the greatest of the first call. Predictions may lie
        outside.

    Attributes
    ----------
    target_ : Target
    sites_ : tuple of str
    n_rois_, n_features_in_ : int
    mean_fc_ : ndarray of shape (R, R)
    """

    limits: tuple[float, float] | None = None
    _numbers: ClassVar[bool] = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # a start's penalty is for thousands of edges
        tags.regressor_tags.poor_score = True
        return tags

    def partial_fit(
        self, X: Any, y: Any, site: Any = None, covariates: Any = None
    ) -> Self:
        """Learn one more site, or several."""
        first = not hasattr(self, "model_")
        return self._learn(X, y, site, covariates, first=first)

    def _learn(
        self, X: Any, y: Any, site: Any, covariates: Any, *, first: bool
    ) -> Self:
        if self.positive is not None:
            what = "positive= is for classes; the target is a number."
            raise ConfigError(what, do="Leave it out.")
        X, values = self._checked(X, y, first)
        target = self._target(values) if first else self.target_
        low, high = target.limits
        if values.min() < low or values.max() > high:
            found = f"y goes from {values.min():g} to {values.max():g}"
            do = "Give limits= that hold everybody."
            raise InputError(f"{found}, beyond {low:g} to {high:g}.", do=do)
        scaled = target.scaled(values)
        self._learn_all(X, scaled, target, site, covariates, first=first)
        return self

    def _target(self, values: np.ndarray) -> Target:
        """The start's, limits that were named, or those of the first call."""
        if self._from_start:
            with as_input_error():
                found = self._opened_start().target
            if found.classes or self.limits not in (None, found.limits):
                what = f"the start is about {found}, not a number within limits={self.limits}."
                raise InputError(
                    what, do="Give limits= as the start has them, or none."
                )
            return found
        if self.limits is not None:
            return Target("y", (), self.limits)
        low = float(values.min())
        high = float(values.max())
        if low == high and len(values) > 1:
            what = f"y is {low:g} for everybody: there is nothing to learn."
            raise InputError(what, do="Give numbers that differ, or limits=.")
        return Target("y", (), (low, high if high > low else low + 1.0))

    def _take(self, target: Target) -> None:
        if target.classes:
            what = f"the file is about {target}, which is no number."
            raise ConfigError(what, do="Use ForgeClassifier.load.")
        self.target_ = target

    def predict(self, X: Any, covariates: Any = None) -> np.ndarray:
        """The number of each subject, (n,); arguments as in `fit`."""
        found = self._asked(X, covariates)
        return self.target_.restored(found)
