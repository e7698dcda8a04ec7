"""Sites, classes and covariates of the rows of X.

Shapes: n people (rows of X), R ROIs, K classes.
"""

import hashlib
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from fcforge.core import labels as label_checks
from fcforge.core.errors import FCForgeError
from fcforge.core.formatting import abbreviated, counted, whole
from fcforge.core.labels import is_missing, text_of
from fcforge.core.names import canonical_name, name_fault, name_shapes
from fcforge.data.checks import missing_class
from fcforge.data.cohort import MIN_ROIS, Cohort, as_text
from fcforge.data.duplicates import find_duplicates
from fcforge.data.label_codes import (
    PeopleOfCode,
    classes_apart,
    coding_fault,
    isolated_site,
    stray_class,
)
from fcforge.data.participants import label_of
from fcforge.estimator.inputs import InputError, as_input_error

ALL_MEANT = (
    "If every code is a class of its own: allow_unlike_codes=True, and classes= with all of them in the "
    "first partial_fit."
)
DROP = "The same scan would be learned as two people; drop one."


# -- sites -----------------------------------------------------------------------------------------
def site_names(site: Any, n: int, default: str) -> np.ndarray:
    """Return the site of each of n subjects, as text, (n,).

    1, 1.0 and "1" are the same site. Empty and missing names, fractions and truth values raise
    `InputError`.

    Parameters
    ----------
    site : array of shape (n,), str, int or None
        Name for each subject, or one name for all; None stands for `default`.
    n : int
        Number of subjects.
    default : str
        Name of the site if none is given.
    """
    if site is None:
        return np.full(n, default, dtype=object)
    values = np.asarray(site, dtype=object)
    if values.ndim == 0:
        values = np.full(n, values.item(), dtype=object)
    if values.shape != (n,):
        message = f"site has shape {values.shape}, but X has {n} subjects."
        raise InputError(message, do=f"Give one name, or an array of shape ({n},).")
    names = [whole(text_of(value)) for value in values]  # 1.0 is named "1"
    for place, name in enumerate(names):
        number = isinstance(values[place], (float, np.floating))
        is_fraction = number and "." in name
        if is_missing(name) or is_fraction or name in ("True", "False"):
            message = (
                f"site[{place}] is {values[place]!r}, which is not the name of a site."
            )
            raise InputError(
                message, do="Name everybody's site, by a text or a number."
            )
    canonical = {name: _canonical(name) for name in dict.fromkeys(names)}
    _refuse_spellings("site", canonical.values())
    return np.array([canonical[name] for name in names], dtype=object)


def compare_site_names(names: Iterable[str], before: Iterable[str]) -> None:
    """Compare the site names of a call with each other and with those of earlier calls.

    Names that differ in case alone raise `InputError`. Of other names that look alike, such as UM_1 and UM1,
    the first pair with a new name is a warning.

    Parameters
    ----------
    names : iterable of str
        Canonical names of the call.
    before : iterable of str
        Names of the sites that were learned before.
    """
    known = dict.fromkeys(before)
    every = list({**known, **dict.fromkeys(names)})
    _refuse_spellings("site", every)
    name_of_shape: dict[str, str] = {}
    for name in every:
        for shape in name_shapes(name):
            first = name_of_shape.setdefault(shape, name)
            if (
                first == name or name in known
            ):  # an earlier call has warned of the known
                continue
            one, other = sorted((first, name))
            message = f"The sites {one!r} and {other!r} look alike, and are learned as two sites."
            hint = "If they are one, give both the same name."
            warnings.warn(f"{message} {hint}", stacklevel=5)
            return


def _canonical(name: str) -> str:
    """Return the canonical spelling of a site's name; `InputError` if it has none."""
    canonical = canonical_name(name)
    if fault := name_fault(canonical):
        raise InputError(
            f"the site name {name!r:.60} {fault}.", do="Give it another name."
        )
    return canonical


def _refuse_spellings(role: str, names: Iterable[str]) -> None:
    """Raise `InputError` if two names differ in spelling alone; `role` is "site" or "class"."""
    with as_input_error():
        label_checks.refuse_spellings(role, names)


def scan_hashes(fc: np.ndarray) -> np.ndarray:
    """Return an id of every scan of (n, R, R): the first 16 hexadecimal digits of its SHA-256."""
    scans = np.ascontiguousarray(fc, dtype="<f4")
    return as_text([hashlib.sha256(scan).hexdigest()[:16] for scan in scans])


def require_new_people(
    subjects: Cohort, before: Mapping[str, str], *, named: bool
) -> dict[str, str]:
    """Refuse scans that were learned before, or that are at two sites.

    A scan with two diagnoses raises `InputError`. So does one scan at two sites, and a scan of an
    earlier call, where the user names the sites; otherwise these are warnings. Scans of one call
    that look like one person are a warning, too.

    Parameters
    ----------
    subjects : Cohort
        Subjects of the call, with the hashes of their scans as ids.
    before : mapping of hash to site
        Scans of earlier calls.
    named : bool
        Whether the sites were named by the user.

    Returns
    -------
    dict of str to str
        Site of every scan so far, by the hash of the scan.
    """
    site_of_scan = dict(before)
    label_of_scan: dict[str, Any] = {}
    warned = False
    rows = zip(
        subjects.subject_id.tolist(),
        subjects.site.tolist(),
        subjects.y.tolist(),
        strict=True,
    )
    for i, (digest, site, y) in enumerate(rows):
        first_site = site_of_scan.setdefault(digest, site)
        fault = ""
        if first_site != site:
            fault = f"X[{i}] of site '{site}' has exactly the FC of a subject of site '{first_site}'."
        elif digest in before:
            fault = f"X[{i}] of site '{site}' was learned before."
        if fault and named:
            raise InputError(fault, do=DROP)
        if fault and not warned:
            warnings.warn(f"{fault} {DROP}", stacklevel=5)
            warned = True
        if subjects.target.classes and label_of_scan.setdefault(digest, y) != y:
            message = f"X[{i}] of site '{site}' is there twice, with two diagnoses."
            raise InputError(message, do="Keep the right one.")
    _warn_of_duplicates(subjects)
    return site_of_scan


def _warn_of_duplicates(subjects: Cohort) -> None:
    """Warn of scans of one call that look like one person.

    Each pair at two sites has a warning of its own; pairs of one site share one.
    """
    fc = subjects.fc
    if fc.shape[1] < MIN_ROIS:
        return
    of_one_site = []
    for i, j, r in find_duplicates(fc, np.arange(len(fc))):
        first, second = subjects.site[int(i)], subjects.site[int(j)]
        pair = f"X[{i}] of site '{first}' (edges correlate {r:.3f})"
        message = f"X[{j}] of site '{second}' looks like the scan of {pair}"
        classes = bool(subjects.target.classes)
        if classes and subjects.y[int(i)] != subjects.y[int(j)]:
            message += ", who has another diagnosis"
        if first == second:
            of_one_site.append(message)
        else:
            warnings.warn(f"{message}. {DROP}", stacklevel=6)
    if of_one_site:
        n_more = len(of_one_site) - 1
        more = f" There are {n_more} more such pairs." if n_more else ""
        hint = "To weigh people, give sample_weight."
        warnings.warn(f"{of_one_site[0]}.{more} {DROP} {hint}", stacklevel=6)


def refuse_a_site_each(names: np.ndarray, before: Collection[str]) -> None:
    """Raise `InputError` if every subject of a call is at a new site of its own.

    Parameters
    ----------
    names : ndarray of shape (n,)
        Site of each subject.
    before : collection of str
        Sites that were learned before.
    """
    n_sites = len(set(names.tolist()))
    if n_sites == len(names) > 2 and not set(names.tolist()) & set(before):
        message = f"site names {n_sites} sites of one person each."
        hint = "Name the hospital of each person, not the person; without site= all are one site."
        raise InputError(message, do=hint)


def warn_of_confounding(
    subjects: Cohort,
    sites_of_class: Mapping[int, frozenset[str]],
    before: Collection[str],
) -> dict[int, frozenset[str]]:
    """Warn of a class whose sites have no other class, so that the site gives the class away.

    If there is none, warn of a site that has one class only.

    Parameters
    ----------
    subjects : Cohort
        Subjects of a call.
    sites_of_class : mapping of int to frozenset of str
        Sites of each class in earlier calls, by the place of the class in the target.
    before : collection of str
        Sites of earlier calls. Those of a loaded model are in no `sites_of_class`; it is not known which
        classes they have.

    Returns
    -------
    dict of int to frozenset of str
        Sites of each class so far.
    """
    known = dict(sites_of_class)
    for k in np.unique(subjects.y).tolist():
        sites = subjects.site[subjects.y == k].tolist()
        known[k] = known.get(k, frozenset()) | frozenset(sites)
    if known == sites_of_class or len(known) < 2:
        return known
    for k, sites in known.items():
        if not any(sites & others for c, others in known.items() if c != k):
            name = subjects.target.classes[k]
            message = f"Everybody at the sites of class {name!r} ({abbreviated(sorted(sites))}) has that class"
            hint = "Learn a site with both, and do not trust scores of these people."
            warnings.warn(
                f"{message}: the site gives the class away. {hint}", stacklevel=5
            )
            return known
    unknown = set(before).difference(*sites_of_class.values())
    _warn_of_single_classes(subjects, known, unknown)
    return known


def _warn_of_single_classes(
    subjects: Cohort,
    sites_of_class: Mapping[int, frozenset[str]],
    unknown: Collection[str],
) -> None:
    """Warn of the first site of a call that has one class only, and of the number of further ones.

    Parameters
    ----------
    subjects : Cohort
        Subjects of the call.
    sites_of_class : mapping of int to frozenset of str
        Sites of each class so far.
    unknown : collection of str
        Sites that may have further classes.
    """
    single = []
    for name in subjects.site_names:
        n_classes = sum(name in sites for sites in sites_of_class.values())
        if n_classes == 1 and name not in unknown:
            single.append(name)
    if not single:
        return
    fault = missing_class(subjects.y[subjects.site == single[0]], subjects.target)
    n_more = len(single) - 1
    more = (
        f" {counted(n_more, 'further site')} of this call lack a class, too."
        if n_more
        else ""
    )
    hint = "The model may learn the site there, not the class: merge it with another site, or leave it out."
    warnings.warn(f"site '{single[0]}' {fault}.{more} {hint}", stacklevel=6)


# -- weights ---------------------------------------------------------------------------------------
def training_weights(
    sample_weight: Any, class_weight: Any, code: np.ndarray, site: np.ndarray
) -> np.ndarray | None:
    """Return the weights (n,) of subjects in training, or None if none are given.

    Parameters
    ----------
    sample_weight : array of shape (n,), optional
    class_weight : "balanced", or ndarray of shape (K,), optional
        Factor of each class. "balanced" gives the classes of every site equal weight and keeps
        the site's total.
    code : ndarray of shape (n,)
        Classes as learners see them.
    site : ndarray of shape (n,)
        Names of the sites.
    """
    if sample_weight is None and class_weight is None:
        return None
    weight = np.ones(len(code))
    if sample_weight is not None:
        weight = np.array(sample_weight, dtype=np.float64)
        if weight.shape != (len(code),):
            message = f"sample_weight has shape {weight.shape}, but X has {len(code)} subjects."
            raise InputError(message, do="Give one weight per subject.")
        odd = np.flatnonzero(~np.isfinite(weight) | (weight < 0))
        if len(odd):
            message = f"sample_weight[{odd[0]}] is {weight[odd[0]]:g}."
            hint = "Give numbers that are not negative; 0 leaves a subject out."
            raise InputError(message, do=hint)
    if isinstance(class_weight, np.ndarray):
        weight = weight * class_weight[code]
    elif class_weight is not None:
        weight = weight * _balancing(weight, code, site)
    if not weight.any():
        raise InputError("every weight is zero.", do="Give some subjects a weight.")
    return weight


def _balancing(weight: np.ndarray, code: np.ndarray, site: np.ndarray) -> np.ndarray:
    """Return factors (n,) of the weights of n people that give the classes of every site equal weight.

    Parameters
    ----------
    weight : ndarray of shape (n,)
    code : ndarray of shape (n,)
        Class of each person as a number.
    site : ndarray of shape (n,)
    """
    factor = np.ones(len(weight))
    for name in dict.fromkeys(site.tolist()):
        here = site == name
        sums = {c: weight[here & (code == c)].sum() for c in np.unique(code[here])}
        present = {c: total for c, total in sums.items() if total > 0}
        for c, total in present.items():
            share = sum(present.values()) / len(present)
            factor[here & (code == c)] = share / total
    return factor


def weights_of_classes(class_weight: Any, classes: np.ndarray) -> Any:
    """Return "balanced", None, or the weights (K,) of the K classes.

    Parameters
    ----------
    class_weight : mapping of class to weight, "balanced" or None
    classes : ndarray of shape (K,)
        Classes in the order of the model's outputs.
    """
    if class_weight is None or (
        isinstance(class_weight, str) and class_weight == "balanced"
    ):
        return class_weight
    if not isinstance(class_weight, Mapping):
        message = (
            f"class_weight={class_weight!r:.60} is neither 'balanced' nor a mapping."
        )
        raise InputError(message, do="Give class_weight={class: weight}.")
    known = classes.tolist()
    if odd := [label for label in class_weight if label not in known]:
        raise InputError(f"class_weight names {odd[0]!r}, which is none of {known}.")
    weights = np.array([class_weight.get(label, 1.0) for label in known], dtype=float)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        message = (
            f"class_weight={dict(class_weight)} holds a weight that cannot be used."
        )
        raise InputError(message, do="Give numbers that are not negative.")
    return weights


# -- covariates ------------------------------------------------------------------------------------
def columns_of(covariates: Any, n: int) -> dict[str, np.ndarray]:
    """Return the covariates of n subjects by name, arrays of shape (n,).

    Parameters
    ----------
    covariates : mapping of name to array, data frame or None
        None stands for no covariates.
    n : int
        Number of subjects.
    """
    if covariates is None:
        return {}
    if not hasattr(covariates, "keys"):
        hint = "Give a data frame, or {'age': array}."
        raise InputError("covariates have no names.", do=hint)
    columns = {str(name): np.asarray(covariates[name]) for name in covariates}
    for name, values in columns.items():
        if values.shape != (n,):
            message = (
                f"covariate '{name}' has shape {values.shape}, but X has {n} subjects."
            )
            hint = "Give one value per subject."
            if isinstance(covariates, Mapping):
                hint += (
                    " cross_validate and GridSearchCV cut a data frame, not a dict: "
                    "covariates=pandas.DataFrame(covariates)."
                )
            raise InputError(message, do=hint)
    return columns


# -- classes ---------------------------------------------------------------------------------------
def refuse_missing(y: Any) -> None:
    """Raise `InputError` if `y` has a missing value, or one class in two spellings."""
    with as_input_error():
        label_checks.refuse_missing(y)


def refuse_mixed_types(y: Any) -> None:
    """Raise `InputError` if `y` holds values of two kinds: texts, numbers or truth values."""
    with as_input_error():
        label_checks.refuse_mixed_types(y)


def weighted(sample_weight: Any, class_weight: Any, labels: np.ndarray) -> np.ndarray:
    """Return which of n people have a weight above zero, (n,).

    Weights that `training_weights` refuses count as above zero.

    Parameters
    ----------
    sample_weight : array of shape (n,), optional
    class_weight : mapping of class to weight, "balanced" or None
    labels : ndarray of shape (n,)
        Classes of the people as in `y`.
    """
    kept = np.ones(len(labels), dtype=bool)
    given = np.array(sample_weight)
    if given.shape == kept.shape:
        kept = given != 0
    if isinstance(class_weight, Mapping):
        factors = [class_weight.get(label, 1) for label in labels.tolist()]
        kept &= np.array([factor != 0 for factor in factors], dtype=bool)
    return kept


def require_one_coding(
    people_of_code: PeopleOfCode, controls: Any, *, listed: bool
) -> None:
    """Raise `InputError` if sites have other codes for their classes, by `coding_fault`.

    Parameters
    ----------
    people_of_code : mapping of site to mapping of class to int
        Numbers of people by class, as `y` has them, of all calls.
    controls, listed
        As in `coding_fault`.
    """
    fault = coding_fault(people_of_code, controls=controls, listed=listed)
    if fault and fault.severity == "error":
        raise InputError(f"y: {fault.what}", do=f"{fault.do} {ALL_MEANT}")


def warn_of_coding(
    people_of_code: PeopleOfCode, before: PeopleOfCode, controls: Any, *, listed: bool
) -> None:
    """Warn of sites that may have other codes for their classes, unless it was so before.

    Signs are a fault of `coding_fault`, else a site whose classes are at no other site, else classes that
    are never at one site together, else a class of a few people at sites of many.

    Parameters
    ----------
    people_of_code : mapping of site to mapping of class to int
        Numbers of people by class, as `y` has them, of all calls.
    before : mapping of site to mapping of class to int
        The same without this call.
    controls, listed
        As in `coding_fault`.
    """
    if fault := coding_fault(people_of_code, controls=controls, listed=listed):
        earlier = coding_fault(before, controls=controls, listed=listed)
        if earlier is None or earlier.what != fault.what:
            warnings.warn(f"y: {fault.what} {fault.do}", stacklevel=5)
        return
    name = isolated_site(people_of_code)
    if name and people_of_code[name] != before.get(name):
        shown = " and ".join(map(repr, sorted(people_of_code[name], key=str)))
        message = f"No other site has a class of site '{name}' ({shown})"
        hint = "Are these other names of the same groups? Then write one name of each at all sites."
        warnings.warn(f"{message}: the site gives the class away. {hint}", stacklevel=5)
        return
    apart_before = classes_apart(before)
    apart = [pair for pair in classes_apart(people_of_code) if pair not in apart_before]
    if apart:
        (a, b), *others = apart
        more = f", and so are {counted(len(others), 'further pair')}" if others else ""
        message = f"The classes {a!r} and {b!r} are at no site together{more}."
        hint = (
            "Their difference cannot be told from that of their sites. If they are one group, give it "
            "one name at all sites."
        )
        warnings.warn(f"{message} {hint}", stacklevel=5)
        return
    stray = stray_class(people_of_code)
    if stray and stray != stray_class(before):
        message = f"{stray}, which is no usual class of any site."
        hint = "Correct it if it is mistyped; it would be a class of its own."
        warnings.warn(f"y: {message} {hint}", stacklevel=5)


def require_classes(labels: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the classes `known`, or raise `InputError` if labels cannot be of them.

    There must be at least two classes, and they must include all labels. The messages are those
    that scikit-learn's checks expect.
    """
    if len(known) < 2:
        raise InputError(
            f"y holds one class only, {known[0].item()!r}; a classifier needs two."
            if len(known)
            else "y holds no class; a classifier needs two.",
            do="Add people of another class. A first site of one class needs partial_fit(..., classes=[...]) "
            "with all classes.",
        )
    if odd := sorted(set(np.unique(labels).tolist()) - set(known.tolist())):
        message = f"y holds {odd[0]!r}, which is neither of {known.tolist()}."
        raise InputError(message, do="Give all with classes= in the first partial_fit.")
    return known


def coded(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the position (n,) of each label among the classes of a model, controls first."""
    order = np.argsort(classes)  # searchsorted needs sorted classes; `order` leads back
    return order[np.searchsorted(classes[order], labels)]


def obvious_patient(known: Any) -> Any:
    """Return which of two labels means patient, or None if that is not obvious.

    It is obvious for 0 and 1, -1 and 1, False and True, and for known words (ASD and TC), but not
    for 1 and 2.

    Parameters
    ----------
    known : array-like
        The two labels.
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
    """Return the patients' class: the named one, an obvious one, or the second in sorted order."""
    if positive is None:
        patient = obvious_patient(known) if len(known) == 2 else None
        return known[1] if patient is None else patient
    if positive not in known.tolist():
        raise InputError(f"positive={positive!r} is neither of {known.tolist()}.")
    return positive


def require_stated(known: Any, positive: Any) -> None:
    """Raise `InputError` if it is not known which class is the patients'."""
    if positive is None and obvious_patient(known) is None:
        values = np.asarray(known).tolist()
        message = f"of the classes {values} it is not known which means patient."
        raise InputError(message, do="State it: positive=...")
