"""Steps of a pipeline: matrix-log edges, tangent vectors, confounds and site effects removed.

Confounds and sites are metadata of the subjects. In a pipeline they are routed
(``sklearn.set_config(enable_metadata_routing=True)``), to `fit` and to `transform` alike:

>>> SiteHarmoniser().set_fit_request(site=True).set_transform_request(site=True)  # doctest: +SKIP

Shapes: n subjects, R ROIs, T volumes of a time series, p columns of X, k covariates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from fcforge.base_model.features import one_blas_thread
from fcforge.core.constants import LOG_SCALE, SHRINK
from fcforge.core.names import check_names
from fcforge.core.options import Kind
from fcforge.data.combat import How, SiteEffects, Unseen
from fcforge.data.confounds import Confounds, design, require_covariates
from fcforge.data.matrices import Layout, Order
from fcforge.estimator.inputs import InputError, ReadsFC, as_input_error
from fcforge.estimator.people import columns_of, positive_class, site_names


@dataclass(repr=False, eq=False)
class MatrixLog(TransformerMixin, ReadsFC):
    r"""Edges of the matrix logarithm of FC, :math:`\log((1 - a) C + a I)`, for any classifier.

    Parameters
    ----------
    shrink : float
        a, between 0 and 1.
    kind, edges
        How X is read, as in `ForgeClassifier`; columns come out in the same order.

    Attributes
    ----------
    n_rois_ : int
    """

    shrink: float = SHRINK
    kind: Kind = "auto"
    edges: Order = "nilearn"

    def fit(self, X: Any, y: Any = None) -> "MatrixLog":
        """Find out how the columns of X encode FC.

        Parameters
        ----------
        X : array of shape (n, R, R), (n, edges) or (n, T, R), or list of (T, R) arrays
        y
            Not used.
        """
        _require_share(self.shrink)
        numbers, _ = self._validate(X, reset=True)
        fc, self._layout = self._as_fc(numbers, None)
        self.n_rois_ = fc.shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the edges of the matrix logarithm, scaled to roughly unit spread.

        Parameters
        ----------
        X
            As in `fit`.

        Returns
        -------
        ndarray of shape (n, R (R - 1) / 2)
        """
        import torch

        from fcforge.graphs import log_matrix
        from fcforge.nn.resources import one_thread

        check_is_fitted(self, "n_rois_")
        numbers, _ = self._validate(X, reset=False)
        fc, _ = self._as_fc(numbers, self._layout)
        exact = torch.from_numpy(fc.astype(np.float64))
        with one_thread():  # several threads take ten times as long on small matrices
            log = log_matrix(exact, self.shrink).numpy()
        rows, cols = Layout(self.n_rois_, self.edges, False).indices()
        return log[:, rows, cols] / LOG_SCALE

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the name of every column, ``log(i, j)`` with ROIs counted from 1."""
        check_is_fitted(self, "n_rois_")
        rows, cols = Layout(self.n_rois_, self.edges, False).indices()
        return np.array(
            [f"log({i + 1}, {j + 1})" for i, j in zip(rows, cols, strict=True)], object
        )


@dataclass(repr=False, eq=False)
class TangentSpace(TransformerMixin, ReadsFC):
    r"""Tangent vectors of FC at the mean of the subjects of `fit`, for any classifier.

    With :math:`S = (1 - a) C + a I` and the geometric mean M of the subjects of `fit` these are
    the entries of

    .. math:: \log(M^{-1/2}\, S\, M^{-1/2})

    on and below the diagonal, row by row, the diagonal divided by :math:`\sqrt 2`. nilearn's
    ``ConnectivityMeasure(kind="tangent", vectorize=True)`` makes the same of time series; it
    would take FC matrices for series. Subjects that `fit` did not see have no part in M.

    Parameters
    ----------
    shrink : float
        a, between 0 and 1. With 0 every FC must be positive definite.
    kind, edges
        How X is read, as in `ForgeClassifier`.

    Attributes
    ----------
    mean_ : ndarray of shape (R, R)
        Geometric mean M of the shrunk FC.
    n_rois_ : int

    References
    ----------
    Varoquaux, Baronnet, Kleinschmidt, Fillard, Thirion (2010), Detection of brain
    functional-connectivity difference in post-stroke patients using group-level covariance
    modeling.
    """

    shrink: float = SHRINK
    kind: Kind = "auto"
    edges: Order = "nilearn"

    def fit(self, X: Any, y: Any = None) -> "TangentSpace":
        """Compute the geometric mean of FC.

        Parameters
        ----------
        X : array of shape (n, R, R), (n, edges) or (n, T, R), or list of (T, R) arrays
        y
            Not used.
        """
        _require_share(self.shrink)
        numbers, _ = self._validate(X, reset=True)
        fc, self._layout = self._as_fc(numbers, None)
        self.n_rois_ = fc.shape[1]
        with one_blas_thread():
            self.mean_ = geometric_mean(self._shrunk(fc))
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return tangent vectors (n, R (R + 1) / 2).

        Parameters
        ----------
        X
            As in `fit`.
        """
        check_is_fitted(self, "mean_")
        numbers, _ = self._validate(X, reset=False)
        fc, _ = self._as_fc(numbers, self._layout)
        if fc.shape[1] != self.n_rois_:
            message = f"X has {fc.shape[1]} ROIs, the mean {self.n_rois_}."
            raise InputError(message, do="Give scans of the same atlas.")
        with one_blas_thread():
            root = _of_eigenvalues(self.mean_, lambda v: v**-0.5)
            tangent = _of_eigenvalues(root @ self._shrunk(fc) @ root, np.log)
        rows, cols = np.tril_indices(self.n_rois_)
        return tangent[:, rows, cols] / np.where(rows == cols, 2**0.5, 1.0)

    def _shrunk(self, fc: np.ndarray) -> np.ndarray:
        """Return (1 - a) C + a I of FC (n, R, R); `InputError` if one is not positive definite."""
        shrunk = (1 - self.shrink) * fc.astype(np.float64)
        shrunk += self.shrink * np.eye(fc.shape[1])
        smallest = np.linalg.eigvalsh(shrunk)[:, 0]
        if (smallest < SMALLEST_EIGENVALUE).any():
            i = int(smallest.argmin())
            message = f"X[{i}] is not positive definite (smallest eigenvalue {smallest[i]:.2g})."
            hint = "Give a larger shrink=: FC of fewer volumes than ROIs needs one."
            raise InputError(message, do=hint)
        return shrunk

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the name of every column, ``tangent(i, j)`` with ROIs counted from 1."""
        check_is_fitted(self, "mean_")
        rows, cols = np.tril_indices(self.n_rois_)
        pairs = zip(rows, cols, strict=True)
        return np.array([f"tangent({i + 1}, {j + 1})" for i, j in pairs], object)


SMALLEST_EIGENVALUE = 1e-8
MEAN_TOLERANCE = (
    1e-9  # norm of the mean tangent vector per ROI at which the mean is found
)
MOST_STEPS = 100


def _of_eigenvalues(
    matrices: np.ndarray, change: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Apply a function to the eigenvalues of symmetric matrices (..., R, R)."""
    value, vector = np.linalg.eigh((matrices + np.swapaxes(matrices, -1, -2)) / 2)
    return (vector * change(value)[..., None, :]) @ np.swapaxes(vector, -1, -2)


def geometric_mean(matrices: np.ndarray) -> np.ndarray:
    r"""Return the geometric mean of positive definite matrices (n, R, R).

    It is the M at which :math:`\sum_i \log(M^{-1/2} S_i M^{-1/2}) = 0`, computed by gradient steps
    that are halved when the gradient grows. Raises `InputError` if they do not converge.
    """
    mean = matrices.mean(0)
    step = 1.0
    last = np.inf
    for _ in range(MOST_STEPS):
        root = _of_eigenvalues(mean, np.sqrt)
        inverse = _of_eigenvalues(mean, lambda v: v**-0.5)
        whitened = inverse @ matrices @ inverse
        gradient = _of_eigenvalues(whitened, np.log).mean(0)
        size = float(np.linalg.norm(gradient)) / len(mean)
        if size < MEAN_TOLERANCE:
            return mean
        if size > last:
            step /= 2
        last = min(size, last)
        mean = root @ _of_eigenvalues(step * gradient, np.exp) @ root
    message = f"the geometric mean was not found in {MOST_STEPS} steps."
    raise InputError(message, do="Give a larger shrink=.")


def _require_share(shrink: float) -> None:
    """Raise `InputError` unless `shrink` is at least 0 and below 1."""
    if not 0 <= shrink < 1:
        raise InputError(f"shrink={shrink} is not a share of at least 0 and below 1.")


class _OfSubjects(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Base of transformers whose `fit` and `transform` both take metadata of the subjects."""

    def fit_transform(self, X: Any, y: Any = None, **metadata: Any) -> np.ndarray:
        """Call `fit`, then `transform` with the same metadata, and return its result."""
        return self.fit(X, y, **metadata).transform(X, **metadata)

    def _numbers(self, X: Any, *, reset: bool) -> np.ndarray:
        """Return X (n, p) as float64; `reset` is true in `fit`, which defines p."""
        fewest = 2 if reset else 1  # one subject has no spread
        return validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_min_samples=fewest
        )


@dataclass(repr=False, eq=False)
class ConfoundRemover(_OfSubjects):
    r"""Removal of the effects of covariates from columns, :math:`x' = x - B^\top (d - \bar d)`.

    d are the covariates of a subject. B is fitted by least squares on the subjects of `fit` alone,
    without their diagnoses. Head motion (`mean_fd`) enters as its logarithm, age with its square.
    Give it edges in which adding makes sense: `MatrixLog` or Fisher z.

    Parameters
    ----------
    remove : sequence of str, optional
        Names of the covariates; by default all that are given to `fit`.

    Attributes
    ----------
    confounds_ : Confounds
    """

    remove: Sequence[str] | None = None

    def fit(self, X: Any, y: Any = None, covariates: Any = None) -> "ConfoundRemover":
        """Estimate the effect of each covariate on each column of X.

        Parameters
        ----------
        X : array of shape (n, p)
        y
            Not used.
        covariates : mapping or data frame of columns of shape (n,)
        """
        X = self._numbers(X, reset=True)
        names = tuple(
            columns_of(covariates, len(X)) if self.remove is None else self.remove
        )
        if not names:
            raise InputError(
                "there is nothing to remove.", do="Give covariates={'age': ...}."
            )
        with as_input_error():
            columns = _columns(covariates, names, len(X))
            # columns of X are not computed from shrunk FC
            self.confounds_ = Confounds.fit(X, columns, names, shrink=0.0)
        return self

    def transform(self, X: Any, covariates: Any = None) -> np.ndarray:
        """Return X (n, p) minus the part that the covariates explain.

        Parameters
        ----------
        X, covariates
            As in `fit`.
        """
        check_is_fitted(self, "confounds_")
        X = self._numbers(X, reset=False)
        with as_input_error():
            return X - self.confounds_.effect(
                _columns(covariates, self.confounds_.names, len(X))
            )


@dataclass(repr=False, eq=False)
class SiteHarmoniser(_OfSubjects):
    """Removal of each site's shift and scale of the columns, learned from the subjects of `fit`.

    Parameters
    ----------
    how : {"combat", "demean"}
        ComBat's empirical Bayes of shift and scale (equal to neuroCombat), or plain means.
    keep_diagnosis : bool
        Keep differences between the classes of y out of the estimated site effects. `transform`
        does not use diagnoses; classic ComBat does, and so leaks them to the classifier.
    unseen : {"refuse", "estimate"}
        Treatment of subjects of a site that `fit` did not see: an error, or the effect is
        estimated from the subjects given to `transform`, without diagnoses (so scores depend on
        the subjects that are transformed together).

    Attributes
    ----------
    effects_ : SiteEffects
    """

    how: How = "combat"
    keep_diagnosis: bool = True
    unseen: Unseen = "refuse"

    def fit(
        self, X: Any, y: Any = None, site: Any = None, covariates: Any = None
    ) -> "SiteHarmoniser":
        """Estimate shift and scale of each column at each site.

        Parameters
        ----------
        X : array of shape (n, p)
        y : array of shape (n,), optional
            Two classes, whose difference is kept if `keep_diagnosis` is true.
        site : array of shape (n,)
            As in `ForgeClassifier.fit`.
        covariates : mapping or data frame of columns of shape (n,), optional
            Covariates whose effects are kept.
        """
        X = self._numbers(X, reset=True)
        names = _sites(site, len(X))
        self._covariates = tuple(columns_of(covariates, len(X)))
        kept_design = self._design_to_keep(covariates, X)
        code = None  # 1 for patients, if their difference from controls is kept
        if y is not None and self.keep_diagnosis:
            y = np.asarray(y)
            known = np.unique(y)
            if len(known) != 2:
                message = f"y holds {len(known)} classes; keep_diagnosis needs two."
                raise InputError(
                    message, do="Set keep_diagnosis=False, or compare two."
                )
            code = (y == positive_class(known, None)).astype(float)
        with as_input_error():
            check_names("way with unseen sites", [self.unseen], get_args(Unseen))
            self.effects_ = SiteEffects.fit(X, names, kept_design, code, self.how)
        return self

    def _design_to_keep(self, covariates: Any, X: np.ndarray) -> np.ndarray:
        """Return the design matrix (n, k) of the covariates whose effects are kept."""
        with as_input_error():
            columns = _columns(covariates, self._covariates, len(X))
            if not self._covariates:
                return np.zeros((len(X), 0))
            return design(columns, self._covariates)

    def transform(self, X: Any, site: Any = None, covariates: Any = None) -> np.ndarray:
        """Return X (n, p) without the effects of the sites.

        Parameters
        ----------
        X, site, covariates
            As in `fit`.
        """
        check_is_fitted(self, "effects_")
        X = self._numbers(X, reset=False)
        names = _sites(site, len(X))
        kept_design = self._design_to_keep(covariates, X)
        out = X.copy()
        with as_input_error():
            for name in set(names):
                mine = names == name
                kept = kept_design[mine]
                out[mine] = self.effects_.remove(X[mine], kept, name, self.unseen)
        return out


def _sites(site: Any, n: int) -> np.ndarray:
    """Return the site (n,) of each of n subjects; `InputError` if none is given."""
    if site is None:
        raise InputError("harmonising needs the subjects' sites.", do="Give site=.")
    return site_names(site, n, "")


def _columns(covariates: Any, names: Sequence[str], n: int) -> dict[str, np.ndarray]:
    """Return covariates by name, (n,) each; those of `names` must be known for every subject."""
    columns = columns_of(covariates, n)
    require_covariates(columns, names, [f"row {i}" for i in range(n)], "covariates")
    return columns
