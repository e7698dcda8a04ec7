"""The scikit-learn face for numbers: ``ForgeRegressor().fit(X, age, site=hospital)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight

from fcforge.errors import ConfigError
from fcforge.estimator.inputs import InputError
from fcforge.estimator.learning import Given, Learns
from fcforge.estimator.people import refuse_missing
from fcforge.types import Target


@dataclass(repr=False, eq=False)
class ForgeRegressor(RegressorMixin, Learns):
    """A continual learner of a number (age, severity) from FC, as `ForgeClassifier` is of classes.

    Settings are those of `ForgeClassifier` where they make sense for a number; those that speak of
    classes or of files (`positive`, `class_weight`, `start`, `calibrate`, `held_out`) are refused
    by name. Methods that learn numbers are those on edges that remember nobody, "analytic" first.

    Parameters
    ----------
    limits : (float, float) or None
        Between which numbers y lies, agreed in advance where several hospitals learn; None takes
        the least and the greatest of the first call. Predictions may lie outside.

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
        tags.input_tags.three_d_array = self.features == "fc"
        tags.regressor_tags.poor_score = (
            True  # a start's penalty is for thousands of edges
        )
        return tags

    def fit(self, X: Any, y: Any, site: Any = None, sample_weight: Any = None) -> Any:
        """Learn from scratch, one site after another; arguments as of `ForgeClassifier.fit`."""
        return self._learn(X, y, site, sample_weight, first=True)

    def partial_fit(
        self, X: Any, y: Any, site: Any = None, sample_weight: Any = None
    ) -> Any:
        """Learn one more site, or several."""
        first = not hasattr(self, "model_")
        return self._learn(X, y, site, sample_weight, first=first)

    def _learn(
        self, X: Any, y: Any, site: Any, weight: Any, *, first: bool
    ) -> ForgeRegressor:
        if y is None:
            what = "ForgeRegressor requires y to be passed, but the target y is None."
            raise InputError(what)
        if self.class_weight is not None:
            what = "class_weight= is for classes; the target is a number."
            raise ConfigError(what, do="Leave it out, or give sample_weight.")
        refuse_missing(y)
        X, values = self._validate(X, y, reset=first)
        if weight is not None:
            weight = _check_sample_weight(weight, X, dtype=np.float64)
        target = self._target(values) if first else self.target_
        low, high = target.limits
        if values.min() < low or values.max() > high:
            found = f"y goes from {values.min():g} to {values.max():g}"
            do = "Give limits= that hold everybody."
            raise InputError(f"{found}, beyond {low:g} to {high:g}.", do=do)
        given = Given(target.scaled(values), target, weight, site, None)
        self._learn_all(X, given, (), first=first)
        self.target_ = target
        return self

    def _target(self, values: np.ndarray) -> Target:
        """Limits that were named, or those of the first call."""
        if self.limits is not None:
            return Target("y", (), self.limits)
        low = float(values.min())
        high = float(values.max())
        if low == high and len(values) > 1:
            what = f"y is {low:g} for everybody: there is nothing to learn."
            raise InputError(what, do="Give numbers that differ, or limits=.")
        return Target("y", (), (low, high if high > low else low + 1.0))

    def predict(self, X: Any) -> np.ndarray:
        """The number of each subject, (n,)."""
        scans = self._scans(X)
        return self.model_.answers(scans)
