"""Datasets by name: loading one, and what is wrong with it, subject by subject.

A dataset is a function that returns a `Cohort`. To add one, write the function in a module of this
folder and add a line to `_ROWS`, or register it as an entry point of the group
``fcforge.datasets``. Its annotated keyword arguments become the settings of a config's
``[dataset]`` table, beside those that every dataset has (`_common`).
"""

import functools
import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError
from fcforge.core.formatting import counted, some
from fcforge.core.names import look_up, two_spellings
from fcforge.core.registry import Registry, import_object
from fcforge.core.settings import checked
from fcforge.core.target import Target
from fcforge.data.cohort import Cohort, Fault, Severity, grouped
from fcforge.data.participants import NAME_THEM

MIN_PER_SITE = 8  # below these a site cannot be split in three
MIN_PER_CLASS = 4
TOLERANCE = 1e-4
SHOWN = 5
COPY = 0.99999  # one scan, but for rounding
WIDEN = "Widen limits in [dataset], or leave the subject out: leave_out = ['ID']."


class Dataset(NamedTuple):
    """A loading function by name.

    Attributes
    ----------
    name : str
    source : str or callable
        The function, or ``"module:function"``, which is imported when data are loaded.
    about : str
        One line for ``fcforge list datasets``.
    """

    name: str
    source: str | Callable[..., Cohort]
    about: str

    @property
    def loader(self) -> Callable[..., Cohort]:
        """The loading function, with the settings that every dataset has."""
        source = self.source
        load = import_object(source) if isinstance(source, str) else source
        own = load.__annotations__

        @functools.wraps(load)
        def loader(**params: Any) -> Cohort:
            cohort = load(**{k: v for k, v in params.items() if k in own})
            also = {k: v for k, v in params.items() if k in _COMMON}
            return _common(cohort, **also)

        loader.__annotations__ = {**own, **_COMMON}
        return loader


def _common(
    cohort: Cohort,
    leave_out: tuple[str, ...] = (),
    allow_duplicates: bool = False,
    target: str = "diagnosis",
    limits: tuple[float, float] = (0.0, 0.0),
) -> Cohort:
    """Settings that every dataset has.

    Parameters
    ----------
    cohort : Cohort
    leave_out : tuple of str
        Ids of subjects that are left out.
    allow_duplicates : bool
        Let a pair that looks like one scan under two ids be in training and in test.
    target : str
        What is learned: ``"diagnosis"``, or a covariate that is a number, e.g. ``"age"``.
    limits : (float, float)
        Between which numbers that covariate lies, agreed in advance.
    """
    if leave_out:  # first: nothing of theirs is read any more
        cohort = cohort.without(leave_out)
    if target != "diagnosis":
        cohort = cohort.of_number(target, limits)
    elif any(limits):
        raise ConfigError(
            "limits are of a number.",
            where="[dataset]",
            do='Name the covariate: target = "age".',
        )
    return replace(cohort, allow_duplicates=True) if allow_duplicates else cohort


_NOT_SET = ("cohort", "return")
_COMMON = {k: v for k, v in _common.__annotations__.items() if k not in _NOT_SET}
_ROWS = (
    (
        "simulated",
        "fcforge.data.simulated:simulate",
        "made-up sites: calibrated on real ABIDE, or made to disagree",
    ),
    (
        "folder",
        "fcforge.data.folder:load_folder",
        "your FC or time series: one .npz, or participants.tsv + files",
    ),
    (
        "abide",
        "fcforge.data.abide:load_abide",
        "ABIDE I of the PCP, in nilearn's folders, offline or online",
    ),
    (
        "rest_meta_mdd",
        "fcforge.data.rest_meta_mdd:load_rest_meta_mdd",
        "REST-meta-MDD: the consortium's ROISignals folder",
    ),
    (
        "bsnip",
        "fcforge.data.folder:load_bsnip",
        "B-SNIP: participants.tsv + one file per subject",
    ),
)


def _adopt(candidate: Any, name: str, where: str) -> Dataset:
    """Return the dataset of a plug-in's loading function."""
    if not callable(candidate):
        what = f"'{name}' is not a function that returns a Cohort."
        raise ConfigError(what, where=where, do="Correct or uninstall the plug-in.")
    lines = (inspect.getdoc(candidate) or "no description").splitlines()
    return Dataset(name, candidate, lines[0])


DATASETS: Registry[Dataset] = Registry(
    "fcforge.datasets", _adopt, {row[0]: Dataset(*row) for row in _ROWS}
)


def load_dataset(component: Component) -> Cohort:
    """Load the dataset a config names.

    Raises
    ------
    ConfigError
        For a name that is not in `DATASETS` or a setting its loader does not have.
    DataError
        For files that cannot be read at all.
    """
    dataset = look_up("dataset", component.name, DATASETS)
    where = f"dataset '{component.name}'"
    params = checked(dataset.loader, component.params, where)
    if "path" in dataset.loader.__annotations__ and "path" not in params:
        raise ConfigError(f"{where} needs 'path'.", do="Add `path = ...` to [dataset].")
    return dataset.loader(**params)


def dataset_of(
    name: str, said: Mapping[str, Any], settings: Mapping[str, Any]
) -> Component:
    """A dataset by what a command's own options say and by ``--set dataset.*``, each thing once.

    Raises
    ------
    ConfigError
        Where both say the same setting: one of them would be ignored.
    """
    for twice in said.keys() & settings.keys():
        what = f"--set dataset.{twice}: another option or argument says it already."
        raise ConfigError(what, do="Leave one of them out.")
    return Component(name, {**said, **settings})


def load_people(
    data: str | os.PathLike[str], sites: Sequence[str], **how: Any
) -> Cohort:
    """People of the named sites, checked as for training; without names all, unchecked.

    Parameters
    ----------
    data : path
    sites : sequence of str
    **how
        Further settings of the dataset ``folder``; what is None is left out.
    """
    asked = {**how, "sites": list(sites)}
    params = {name: value for name, value in asked.items() if value}
    cohort = load_dataset(Component("folder", {"path": str(data), **params}))
    if sites:
        require_valid(cohort, to_split=not how.get("partial"))
    return cohort


# -- what is wrong with one ------------------------------------------------------------------------
def check_cohort(
    cohort: Cohort, *, n_rois: int | None = None, to_split: bool = True
) -> list[Fault]:
    """Everything wrong with a cohort: loader's findings, shapes, matrices, ids, sites.

    Parameters
    ----------
    cohort : Cohort
    n_rois : int, optional
        ROI count that is expected, e.g. 116.
    to_split : bool
        Every site is to be split into training and test: one class or too few people are errors
        then, and else warnings (people of a public start are not split).

    Returns
    -------
    list of Fault
        Errors first. Empty when nothing is wrong. An ROI without signal, which has FC 0 with
        every other, is a warning: real ABIDE has 54 such subjects of 871.
    """
    found = [*cohort.faults, *_shapes(cohort, n_rois)]
    # Matrix checks index by row and column: they need the shapes to be right.
    if not any(f.severity == "error" and not f.subject for f in found):
        found += [*_matrices(cohort), *_subjects(cohort), *_twins(cohort)]
        found += _sites(cohort, "error" if to_split else "warning")
    return sorted(found, key=lambda f: f.severity != "error")


def require_valid(
    cohort: Cohort, *, n_rois: int | None = None, to_split: bool = True
) -> None:
    """Raise one `DataError` with the first errors of `check_cohort`, if there are any."""
    found = check_cohort(cohort, n_rois=n_rois, to_split=to_split)
    errors = grouped(f for f in found if f.severity == "error")
    if errors:
        lines = "".join(f"\n  - {f}" for f in errors[:SHOWN])
        more = f"\n  ... and {len(errors) - SHOWN} more" if len(errors) > SHOWN else ""
        raise DataError(
            f"dataset '{cohort.name}' has {counted(len(errors), 'error')}:{lines}{more}\n",
            where=cohort.path,
            do="See all with `fcforge check`; nothing was trained.",
        )


def left_out(cohort: Cohort) -> list[str]:
    """What a loader warns of, equal warnings once: who was left out, and why."""
    warned = [fault for fault in cohort.faults if fault.severity == "warning"]
    return [f"WARNING: {fault}" for fault in grouped(warned)]


def _shapes(cohort: Cohort, n_rois: int | None) -> Iterator[Fault]:
    if len(cohort) == 0:
        said = any(fault.severity == "error" for fault in cohort.faults)
        do = "" if said else "Check the path and the site names."
        yield Fault("error", "no subject could be loaded.", do)
    elif cohort.n_rois < 2:
        yield Fault("error", "FC has one ROI only.", "An FC matrix needs two or more.")
    elif n_rois is not None and cohort.n_rois != n_rois:
        what = f"FC has {cohort.n_rois} ROIs, {n_rois} were expected."
        do = "Check the atlas (AAL has 116, AAL2 120, AAL3 166 ROIs)."
        yield Fault("error", what, do)


def _matrices(cohort: Cohort) -> Iterator[Fault]:
    names = cohort.roi_names or tuple(map(str, range(1, cohort.n_rois + 1)))
    people = zip(
        cohort.fc, cohort.subject_id.tolist(), cohort.site.tolist(), strict=True
    )
    for fc, *who in people:
        for what, do in not_correlations(fc):
            yield Fault("error", what, do, *who)
        flat = [names[roi] for roi in _flat_rois(fc)]
        if flat:
            rois = "ROI" if len(flat) == 1 else "ROIs"
            what = f"{rois} {some(flat)} without signal (constant FC)."
            do = "Kept as it is; leave subjects with many such ROIs out."
            yield Fault("warning", what, do, *who)


def _flat_rois(fc: np.ndarray) -> list[int]:
    """ROIs whose FC with all others is one and the same number."""
    if len(fc) < 3:
        return []
    others = fc[~np.eye(len(fc), dtype=bool)].reshape(len(fc), -1)
    return np.flatnonzero(others.min(axis=1) == others.max(axis=1)).tolist()


def not_correlations(matrix: np.ndarray) -> Iterator[tuple[str, str]]:
    """Why a matrix (R, R) is not one of correlations, and what to do; nothing if it is one."""
    bad = ~np.isfinite(matrix)
    if bad.any():
        rows = np.flatnonzero(bad.any(axis=1))
        rois = some((rows + 1).tolist(), 4)
        what = f"{int(bad.sum())} FC values are NaN or infinite (ROI {rois})."
        yield what, "Leave the subject out, or set the FC of ROIs without signal to 0."
        return
    gap = float(np.abs(matrix - matrix.T).max())
    if gap > TOLERANCE:
        what = f"FC is not symmetric (largest difference {gap:.3g})."
        do = "Make it again, or take (FC + FC.T) / 2. A square time series? kind='timeseries'."
        yield what, do
    off_diagonal = ~np.eye(len(matrix), dtype=bool)
    largest = float(np.abs(matrix[off_diagonal]).max())
    if largest > 1 + TOLERANCE:
        what = f"FC goes up to |r| = {largest:.3g}, beyond 1."
        yield what, "Fisher z values? Take tanh of them."
    diagonal = np.diagonal(matrix)
    worst = int(np.abs(diagonal - 1).argmax())
    if abs(diagonal[worst] - 1) > TOLERANCE:
        yield (
            f"the diagonal is not 1 ({diagonal[worst]:.3g} at ROI {worst + 1}).",
            "Set it to 1.",
        )


def _subjects(cohort: Cohort) -> Iterator[Fault]:
    times = Counter(cohort.subject_id.tolist())
    target = cohort.target
    low, high = target.limits
    people = zip(
        cohort.subject_id.tolist(), cohort.site.tolist(), cohort.y, strict=True
    )
    for subject, site, y in people:
        n = times.pop(subject, 1)  # told once
        if n > 1:
            what = f"subject id appears {n} times."
            do = "Give every subject one row; add the site to the id if two sites share ids."
            yield Fault("error", what, do, subject, site)
        if target.classes and y not in range(target.outputs):
            what = f"unknown label {y} (0 is control, 1 is patient)."
            yield Fault("error", what, NAME_THEM, subject, site)
        elif not target.classes and not abs(y) <= 1:
            value = target.restored(y)
            what = f"{target.name} {value:g} is not in {low:g} to {high:g}."
            yield Fault("error", what, WIDEN, subject, site)


def class_counts(y: np.ndarray, target: Target) -> list[int]:
    """Subjects of each class, controls first; of a number all of them together."""
    if not target.classes:
        return [len(y)]
    return [int((y == k).sum()) for k in range(target.outputs)]


def _twins(cohort: Cohort) -> Iterator[Fault]:
    """A warning of scans that look like one person's, an error of copies."""
    if not np.isfinite(cohort.fc).all():
        return
    site = dict(zip(cohort.subject_id.tolist(), cohort.site.tolist(), strict=True))
    for one, other, r in cohort.twins:
        if one != other:  # an id that appears twice is an error of its own
            what = f"looks like the scan of subject '{one}' (edges correlate {r:.3f})."
            do = (
                f"A run refuses them in training and test: leave_out = ['{other}'] in "
                f"[dataset]. With learn: --leave-out {other}."
            )
            severity: Severity = "error" if r > COPY else "warning"
            yield Fault(severity, what, do, other, site[other])


def _sites(cohort: Cohort, severity: Severity) -> Iterator[Fault]:
    target = cohort.target
    if not target.classes and len(set(cohort.y.tolist())) == 1:
        value = target.restored(cohort.y[0])
        what = f"{target.name} is the same for everybody ({value:g}): nothing to learn."
        do = f"Check the column {target.name}, or name another target."
        yield Fault("error", what, do)
    if both := two_spellings(cohort.site_names):
        what = f"the sites {both} differ in case alone."
        do = "If they are one: --set 'dataset.merge={NAME = [\"OTHER\"]}'."
        yield Fault("error", what, do)
    for site in cohort.site_names:
        labels = cohort.y[cohort.site == site]
        if not site:
            what = f"{len(labels)} subjects have no site."
            yield Fault("error", what, "Name their site.")
        elif what := not_splittable(labels, target):
            do = "Merge it with another site or leave it out."
            yield Fault(severity, what, do, site=site)


def not_splittable(y: np.ndarray, target: Target) -> str:
    """Why a site with these labels cannot be split in three; empty where it can."""
    counts = class_counts(y, target)
    known = {1: ("subjects",), 2: ("controls", "patients")}
    names = known.get(target.outputs, target.classes)
    each = [f"{n} {name}" for n, name in zip(counts, names, strict=True)]
    told = ", ".join(each)
    if min(counts) == 0:
        missing = names[counts.index(0)]
        return f"has no {missing} ({told}), so that only a public start can use it."
    if len(y) < MIN_PER_SITE or min(counts) < MIN_PER_CLASS:
        least = f"{MIN_PER_SITE} subjects and {MIN_PER_CLASS} per class"
        return f"is too small ({told}; at least {least} are needed)."
    return ""


def without_twins(cohort: Cohort) -> tuple[Cohort, list[str]]:
    """The cohort without the second of any two scans that look like one person, and who that is."""
    twice = sorted({pair.second for pair in cohort.twins})
    return cohort.select(~np.isin(cohort.subject_id, twice)), twice


def refuse_twins(cohort: Cohort, sites: Iterable[Mapping[str, Sequence[str]]]) -> None:
    """Raise `DataError` for twins of which one is trained on and the other tested.

    The test would then measure memory. A cohort with ``allow_duplicates`` passes.

    Parameters
    ----------
    cohort : Cohort
    sites : iterable of mapping of split name to subject ids
    """
    if cohort.allow_duplicates:
        return
    tested: dict[str, bool] = {}
    for parts in sites:
        for split, ids in parts.items():
            tested |= dict.fromkeys(ids, split == "test")
    for one, other, r in cohort.twins:
        if one in tested and other in tested and tested[one] != tested[other]:
            pair = f"subjects '{one}' and '{other}' look like one scan (edges correlate {r:.3f})"
            do = f"In [dataset]: leave_out = ['{other}'], or allow_duplicates = true."
            what = f"{pair}, one in training and one in test."
            raise DataError(what, where=cohort.path, do=do)
