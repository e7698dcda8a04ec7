"""Splits of a site into train, validation and test, by seed and site name alone."""

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
    """Return the train, validation and test counts of a class with `n` subjects.

    ``test = round(test_fraction n)``, ``val = round(val_fraction (n - test))``, halves rounded
    up, and at least one of each (no validation if its fraction is 0). A nonzero `test` sets the
    test count instead.
    """
    test = test or max(1, math.floor(test_fraction * n + 0.5))
    val = max(val_fraction > 0, math.floor(val_fraction * (n - test) + 0.5))
    return n - test - val, val, test


def stratified_folds(y: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return the fold (n,) of every person, 0 to k - 1, stratified by diagnosis."""
    folds = np.zeros(len(y), dtype=int)
    for label in (0, 1):
        rows = rng.permutation(np.flatnonzero(y == label))
        folds[rows] = np.arange(len(rows)) % k
    return folds


def split_rows(
    label: np.ndarray, rng: np.random.Generator, asked: Conditions, seed: int
) -> dict[str, np.ndarray]:
    """Return the rows of each split, stratified by `label`: sorted, disjoint and complete.

    With k folds the test part is every k-th row of each class in random order, from the
    (`seed` % k)-th on, so that k seeds test everybody once.
    """
    parts: dict[str, list[np.ndarray]] = {name: [] for name in SPLITS}
    k = asked.folds
    for cls in np.unique(label):
        rows = rng.permutation(np.flatnonzero(label == cls))
        n_test = 0
        if k:
            # longer folds of different classes do not coincide
            first = (seed + cls * (k // 2)) % k
            tested = np.arange(len(rows)) % k == first
            rows = np.concatenate([rows[~tested], rows[tested]])
            n_test = int(tested.sum())
        counts = split_counts(
            len(rows), asked.test_fraction, asked.val_fraction, n_test
        )
        cut = np.split(rows, np.cumsum(counts)[:-1])
        for name, part in zip(SPLITS, cut, strict=True):
            parts[name].append(part)
    return {name: np.sort(np.concatenate(part)) for name, part in parts.items()}


def split_cohort(
    cohort: Cohort, site_name: str, seed: int, asked: Conditions | None = None
) -> dict[str, Cohort]:
    """Cut one site into train, validation and test; needs no torch.

    The cut depends on (`seed`, `site_name`) and the site's own subjects alone: subjects are
    sorted by id first, so neither the order of the file nor the other sites matter.

    Parameters
    ----------
    cohort : Cohort
    site_name : str
    seed : int
    asked : Conditions, optional
        Its `test_fraction` of each class is tested (the paper's 7:3 gives 0.3), or one of its
        `folds`. Its `val_fraction` of the others is for validation.

    Returns
    -------
    dict of split name to Cohort
    """
    asked = asked or Conditions()
    members = cohort.select_sites([site_name])
    members = members.select(np.argsort(members.subject_id, kind="stable"))
    counts = class_counts(members.y, members.target)
    tested = 1 / asked.folds if asked.folds else asked.test_fraction
    train = min(split_counts(n, tested, asked.val_fraction)[0] for n in counts)
    if train < 1 or min(counts) < asked.folds:
        message = f"is too small to split ({min(counts)} of a class)."
        do = "Run `fcforge check`; train on more of them, or ask for fewer folds."
        raise DataError(message, where=f"site '{site_name}'", do=do)
    rng = numpy_rng(seed, "split", site_name)
    if asked.folds:
        rng = numpy_rng(seed // asked.folds, "folds", "split", site_name)
    rows = split_rows(strata(members.y), rng, asked, seed)
    parts = {name: members.select(index) for name, index in rows.items()}
    require_no_leaking_duplicates(cohort, [ids_of(parts)])
    return parts


def ids_of(parts: Mapping[str, Cohort]) -> dict[str, tuple[str, ...]]:
    """Return the subject ids of each split."""
    return {name: tuple(part.subject_id.tolist()) for name, part in parts.items()}


def split_site(
    cohort: Cohort, site_name: str, seed: int, asked: Conditions | None = None
) -> Site:
    """Return a site as learners need it: the parts of `split_cohort` as batches of tensors."""
    parts = split_cohort(cohort, site_name, seed, asked)
    batches = {k: FCBatch.from_numpy(part.fc, part.y) for k, part in parts.items()}
    more = {name: dict(part.covariates) for name, part in parts.items()}
    return Site(site_name, **batches, subject_ids=ids_of(parts), covariates=more)


def make_sites(
    cohort: Cohort, seed: int, asked: Conditions | None = None
) -> dict[str, Site]:
    """Return the sites of a cohort, split; `require_valid` checks the cohort first.

    With several visits every visit is an entry of its own (`fcforge.core.names.visit_name`).
    """
    require_valid(cohort)
    sites = {name: split_site(cohort, name, seed, asked) for name in cohort.site_names}
    require_no_leaking_duplicates(cohort, [site.subject_ids for site in sites.values()])
    if asked is None or asked.visits == 1:
        return sites
    names = with_visits(sites, asked.visits)
    if len(set(names)) < len(names):
        what = "a site is called as a further visit of another one."
        raise DataError(what, do="Rename the site, or set visits = 1.")
    parts = {name: portions(site, seed, asked.visits) for name, site in sites.items()}
    return {
        visit_name(name, k + 1): parts[name][k]
        for k in range(asked.visits)
        for name in sites
    }


def portions(site: Site, seed: int, visits: int) -> list[Site]:
    """Return the visits of a site: each class of its training subjects dealt out at random.

    All visits have the site's test subjects. The cut depends on (`seed`, site name) alone.

    Parameters
    ----------
    site : Site
    seed : int
    visits : int
    """
    rng = numpy_rng(seed, "visits", site.name)
    chosen: dict[str, list[np.ndarray]] = {}
    for part in ("train", "val"):
        batch = getattr(site, part)
        chosen[part] = _dealt(strata(batch.y.numpy()), rng, visits)
        if part == "train":
            fewest = min(len(rows) for rows in chosen[part])
            classes = [set(batch.y[rows].tolist()) for rows in chosen[part]]
            lacks = not batch.y.is_floating_point() and len(set(map(len, classes))) > 1
            if fewest < 2 or lacks:
                raise DataError(
                    f"has too few training subjects for {visits} visits.",
                    where=f"site '{site.name}'",
                    do="Ask for fewer visits, or leave the site out.",
                )
    made = []
    for k in range(visits):
        rows = {part: chosen[part][k] for part in chosen}
        ids = {
            part: tuple(np.array(site.subject_ids[part])[r]) for part, r in rows.items()
        }
        more = {
            part: {n: v[r] for n, v in site.covariates.get(part, {}).items()}
            for part, r in rows.items()
        }
        made.append(
            replace(
                site,
                name=visit_name(site.name, k + 1),
                train=site.train.select(rows["train"]),
                val=site.val.select(rows["val"]),
                subject_ids={**site.subject_ids, **ids},
                covariates={**site.covariates, **more},
            )
        )
    return made


def _dealt(groups: np.ndarray, rng: np.random.Generator, n: int) -> list[np.ndarray]:
    """Return n disjoint sets of rows, each with its part of every group."""
    hands: list[list[np.ndarray]] = [[] for _ in range(n)]
    for group in np.unique(groups):
        rows = rng.permutation(np.flatnonzero(groups == group))
        for k in range(n):
            hands[k].append(rows[k::n])
    none = np.zeros(0, dtype=int)
    return [np.sort(np.concatenate([none, *hand])) for hand in hands]


def untested_site(people: Cohort, seed: int, val_fraction: float = 0.0) -> Site:
    """Return a site all of whose subjects are trained on, without their ids.

    Parameters
    ----------
    people : Cohort
        Subjects of one site.
    seed : int
    val_fraction : float
        Share of each class (or fifth of the numbers) that is set aside for validation, one
        subject at least; 0 sets nobody aside.
    """
    (name,) = people.site_names
    val = np.zeros(len(people), dtype=bool)
    if val_fraction:
        rng = numpy_rng(seed, "split", name)
        groups = strata(people.y)
        for label in np.unique(groups):
            members = rng.permutation(np.flatnonzero(groups == label))
            val[members[: max(1, round(val_fraction * len(members)))]] = True
    nobody = np.zeros(len(people), dtype=bool)
    parts: dict[str, Any] = {
        part: FCBatch.from_numpy(here.fc, here.y, here.weight)
        for part, here in zip(
            SPLITS, map(people.select, (~val, val, nobody)), strict=True
        )
    }
    return Site(name, **parts, subject_ids=dict.fromkeys(SPLITS, ()))
