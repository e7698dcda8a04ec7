"""Summary of the records of judged generators, and the paper's own numbers.

A record holds the numbers of one row (generator), site and seed. The paper's numbers are of 1:1
augmentation on ABIDE (appendix, ASD columns); they are in paper.csv.
"""

import csv
import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from fcforge.core.errors import DataError
from fcforge.core.estimate import Estimate
from fcforge.core.files import whole_file

Records = Sequence[Mapping[str, Any]]  # numbers of a row, site and seed each
REAL = "real"
FEWEST_SEEDS = 5  # a t interval over fewer is too wide to be of use

# Range of a metric, by the end of its name; intervals are cut to it.
SHARES = ("_acc", "_pre", "_rec", "_f1", "_auc", "_share", "precision", "recall")
POSSIBLE = {
    (0.0, 1.0): (
        *SHARES,
        "coverage",
        "strength",
        "clustering",
        "efficiency",
        "modularity",
    ),
    (-1.0, 1.0): ("_r",),
    (0.0, math.inf): ("_ratio", "_norm", "_distance", "density", "active_units"),
}


def possible(metric: str) -> tuple[float, float]:
    """Return the smallest and largest value that a metric can have."""
    for limits, ends in POSSIBLE.items():
        if metric.endswith(ends):
            return limits
    return -math.inf, math.inf


def interval(
    values: Sequence[float], limits: tuple[float, float] = (-math.inf, math.inf)
) -> Estimate:
    """Return the mean of independent values and its 95 % t interval, cut to `limits`.

    Values that are not finite are left out. There is no interval from fewer than `FEWEST_SEEDS`.
    """
    x = np.asarray(values, dtype=np.float64)
    x = x[np.isfinite(x)]
    mean = float(x.mean()) if len(x) else math.nan
    if len(x) < FEWEST_SEEDS:
        return Estimate(mean, math.nan, math.nan)
    quantile = student.ppf(0.975, len(x) - 1)
    half = float(quantile * x.std(ddof=1)) / math.sqrt(len(x))
    low, high = np.clip((mean - half, mean + half), *limits)
    return Estimate(mean, float(low), float(high))


def by_seed(records: Records) -> dict[tuple[str, str], dict[int, float]]:
    """Return the mean over sites of every row and metric, seed by seed."""
    cells: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for record in records:
        for name, value in {**record["diagnostics"], **record["numbers"]}.items():
            if isinstance(value, int | float):  # not the list of warnings
                cells[record["row"], name, record["seed"]].append(float(value))
    means: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for (row, name, seed), values in cells.items():
        means[row, name][seed] = float(np.mean(values))
    return means


def summarise(records: Records) -> dict[str, dict[str, Estimate]]:
    """Return every row's metrics: mean over sites within a seed, interval over seeds."""
    summary: dict[str, dict[str, Estimate]] = {}
    for (row, name), seeds in by_seed(records).items():
        summary.setdefault(row, {})[name] = interval(
            list(seeds.values()), possible(name)
        )
    return summary


def collapse_list(records: Records) -> list[str]:
    """Return a sentence for every collapsed generator: how often and in what way."""
    total = Counter(record["row"] for record in records)
    counts: Counter[tuple[str, str]] = Counter()
    for record in records:
        for warning in record["numbers"]["warnings"]:
            counts[record["row"], warning] += 1
    collapsed = []
    for (row, warning), n in counts.items():
        often = f"{n} of {total[row]} trainings (site, seed)"
        collapsed.append(f"{row} COLLAPSED in {often}: {warning}.")
    return collapsed


@cache
def _printed() -> dict[tuple[str, str], str]:
    """Return the paper's numbers by (classifier, row), those of a cell joined by slashes."""
    path = files("fcforge.evaluation.generator_quality").joinpath("paper.csv")
    rows = csv.reader(path.read_text(encoding="utf-8").splitlines()[1:])
    return {(classifier, row): " / ".join(cells) for classifier, row, *cells in rows}


def published(classifier: str, row: str) -> str:
    """Return the paper's cell, e.g. ``0.726 / 0.753 / 0.669 / 0.683``, or a dash."""
    return _printed().get((classifier, row), "–")


# -- files of a judged folder -----------------------------------------------------------------
RECORDS = "records.json"
PORTRAITS = "portraits.npz"


class Portraits(NamedTuple):
    """Data of the figures: arrays with one entry per row of the tables.

    Attributes
    ----------
    rows : ndarray of shape (m,)
        Titles of the m rows.
    control, patient : ndarray of shape (m, R, R)
        A typical FC matrix of each class.
    edge_mean : ndarray of shape (m, E)
        Mean of each edge.
    spectrum : ndarray of shape (m, R)
        Mean eigenvalues, largest first.
    systems : ndarray of shape (R,)
        Brain system of every ROI; empty where the atlas is not known.
    where : ndarray of shape ()
        Site and seed of the subjects, as a caption.
    """

    rows: np.ndarray
    control: np.ndarray
    patient: np.ndarray
    edge_mean: np.ndarray
    spectrum: np.ndarray
    systems: np.ndarray
    where: np.ndarray


@dataclass(frozen=True)
class Judgement:
    """Contents of a folder of `fcforge judge`: records, and the data of the figures."""

    title: str
    records: Records
    portraits: Portraits


def write_portraits(folder: Path, portraits: Portraits) -> None:
    """Write the data of the figures into the folder, whole or not at all."""
    with whole_file(folder / PORTRAITS) as part:
        np.savez_compressed(part, **portraits._asdict())


def read_judgement(folder: Path) -> Judgement:
    """Read the results of `fcforge judge` from a folder."""
    if not ((folder / RECORDS).exists() and (folder / PORTRAITS).exists()):
        raise DataError(
            f"holds no finished judgement ({RECORDS} and {PORTRAITS}).",
            where=folder,
            do="Run `fcforge judge CONFIG --out FOLDER` first.",
        )
    stored = json.loads((folder / RECORDS).read_text(encoding="utf-8"))
    records = [record for site in stored["sites"].values() for record in site]
    with np.load(folder / PORTRAITS, allow_pickle=False) as portraits:
        return Judgement(stored["title"], records, Portraits(**portraits))
