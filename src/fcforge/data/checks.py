"""Checks of a cohort before training: matrices, subjects, duplicate scans, sites.

Each check yields `Fault` objects: errors, which prevent training, and warnings.
"""

import json
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from fcforge.core.errors import DataError
from fcforge.core.formatting import abbreviated, counted, whole
from fcforge.core.labels import is_missing
from fcforge.core.names import first_look_alikes, misspelt_pairs, two_spellings
from fcforge.core.target import Target
from fcforge.data.cohort import MIN_ROIS, Cohort, as_numbers
from fcforge.data.faults import Fault, Severity, grouped
from fcforge.data.participants import NAME_THEM
from fcforge.data.person_checks import comparison_faults
from fcforge.data.subject_ids import bare_id, id_faults

MIN_PER_SITE = 8  # a smaller site cannot be split in three
MIN_PER_CLASS = 4
TOLERANCE = 1e-4  # for symmetry, range and diagonal of a correlation matrix
SHOWN = 5  # errors that `require_valid` lists
# Lowest eigenvalue that is accepted, divided by the root of the number of ROIs. Correlations have none
# below 0; rounding to 16 bits gives -0.002. The mean of two runs in Fisher z has -0.29 or more on
# ABIDE (116 ROIs), where Fisher z with ones on the diagonal has -0.65 and edges above 0.2 alone -1.2.
LOWEST_EIGENVALUE = -0.03
COPY = 0.99999  # edge correlation above which two scans are copies of one file
NUMBERS = ("age", "mean_fd")  # covariates that must be numbers
GIVE_KIND = 'give --kind fisher_z (in a config: kind = "fisher_z").'
NOT_POSITIVE = (
    "FC has negative eigenvalues, so it is no correlation matrix of time series."
)
POSITIVE_HINT = (
    "Fisher z with ones on the diagonal, absolute, thresholded or binary correlations? Give Pearson "
    "correlations as they are."
)
KEPT = "Kept as it is; leave subjects with many such ROIs out."
NAMED = "`fcforge check` names the ROIs."
WIDEN = "Widen limits in [dataset], or leave the subject out: leave_out = ['ID']."


def check_cohort(
    cohort: Cohort, *, n_rois: int | None = None, to_split: bool = True
) -> list[Fault]:
    """Return all faults of a cohort: of loading, shapes, matrices, ids, duplicates, sites and people.

    Parameters
    ----------
    cohort : Cohort
    n_rois : int, optional
        Number of ROIs that is expected, e.g. 116.
    to_split : bool
        Whether every site will be split into training and test. If so, a site with one class or
        too few people is an error, otherwise a warning.

    Returns
    -------
    list of Fault
        Errors first; empty for a valid cohort. An ROI without signal, whose FC is 0 everywhere,
        is a warning: 54 of the 871 people of ABIDE have one.
    """
    of_shapes = [*_shape_faults(cohort, n_rois)]
    faults = [*cohort.faults, *of_shapes]
    if not of_shapes:  # later checks index by row and column
        faults += _in_files(cohort.once(_matrix_faults_of), cohort)
        faults += _subject_faults(cohort)
        faults += cohort.once(id_faults)
        # The people without errors are compared, so that one error does not hide other faults.
        comparable = _finite(cohort)
        faults += _duplicate_faults(comparable)
        faults += _in_files(comparable.once(comparison_faults), cohort)
        faulty = [f.subject for f in faults if f.severity == "error" and f.subject]
        others = _chosen(cohort, ~np.isin(cohort.subject_id, faulty))
        faults += _in_files(others.once(_positive_faults), cohort)
        faults += [*_size_faults(cohort, to_split), *_covariate_faults(cohort)]
    return sorted(faults, key=lambda f: f.severity != "error")


def require_valid(
    cohort: Cohort, *, n_rois: int | None = None, to_split: bool = True
) -> None:
    """Raise one `DataError` that lists the first errors of `check_cohort`, if there are any.

    Parameters
    ----------
    cohort, n_rois, to_split
        As in `check_cohort`.
    """
    faults = check_cohort(cohort, n_rois=n_rois, to_split=to_split)
    errors = grouped(fault for fault in faults if fault.severity == "error")
    if errors:
        lines = "".join(f"\n  - {f}" for f in errors[:SHOWN])
        more = f"\n  ... and {len(errors) - SHOWN} more" if len(errors) > SHOWN else ""
        raise DataError(
            f"dataset '{cohort.name}' has {counted(len(errors), 'error')}:{lines}{more}\n",
            where=cohort.path,
            do="See all with `fcforge check`; nothing was trained.",
        )


def data_warnings(cohort: Cohort, *, of_loading: bool = True) -> list[str]:
    """Return what every command that trains warns of as lines, equal ones once.

    These are the people that the loader left out, ROIs without signal, eigenvalues, ids that may be
    of one person, duplicate scans, sites and people that contradict the others, and names of sites that
    look alike. People with ROIs without signal are counted in one line. Duplicate scans that a cohort
    with ``allow_duplicates`` accepts are not among them.

    Parameters
    ----------
    cohort : Cohort
    of_loading : bool
        Whether the people that the loader left out are among them.
    """
    faults = [*cohort.faults] if of_loading else []
    if len(cohort) and np.isfinite(cohort.fc).all():
        of_scans = [*_flat_roi_faults(cohort), *cohort.once(_positive_faults)]
        faults += _in_files(of_scans, cohort)
        faults += cohort.once(id_faults)
        if not cohort.allow_duplicates:
            faults += _duplicate_faults(cohort)
        faults += _in_files(cohort.once(comparison_faults), cohort)
    faults += _size_faults(cohort, to_split=True)  # its warnings: names of sites
    return warning_lines(faults)


def _in_files(faults: Iterable[Fault], cohort: Cohort) -> Iterator[Fault]:
    """Yield faults of scans with the file that holds the scan, where it is known."""
    for fault in faults:
        yield replace(fault, file=cohort.file_of.get(fault.subject, ""))


def _finite(cohort: Cohort) -> Cohort:
    """Return the people whose FC holds neither NaN nor infinity."""
    return _chosen(cohort, np.isfinite(cohort.fc).all(axis=(1, 2)))


def _chosen(cohort: Cohort, chosen: np.ndarray) -> Cohort:
    """Return the people of a mask (n,); the cohort itself, with what it has cached, if these are all."""
    return cohort if chosen.all() else cohort.select(chosen)


def warning_lines(faults: Iterable[Fault]) -> list[str]:
    """Return the warnings among faults as lines, equal ones once."""
    of_warnings = [fault for fault in faults if fault.severity == "warning"]
    return [f"WARNING: {fault}" for fault in grouped(of_warnings)]


def warn_in_python(line: str) -> None:
    """Issue a line of `data_warnings` as a Python warning, for callers that print nothing."""
    warnings.warn(line.removeprefix("WARNING: "), stacklevel=3)


def _shape_faults(cohort: Cohort, n_rois: int | None) -> Iterator[Fault]:
    """Yield an error for a cohort without subjects, or with another number of ROIs than `n_rois`."""
    if len(cohort) == 0:
        explained = any(fault.severity == "error" for fault in cohort.faults)
        hint = "" if explained else "Check the path and the site names."
        yield Fault("error", "no subject could be loaded.", hint)
    elif cohort.n_rois < 2:
        yield Fault("error", "FC has one ROI only.", "An FC matrix needs two or more.")
    elif n_rois is not None and cohort.n_rois != n_rois:
        message = f"FC has {cohort.n_rois} ROIs, {n_rois} were expected."
        hint = "Check the atlas (AAL has 116, AAL2 120, AAL3 166 ROIs)."
        yield Fault("error", message, hint)


def _matrix_faults_of(cohort: Cohort) -> Iterator[Fault]:
    """Yield an error for each fault of a subject's matrix, and a warning for ROIs without signal."""
    names = cohort.roi_names or tuple(map(str, range(1, cohort.n_rois + 1)))
    people = zip(
        cohort.fc, cohort.subject_id.tolist(), cohort.site.tolist(), strict=True
    )
    for fc, subject, site in people:
        for message, hint in matrix_faults(fc):
            yield Fault("error", message, hint, subject, site)
        flat = [names[roi] for roi in _flat_rois(fc)]
        if flat:
            rois = "ROI" if len(flat) == 1 else "ROIs"
            message = f"{rois} {abbreviated(flat)} without signal (constant FC)."
            yield Fault("warning", message, KEPT, subject, site)


def _flat_roi_faults(cohort: Cohort) -> Iterator[Fault]:
    """Yield one warning for each subject with ROIs without signal, whichever these are."""
    people = zip(
        cohort.fc, cohort.subject_id.tolist(), cohort.site.tolist(), strict=True
    )
    for fc, subject, site in people:
        if _flat_rois(fc):
            message = "ROIs without signal (constant FC)."
            yield Fault("warning", message, f"{KEPT} {NAMED}", subject, site)


def _positive_faults(cohort: Cohort) -> Iterator[Fault]:
    """Yield a warning for each subject whose FC is no correlation matrix, by its eigenvalues."""
    for place in not_positive(cohort.fc):
        subject, site = str(cohort.subject_id[place]), str(cohort.site[place])
        yield Fault("warning", NOT_POSITIVE, POSITIVE_HINT, subject, site)


def lowest_eigenvalue(n_rois: int) -> float:
    """Return the lowest eigenvalue that FC of R ROIs may have, also as the mean of several runs.

    The mean of Fisher z need not be Fisher z of any correlation matrix. What it lacks is like noise,
    whose eigenvalues grow as the root of R.
    """
    return LOWEST_EIGENVALUE * float(np.sqrt(n_rois))


def not_positive(fc: np.ndarray) -> list[int]:
    """Return the places of matrices (n, R, R) with an eigenvalue below `lowest_eigenvalue`.

    With fewer than `MIN_ROIS` ROIs none is returned.
    """
    if fc.shape[-1] < MIN_ROIS:
        return []
    n_rois = fc.shape[-1]
    shift = -lowest_eigenvalue(n_rois) * np.eye(n_rois)
    places = []
    for place, matrix in enumerate(fc):
        try:
            np.linalg.cholesky(matrix + shift)
        except np.linalg.LinAlgError:
            places.append(place)
    return places


def _flat_rois(fc: np.ndarray) -> list[int]:
    """Return the indices of ROIs that have the same FC with every other ROI: no signal."""
    if len(fc) < 3:
        return []
    others = fc[~np.eye(len(fc), dtype=bool)].reshape(len(fc), -1)
    return np.flatnonzero(others.min(axis=1) == others.max(axis=1)).tolist()


def matrix_faults(matrix: np.ndarray) -> Iterator[tuple[str, str]]:
    """Yield each reason why a matrix of shape (R, R) is no correlation matrix, with advice.

    After NaN or infinity nothing else is checked, and after values beyond 1 no diagonal.
    """
    not_finite = ~np.isfinite(matrix)
    if not_finite.any():
        rows = np.flatnonzero(not_finite.any(axis=1))
        rois = abbreviated((rows + 1).tolist(), 4)
        n = int(not_finite.sum())
        are = "FC value is" if n == 1 else "FC values are"
        message = f"{n} {are} NaN or infinite (ROI {rois})."
        hint = "Leave the subject out, or set the FC of ROIs without signal to 0."
        if not not_finite[~np.eye(len(matrix), dtype=bool)].any():
            message = "the diagonal holds NaN or infinity."
            hint = f"If these are Fisher z values, {GIVE_KIND} If they are correlations, set it to 1."
        yield message, hint
        return
    asymmetry = float(np.abs(matrix - matrix.T).max())
    if asymmetry > TOLERANCE:
        message = f"FC is not symmetric (largest difference {asymmetry:.3g})."
        hint = "Make it again, or take (FC + FC.T) / 2. A square time series? kind='timeseries'."
        yield message, hint
    off_diagonal = ~np.eye(len(matrix), dtype=bool)
    largest = float(np.abs(matrix[off_diagonal]).max())
    if largest > 1 + TOLERANCE:
        message = "FC has values beyond 1, so it is no correlation."
        yield message, f"If these are Fisher z values, {GIVE_KIND}"
        return  # the diagonal of Fisher z is any number
    diagonal = np.diagonal(matrix)
    if np.abs(diagonal).max() < TOLERANCE:
        hint = f"If these are Fisher z values, {GIVE_KIND} If they are correlations, set it to 1."
        yield "the diagonal is 0, not 1.", hint
        return
    worst = int(np.abs(diagonal - 1).argmax())
    if abs(diagonal[worst] - 1) > TOLERANCE:
        message = f"the diagonal is not 1 ({diagonal[worst]:.3g} at ROI {worst + 1})."
        hint = f"If these are Fisher z values, {GIVE_KIND} If they are correlations, set it to 1."
        yield message, hint


def _subject_faults(cohort: Cohort) -> Iterator[Fault]:
    """Yield an error for each id that appears twice and each target that cannot be.

    Blanks at the ends of an id do not count.
    """
    spellings_of: dict[str, list[str]] = {}
    for subject in cohort.subject_id.tolist():
        spellings_of.setdefault(bare_id(subject), []).append(subject)
    target = cohort.target
    low, high = target.limits
    people = zip(
        cohort.subject_id.tolist(), cohort.site.tolist(), cohort.y, strict=True
    )
    for subject, site, y in people:
        spellings = spellings_of.pop(bare_id(subject), [])  # pop: reported once
        if len(spellings) > 1:
            message = f"subject id appears {len(spellings)} times."
            if len(set(spellings)) > 1:
                shown = abbreviated(map(repr, dict.fromkeys(spellings)))
                message = f"subject id appears {len(spellings)} times, with other blanks ({shown})."
            hint = "Give every subject one row; add the site to the id if two sites share ids."
            yield Fault("error", message, hint, subject, site)
        if target.classes and y not in range(target.outputs):
            message = f"unknown label {y} (0 is control, 1 is patient)."
            yield Fault("error", message, NAME_THEM, subject, site)
        elif not target.classes and not abs(y) <= 1:
            value = target.restored(y)
            message = f"{target.name} {value:g} is not in {low:g} to {high:g}."
            yield Fault("error", message, WIDEN, subject, site)


def _covariate_faults(cohort: Cohort) -> Iterator[Fault]:
    """Yield an error for each covariate that must be a number and holds text."""
    for name in NUMBERS:
        if name in cohort.covariates:
            try:
                as_numbers(name, cohort.covariates[name])
            except DataError as error:
                yield Fault("error", error.what, error.do)
    if "sex" in cohort.covariates:
        yield from _sex_faults(cohort)


def _sex_faults(cohort: Cohort) -> Iterator[Fault]:
    """Yield a warning for two sites that code the sex differently, such as 0 and 1, and 1 and 2.

    All sites together have three codes or more then, and neither site has all codes of the other.
    """
    values = cohort.covariates["sex"]
    codes_of = {
        site: {
            code
            for code in values[cohort.site == site].tolist()
            if code == code and not is_missing(str(code))  # NaN differs from itself
        }
        for site in cohort.site_names
    }
    if len(set().union(*codes_of.values())) < 3:
        return
    for one, other in combinations(codes_of, 2):
        if not (codes_of[one] <= codes_of[other] or codes_of[other] <= codes_of[one]):
            shown = [
                f"{_shown_codes(codes_of[site])} at site '{site}'"
                for site in (one, other)
            ]
            yield Fault(
                "warning",
                f"covariate 'sex' has the codes {shown[0]}, but {shown[1]}.",
                "Code it in one way at every site, for example 1 for male and 2 for female.",
            )
            return


def _shown_codes(codes: Iterable[Any]) -> str:
    """Return codes as text, in sorted order."""
    return " and ".join(sorted(whole(str(code)) for code in codes))


def class_counts(y: np.ndarray, target: Target) -> list[int]:
    """Return the number of subjects of each class, controls first.

    If the target is a number, the list has one entry: the number of all subjects.
    """
    if not target.classes:
        return [len(y)]
    return [int((y == k).sum()) for k in range(target.outputs)]


def _duplicate_faults(cohort: Cohort) -> Iterator[Fault]:
    """Yield a fault for each pair of scans that look like one person: an error for exact copies."""
    ids = cohort.subject_id.tolist()
    site = dict(zip(ids, cohort.site.tolist(), strict=True))
    label = dict(zip(ids, cohort.y.tolist(), strict=True))
    for one, other, r in cohort.duplicates:
        if one == other:  # `_subject_faults` reports repeated ids
            continue
        message = f"looks like the scan of subject '{one}' (edges correlate {r:.3f})"
        if cohort.target.classes and label[one] != label[other]:
            message += ", who has another diagnosis"
        hint = (
            f"A run refuses such a pair in training and test: leave_out = ['{other}'] in "
            f"[dataset], or without a config --leave-out {other}."
        )
        severity: Severity = "error" if r > COPY else "warning"
        yield Fault(severity, f"{message}.", hint, other, site[other])


def _size_faults(cohort: Cohort, to_split: bool) -> Iterator[Fault]:
    """Yield faults of targets without variation, of site names, and of sites that are too small.

    Parameters
    ----------
    cohort : Cohort
    to_split : bool
        As in `check_cohort`.
    """
    target = cohort.target
    severity: Severity = "error" if to_split else "warning"
    counts = class_counts(cohort.y, target)
    if not to_split and target.kind == "two classes" and min(counts) == 0:
        group = ("control", "patient")[counts.index(0)]
        message = f"nobody of the {counted(len(cohort), 'subject')} is a {group}."
        hint = (
            f"Both groups are needed. Is the diagnosis read as it is meant? {NAME_THEM}"
        )
        yield Fault("error", message, hint)
    if not target.classes and len(set(cohort.y.tolist())) == 1:
        value = target.restored(cohort.y[0])
        message = (
            f"{target.name} is the same for everybody ({value:g}): nothing to learn."
        )
        hint = f"Check the column {target.name}, or name another target."
        yield Fault("error", message, hint)
    if both := two_spellings(cohort.site_names):
        message = f"the sites {both} differ in case, outer spaces or invisible characters alone."
        hint = "If they are one: --set 'dataset.merge={NAME = [\"OTHER\"]}'."
        yield Fault("error", message, hint)
    elif pair := first_look_alikes(cohort.site_names):
        message = f"the sites '{pair[0]}' and '{pair[1]}' look alike."
        yield Fault("warning", message, _merge_them(*pair))
    people = Counter(cohort.site.tolist())
    for site, misspelt in misspelt_pairs(
        {name: people[name] for name in cohort.site_names if name}
    ):
        message = f"the sites '{site}' and '{misspelt}' differ by one letter."
        yield Fault("warning", message, _merge_them(site, misspelt))
    for site in cohort.site_names:
        labels = cohort.y[cohort.site == site]
        if not site:
            have = "has" if len(labels) == 1 else "have"
            message = f"{counted(len(labels), 'subject')} {have} no site."
            yield Fault("error", message, "Name their site.")
        elif message := why_not_splittable(labels, target):
            hint = "Merge it with another site or leave it out."
            if not to_split:
                hint = f"`fcforge run` refuses it. {hint}"
            yield Fault(severity, message, hint, site=site)


def _merge_them(site: str, other: str) -> str:
    """Return the advice to merge two sites whose names may mean one, as a setting to type."""
    quoted = [json.dumps(name, ensure_ascii=False) for name in (site, other)]
    key = site if re.fullmatch(r"[A-Za-z0-9_-]+", site) else quoted[0]
    table = f"{{{key} = [{quoted[1]}]}}"
    return f"If they are one: --set 'dataset.merge={table}'."


def why_not_splittable(y: np.ndarray, target: Target) -> str:
    """Return why a site with targets `y` cannot be split in three, in words; "" if it can be."""
    if fault := missing_class(y, target):
        return f"{fault}, so that only a base model can use it."
    if len(y) < MIN_PER_SITE or min(class_counts(y, target)) < MIN_PER_CLASS:
        least = f"{MIN_PER_SITE} subjects and {MIN_PER_CLASS} per class"
        return f"is too small ({_sizes(y, target)}; at least {least} are needed)."
    return ""


def missing_class(y: np.ndarray, target: Target) -> str:
    """Return the class that the targets `y` of a site lack, in words; "" if none is missing."""
    counts = class_counts(y, target)
    if min(counts) > 0:
        return ""
    missing = _class_names(target)[counts.index(0)]
    return f"has no {missing} ({_sizes(y, target)})"


def _class_names(target: Target) -> tuple[str, ...]:
    """Return the words for the people of each class, controls first."""
    # by the number of outputs: 1 for a number, else the number of classes
    known = {1: ("subjects",), 2: ("controls", "patients")}
    return known.get(target.outputs, target.classes)


def _sizes(y: np.ndarray, target: Target) -> str:
    """Return the number of people of each class, in words."""
    pairs = zip(class_counts(y, target), _class_names(target), strict=True)
    if target.outputs > 2:  # names of classes
        return ", ".join(f"{n} {name}" for n, name in pairs)
    return ", ".join(counted(n, name.removesuffix("s")) for n, name in pairs)


def without_duplicates(cohort: Cohort) -> tuple[Cohort, list[str]]:
    """Return the cohort without the second scan of each duplicate pair, and the ids of those scans."""
    second = sorted({pair.second for pair in cohort.duplicates})
    return cohort.select(~np.isin(cohort.subject_id, second)), second


def require_no_leaking_duplicates(
    cohort: Cohort, sites: Iterable[Mapping[str, Sequence[str]]]
) -> None:
    """Raise `DataError` for duplicate scans of which one is trained on and the other tested.

    The test would measure memory instead of learning. A cohort with ``allow_duplicates`` passes.

    Parameters
    ----------
    cohort : Cohort
    sites : iterable of mapping of split name to subject ids
        One mapping per site.
    """
    if cohort.allow_duplicates:
        return
    is_tested: dict[str, bool] = {}
    for parts in sites:
        for split, ids in parts.items():
            is_tested |= dict.fromkeys(ids, split == "test")
    for one, other, r in cohort.duplicates:
        if not {one, other} <= is_tested.keys():
            continue
        if is_tested[one] != is_tested[other]:
            pair = f"subjects '{one}' and '{other}' look like one scan (edges correlate {r:.3f})"
            hint = f"In [dataset]: leave_out = ['{other}'], or allow_duplicates = true."
            message = f"{pair}, one in training and one in test."
            raise DataError(message, where=cohort.path, do=hint)
