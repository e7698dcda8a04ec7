"""Regressor with the interface of scikit-learn: ``ForgeRegressor().fit(X, age, site=hospital)``.

Shapes: n subjects, R ROIs.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import RegressorMixin

from fcforge.core.errors import ConfigError
from fcforge.core.target import Target
from fcforge.estimator.continual import ContinualEstimator
from fcforge.estimator.inputs import InputError
from fcforge.estimator.parameters import CLOSED_FORM
from fcforge.evaluation.edge_stability import EdgeStability
from fcforge.evaluation.explanation import ColumnExplanation, Explanation
from fcforge.imaging.atlas import Atlas


@dataclass(repr=False, eq=False)
class ForgeRegressor(RegressorMixin, ContinualEstimator):
    """Continual learner of a number (age, severity) from FC.

    Parameters are those of `ForgeClassifier` where they make sense for a number. Those about
    classes (`positive`, `calibrate`) are refused. The default method is ridge in closed form.
    Methods that learn numbers are those on edges; the paper's networks learn none.

    Parameters
    ----------
    limits : (float, float) or None
        Smallest and largest value of y, agreed in advance where several hospitals learn. None
        takes those of the first call. Predictions may lie outside.

    Attributes
    ----------
    target_ : Target
        The learned number and its limits.
    coef_, intercept_ : ndarray of shape (n_features,) and float
        Weights and intercept, if the model is linear, of its features (with ``features="any"`` of
        the columns of X).
    sites_ : tuple of str
    n_rois_, n_features_in_ : int
    mean_fc_ : ndarray of shape (n_rois, n_rois)
    """

    limits: tuple[float, float] | None = None
    _numbers: ClassVar[bool] = True

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: the penalty is meant for thousands of edges."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _usual_method(self) -> str:
        """Return the method of ``method=None``: ridge in closed form."""
        return CLOSED_FORM

    def partial_fit(
        self,
        X: Any,
        y: Any,
        site: Any = None,
        covariates: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Learn one more site, several, or further subjects of a known site.

        Parameters
        ----------
        X, y, site, covariates, sample_weight
            As in `fit`.

        Returns
        -------
        self
        """
        first = not hasattr(self, "model_")
        return self._learn(X, y, site, covariates, sample_weight, first=first)

    def _learn(
        self,
        X: Any,
        y: Any,
        site: Any,
        covariates: Any,
        sample_weight: Any,
        *,
        first: bool,
    ) -> Self:
        """Learn the subjects of one call; arguments are those of `ContinualEstimator._learn`."""
        if self.positive is not None:
            message = "positive= is for classes; the target is a number."
            raise ConfigError(message, do="Leave it out.")
        X, values = self._checked(X, y, first)
        target = self._target(values) if first else self.target_
        low, high = target.limits
        if values.min() < low or values.max() > high:
            message = f"y goes from {values.min():g} to {values.max():g}"
            hint = "Give limits= that hold everybody."
            raise InputError(f"{message}, beyond {low:g} to {high:g}.", do=hint)
        scaled = target.scaled(values)
        self._learn_coded(
            X, scaled, target, site, covariates, sample_weight, first=first
        )
        return self

    def _target(self, values: np.ndarray) -> Target:
        """Return the target for the numbers of the first call, with `limits` or those of y."""
        if self.limits is not None:
            return Target("y", (), self.limits)
        low = float(values.min())
        high = float(values.max())
        if low == high and len(values) > 1:
            message = f"y is {low:g} for everybody: there is nothing to learn."
            raise InputError(message, do="Give numbers that differ, or limits=.")
        return Target("y", (), (low, high if high > low else low + 1.0))

    def predict(self, X: Any, covariates: Any = None) -> np.ndarray:
        """Return the predicted number of each subject, (n,).

        Parameters
        ----------
        X, covariates
            As in `fit`.
        """
        scores = self._scores(X, covariates)
        return self.target_.restored(scores)

    @property
    def coef_(self) -> np.ndarray:
        """Weights (n_features,) of a linear model, in the unit of y."""
        low, high = self.target_.limits
        weights = self._linear_weights()[0][0]  # of y scaled to -1 to 1
        return weights * (high - low) / 2

    @property
    def intercept_(self) -> float:
        """Intercept of a linear model, in the unit of y."""
        return float(self.target_.restored(self._linear_weights()[1][0]))

    def explain(
        self,
        X: Any,
        covariates: Any = None,
        *,
        atlas: Atlas | None = None,
        reference: np.ndarray | None = None,
        stability: EdgeStability | None = None,
    ) -> Explanation | ColumnExplanation:
        """Return the contribution of every edge to each scan's predicted number, in its unit.

        Parameters
        ----------
        X, covariates
            As in `fit`.
        atlas, reference, stability
            As in `ForgeClassifier.explain`.

        Returns
        -------
        Explanation, or ColumnExplanation with ``features="any"``
        """
        return self._explain(
            X,
            covariates,
            self._output_of(None),
            f"higher {self.target_.name}",
            atlas=atlas,
            reference=reference,
            stability=stability,
        )

    def _output_of(self, target: Any) -> int:
        """Return the only output of a number; there is no class to choose."""
        if target is not None:
            raise InputError(f"target={target!r} names a class, but y is a number.")
        return 0

    @classmethod
    def _file_kind(cls) -> Literal["ForgeClassifier", "ForgeRegressor"]:
        return "ForgeRegressor"
