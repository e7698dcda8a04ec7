"""What is wrong with a dataset, subject by subject, before anything runs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Literal

import numpy as np

from fcforge.errors import DataError
from fcforge.sites.cohort import Cohort, Finding

MIN_PER_SITE = 8
MIN_PER_CLASS = 4
TOLERANCE = 1e-4


def check_cohort(
    cohort: Cohort,
    *,
    n_rois: int | None = None,
    flat_roi: Literal["warning", "error"] = "warning",
    min_per_site: int = MIN_PER_SITE,
    min_per_class: int = MIN_PER_CLASS,
) -> list[Finding]:
    """Everything wrong with a cohort: loader's findings, shapes, matrices, ids, sites.

    Parameters
    ----------
    cohort : Cohort
    n_rois : int, optional
        ROI count that is expected, e.g. 116.
    flat_roi : {"warning", "error"}
        An ROI without signal has FC 0 with every other. Real ABIDE has 54 such subjects of
        871, so it is a warning unless asked otherwise.
    min_per_site, min_per_class : int
        Below these a site cannot be split into train, validation and test.

    Returns
    -------
    list of Finding
        Errors first. Empty when nothing is wrong.
    """
    found = list(cohort.findings)
    found += _shapes(cohort, n_rois)
    # Matrix checks index by row and column: they need the shapes to be right.
    if not any(f.severity == "error" and not f.subject for f in found):
        found += _matrices(cohort, flat_roi)
        found += _subjects(cohort)
        found += _sites(cohort, min_per_site, min_per_class)
    return sorted(found, key=lambda f: f.severity != "error")


def require_valid(cohort: Cohort, *, n_rois: int | None = None, show: int = 5) -> None:
    """Raise one `DataError` with the first `show` errors of `check_cohort`, if there are any."""
    key = f"errors, {n_rois} ROIs"
    if key not in cohort.known:  # a run asks at every seed
        found = check_cohort(cohort, n_rois=n_rois)
        cohort.known[key] = [f for f in found if f.severity == "error"]
    errors = cohort.known[key]
    if errors:
        lines = "".join(f"\n  - {f}" for f in errors[:show])
        more = f"\n  ... and {len(errors) - show} more" if len(errors) > show else ""
        count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        raise DataError(
            f"dataset '{cohort.name}' has {count}:{lines}{more}\n",
            where=str(cohort.provenance.get("path", "")),
            do="See all with `fcforge check`; nothing was trained.",
        )


def _shapes(cohort: Cohort, n_rois: int | None) -> Iterator[Finding]:
    fc, n = cohort.fc, len(cohort)
    if n == 0:
        yield Finding("error", "no subject could be loaded.", "Check the path and the site names.")
        return
    if fc.ndim != 3 or fc.shape[1] != fc.shape[2]:
        yield Finding(
            "error",
            f"FC has shape {fc.shape}, not (subjects, ROIs, ROIs).",
            "Give one square matrix per subject.",
        )
        return
    fields = {"fc": fc, "site": cohort.site, "subject_id": cohort.subject_id, **cohort.covariates}
    for name, values in fields.items():
        if len(values) != n:
            yield Finding(
                "error",
                f"'{name}' has {len(values)} rows, but there are {n} labels.",
                "Every array needs one row per subject.",
            )
    if n_rois is not None and fc.shape[1] != n_rois:
        yield Finding(
            "error",
            f"FC has {fc.shape[1]} ROIs, {n_rois} were expected.",
            "Check the atlas (AAL has 116, AAL2 120, AAL3 166 ROIs).",
        )
    if fc.shape[1] < 2:
        yield Finding("error", "FC has one ROI only.", "An FC matrix needs two or more.")


def _matrices(cohort: Cohort, flat_roi: Literal["warning", "error"]) -> Iterator[Finding]:
    fc = np.asarray(cohort.fc)
    eye = np.eye(cohort.n_rois, dtype=bool)
    for i in range(len(cohort)):
        subject, site = str(cohort.subject_id[i]), str(cohort.site[i])
        for severity, what, do in _matrix(fc[i], eye, flat_roi):
            yield Finding(severity, what, do, subject, site)


def _matrix(
    matrix: np.ndarray, eye: np.ndarray, flat_roi: Literal["warning", "error"]
) -> Iterator[tuple[Literal["warning", "error"], str, str]]:
    """Findings (severity, what, do) of one FC matrix."""
    bad = ~np.isfinite(matrix)
    if bad.any():
        rows = np.flatnonzero(bad.any(axis=1))
        yield (
            "error",
            f"{int(bad.sum())} FC values are NaN or infinite ({_rois(rows)}).",
            "Leave the subject out, or set the FC of ROIs without signal to 0.",
        )
        return
    gap = float(np.abs(matrix - matrix.T).max())
    if gap > TOLERANCE:
        yield (
            "error",
            f"FC is not symmetric (largest difference {gap:.3g}).",
            "Make it again, or take (FC + FC.T) / 2. A square time series? kind='timeseries'.",
        )
    off = np.abs(matrix[~eye])
    if off.max() > 1 + TOLERANCE:
        yield (
            "error",
            f"FC goes up to |r| = {off.max():.3g}, beyond 1.",
            "Fisher z values? Take tanh of them.",
        )
    diagonal = np.abs(np.diagonal(matrix) - 1)
    if diagonal.max() > TOLERANCE:
        value = float(np.diagonal(matrix)[diagonal.argmax()])
        yield (
            "error",
            f"the diagonal is not 1 ({value:.3g} at {_rois(np.array([diagonal.argmax()]))}).",
            "Set it to 1.",
        )
    low = np.where(eye, np.inf, matrix).min(axis=1)
    high = np.where(eye, -np.inf, matrix).max(axis=1)
    flat = np.flatnonzero(low == high)
    if flat.size and len(matrix) > 2:
        yield (
            flat_roi,
            f"{flat.size} ROI without signal ({_rois(flat)}); their FC is constant.",
            "Kept as it is; leave the subject out if there are many.",
        )


def _rois(index: np.ndarray) -> str:
    """``ROI 3, 7, 9, ...`` counted from 1."""
    shown = ", ".join(str(i + 1) for i in index[:4].tolist())
    return f"ROI {shown}{', ...' if len(index) > 4 else ''}"


def _digest(matrix: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(matrix).data, digest_size=16).digest()


def _subjects(cohort: Cohort) -> Iterator[Finding]:
    count = Counter(cohort.subject_id.tolist())
    seen: dict[bytes, str] = {}
    told: set[str] = set()
    for i in range(len(cohort)):
        subject, site = str(cohort.subject_id[i]), str(cohort.site[i])
        if count[subject] > 1 and subject not in told:
            told.add(subject)
            yield Finding(
                "error",
                f"subject id appears {count[subject]} times.",
                "Give every subject one row; add the site to the id if two sites share ids.",
                subject,
                site,
            )
        if cohort.y[i] not in (0, 1):
            yield Finding(
                "error",
                f"unknown label {cohort.y[i]}.",
                "Labels are 0 (control) and 1 (patient).",
                subject,
                site,
            )
        twin = seen.setdefault(_digest(cohort.fc[i]), subject)
        if twin != subject:
            yield Finding(
                "error",
                f"has exactly the FC of subject '{twin}'.",
                "The same scan under two ids would leak from train to test; drop one.",
                subject,
                site,
            )


def _sites(cohort: Cohort, min_per_site: int, min_per_class: int) -> Iterator[Finding]:
    for site in cohort.site_names:
        labels = cohort.y[cohort.site == site]
        patients, controls = int((labels == 1).sum()), int((labels == 0).sum())
        if not site:
            yield Finding("error", f"{len(labels)} subjects have no site.", "Name their site.")
        elif patients == 0 or controls == 0:
            have = "controls" if patients == 0 else "patients"
            yield Finding(
                "error",
                f"has {have} only ({len(labels)} subjects).",
                "A site needs both classes; merge it with another or leave it out.",
                site=site,
            )
        elif len(labels) < min_per_site or min(patients, controls) < min_per_class:
            yield Finding(
                "error",
                f"is too small ({patients} patients, {controls} controls; at least "
                f"{min_per_site} subjects and {min_per_class} per class are needed).",
                "Merge it with another site or leave it out.",
                site=site,
            )
