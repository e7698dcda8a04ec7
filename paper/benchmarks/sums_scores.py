r"""Scores behind paper/results/sums.csv and sums_attacks.csv: how they are stored and summarised.

``paper/results/sums.npz`` and ``sums_attacks.npz`` hold what `sums.py` computed for every partition;
the spreadsheets follow from these files alone, without the data (`summary`). No id and no FC is
stored. As in `scores.py` a subject is its place in the sorted list of the data file's ids; ABIDE is
a public list, so this hides nobody.

Both files have these arrays. F counts the data files and C the cells; a cell is one data file, one
number of public subjects and one number of hospitals that contribute. n is the number of subjects
of the file and m the number of tested subjects of a partition.

============= ================ =====================================================================
array         shape            content
============= ================ =====================================================================
``about``     bytes            JSON: format, kind, commit, command, machine, files, cells, titles
``place_F``   (n,)             place of each subject in the sorted list of the file's ids
``site_F``    (n,)             site of each subject, as its place in ``about.sites[F]``
``y_F``       (n,)             diagnosis, 1 for patients
``groups_F``  (4, n)           membership in each of ``about.groups``
``roles_C``   (partitions, n)  0 not used, 1 public, 2 learning, 3 tested
============= ================ =====================================================================

Subjects are in the order of the file throughout, and partitions follow one another. ``sums.npz`` has
for each cell ``ranks_C`` (sum of m, columns): the rank of each tested subject's score among
the tested subjects of its own hospital. Equal scores have equal ranks. AUROC within hospitals
compares subjects of one hospital, so that ranks give it exactly. The columns are the rows of the
table, each with as many columns as it has draws of the noise.

``sums_attacks.npz`` has three arrays for each cell:

- ``chance_C`` (sum of m, rows): P(patient) in steps of 1 / (2^32 - 1), for the calibration error;
- ``ranks_C`` (sum of N, columns): ranks of the scores of an attack among all N learning and tested
  subjects, for attacks with one draw of the noise;
- ``order_C``: for attacks with more draws, N bits per draw. Bit i is 1 if the subject with the i-th
  lowest score was in the sum. Each draw begins at a whole byte. The AUC follows exactly; who had
  which score does not.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scores import UNREADABLE

from fcforge.core.errors import DataError
from fcforge.core.formatting import rounded
from fcforge.core.randomness import numpy_rng
from fcforge_consortium.privacy.noise import ceiling_of

FORMAT = 1
EPSILONS = (None, 8.0, 4.0, 2.0, 1.0)
PUBLIC = "base model alone"
ALONE = "each hospital alone"
POOLED = "pooled ridge"
RESAMPLED = 200
ATTACKS = ("public covariance", "everybody known", "all others known")
GROUPS = ("female", "male", "under 15", "15 and over")
FEWEST_PAIRS = 20  # a subgroup with no more pairs in a partition is left out there
UNUSED, IS_PUBLIC, LEARNING, TESTED = range(4)  # roles in a partition
WHOLE = 2**32 - 1  # steps of a stored probability: none may move to another bin
BINS = 10  # of the expected calibration error


def title(epsilon: float | None, aggregators: bool) -> str:
    """Return the title of a row."""
    form = "two aggregators" if aggregators else "local"
    return f"{form}, exact" if epsilon is None else f"{form}, epsilon {epsilon:g}"


PLANS = {title(e, k): (e, k) for k in (True, False) for e in EPSILONS}


# -- what is stored --------------------------------------------------------------------------------
@dataclass(frozen=True)
class People:
    """Everybody in a data file.

    Parameters
    ----------
    place : ndarray of shape (n,)
        Places in the sorted list of the file's ids.
    site : ndarray of shape (n,), int
        Site, as its place in `sites`.
    y : ndarray of shape (n,)
        Diagnosis.
    groups : ndarray of shape (4, n), bool
        Membership in each of `GROUPS`.
    sites : tuple of str
        Names of the sites.
    """

    place: np.ndarray
    site: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    sites: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """Scores of all partitions of one file, number of public subjects and number of hospitals.

    Parameters
    ----------
    file : str
        Name of the data file.
    public : int
        Number of public subjects to reach.
    hospitals : int or None
        Number of hospitals that contribute; None for all.
    columns : tuple of (str, ..., int)
        Titles of the scores and their numbers of draws: of the row, or of the row and the attack.
    roles : ndarray of shape (partitions, n)
    arrays : mapping of str to ndarray
        ``ranks``, and for attacks ``chance`` and ``order`` (docstring of the module).
    """

    file: str
    public: int
    hospitals: int | None
    columns: tuple[tuple[Any, ...], ...]
    roles: np.ndarray
    arrays: Mapping[str, np.ndarray]

    def place(self) -> dict[str, object]:
        """Return the columns of the spreadsheet that name the cell."""
        return {
            "file": self.file,
            "public": self.public,
            "hospitals": "all" if self.hospitals is None else self.hospitals,
            "partitions": len(self.roles),
        }


@dataclass(frozen=True)
class Stored:
    """Content of sums.npz or sums_attacks.npz."""

    kind: str
    people: Mapping[str, People]
    cells: tuple[Cell, ...]
    about: Mapping[str, Any]


def roles_of(n: int, rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return the roles (n,) of subjects from the rows of public, learning and tested ones."""
    roles = np.full(n, UNUSED, dtype=np.uint8)
    for role, members in zip((IS_PUBLIC, LEARNING, TESTED), rows, strict=True):
        roles[members] = role
    return roles


def ranks_within(scores: np.ndarray, site: np.ndarray) -> np.ndarray:
    """Return the ranks of scores (m, columns) within each site; equal scores have equal ranks."""
    ranks = np.zeros(scores.shape, dtype=np.int64)
    for name in np.unique(site):
        here = site == name
        ranks[here] = np.stack(
            [np.unique(column, return_inverse=True)[1] for column in scores[here].T], 1
        )
    return ranks


def smallest(values: np.ndarray) -> np.ndarray:
    """Return whole numbers in one or two bytes each."""
    if values.max(initial=0) > np.iinfo(np.uint16).max:
        raise ValueError("a rank is too large to be stored.")
    small = values.max(initial=0) <= np.iinfo(np.uint8).max
    return values.astype(np.uint8 if small else np.uint16)


def order_bits(scores: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Return who is in the sum, in the order of scores (N, draws), as packed bits (draws, bytes)."""
    order = np.argsort(scores, axis=0, kind="stable")
    rising = np.take_along_axis(scores, order, 0)
    if (np.diff(rising, axis=0) == 0).any():
        raise ValueError("two subjects have equal scores, which bits cannot store.")
    return np.packbits(inside[order].T, axis=1)


def pack(stored: Stored) -> dict[str, np.ndarray]:
    """Return the arrays of the file, ``about`` first."""
    files = list(stored.people)
    facts = {
        **stored.about,
        "format": FORMAT,
        "kind": stored.kind,
        "files": files,
        "sites": [list(people.sites) for people in stored.people.values()],
        "groups": list(GROUPS),
        "cells": [
            {
                "file": cell.file,
                "public": cell.public,
                "hospitals": cell.hospitals,
                "columns": [list(column) for column in cell.columns],
            }
            for cell in stored.cells
        ],
    }
    text = json.dumps(facts, sort_keys=True).encode()
    arrays = {"about": np.frombuffer(text, dtype=np.uint8)}
    for f, people in enumerate(stored.people.values()):
        arrays[f"place_{f}"] = people.place.astype(np.uint16)
        arrays[f"site_{f}"] = people.site.astype(np.uint8)
        arrays[f"y_{f}"] = people.y.astype(np.uint8)
        arrays[f"groups_{f}"] = people.groups.astype(np.uint8)
    for c, cell in enumerate(stored.cells):
        arrays[f"roles_{c}"] = cell.roles.astype(np.uint8)
        arrays |= {f"{name}_{c}": array for name, array in cell.arrays.items()}
    return arrays


def unpack(arrays: Mapping[str, np.ndarray]) -> Stored:
    """Return what was packed; a ValueError or KeyError if the arrays do not belong together."""
    about = json.loads(arrays["about"].tobytes())
    if about["format"] != FORMAT:
        raise ValueError(f"format {about['format']}, not {FORMAT}")
    kind = about["kind"]
    people = {
        file: People(
            arrays[f"place_{f}"],
            arrays[f"site_{f}"].astype(np.int64),
            arrays[f"y_{f}"].astype(np.int64),
            arrays[f"groups_{f}"].astype(bool),
            tuple(about["sites"][f]),
        )
        for f, file in enumerate(about["files"])
    }
    names = ("ranks",) if kind == "worth" else ("ranks", "chance", "order")
    cells = []
    for c, known in enumerate(about["cells"]):
        cell = Cell(
            known["file"],
            known["public"],
            known["hospitals"],
            tuple(tuple(column) for column in known["columns"]),
            arrays[f"roles_{c}"],
            {name: arrays[f"{name}_{c}"] for name in names},
        )
        _check(cell, kind, len(people[cell.file].y))
        cells.append(cell)
    return Stored(kind, people, tuple(cells), about)


def _check(cell: Cell, kind: str, n: int) -> None:
    """Raise a ValueError if a cell's arrays do not have the sizes that its roles ask for."""
    tested = int((cell.roles == TESTED).sum())
    compared = tested + int((cell.roles == LEARNING).sum())
    ranks = cell.arrays["ranks"].shape
    if kind == "worth":
        wanted = tested, sum(draws for _, draws in cell.columns)
    else:
        wanted = compared, sum(draws == 1 for _, _, draws in cell.columns)
    if cell.roles.shape[1:] != (n,) or ranks != wanted:
        raise ValueError(f"the ranks of {cell.file} do not fit its subjects")
    if kind != "worth":
        lengths = [-(-int((r >= LEARNING).sum()) // 8) for r in cell.roles]
        n_draws = sum(draws for _, _, draws in cell.columns if draws > 1)
        if cell.arrays["order"].shape != (sum(lengths) * n_draws,):
            raise ValueError(f"the orders of {cell.file} do not fit its subjects")
        if len(cell.arrays["chance"]) != tested:
            raise ValueError(
                f"the probabilities of {cell.file} do not fit its subjects"
            )


def read_scores(path: Path) -> Stored:
    """Read sums.npz or sums_attacks.npz."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return unpack({name: archive[name] for name in archive.files})
    except UNREADABLE as error:
        raise DataError(
            f"not a file of scores of sums, damaged, or of another version of fcforge ({error}).",
            where=str(path),
            do="Take it from the repository again.",
        ) from error


# -- what a sum is worth ---------------------------------------------------------------------------
def worth_rows(people: People, cell: Cell) -> list[dict[str, object]]:
    """Return the rows of sums.csv of one cell."""
    n = len(people.y)
    times = numpy_rng(0, "sums people").poisson(1.0, (n, RESAMPLED)).astype(float)
    values: dict[str, list[np.ndarray]] = {name: [] for name, _ in cell.columns}
    groups: dict[str, list[np.ndarray]] = {name: [] for name in values}
    sizes = []
    for roles, ranks in _of_partitions(cell.roles, cell.arrays["ranks"], TESTED):
        test = np.flatnonzero(roles == TESTED)
        ill, well = pairs_of(people.y[test], people.site[test])
        right = right_order(ranks, ill, well, [draws for _, draws in cell.columns])
        areas = resampled(right, times[test[ill]] * times[test[well]])
        members = people.groups[:, test]
        inside = in_groups(right, members[:, ill] & members[:, well])
        for k, name in enumerate(values):
            values[name].append(areas[k])
            groups[name].append(inside[k])
        learn = roles == LEARNING
        n_sites = len(np.unique(people.site[learn]))
        sizes.append([(roles == IS_PUBLIC).sum(), n_sites, learn.sum(), len(test)])
    place = cell.place()
    counts = ("public_people", "mean_hospitals", "learning_people", "tested_people")
    place |= dict(zip(counts, np.mean(sizes, axis=0).tolist(), strict=True))
    return [{**place, **row} for row in summed(values, groups)]


def _of_partitions(
    roles: np.ndarray, values: np.ndarray, lowest: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the roles of every partition and the values of subjects with this role or a higher one."""
    begin = 0
    for each in roles:
        end = begin + int((each >= lowest).sum())
        yield each, values[begin:end]
        begin = end


def pairs_of(y: np.ndarray, site: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of tested subjects of one hospital: patients, and as many controls."""
    together = site[:, None] == site
    ill, well = np.nonzero((y == 1)[:, None] & (y == 0) & together)
    return ill, well


def right_order(
    ranks: np.ndarray, ill: np.ndarray, well: np.ndarray, draws: Sequence[int]
) -> np.ndarray:
    """Return the share of draws (rows, pairs) in which a pair is in the right order; ties count half."""
    higher, lower = ranks[ill], ranks[well]
    right = (higher > lower) + 0.5 * (higher == lower)
    cuts = np.cumsum(draws)[:-1]
    return np.stack([each.mean(1) for each in np.split(right, cuts, axis=1)])


def resampled(right: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return AUROC (rows, 1 + draws): as it is, and with each pair so many times (pairs, draws)."""
    weight = np.concatenate([np.ones((len(weight), 1)), weight], 1)
    return right @ weight / weight.sum(0)


def in_groups(right: np.ndarray, both: np.ndarray) -> np.ndarray:
    """Return AUROC (rows, groups) of pairs whose two subjects are of one group (groups, pairs)."""
    few = both.sum(1) <= FEWEST_PAIRS
    columns = [
        np.full(len(right), np.nan) if none else right[:, pairs].mean(1)
        for none, pairs in zip(few, both, strict=True)
    ]
    return np.stack(columns, 1)


def known_means(each: Sequence[np.ndarray]) -> np.ndarray:
    """Return the means over partitions without those that have no value; NaN if none has one."""
    values = np.array(each)
    with np.errstate(invalid="ignore"):
        return np.nansum(values, axis=0) / np.isfinite(values).sum(axis=0)


def summed(
    results: Mapping[str, list[np.ndarray]], groups: Mapping[str, list[np.ndarray]]
) -> Iterator[dict[str, object]]:
    """Yield means with intervals over partitions and people, paired with the base model alone."""
    values = {name: np.array(v) for name, v in results.items()}
    partitions = len(values[PUBLIC])
    rng = numpy_rng(0, "sums partitions")
    again = rng.integers(partitions, size=(RESAMPLED, partitions))

    def interval(each: np.ndarray) -> tuple[float, float, float]:
        drawn = [each[again[b], 1 + b].mean() for b in range(RESAMPLED)]
        low, high = np.quantile(drawn, [0.025, 0.975])
        return float(each[:, 0].mean()), float(low), float(high)

    gap = (values[POOLED] - values[PUBLIC])[:, 0].mean()
    for name, each in values.items():
        gain = each - values[PUBLIC]
        row: dict[str, object] = {"row": name}
        for key, measured in (("auroc", each), ("gain", gain)):
            ends = (key, f"{key}_low", f"{key}_high")
            row |= dict(zip(ends, interval(measured), strict=True))
        row["gap_closed"] = float(gain[:, 0].mean() / gap)
        row |= dict(zip(GROUPS, known_means(groups[name]).tolist(), strict=True))
        yield row


# -- attacks and calibration -----------------------------------------------------------------------
def attack_rows(people: People, cell: Cell) -> list[dict[str, object]]:
    """Return the rows of sums_attacks.csv of one cell."""
    names = (PUBLIC, *PLANS)
    values: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    order = 0
    chances = _of_partitions(cell.roles, cell.arrays["chance"], TESTED)
    ranked = _of_partitions(cell.roles, cell.arrays["ranks"], LEARNING)
    for (roles, chance), (_, ranks) in zip(chances, ranked, strict=True):
        y = people.y[roles == TESTED]
        inside = roles[roles >= LEARNING] == LEARNING
        found = [
            {"ece": calibration(p, y)} | dict.fromkeys(ATTACKS, np.nan)
            for p in chance.T / WHOLE
        ]
        column = 0
        for name, attack, draws in cell.columns:
            if draws == 1:
                area = area_of_ranks(ranks[:, column], inside)
                column += 1
            else:
                length = draws * (-(-len(inside) // 8))
                packed = cell.arrays["order"][order : order + length]
                area = area_of_order(packed.reshape(draws, -1), len(inside))
                order += length
            found[names.index(name)][attack] = area
        for name, each in zip(names, found, strict=True):
            values[name].append(each)
    rows = []
    for name, each in values.items():
        place = {k: v for k, v in cell.place().items() if k != "hospitals"}
        means = {k: float(np.mean([v[k] for v in each])) for k in ("ece", *ATTACKS)}
        ceiling = ceiling_of(PLANS[name][0]) if name in PLANS else np.nan
        rows.append({**place, "row": name, **means, "ceiling": ceiling})
    return rows


def calibration(p: np.ndarray, y: np.ndarray) -> float:
    """Return the expected calibration error over ten bins of the probability."""
    place = np.minimum((BINS * p).astype(int), BINS - 1)
    results = 0.0
    for k in range(BINS):
        here = place == k
        if here.any():
            results += here.mean() * abs(p[here].mean() - y[here].mean())
    return float(results)


def area_of_ranks(ranks: np.ndarray, inside: np.ndarray) -> float:
    """Return the AUC of ranks (N,) that should be higher for subjects who are in; ties count half."""
    outside = np.sort(ranks[~inside])
    below = np.searchsorted(outside, ranks[inside], "left")
    not_above = np.searchsorted(outside, ranks[inside], "right")
    return float((below + not_above).mean() / 2 / len(outside))


def area_of_order(packed: np.ndarray, n: int) -> float:
    """Return the mean AUC over draws from `order_bits` (draws, bytes) of n subjects."""
    inside = np.unpackbits(packed, axis=1, count=n).astype(bool)
    below = np.cumsum(~inside, axis=1)
    wins = (below * inside).sum(1)
    return float((wins / inside.sum(1) / (~inside).sum(1)).mean())


# -- spreadsheets ----------------------------------------------------------------------------------
def rows_of_cell(stored: Stored, number: int) -> list[dict[str, object]]:
    """Return the rows of the spreadsheet of one cell."""
    cell = stored.cells[number]
    rows = worth_rows if stored.kind == "worth" else attack_rows
    return rows(stored.people[cell.file], cell)


def summary(stored: Stored) -> list[dict[str, object]]:
    """Return all rows of the spreadsheet."""
    cells = range(len(stored.cells))
    return [row for number in cells for row in rows_of_cell(stored, number)]


def sheet(rows: Iterable[Mapping[str, object]]) -> str:
    """Return rows as CSV, numbers to five digits."""
    plain = [
        {k: rounded(v, 5) if isinstance(v, float) else v for k, v in row.items()}
        for row in rows
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, plain[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    return text.getvalue()
