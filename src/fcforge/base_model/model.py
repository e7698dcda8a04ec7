r"""Base model: ridge regression on the matrix-log features of public subjects.

For a public subject with features :math:`\phi` (`fcforge.base_model.features`, confounds removed)
and target t, let :math:`x = (\phi - m) / s` be the features standardised by the public subjects.
The target is -1 or +1 for two diagnoses, a number scaled to [-1, 1], or a corner of a regular
simplex in K - 1 dimensions for K classes (`fcforge.base_model.calibration`). A model has
c = K - 1 *columns*, and one column for a number.

The model holds the weights :math:`w_0, b_0` of a ridge regression of t on x with penalty
:math:`\alpha p`, and the temperature that turns its scores into calibrated log odds.

All numbers of a model are rounded to 12 significant bits. The error is far below what matters, and far
above the difference between two machines: the same subjects give the same model, bit by bit.

Letters of shapes: n subjects, p features, c columns.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray as Array

from fcforge.base_model.calibration import fit_temperature, targets
from fcforge.core.constants import SHRINK
from fcforge.core.errors import DataError
from fcforge.core.settings import FRACTION, Checked, above, limits

BITS = 12  # significant bits of a model's numbers
FLAT = 2.0**40  # scale of a feature that is equal in all subjects, which removes it
MIN_PUBLIC = 20  # public subjects that a base model needs
MIN_PER_CLASS = 5  # public subjects of each class that it needs
PENALTY = 1.0  # ridge penalty per feature


@limits(shrink=FRACTION, penalty=above(0))
@dataclass(frozen=True)
class BaseModelSettings(Checked):
    """Settings of a base model.

    Parameters
    ----------
    shrink : float
        Shrinkage of the FC toward the identity, before the matrix logarithm.
    penalty : float
        Ridge penalty per feature.
    """

    kind: ClassVar[str] = "base model"
    shrink: float = SHRINK
    penalty: float = PENALTY


@dataclass(frozen=True, eq=False)
class BaseModel:
    """A linear model of public subjects with p features and c columns, in float64.

    Attributes
    ----------
    mean, scale : ndarray of shape (p,)
        Mean and standard deviation of each feature over the public subjects.
    weight : ndarray of shape (p,), or (p, c) for several columns
        Weights of the standardised features.
    bias : float, or ndarray of shape (c,)
        Added to the scores.
    temperature : float
        Divisor that turns scores into calibrated log odds.
    shrink : float
        Share of the identity mixed into the FC before its matrix logarithm.
    """

    mean: Array
    scale: Array
    weight: Array
    bias: Any
    temperature: float
    shrink: float = SHRINK

    def arrays(self) -> dict[str, Array]:
        """Return all fields as arrays by name; numbers become arrays without axes."""
        return {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all numbers of the model, which identifies it."""
        return digest_of(self.arrays())

    @property
    def n_features(self) -> int:
        """Number of features p."""
        return len(self.mean)

    @property
    def columns(self) -> int:
        """Number of columns c: one, or one less than there are classes."""
        return 1 if self.weight.ndim == 1 else self.weight.shape[1]

    def standardise(self, features: Array) -> Array:
        """Return features (n, p) standardised by the public subjects."""
        return (features - self.mean) / self.scale

    def score(self, x: Array) -> Array:
        """Return the scores (n,) or (n, c) of standardised features x (n, p)."""
        return x @ self.weight + self.bias


def digest_of(arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 of arrays and their names; their order does not matter."""
    hashed = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        hashed.update(f"{name}{array.shape}".encode())
        hashed.update(array.astype("<f8").tobytes())
    return hashed.hexdigest()


def fit_base_model(
    features: Array,
    y: Array,
    columns: int = 1,
    settings: BaseModelSettings = BaseModelSettings(),  # noqa: B008 (frozen)
) -> BaseModel:
    """Fit the base model of public subjects. The result is deterministic.

    Parameters
    ----------
    features : ndarray of shape (n, p)
        Matrix-log features (`log_features`), confounds removed.
    y : ndarray of shape (n,)
        Integer classes 0 to `columns`, or float numbers between -1 and +1.
    columns : int
        Number c of target columns: classes minus one, or one for a number.
    settings : BaseModelSettings
        Its `shrink` must be the one that the features were computed with.

    Returns
    -------
    BaseModel

    Raises
    ------
    DataError
        If there are too few subjects.
    """
    require_public_subjects(y, columns)
    mean, scale = (rounded(values) for values in mean_and_scale(features))
    x = (features - mean) / scale
    t = targets(y, columns)
    # scores of subjects that the ridge was not fitted on, for the temperature
    dual, left_out = left_out_scores(x, t, settings.penalty)
    weight = rounded((x - x.mean(0)).T @ dual)
    is_number = y.dtype.kind == "f"  # a number has no odds to calibrate
    temperature = 1.0 if is_number else fit_temperature(left_out.reshape(len(y), -1), y)
    return BaseModel(
        mean=mean,
        scale=scale,
        weight=weight,
        bias=rounded(t.mean(0) - x.mean(0) @ weight)[()],  # a number for one column
        temperature=rounded_number(temperature),
        # 24 bits, a float32's: the features were made with the setting itself
        shrink=rounded_number(settings.shrink, 24),
    )


def require_public_subjects(y: Array, columns: int = 1) -> None:
    """Raise `DataError` if there are too few subjects, in all or of a class, for a base model.

    Parameters
    ----------
    y : ndarray of shape (n,)
        Integer classes 0 to `columns`, or float numbers.
    columns : int
        Number of classes minus one; ignored for numbers.
    """
    rarest = len(y)  # a number has no classes
    if y.dtype.kind != "f":
        rarest = min(int((y == k).sum()) for k in range(columns + 1))
    if len(y) < MIN_PUBLIC or rarest < MIN_PER_CLASS:
        raise DataError(
            f"{len(y)} public subjects ({rarest} of the rarest class) are too few.",
            where="base model",
            do=f"Use at least {MIN_PUBLIC} subjects, {MIN_PER_CLASS} of each class.",
        )


def mean_and_scale(features: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of each feature, shape (p,); `FLAT` if it is constant."""
    deviation = features.std(0)
    return features.mean(0), np.where(deviation > 1e-9, deviation, FLAT)


def left_out_scores(x: Array, t: Array, penalty: float) -> tuple[Array, Array]:
    """Return dual coefficients and leave-one-out scores of ridge regression.

    Parameters
    ----------
    x : ndarray of shape (n, p)
        Standardised features.
    t : ndarray of shape (n,) or (n, c)
        Targets.
    penalty : float
        Ridge penalty per feature.

    Returns
    -------
    dual, scores : ndarray of shape (n,) or (n, c)
        The weights are the centred features times `dual`. A subject's score is that of the ridge
        fitted on all other subjects.
    """
    centred = x - x.mean(0)  # rounding moves the mean slightly
    return leave_one_out(centred @ centred.T, t, penalty * x.shape[1])


def leave_one_out(gram: Array, t: Array, penalty: float) -> tuple[Array, Array]:
    r"""Return dual coefficients of ridge regression and its exact leave-one-out predictions.

    With the Gram matrix K, the penalty :math:`\alpha` and :math:`H = K (K + \alpha I)^{-1} + \tfrac1n`
    the prediction for subject i by the model of the others is
    :math:`t_i - (t_i - \hat t_i) / (1 - H_{ii})`.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Inner products of the subjects' centred features.
    t : ndarray of shape (n,) or (n, c)
        Targets.
    penalty : float
        The penalty :math:`\alpha` itself, not per feature.

    Returns
    -------
    dual, predictions : ndarray of shape (n,) or (n, c)
    """
    n = len(t)
    inverse = np.linalg.inv(gram + penalty * np.eye(n))
    dual = inverse @ (t - t.mean(0))
    fitted = gram @ dual + t.mean(0)
    leverage = (gram * inverse).sum(1) + 1.0 / n  # the diagonal of H
    # transposed, so that (n,) divides targets of one column and of several alike
    return dual, t - ((t - fitted).T / (1 - leverage)).T


def rounded(values: Array, bits: int = BITS) -> Array:
    """Return float64 values rounded to `bits` significant bits.

    Examples
    --------
    >>> rounded(np.array([1.0, 1.0001, 3.14159]), 4).tolist()
    [1.0, 1.0, 3.25]
    """
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent)


def rounded_number(value: float, bits: int = BITS) -> float:
    """Return a number rounded to `bits` significant bits."""
    return float(rounded(np.asarray(value), bits))
