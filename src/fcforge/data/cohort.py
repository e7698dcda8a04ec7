"""A dataset before splitting: one FC matrix per subject, with diagnosis and site."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fcforge.core.errors import ConfigError, DataError
from fcforge.core.files import whole_file
from fcforge.core.formatting import counted, some
from fcforge.core.names import check_names
from fcforge.core.target import Target
from fcforge.imaging.parsers import as_number

Severity = Literal["error", "warning"]
ALIKE = 0.9  # edge correlation; of two people it is lower, of one scan's halves often higher
ALIKE_FEW = 0.98  # with fewer than FEW edges strangers are alike
FEW = 1_000
MIN_ROIS = 10


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a dataset: where, what, and what to do about it."""

    severity: Severity
    what: str
    do: str = ""
    subject: str = ""
    site: str = ""
    count: int = 1
    """Subjects it is wrong with, where it is more than one (`grouped`)."""

    @classmethod
    def of(cls, error: DataError, subject: str, site: str) -> "Fault":
        """The trouble with one subject, as a loader met it."""
        what = f"{error.where}: {error.what}" if error.where else error.what
        return cls("error", what, error.do, subject, site)

    def __str__(self) -> str:
        places = (("site", self.site), ("subject", self.subject))
        where = " ".join(f"{kind} '{name}'" for kind, name in places if name)
        if self.count > 1:
            where = f"{self.count} subjects ({self.subject})"
        text = f"{where}: {self.what}" if where else self.what
        return f"{text} {self.do}".rstrip()


def grouped(faults: Iterable[Fault]) -> list[Fault]:
    """The same complaint about several subjects as one, in the order of the first."""
    alike: dict[tuple[str, ...], list[Fault]] = {}
    for fault in faults:
        place = "" if fault.subject else fault.site
        alike.setdefault((fault.what, fault.do, place), []).append(fault)
    found = []
    for own in alike.values():
        subjects = some(f.subject for f in own)
        found.append(replace(own[0], subject=subjects, count=len(own)))
    return found


@dataclass(frozen=True)
class Cohort:
    """Subjects of one or more sites, before any split.

    Parameters
    ----------
    name : str
        Dataset name, e.g. ``"simulated"``.
    fc : ndarray of shape (n, R, R), float32
        Pearson correlation matrices, symmetric, unit diagonal.
    y : ndarray of shape (n,), int64, or float64 of a number
        0 = control, 1 = patient, 2 and up further classes; of a number `Target.scaled`.
    site : ndarray of shape (n,), str
    subject_id : ndarray of shape (n,), str
    roi_names : tuple of str
        Empty when unknown.
    covariates : mapping of name to ndarray of shape (n,)
        Optional, e.g. ``mean_fd``, ``age``, ``sex``.
    path : str
        Where it was read from, for errors.
    faults : tuple of Fault
        What the loader could not take in (a missing or truncated file, an unknown diagnosis).
        `fcforge.data.datasets.check_cohort` reports them with its own.
    allow_duplicates : bool
        Two ids that look like one scan may be in training and in test.
    target : Target
        What y is: classes with their names, e.g. ``("TC", "ASD")``, or a number.
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
    target: Target = field(default_factory=Target)

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
        """Cohort of the subjects at `index` (integers, a boolean mask or a slice)."""
        return replace(
            self,
            fc=self.fc[index],
            y=self.y[index],
            site=self.site[index],
            subject_id=self.subject_id[index],
            covariates={name: own[index] for name, own in self.covariates.items()},
        )

    def merge_sites(self, merge: Mapping[str, Sequence[str]]) -> "Cohort":
        """Rename sites: ``{"UM": ["UM_1", "UM_2"]}`` makes one site UM of two."""
        taken = {part: new for new, parts in merge.items() for part in parts}
        check_names("site to merge", taken, self._known_sites)
        if len(taken) < sum(map(len, merge.values())):
            raise ConfigError(f"merge = {merge} names a site twice.")
        faults = []
        for fault in self.faults:
            faults.append(replace(fault, site=taken.get(fault.site, fault.site)))
        site = [taken.get(s, s) for s in self.site.tolist()]
        return replace(self, site=as_text(site), faults=tuple(faults))

    def select_sites(self, names: Sequence[str] | None) -> "Cohort":
        """Cohort of the named sites, grouped in the order of `names`; of all for None."""
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
        """The cohort whose target is a covariate; who has none is left out."""
        check_names("target", [name], ["diagnosis", *self.covariates])
        target = Target(name, (), limits)
        values = as_numbers(name, self.covariates[name])
        known = np.isfinite(values)
        faults = list(self.faults)
        if not known.all():
            what = f"{counted(int((~known).sum()), 'subject')} left out (no {name})."
            faults.append(Fault("warning", what))
        rest = {k: v for k, v in self.covariates.items() if k != name}
        made = replace(self, y=target.scaled(values), target=target, covariates=rest)
        return replace(made, faults=tuple(faults)).select(known)

    def without(self, gone: Sequence[str]) -> "Cohort":
        """The cohort, and what is wrong with it, without the subjects of these ids."""
        faulty = [f.subject for f in self.faults]
        known = [*self.subject_id.tolist(), *faulty]
        check_names("subject to leave out", gone, known)
        kept = tuple(f for f in self.faults if not f.subject or f.subject not in gone)
        rest = self.select(~np.isin(self.subject_id, gone))
        return replace(rest, faults=kept)

    def content_sha256(self) -> str:
        """SHA-256 over FC, label, site and id of every subject; row order does not matter."""
        digest = hashlib.sha256(f"{self.fc.shape}".encode())
        for i in np.lexsort((self.site, self.subject_id)):
            who = f"{self.subject_id[i]}\x1f{self.site[i]}\x1f{self.y[i].item()}"
            digest.update(who.encode())
            digest.update(np.ascontiguousarray(self.fc[i], dtype="<f4").data)
        return digest.hexdigest()

    @cached_property
    def twins(self) -> "list[Twins]":
        """Scans that look like one person; where ROIs are too few to tell, exact copies alone."""
        found = twins_of(self.fc, self.subject_id)
        if self.n_rois >= MIN_ROIS:
            return found
        scans = dict(zip(self.subject_id.tolist(), self.fc, strict=True))
        return [
            pair
            for pair in found
            if np.array_equal(scans[pair.first], scans[pair.second])
        ]


def write_people(path: Path, people: Cohort) -> Path:
    """Write people as an .npz that dataset ``folder`` reads; returns its path."""
    who = {"site": people.site, "subject_id": people.subject_id, "label": people.y}
    with whole_file(path) as file:
        np.savez(file, allow_pickle=False, fc=people.fc, **who)
    return path


def as_numbers(name: str, values: np.ndarray) -> np.ndarray:
    """A covariate as float64, NaN where one is missing; `DataError` where it holds words."""
    values = np.asarray(values)
    if values.dtype.kind in "fiub":
        return values.astype(float)
    numbers = [as_number(str(value)) for value in values]
    words = [v for v, n in zip(values, numbers, strict=True) if n is None]
    if words:
        raise DataError(
            f"covariate '{name}' holds text ({some(words)}), not numbers.",
            do="Write numbers, the same way at every site, and n/a where one is not known.",
        )
    return np.array(numbers, dtype=np.float64)


def as_text(values: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Array of str, from numbers too (ABIDE's subject ids are integers)."""
    return np.array([str(v) for v in np.asarray(values).tolist()], dtype=np.str_)


def rois_of(n_edges: int) -> int:
    """How many ROIs have so many edges; `DataError` where no number has."""
    n_rois = (1 + math.isqrt(1 + 8 * n_edges)) // 2
    if n_edges < 1 or n_rois * (n_rois - 1) // 2 != n_edges:
        what = f"{n_edges} edges are not the triangle of a square matrix."
        raise DataError(what, do="Is a column missing, or one too many?")
    return n_rois


def fc_from_upper(
    upper: np.ndarray, diagonal: float = 1.0, dtype: type = np.float64
) -> np.ndarray:
    """Symmetric matrices (n, R, R) from their upper triangles.

    Parameters
    ----------
    upper : ndarray of shape (n, R (R - 1) / 2)
        Edges in ``np.triu_indices(R, 1)`` order.
    diagonal : float
    dtype : type
        Of what is made.
    """
    n, n_edges = upper.shape
    n_rois = rois_of(n_edges)
    rows, columns = np.triu_indices(n_rois, 1)
    fc: np.ndarray = np.full((n, n_rois, n_rois), diagonal, dtype)
    fc[:, rows, columns] = upper
    fc[:, columns, rows] = upper
    return fc


def upper_from_fc(fc: np.ndarray) -> np.ndarray:
    """Upper triangle without diagonal of FC (n, R, R), shape (n, R (R - 1) / 2)."""
    rows, cols = np.triu_indices(fc.shape[-1], 1)
    return fc[:, rows, cols]


class Twins(NamedTuple):
    """Two scans that look like one person: their ids and edge correlation."""

    first: str
    second: str
    correlation: float


def _unit(fc: np.ndarray) -> np.ndarray:
    """Edges (n, E) of scans about their mean, of length 1; constant ones are 0."""
    x = upper_from_fc(fc).astype(np.float32, copy=False)
    x -= x.mean(1, keepdims=True)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    x /= np.maximum(norm, 1e-12)
    return x


def twins_of(
    fc: np.ndarray,
    ids: np.ndarray,
    other: np.ndarray | None = None,
    other_ids: np.ndarray | None = None,
) -> list[Twins]:
    """Pairs of scans that look like one person, in the order of the rows.

    Of two data sets, one scan of each; there a shared id counts, too.
    """
    a = _unit(fc)
    r = a @ (a if other is None else _unit(other)).T
    found = r > (ALIKE if a.shape[1] >= FEW else ALIKE_FEW)
    if other_ids is None:
        other_ids = ids
        found = np.triu(found, 1)
    else:
        found |= ids[:, None] == other_ids[None, :]
    twins = []
    for i, j in np.argwhere(found):
        twins.append(Twins(str(ids[i]), str(other_ids[j]), float(r[i, j])))
    return twins
