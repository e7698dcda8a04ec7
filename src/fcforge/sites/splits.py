"""One site's subjects cut into train, validation and test, by seed and site name alone."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fcforge.errors import ConfigError, DataError
from fcforge.randomness import numpy_rng
from fcforge.sites.check import MIN_PER_CLASS, MIN_PER_SITE, refuse_twins, require_valid
from fcforge.sites.cohort import Cohort
from fcforge.types import FCBatch, RunSpec, Site

SPLITS = ("train", "val", "test")


def split_counts(
    n: int, test_fraction: float, val_fraction: float, test: int = 0
) -> tuple[int, int, int]:
    """Train, validation and test counts of one class with `n` subjects.

    ``test = round(test_fraction n)``, ``val = round(val_fraction (n - test))``, halves rounded
    up, and at least one of each (no validation when its fraction is 0). `test` says the number
    of the tested instead.
    """
    test = test or max(1, math.floor(test_fraction * n + 0.5))
    val = max(val_fraction > 0, math.floor(val_fraction * (n - test) + 0.5))
    return n - test - val, val, test


def split_rows(
    label: np.ndarray,
    rng: np.random.Generator,
    test_fraction: float,
    val_fraction: float,
    fold: tuple[int, int] | None = None,
) -> dict[str, np.ndarray]:
    """Rows of each split, stratified by `label`: sorted integers, disjoint, complete.

    With `fold` = (i, k) the test part is every k-th row of each class in random order, from the
    i-th on: the k folds test everybody once.
    """
    parts: dict[str, list[np.ndarray]] = {name: [] for name in SPLITS}
    for cls in (0, 1):
        rows = rng.permutation(np.flatnonzero(label == cls))
        n_test = 0
        if fold:
            # the classes' longer folds are not the same ones
            tested = (
                np.arange(len(rows)) % fold[1]
                == (fold[0] + cls * (fold[1] // 2)) % fold[1]
            )
            rows, n_test = (
                np.concatenate([rows[~tested], rows[tested]]),
                int(tested.sum()),
            )
        ends = np.cumsum(split_counts(len(rows), test_fraction, val_fraction, n_test))[
            :-1
        ]
        for name, part in zip(SPLITS, np.split(rows, ends), strict=True):
            parts[name].append(part)
    return {name: np.sort(np.concatenate(part)) for name, part in parts.items()}


def split_site(
    cohort: Cohort,
    site_name: str,
    seed: int,
    test_fraction: float = RunSpec.test_fraction,
    val_fraction: float = RunSpec.val_fraction,
    folds: int = 0,
) -> Site:
    """Cut one site into train, validation and test.

    The cut depends on (`seed`, `site_name`) and the site's own subjects alone: subjects are
    sorted by id first, so neither the order of the file nor the other sites matter.

    Parameters
    ----------
    cohort : Cohort
    site_name : str
    seed : int
    test_fraction : float
        Share of each class that is tested (the paper's 7:3 gives 0.3).
    val_fraction : float
        Share of the training part of each class that is set aside for validation.
    folds : int
        k > 0 tests fold ``seed % k`` of the ``seed // k``-th k-fold split instead.

    Returns
    -------
    Site
    """
    test_fraction = 1 / folds if folds else test_fraction
    if not (0 < test_fraction < 1 and 0 <= val_fraction < 1):
        what = f"test_fraction {test_fraction} and val_fraction {val_fraction} cannot be used."
        do = (
            "test_fraction lies between 0 and 1, val_fraction is 0 or more and below 1."
        )
        raise ConfigError(what, do=do)
    members = cohort.select_sites([site_name])
    members = members.select(np.argsort(members.subject_id, kind="stable"))
    _require_splittable(members, site_name, test_fraction, val_fraction, folds)
    repeat, fold = divmod(seed, folds) if folds else (seed, 0)
    rng = numpy_rng(repeat, *["folds"] * bool(folds), "split", site_name)
    part = (fold, folds) if folds else None
    rows = split_rows(members.y, rng, test_fraction, val_fraction, part)
    fractions = {"test_fraction": test_fraction, "val_fraction": val_fraction}
    parts = {name: members.select(r) for name, r in rows.items()}
    site = _site(members, parts, {"site": site_name, "split_seed": seed, **fractions})
    refuse_twins(cohort, [site])
    return site


def _site(members: Cohort, parts: dict[str, Cohort], about: dict[str, Any]) -> Site:
    """Site of these people for train, val and test."""
    ids = {name: tuple(part.subject_id.tolist()) for name, part in parts.items()}
    batches = {
        name: FCBatch.from_numpy(part.fc, part.y) for name, part in parts.items()
    }
    said = {**members.provenance, **about, "split_sha256": split_sha256(ids)}
    covariates = {name: dict(part.covariates) for name, part in parts.items()}
    name = about["site"]
    return Site(
        name, **batches, subject_ids=ids, provenance=said, covariates=covariates
    )


def make_sites(
    cohort: Cohort,
    seed: int,
    names: Sequence[str] | None = None,
    test_fraction: float = RunSpec.test_fraction,
    val_fraction: float = RunSpec.val_fraction,
    folds: int = 0,
) -> dict[str, Site]:
    """Sites of a cohort, split, after `require_valid` has found nothing wrong with them.

    `names` picks and orders the sites; by default all, in the cohort's own order.
    """
    cohort = cohort if names is None else cohort.select_sites(names)
    require_valid(cohort)
    sites = {
        name: split_site(cohort, name, seed, test_fraction, val_fraction, folds)
        for name in cohort.site_names
    }
    refuse_twins(cohort, sites.values())
    return sites


def split_sha256(subject_ids: dict[str, tuple[str, ...]]) -> str:
    """SHA-256 of who is in which split."""
    text = "\x1e".join("\x1f".join([name, *subject_ids[name]]) for name in SPLITS)
    return hashlib.sha256(text.encode()).hexdigest()


def _require_splittable(
    members: Cohort, site: str, test_fraction: float, val_fraction: float, folds: int
) -> None:
    counts = [int((members.y == cls).sum()) for cls in (0, 1)]
    have = f"({counts[0]} controls, {counts[1]} patients)"
    train = min(split_counts(n, test_fraction, val_fraction)[0] for n in counts)
    few = len(members) < MIN_PER_SITE or min(counts) < MIN_PER_CLASS or train < 1
    least = (
        f"At least {MIN_PER_SITE} subjects and {MIN_PER_CLASS} per class are needed."
    )
    both = "A site needs both classes; merge it with another or leave it out."
    again = len(set(members.subject_id.tolist())) != len(members)
    for wrong, what, do in (
        (
            sum(counts) != len(members),
            "has labels other than 0 and 1.",
            "Run `fcforge check`.",
        ),
        (min(counts) == 0, f"has one class only {have}.", both),
        (few, f"is too small to split {have}.", least),
        (
            min(counts) < folds,
            f"has fewer of one class than folds {have}.",
            f"Give at most {min(counts)} folds.",
        ),
        (again, "has a subject id twice.", "Run `fcforge check`."),
    ):
        if wrong:
            raise DataError(what, where=f"site '{site}'", do=do)
