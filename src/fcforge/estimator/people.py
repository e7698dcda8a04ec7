"""Who the rows of X are: their site, their class, their covariates."""

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fcforge.core.errors import FCForgeError
from fcforge.core.formatting import whole
from fcforge.core.names import two_spellings
from fcforge.data.cohort import MIN_ROIS, Cohort, as_text
from fcforge.data.duplicates import find_duplicates
from fcforge.data.participants import is_missing, label_of
from fcforge.estimator.inputs import InputError

DROP = "The same scan would be learned as two people; drop one."


# -- sites -----------------------------------------------------------------------------------------
def site_names(site: Any, n: int, default: str) -> np.ndarray:
    """Site of each of n subjects, as text, (n,).

    None: all are of one site, `default`. One name: all are of it. An array: one name per subject.
    1, 1.0 and "1" are the same site; what is empty or missing, a fraction or a truth value is no
    name and raises `InputError`.
    """
    if site is None:
        return np.full(n, default, dtype=object)
    values = np.asarray(site, dtype=object)
    if values.ndim == 0:
        values = np.full(n, values.item(), dtype=object)
    if values.shape != (n,):
        what = f"site has shape {values.shape}, but X has {n} subjects."
        raise InputError(what, do=f"Give one name, or an array of shape ({n},).")
    names = [whole(_said(value)) for value in values]
    for place, name in enumerate(names):
        number = isinstance(values[place], (float, np.floating))
        if is_missing(name) or (number and "." in name) or name in ("True", "False"):
            what = (
                f"site[{place}] is {values[place]!r}, which is not the name of a site."
            )
            raise InputError(what, do="Name everybody's site, by a text or a number.")
    _refuse_spellings("site", names)
    return np.array(names, dtype=object)


def _said(value: Any) -> str:
    """A value as text, empty where there is none; pandas writes <NA>."""
    return "" if value is None else str(value).strip("<> ")


def _refuse_spellings(what: str, names: Iterable[str]) -> None:
    if both := two_spellings(names):
        said = f"{what} holds {both}: one {what} in two spellings."
        raise InputError(said, do=f"Spell each {what} in one way.")


def scan_hashes(fc: np.ndarray) -> np.ndarray:
    """First 16 digits of the SHA-256 of every scan of (n, R, R): who its subject is."""
    scans = np.ascontiguousarray(fc, dtype="<f4")
    return as_text([hashlib.sha256(scan).hexdigest()[:16] for scan in scans])


def told_apart(
    subjects: Cohort, before: Mapping[str, str], named: bool
) -> dict[str, str]:
    """Site of every scan so far, by its hash; one scan at two named sites is refused.

    Where sites are not named, and for scans of one call that merely look like one person at two
    sites, it is a warning.

    Parameters
    ----------
    subjects : Cohort
    before : mapping of hash to site
        Of the scans learned before.
    named : bool
    """
    seen = dict(before)
    for i, digest in enumerate(subjects.subject_id.tolist()):
        site = subjects.site[i]
        twin = seen.setdefault(digest, site)
        if twin != site:
            what = f"X[{i}] of site '{site}' has exactly the FC of a subject of site '{twin}'."
            if named:
                raise InputError(what, do=DROP)
            warnings.warn(f"{what} {DROP}", stacklevel=5)
            break
    fc = subjects.fc
    if fc.shape[1] < MIN_ROIS or len(subjects.site_names) < 2:
        return seen
    for one, other, r in find_duplicates(fc, np.arange(len(fc))):
        first = subjects.site[int(one)]
        second = subjects.site[int(other)]
        if first != second:
            twin = f"X[{one}] of site '{first}' (edges correlate {r:.3f})"
            what = f"X[{other}] of site '{second}' looks like the scan of {twin}."
            warnings.warn(f"{what} {DROP}", stacklevel=5)
    return seen


# -- covariates ------------------------------------------------------------------------------------
def columns_of(covariates: Any, n: int) -> dict[str, np.ndarray]:
    """Covariates by name, (n,) each, from a mapping or a data frame; None has none."""
    if covariates is None:
        return {}
    if not hasattr(covariates, "keys"):
        do = "Give a data frame, or {'age': array}."
        raise InputError("covariates have no names.", do=do)
    found = {str(name): np.asarray(covariates[name]) for name in covariates}
    for name, values in found.items():
        if values.shape != (n,):
            what = (
                f"covariate '{name}' has shape {values.shape}, but X has {n} subjects."
            )
            raise InputError(what)
    return found


# -- classes ---------------------------------------------------------------------------------------
def refuse_missing(y: Any) -> None:
    """`InputError` where a value of `y` says that nothing is known, or two differ in spelling."""
    values = np.asarray(y, dtype=object).ravel().tolist()
    for place, value in enumerate(values):
        if is_missing(_said(value)):
            what = f"y[{place}] is {value!r}, which stands for a missing value."
            raise InputError(what, do="Leave the subject out of X and y.")
    _refuse_spellings("class", (value for value in values if isinstance(value, str)))


def some_classes(labels: np.ndarray, known: np.ndarray) -> np.ndarray:
    """`known` itself when it is two classes or more and `labels` holds no other.

    The words of the `InputError` are those scikit-learn's checks expect.
    """
    if len(known) < 2:
        raise InputError(
            "Classifier can't train when only one class is present: 1 class."
        )
    there = np.unique(labels).tolist()
    if odd := sorted(set(there) - set(known.tolist())):
        what = f"y holds {odd[0]!r}, which is neither of {known.tolist()}."
        raise InputError(what, do="Give all with classes= in the first partial_fit.")
    return known


def coded(labels: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Places (n,) of labels among the words of a model, controls first."""
    order = np.argsort(words)
    return order[np.searchsorted(words[order], labels)]


def obvious_patient(known: Any) -> Any:
    """Of two classes the patients', where they say it by themselves; None where they do not.

    0 and 1, -1 and 1, False and True, and words that are known (ASD and TC) do; 1 and 2 do not.
    """
    values = np.asarray(known).tolist()
    if all(isinstance(value, (bool, int, float)) for value in values):
        plain = sorted(values) in ([0, 1], [-1, 1])
        return max(values) if plain else None
    try:
        means = {label_of(str(value)): value for value in values}
    except FCForgeError:
        return None
    return means[1] if len(means) == 2 else None


def positive_class(known: np.ndarray, positive: Any) -> Any:
    """The patients' class: the one that is named, or obvious, or the second in sorted order."""
    if positive is None:
        patient = obvious_patient(known) if len(known) == 2 else None
        return known[1] if patient is None else patient
    if positive not in known.tolist():
        raise InputError(f"positive={positive!r} is neither of {known.tolist()}.")
    return positive


def require_stated(known: Any, positive: Any) -> None:
    """Raise `InputError` where nobody said which class is the patients, before it leaves."""
    if positive is None and obvious_patient(known) is None:
        values = np.asarray(known).tolist()
        what = f"of the classes {values} it is not known which means patient."
        do = "Say which: ForgeClassifier(positive=...)."
        raise InputError(what, do=do)
