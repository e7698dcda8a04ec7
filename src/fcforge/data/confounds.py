r"""Confounds: removal of the linear effect of head motion, age and sex on FC before training.

In the coordinates :math:`\phi` of `fcforge.base_model.features` (the matrix logarithm, where adding
and subtracting leaves a valid matrix),

.. math:: \phi' = \phi - B^\top (d - \bar d)

with d a subject's covariates, :math:`\bar d` their mean, and B least-squares coefficients. They are
fitted on the public people of a base model, or without one on the training parts of the sites so far.
Test subjects and diagnoses are never part of the fit.

Letters of shapes: n subjects, R ROIs, p = R (R + 1) / 2 features, k columns of the design matrix.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcforge.base_model.features import from_log_features, log_features
from fcforge.core.constants import SHRINK
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.formatting import abbreviated
from fcforge.core.names import check_names
from fcforge.core.subjects import FCBatch, Site
from fcforge.data.cohort import Cohort, as_numbers

Covariates = Mapping[str, np.ndarray]
MIN_FD = 1e-3  # mm; smallest mean framewise displacement whose logarithm is used


def terms(name: str, values: np.ndarray) -> list[np.ndarray]:
    """Return the columns (n,) of the design matrix that stand for a covariate (n,).

    Head motion enters as the logarithm of mean framewise displacement, age with its square, any
    other covariate unchanged.

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
    """Return the design matrix of the named covariates, float64, shape (n, k)."""
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
        Values of all subjects, by name.
    names : sequence of str
        Covariates to remove.
    ids : sequence of str
        Subject ids, in the order of the covariates' values.
    where : str
        Place for the error message.
    """
    for name in names:
        if name not in covariates:
            message = f"there is no covariate '{name}', which is to be removed."
            hint = f"Add a column '{name}', or leave it out of the confounds."
            known = ", ".join(sorted(covariates)) or "none"
            raise DataError(message, where=where, do=f"{hint} Known: {known}.")
        missing = ~np.isfinite(as_numbers(name, covariates[name]))
        if missing.any():
            raise DataError(
                f"{abbreviated(np.asarray(ids)[missing])} have no {name}.",
                where=where,
                do="Give the missing values, or leave these subjects out (dataset.leave_out).",
            )


def values_sha256(people: Cohort, names: Sequence[str]) -> str:
    """Return the SHA-256 of the named covariates of all people; the order of rows does not matter.

    `Cohort.content_sha256` covers no covariates.
    """
    order = np.argsort(people.subject_id, kind="stable")
    digest = hashlib.sha256()
    for name in names:
        values = as_numbers(name, people.covariates[name])[order]
        digest.update(f"{name}\x1f{len(values)}\x1f".encode())
        digest.update(np.ascontiguousarray(values, dtype="<f8").data)
    return digest.hexdigest()


@dataclass(frozen=True)
class Confounds:
    """A fitted removal of confounds.

    Attributes
    ----------
    names : tuple of str
        Covariates that are removed.
    centre : ndarray of shape (k,)
        Mean of the design matrix over the people of the fit.
    coefficients : ndarray of shape (k, p)
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
        """Fit the least-squares regression of features on covariates.

        Columns that do not vary (one sex only) get the coefficient zero; `rcond` excludes them.

        Parameters
        ----------
        features : ndarray of shape (n, p)
            Matrix-log features of FC.
        covariates : mapping of str to ndarray of shape (n,)
        names : sequence of str
            Covariates to remove.
        shrink : float
            Share of the identity that the features were computed with.
        """
        d = design(covariates, names)
        if len(d) <= d.shape[1] + 1:
            raise ConfigError(
                f"{len(d)} subjects are too few to estimate {d.shape[1]} confound effects.",
                where="confounds",
                do="Remove fewer confounds, or fit them on the public people of a base model.",
            )
        centre = d.mean(0)
        centred = features - features.mean(0)
        coefficients = np.linalg.lstsq(d - centre, centred, rcond=1e-8)[0]
        return cls(tuple(names), centre, coefficients, shrink)

    def effect(self, covariates: Covariates) -> np.ndarray:
        """Return the part of each subject's features that the covariates explain, shape (n, p)."""
        return (design(covariates, self.names) - self.centre) @ self.coefficients

    def remove(self, fc: np.ndarray, covariates: Covariates) -> np.ndarray:
        """Return FC (n, R, R) without the effect of the covariates; its diagonal stays near one."""
        if not len(fc):
            return fc
        cleaned = log_features(fc, self.shrink) - self.effect(covariates)
        # Scaling to a unit diagonal would change the features and bring back some of the effect.
        return from_log_features(cleaned, self.shrink, unit=False).astype(fc.dtype)

    def apply(self, site: Site) -> Site:
        """Return the site with confounds removed from the FC of train, val and test.

        A subject's result depends on its own covariates only.
        """
        parts: dict[str, Any] = {}
        for part in site.subject_ids:
            people: FCBatch = getattr(site, part)
            covariates = _covariates(site, part, self.names)
            fc = self.remove(people.fc.numpy(), covariates)
            parts[part] = FCBatch.from_numpy(fc, people.y.numpy())
        return replace(site, **parts)


def _covariates(site: Site, part: str, names: Sequence[str]) -> Covariates:
    """Return the covariates of one split of a site.

    Parameters
    ----------
    site : Site
    part : {"train", "val", "test"}
    names : sequence of str
        Covariates that every subject must have; else `DataError` is raised.
    """
    covariates = site.covariates.get(part, {})
    ids = site.subject_ids.get(part, ())
    require_covariates(covariates, names, ids, f"site '{site.name}' ({part})")
    return covariates


def fit_on_training(sites: Iterable[Site], names: Sequence[str]) -> Confounds:
    """Fit the removal of the named covariates on the training parts (train and val) of sites."""
    sites = list(sites)
    # In the order of `learning`: a site's train, then its val.
    parts = [_covariates(s, part, names) for s in sites for part in ("train", "val")]
    people = FCBatch.concat([s.learning(with_val=True) for s in sites])
    covariates = {}
    for name in names:
        covariates[name] = np.concatenate([of_part[name] for of_part in parts])
    return Confounds.fit(log_features(people.fc.numpy()), covariates, names)


def fit_on_cohort(
    cohort: Cohort, names: Sequence[str], shrink: float = SHRINK
) -> Confounds:
    """Fit the removal of some covariates' effect on all people of a cohort, who must be public.

    Parameters
    ----------
    cohort : Cohort
    names : sequence of str
        Covariates.
    shrink : float
        Shrinkage of FC towards the identity before the matrix logarithm.
    """
    require_covariates(
        cohort.covariates, names, cohort.subject_id.tolist(), "public people"
    )
    features = log_features(cohort.fc, shrink)
    return Confounds.fit(features, cohort.covariates, names, shrink)
