"""What records of judged generators come to, and what the paper prints: 1:1 augmentation on ABIDE.

The paper's numbers (appendix, ASD columns) stand in paper.csv.
"""

import csv
import io
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from fcforge.files import write_bytes
from fcforge.types import Estimate

Records = Sequence[Mapping[str, Any]]  # numbers of a row, site and seed each
REAL = "real"
# Rows of the judge and what the paper calls them.
OPTIONS = {
    REAL: "No augmentation",
    "regate": "ReGate",
    "brainnetgan": "BrainNetGAN",
    "gr_spd_gan": "GR-SPD-GAN",
    "fcm_vae": "FCM-VAE",
}
WITHOUT = ("w/o node feature", "w/o LAE", "w/o SGE")
ABLATIONS = {"fcm_vae": "full framework", **dict(zip(WITHOUT, WITHOUT, strict=True))}


FEWEST_SEEDS = 5  # a t interval over fewer is wider than anything it could say

# What a metric can be, by the end of its name; an interval says nothing beyond that.
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
    (-1.0, 1.0): ("_r", "_r_test"),
    (0.0, math.inf): ("_ratio", "_norm", "_distance", "density", "active_units"),
}


def possible(metric: str) -> tuple[float, float]:
    """Smallest and largest value that a metric can have."""
    for limits, ends in POSSIBLE.items():
        if metric.endswith(ends):
            return limits
    return -math.inf, math.inf


def interval(
    values: Sequence[float], limits: tuple[float, float] = (-math.inf, math.inf)
) -> Estimate:
    """Mean of independent values and its 95 % t interval, within what is possible.

    There is no interval from fewer than `FEWEST_SEEDS` values.
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
    """Row and metric to its mean over sites, seed by seed."""
    cells: dict[tuple[str, str], dict[int, list[float]]] = {}
    for record in records:
        for name, value in {**record["diagnostics"], **record["numbers"]}.items():
            if isinstance(value, int | float):
                seeds = cells.setdefault((record["row"], name), defaultdict(list))
                seeds[record["seed"]].append(float(value))
    means = {}
    for cell, seeds in cells.items():
        means[cell] = {seed: float(np.mean(values)) for seed, values in seeds.items()}
    return means


def summarise(records: Records) -> dict[str, dict[str, Estimate]]:
    """Row name to metric to interval: mean over sites within a seed, interval over seeds."""
    summary: dict[str, dict[str, Estimate]] = {}
    for (row, name), seeds in by_seed(records).items():
        summary.setdefault(row, {})[name] = interval(
            list(seeds.values()), possible(name)
        )
    return summary


class Collapse(NamedTuple):
    """A generator that collapsed, and how often and in what way."""

    row: str
    text: str


def collapse_list(records: Records) -> list[Collapse]:
    """What collapsed, row by row."""
    total = Counter(record["row"] for record in records)
    found: Counter[tuple[str, str]] = Counter()
    for record in records:
        for what in record["numbers"]["warnings"]:
            found[record["row"], what] += 1
    collapsed = []
    for (row, what), n in found.items():
        often = f"{n} of {total[row]} trainings (site, seed)"
        collapsed.append(Collapse(row, f"{row} COLLAPSED in {often}: {what}."))
    return collapsed


@cache
def _printed() -> dict[tuple[str, str], str]:
    text = (
        files("fcforge.studies.judge").joinpath("paper.csv").read_text(encoding="utf-8")
    )
    _, *lines = csv.reader(text.splitlines())
    found = {}
    for classifier, row, *four in lines:
        found[classifier, row] = " / ".join(four)
    return found


def published(classifier: str, row: str) -> str:
    """``0.726 / 0.753 / 0.669 / 0.683``, a dash where the paper has no such cell."""
    return _printed().get((classifier, row), "–")


# -- what the figures show, and the file it is kept in ----------------------------------------
class Portrait(NamedTuple):
    """What the figures need of one row: an example of each class, means and spectrum.

    `systems` names the brain system of every ROI; empty where the atlas is not known.
    """

    control: np.ndarray
    patient: np.ndarray
    edge_mean: np.ndarray
    spectrum: np.ndarray
    systems: np.ndarray = np.empty(0, dtype=np.str_)


def write_portraits(path: Path, portraits: Mapping[str, Portrait]) -> None:
    """Keep what the figures show, for ``fcforge report --judge``."""
    arrays = {}
    for i, (name, p) in enumerate(portraits.items()):
        for field, value in p._asdict().items():
            kept = value if value.dtype.kind == "U" else value.astype(np.float32)
            arrays[f"{i}|{name}|{field}"] = kept
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    write_bytes(path, stream.getvalue())


def read_portraits(path: Path) -> dict[str, Portrait]:
    """Inverse of `write_portraits`."""
    parts: dict[str, dict[str, np.ndarray]] = {}
    with np.load(path, allow_pickle=False) as found:
        keys = [key.split("|") for key in found.files]
        for place, name, field in sorted(keys, key=lambda key: int(key[0])):
            of_row = parts.setdefault(name, {})
            of_row[field] = found[f"{place}|{name}|{field}"]
    return {name: Portrait(**fields) for name, fields in parts.items()}
