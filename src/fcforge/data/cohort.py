"""A dataset before splitting: one FC matrix per subject, with diagnosis and site."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fcforge.core.errors import ConfigError, DataError
from fcforge.core.files import whole_file
from fcforge.core.formatting import abbreviated, counted
from fcforge.core.names import check_names
from fcforge.core.target import Target
from fcforge.data.duplicates import DuplicatePair, find_duplicates
from fcforge.data.faults import Fault
from fcforge.imaging.parsers import as_number

T = TypeVar("T")
MIN_ROIS = (
    10  # with fewer, scans of different people correlate like those of one person
)


@dataclass(frozen=True)
class Cohort:
    """Subjects of one or more sites, before any split.

    Parameters
    ----------
    name : str
        Dataset name, e.g. ``"simulated"``.
    fc : ndarray of shape (n, R, R), float32
        Pearson correlation matrices of n subjects with R ROIs, symmetric, unit diagonal.
    y : ndarray of shape (n,), int64 or float64
        Classes as int64: 0 = control, 1 = patient, 2 and up further classes. A numeric target is
        float64, scaled by `Target.scaled`.
    site : ndarray of shape (n,), str
    subject_id : ndarray of shape (n,), str
    roi_names : tuple of str
        Empty when unknown.
    covariates : mapping of name to ndarray of shape (n,)
        Optional, e.g. ``mean_fd``, ``age``, ``sex``.
    path : str
        Path of the data, for errors.
    faults : tuple of Fault
        Subjects that the loader could not read (no file, a truncated file, an unknown diagnosis).
        `fcforge.data.checks.check_cohort` reports them with its own.
    allow_duplicates : bool
        Whether scans that look like one person may be divided between training and test.
    allow_unlike_sites : bool
        Whether a site whose mean FC does not resemble the others' is a warning instead of an error.
    target : Target
        Meaning of y: classes with their names, e.g. ``("TC", "ASD")``, or a number with limits.
    weight : ndarray of shape (n,), optional
        Positive weights of the subjects in training.
    file_of : mapping of subject id to str
        File of each subject, for messages; empty if one file holds all.
    """

    name: str
    fc: np.ndarray
    y: np.ndarray
    site: np.ndarray
    subject_id: np.ndarray
    roi_names: tuple[str, ...] = ()
    covariates: Mapping[str, np.ndarray] = field(default_factory=dict)
    path: str = ""
    faults: tuple[Fault, ...] = ()
    allow_duplicates: bool = False
    allow_unlike_sites: bool = False
    target: Target = field(default_factory=Target)
    weight: np.ndarray | None = None
    file_of: Mapping[str, str] = field(default_factory=dict)
    _found: dict[Callable[..., Any], tuple[Any, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __len__(self) -> int:
        return int(self.y.shape[0])

    @property
    def n_rois(self) -> int:
        """Number of ROIs."""
        return int(self.fc.shape[-1])

    @property
    def site_names(self) -> tuple[str, ...]:
        """Sites in the order in which they first appear."""
        return tuple(dict.fromkeys(self.site.tolist()))

    @property
    def _known_sites(self) -> set[str]:
        return {*self.site_names, *(f.site for f in self.faults)} - {""}

    def select(self, index: np.ndarray | slice) -> "Cohort":
        """Return the cohort of the subjects at `index` (integers, a boolean mask or a slice)."""
        return replace(
            self,
            fc=self.fc[index],
            y=self.y[index],
            site=self.site[index],
            subject_id=self.subject_id[index],
            covariates={k: values[index] for k, values in self.covariates.items()},
            weight=None if self.weight is None else self.weight[index],
        )

    def merge_sites(self, merge: Mapping[str, Sequence[str]]) -> "Cohort":
        """Return the cohort with sites merged: ``{"UM": ["UM_1", "UM_2"]}`` makes one site of two."""
        merged_into = {part: new for new, parts in merge.items() for part in parts}
        check_names("site to merge", merged_into, self._known_sites)
        if len(merged_into) < sum(map(len, merge.values())):
            raise ConfigError(f"merge = {merge} names a site twice.")
        faults = []
        for fault in self.faults:
            faults.append(replace(fault, site=merged_into.get(fault.site, fault.site)))
        site = [merged_into.get(name, name) for name in self.site.tolist()]
        return replace(self, site=as_text(site), faults=tuple(faults))

    def select_sites(self, names: Sequence[str] | None) -> "Cohort":
        """Return the cohort of the named sites, grouped in the order of `names`.

        None keeps all sites, in the order of the rows.
        """
        if names is None:
            return self
        check_names("site", names, self._known_sites)
        if not names or len(set(names)) < len(names):
            raise ConfigError(
                f"sites {list(names)} cannot be picked.", do="Name each site once."
            )
        index = np.concatenate([np.flatnonzero(self.site == name) for name in names])
        kept = tuple(f for f in self.faults if not f.site or f.site in names)
        return replace(self.select(index), faults=kept)

    def of_number(self, name: str, limits: tuple[float, float]) -> "Cohort":
        """Return the cohort with a covariate as target, without the people who lack it.

        Parameters
        ----------
        name : str
            Covariate, e.g. ``"age"``.
        limits : (float, float)
            Least and greatest value that the target may have, agreed in advance.
        """
        check_names("target", [name], ["diagnosis", *self.covariates])
        target = Target(name, (), limits)
        values = as_numbers(name, self.covariates[name])
        known = np.isfinite(values)
        faults = list(self.faults)
        if not known.all():
            message = f"{counted(int((~known).sum()), 'subject')} left out (no {name})."
            faults.append(Fault("warning", message))
        others = {k: v for k, v in self.covariates.items() if k != name}
        cohort = replace(
            self,
            y=target.scaled(values),
            target=target,
            covariates=others,
            faults=tuple(faults),
        )
        return cohort.select(known)

    def without(self, subjects: Sequence[str]) -> "Cohort":
        """Return the cohort without the subjects of these ids and without their faults."""
        faulty = [f.subject for f in self.faults]
        known = [*self.subject_id.tolist(), *faulty]
        check_names("subject to leave out", subjects, known)
        faults = tuple(
            f for f in self.faults if not f.subject or f.subject not in subjects
        )
        others = self.select(~np.isin(self.subject_id, subjects))
        return replace(others, faults=faults)

    def content_sha256(self) -> str:
        """Return the SHA-256 of FC, target, site and id of all subjects; row order does not matter."""
        digest = hashlib.sha256(f"{self.fc.shape}".encode())
        for i in np.lexsort((self.site, self.subject_id)):
            row = f"{self.subject_id[i]}\x1f{self.site[i]}\x1f{self.y[i].item()}"
            digest.update(row.encode())
            digest.update(np.ascontiguousarray(self.fc[i], dtype="<f4").data)
        return digest.hexdigest()

    def once(self, find: Callable[["Cohort"], Iterable[T]]) -> tuple[T, ...]:
        """Return all that `find(self)` yields, computed at the first call and then remembered.

        Several steps of a run check its cohort, and comparing the sites of thousands of people takes seconds.
        """
        if find not in self._found:
            self._found[find] = tuple(find(self))
        return self._found[find]

    @cached_property
    def duplicates(self) -> list[DuplicatePair]:
        """Pairs of scans that look like one person; with fewer than `MIN_ROIS` ROIs, exact copies."""
        pairs = find_duplicates(self.fc, self.subject_id)
        if self.n_rois >= MIN_ROIS:
            return pairs
        scans = dict(zip(self.subject_id.tolist(), self.fc, strict=True))
        return [
            pair
            for pair in pairs
            if np.array_equal(scans[pair.first], scans[pair.second])
        ]


def write_people(path: Path, people: Cohort, covariates: Sequence[str] = ()) -> Path:
    """Write people as an .npz that the dataset ``folder`` reads, and return its path.

    Parameters
    ----------
    path : Path
    people : Cohort
    covariates : sequence of str
        Names of the covariates to write; those that the people do not have are left out.
    """
    columns = {
        name: people.covariates[name]
        for name in covariates
        if name in people.covariates
    }
    with whole_file(path) as file:
        np.savez(
            file,
            allow_pickle=False,
            fc=people.fc,
            site=people.site,
            subject_id=people.subject_id,
            label=people.y,
            **columns,
        )
    return path


def as_numbers(name: str, values: np.ndarray) -> np.ndarray:
    """Return a covariate as float64, with NaN for missing values.

    Parameters
    ----------
    name : str
        Name of the covariate, for the error message.
    values : ndarray of shape (n,)
        Numbers, or numbers written as text.

    Raises
    ------
    DataError
        If a value is neither a number nor missing.
    """
    values = np.asarray(values)
    if values.dtype.kind in "fiub":
        return values.astype(float)
    numbers = [as_number(str(value)) for value in values]
    words = [v for v, n in zip(values, numbers, strict=True) if n is None]
    if words:
        raise DataError(
            f"covariate '{name}' holds text ({abbreviated(words)}), not numbers.",
            do="Write numbers, the same way at every site, and n/a where one is not known.",
        )
    return np.array(numbers, dtype=np.float64)


def as_text(values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Return values as an array of str; they may be numbers (ABIDE's subject ids are integers)."""
    return np.array([str(v) for v in np.asarray(values).tolist()], dtype=np.str_)
