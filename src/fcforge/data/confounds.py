r"""Confounds: removal of the linear effect of head motion, age and sex on FC before training.

In the coordinates :math:`\phi` of `fcforge.base_model.features` (the matrix logarithm, where adding
and subtracting leaves a valid matrix),

.. math:: \phi' = \phi - B^\top (d - \bar d)

with d a subject's covariates and B least-squares coefficients. They are fitted on the public people of
a base model, or without one on the training parts of the sites so far. Test subjects and diagnoses
are never part of the fit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcforge.base_model.features import from_log_features, log_features
from fcforge.core.constants import SHRINK
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.formatting import some
from fcforge.core.names import check_names
from fcforge.core.subjects import FCBatch, Site
from fcforge.data.cohort import Cohort, as_numbers

Covariates = Mapping[str, np.ndarray]
MIN_FD = 1e-3  # mm; smallest mean framewise displacement whose logarithm is used


def terms(name: str, values: np.ndarray) -> list[np.ndarray]:
    """Return the design columns of a covariate: log mean FD, age and its square, others unchanged.

    Examples
    --------
    >>> terms("age", np.array([20.0, 30.0]))
    [array([0., 1.]), array([0., 1.])]
    """
    if name == "mean_fd":
        return [np.log(np.maximum(values, MIN_FD))]
    if name == "age":  # in decades from 20, so that both columns are of order one
        decades = (values - 20.0) / 10.0
        return [decades, decades**2]
    return [values]


def design(covariates: Covariates, names: Sequence[str]) -> np.ndarray:
    """Return the design matrix (n, k) of the named covariates, float64."""
    check_names("covariate", names, covariates, where="confounds to remove")
    columns: list[np.ndarray] = []
    for name in names:
        columns += terms(name, as_numbers(name, covariates[name]))
    return np.stack(columns, axis=1)


def require_covariates(
    covariates: Covariates, names: Sequence[str], ids: Sequence[str], where: str
) -> None:
    """Raise `DataError` that names the subjects without a covariate that is to be removed.

    Parameters
    ----------
    covariates : mapping of str to ndarray of shape (n,)
    names : sequence of str
        Covariates to remove.
    ids : sequence of str
        Subjects.
    where : str
        Place for the error message.
    """
    for name in names:
        if name not in covariates:
            message = f"there is no covariate '{name}', which is to be removed."
            do = f"Add a column '{name}', or leave it out of the confounds."
            known = ", ".join(sorted(covariates)) or "none"
            raise DataError(message, where=where, do=f"{do} Known: {known}.")
        missing = ~np.isfinite(as_numbers(name, covariates[name]))
        if missing.any():
            raise DataError(
                f"{some(np.asarray(ids)[missing])} have no {name}.",
                where=where,
                do="Give the missing values, or leave these subjects out (dataset.leave_out).",
            )


@dataclass(frozen=True)
class Confounds:
    """A fitted confound step.

    Attributes
    ----------
    names : tuple of str
        Covariates that are removed.
    centre : ndarray of shape (k,)
        Mean of the design over the people of the fit.
    coefficients : ndarray of shape (k, R (R + 1) / 2)
        B.
    shrink : float
        Share of the identity mixed into FC before its logarithm.
    """

    names: tuple[str, ...]
    centre: np.ndarray
    coefficients: np.ndarray
    shrink: float = SHRINK

    @classmethod
    def fit(
        cls,
        features: np.ndarray,
        covariates: Covariates,
        names: Sequence[str],
        shrink: float = SHRINK,
    ) -> "Confounds":
        """Fit least squares of features (n, p) on the covariates.

        Columns that do not vary (one sex only) get the coefficient zero.
        """
        d = design(covariates, names)
        if len(d) <= d.shape[1] + 1:
            raise ConfigError(
                f"{len(d)} subjects are too few to estimate {d.shape[1]} confound effects.",
                where="confounds",
                do="Remove fewer confounds, or fit them on more people (a public start).",
            )
        centre = d.mean(0)
        x = features - features.mean(0)
        coefficients = np.linalg.lstsq(d - centre, x, rcond=1e-8)[0]
        return cls(tuple(names), centre, coefficients, shrink)

    def effect(self, covariates: Covariates) -> np.ndarray:
        """Return the part of each feature that the covariates explain, shape (n, p)."""
        return (design(covariates, self.names) - self.centre) @ self.coefficients

    def remove(self, fc: np.ndarray, covariates: Covariates) -> np.ndarray:
        """Return FC (n, R, R) without the effect of the covariates; its diagonal stays near one."""
        if not len(fc):
            return fc
        left = log_features(fc, self.shrink) - self.effect(covariates)
        return from_log_features(left, self.shrink, unit=False).astype(fc.dtype)

    def apply(self, site: Site) -> Site:
        """Return the site with confounds removed from its three parts, each subject separately."""
        parts: dict[str, Any] = {}
        for name in site.subject_ids:
            people: FCBatch = getattr(site, name)
            own = _covariates(site, name, self.names)
            fc = self.remove(people.fc.numpy(), own)
            parts[name] = FCBatch.from_numpy(fc, people.y.numpy())
        return replace(site, **parts)


def _covariates(site: Site, part: str, names: Sequence[str]) -> Covariates:
    """Return the covariates of a part of a site; `DataError` if a subject lacks one of `names`."""
    known = site.covariates.get(part, {})
    ids = site.subject_ids.get(part, ())
    require_covariates(known, names, ids, f"site '{site.name}' ({part})")
    return known


def fit_on_training(sites: Iterable[Site], names: Sequence[str]) -> Confounds:
    """Fit the confound step on the training parts (train and val) of sites."""
    sites = list(sites)
    people = [_covariates(s, part, names) for s in sites for part in ("train", "val")]
    everyone = FCBatch.concat([s.learning(with_val=True) for s in sites])
    values = {}
    for name in names:
        values[name] = np.concatenate([own[name] for own in people])
    return Confounds.fit(log_features(everyone.fc.numpy()), values, names)


def fit_on_cohort(
    cohort: Cohort, names: Sequence[str], shrink: float = SHRINK
) -> Confounds:
    """Fit the confound step on all people of a cohort (public people)."""
    require_covariates(
        cohort.covariates, names, cohort.subject_id.tolist(), "public people"
    )
    features = log_features(cohort.fc, shrink)
    return Confounds.fit(features, cohort.covariates, names, shrink)
