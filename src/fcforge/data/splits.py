"""Splits of a site into training, validation and test, by seed and site name alone.

With several *visits* the training subjects of a site arrive in portions, one per visit.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fcforge.core.errors import DataError
from fcforge.core.names import visit_name, with_visits
from fcforge.core.randomness import numpy_rng
from fcforge.core.spec import Conditions
from fcforge.core.subjects import FCBatch, Site
from fcforge.core.target import strata
from fcforge.data.checks import (
    class_counts,
    require_no_leaking_duplicates,
    require_valid,
)
from fcforge.data.cohort import Cohort

SPLITS = ("train", "val", "test")


def split_counts(
    n: int, test_fraction: float, val_fraction: float, test: int = 0
) -> tuple[int, int, int]:
    """Return how many subjects of a class are for training, validation and test.

    ``test = round(test_fraction n)`` and ``val = round(val_fraction (n - test))``, with halves
    rounded up and at least one subject each (no validation if its fraction is 0).

    Parameters
    ----------
    n : int
        Subjects of the class.
    test_fraction, val_fraction : float
        As in `Conditions`.
    test : int
        If not 0, the number of test subjects, in place of `test_fraction`.

    Returns
    -------
    (int, int, int)
        Numbers for training, validation and test.
    """
    test = test or max(1, math.floor(test_fraction * n + 0.5))
    fewest_val = 1 if val_fraction > 0 else 0
    val = max(fewest_val, math.floor(val_fraction * (n - test) + 0.5))
    return n - test - val, val, test


def stratified_folds(y: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return the fold of each of n people, 0 to k - 1, shape (n,), stratified by diagnosis y (0 or 1)."""
    folds = np.zeros(len(y), dtype=int)
    for label in (0, 1):
        rows = rng.permutation(np.flatnonzero(y == label))
        folds[rows] = np.arange(len(rows)) % k
    return folds


def split_rows(
    label: np.ndarray, rng: np.random.Generator, conditions: Conditions, seed: int
) -> dict[str, np.ndarray]:
    """Return the row numbers of each split: sorted, disjoint and complete.

    With k folds the test part is every k-th row of each class in random order, from the
    (`seed` % k)-th on, so that k seeds test everybody once.

    Parameters
    ----------
    label : ndarray of shape (n,)
        Stratum of each row (`fcforge.core.target.strata`); each is divided separately.
    rng : numpy Generator
    conditions : Conditions
        Fractions, or number of folds.
    seed : int
        Chooses the fold.
    """
    parts: dict[str, list[np.ndarray]] = {name: [] for name in SPLITS}
    k = conditions.folds
    for stratum in np.unique(label):
        rows = rng.permutation(np.flatnonzero(label == stratum))
        n_test = 0
        if k:
            # Folds differ in size by one. The shift keeps the larger folds of two classes apart.
            first = (seed + stratum * (k // 2)) % k
            tested = np.arange(len(rows)) % k == first
            rows = np.concatenate([rows[~tested], rows[tested]])
            n_test = int(tested.sum())
        counts = split_counts(
            len(rows), conditions.test_fraction, conditions.val_fraction, n_test
        )
        pieces = np.split(rows, np.cumsum(counts)[:-1])
        for name, piece in zip(SPLITS, pieces, strict=True):
            parts[name].append(piece)
    return {name: np.sort(np.concatenate(part)) for name, part in parts.items()}


def split_cohort(
    cohort: Cohort, site_name: str, seed: int, conditions: Conditions | None = None
) -> dict[str, Cohort]:
    """Return the training, validation and test subjects of one site. Torch is not needed.

    The cut depends on (`seed`, `site_name`) and the site's own subjects alone: subjects are
    sorted by id first, so neither the order of the file nor the other sites matter.

    Parameters
    ----------
    cohort : Cohort
    site_name : str
    seed : int
    conditions : Conditions, optional
        Its `test_fraction` of each class is tested (the paper's 7:3 gives 0.3), or one of its
        `folds`. Its `val_fraction` of the others is for validation.

    Returns
    -------
    dict of split name to Cohort

    Raises
    ------
    DataError
        If a class is too small for the three parts, or for the folds.
    """
    conditions = conditions or Conditions()
    folds = conditions.folds
    members = cohort.select_sites([site_name])
    members = members.select(np.argsort(members.subject_id, kind="stable"))
    counts = class_counts(members.y, members.target)
    test_fraction = 1 / folds if folds else conditions.test_fraction
    n_train = [
        split_counts(n, test_fraction, conditions.val_fraction)[0] for n in counts
    ]
    if min(n_train) < 1 or min(counts) < folds:
        message = f"is too small to split ({min(counts)} of a class)."
        hint = "Run `fcforge check`; train on more of them, or choose fewer folds."
        raise DataError(message, where=f"site '{site_name}'", do=hint)
    rng = numpy_rng(seed, "split", site_name)
    if folds:
        # The same order of subjects for the seeds 0 to k - 1, of which each tests another fold.
        rng = numpy_rng(seed // folds, "folds", "split", site_name)
    rows = split_rows(strata(members.y), rng, conditions, seed)
    parts = {name: members.select(index) for name, index in rows.items()}
    require_no_leaking_duplicates(cohort, [ids_of(parts)])
    return parts


def ids_of(parts: Mapping[str, Cohort]) -> dict[str, tuple[str, ...]]:
    """Return the subject ids of each split."""
    return {name: tuple(part.subject_id.tolist()) for name, part in parts.items()}


def split_site(
    cohort: Cohort, site_name: str, seed: int, conditions: Conditions | None = None
) -> Site:
    """Return a site as learners need it: the parts of `split_cohort` as batches of tensors."""
    parts = split_cohort(cohort, site_name, seed, conditions)
    batches = {k: FCBatch.from_numpy(part.fc, part.y) for k, part in parts.items()}
    covariates = {name: dict(part.covariates) for name, part in parts.items()}
    return Site(site_name, **batches, subject_ids=ids_of(parts), covariates=covariates)


def make_sites(
    cohort: Cohort, seed: int, conditions: Conditions | None = None
) -> dict[str, Site]:
    """Return all sites of a cohort by name, split; `require_valid` checks the cohort first.

    With several visits every visit of a site is an entry of its own, by its name
    (`fcforge.core.names.visit_name`).

    Parameters
    ----------
    cohort : Cohort
    seed : int
    conditions : Conditions, optional
        As in `split_cohort`, and the number of visits.
    """
    require_valid(cohort)
    sites = {
        name: split_site(cohort, name, seed, conditions) for name in cohort.site_names
    }
    require_no_leaking_duplicates(cohort, [site.subject_ids for site in sites.values()])
    if conditions is None or conditions.visits == 1:
        return sites
    names = with_visits(sites, conditions.visits)
    if len(set(names)) < len(names):
        message = "a site has the name of a further visit of another site."
        raise DataError(message, do="Rename the site, or set visits = 1.")
    visits_of = {
        name: portions(site, seed, conditions.visits) for name, site in sites.items()
    }
    return {
        visit_name(name, k + 1): visits_of[name][k]
        for k in range(conditions.visits)
        for name in sites
    }


def portions(site: Site, seed: int, visits: int) -> list[Site]:
    """Return the visits of a site, among which its training and validation subjects are divided.

    Each class is divided at random. All visits have the site's test subjects. The division depends
    on (`seed`, site name) alone.

    Parameters
    ----------
    site : Site
    seed : int
    visits : int
        Number of visits.

    Returns
    -------
    list of Site
        One per visit.
    """
    rng = numpy_rng(seed, "visits", site.name)
    rows_of: dict[str, list[np.ndarray]] = {}  # by part, the row numbers of each visit
    for part in ("train", "val"):
        batch = getattr(site, part)
        rows_of[part] = _dealt(strata(batch.y.numpy()), rng, visits)
        if part == "train":
            fewest = min(len(rows) for rows in rows_of[part])
            # The first visit gets a subject of every class, later ones may not.
            n_classes = [len(set(batch.y[rows].tolist())) for rows in rows_of[part]]
            is_number = batch.y.is_floating_point()
            lacks_class = not is_number and min(n_classes) < max(n_classes)
            if fewest < 2 or lacks_class:
                raise DataError(
                    f"has too few training subjects for {visits} visits.",
                    where=f"site '{site.name}'",
                    do="Set fewer visits, or leave the site out.",
                )
    sites = []
    for k in range(visits):
        rows = {part: rows_of[part][k] for part in rows_of}
        ids = {
            part: tuple(np.array(site.subject_ids[part])[of_visit])
            for part, of_visit in rows.items()
        }
        covariates = {
            part: {
                name: values[of_visit]
                for name, values in site.covariates.get(part, {}).items()
            }
            for part, of_visit in rows.items()
        }
        sites.append(
            replace(
                site,
                name=visit_name(site.name, k + 1),
                train=site.train.select(rows["train"]),
                val=site.val.select(rows["val"]),
                subject_ids={**site.subject_ids, **ids},
                covariates={**site.covariates, **covariates},
            )
        )
    return sites


def _dealt(
    stratum_of_row: np.ndarray, rng: np.random.Generator, n: int
) -> list[np.ndarray]:
    """Return `n` disjoint sets of row numbers, each with an equal share of every stratum.

    Parameters
    ----------
    stratum_of_row : ndarray
        Stratum of each row.
    rng : numpy Generator
    n : int
        Number of sets.
    """
    shares: list[list[np.ndarray]] = [[] for _ in range(n)]
    for stratum in np.unique(stratum_of_row):
        rows = rng.permutation(np.flatnonzero(stratum_of_row == stratum))
        for k in range(n):
            shares[k].append(rows[k::n])
    empty = np.zeros(0, dtype=int)  # for a part without rows, which has no strata
    return [np.sort(np.concatenate([empty, *share])) for share in shares]


def untested_site(people: Cohort, seed: int, val_fraction: float = 0.0) -> Site:
    """Return a site without test subjects and without ids, for models that are not evaluated here.

    Parameters
    ----------
    people : Cohort
        Subjects of one site.
    seed : int
    val_fraction : float
        Share of each class (or fifth of the numbers) that is set aside for validation, at least
        one of two subjects. The only subject of a class is never set aside; 0 sets nobody aside.
    """
    (name,) = people.site_names
    val = np.zeros(len(people), dtype=bool)
    if val_fraction:
        rng = numpy_rng(seed, "split", name)
        groups = strata(people.y)
        for label in np.unique(groups):
            members = rng.permutation(np.flatnonzero(groups == label))
            n_val = max(1, round(val_fraction * len(members)))
            val[members[: min(n_val, len(members) - 1)]] = True
    nobody = np.zeros(len(people), dtype=bool)
    batches: dict[str, Any] = {}
    for part, rows in zip(SPLITS, (~val, val, nobody), strict=True):
        part_people = people.select(rows)
        batches[part] = FCBatch.from_numpy(
            part_people.fc, part_people.y, part_people.weight
        )
    return Site(name, **batches, subject_ids=dict.fromkeys(SPLITS, ()))
