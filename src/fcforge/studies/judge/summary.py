"""What records of judged generators come to, and what the paper prints: 1:1 augmentation on ABIDE.

The paper's numbers (appendix, ASD columns) stand in paper.csv.
"""

import csv
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from fcforge.types import Estimate

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
SHARE = (0.0, 1.0)
POSSIBLE = {
    "_acc": SHARE,
    "_pre": SHARE,
    "_rec": SHARE,
    "_f1": SHARE,
    "_auc": SHARE,
    "_share": SHARE,
    "precision": SHARE,
    "recall": SHARE,
    "coverage": SHARE,
    "topology_strength": SHARE,
    "topology_clustering": SHARE,
    "topology_efficiency": SHARE,
    "topology_modularity": SHARE,
    "_r": (-1.0, 1.0),
    "_r_test": (-1.0, 1.0),
    "_r_train": (-1.0, 1.0),
    "_ratio": (0.0, math.inf),
    "_norm": (0.0, math.inf),
    "_distance": (0.0, math.inf),
    "_mae": (0.0, math.inf),
    "density": (0.0, math.inf),
    "active_units": (0.0, math.inf),
}


def possible(metric: str) -> tuple[float, float]:
    """Smallest and largest value that a metric can have."""
    found = (limits for end, limits in POSSIBLE.items() if metric.endswith(end))
    return next(found, (-math.inf, math.inf))


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
    half = float(student.ppf(0.975, len(x) - 1) * x.std(ddof=1)) / math.sqrt(len(x))
    low, high = np.clip((mean - half, mean + half), *limits)
    return Estimate(mean, float(low), float(high))


def by_seed(
    records: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, str], dict[int, float]]:
    """Row and metric to its mean over sites, seed by seed."""
    cells: dict[tuple[str, str], dict[int, list[float]]] = {}
    for record in records:
        for name, value in {**record["diagnostics"], **record["numbers"]}.items():
            if isinstance(value, int | float):
                seeds = cells.setdefault((record["row"], name), defaultdict(list))
                seeds[record["seed"]].append(float(value))
    return {
        k: {s: float(np.mean(v)) for s, v in seeds.items()}
        for k, seeds in cells.items()
    }


def summarise(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Estimate]]:
    """Row name to metric to interval: mean over sites within a seed, interval over seeds."""
    summary: dict[str, dict[str, Estimate]] = {}
    for (row, name), seeds in by_seed(records).items():
        summary.setdefault(row, {})[name] = interval(
            list(seeds.values()), possible(name)
        )
    return summary


def best_tstr(summary: Mapping[str, Mapping[str, Estimate]], row: str) -> float:
    """Best train-on-synthetic accuracy over classifiers (the same rule for the real row)."""
    found = [
        v.value
        for k, v in summary[row].items()
        if k.startswith("tstr_") and k.endswith("_acc") and math.isfinite(v.value)
    ]
    return max(found, default=math.nan)


class Requirement(NamedTuple):
    """One requirement on a generator: what was asked, what was found."""

    what: str
    found: float
    asked: str
    ok: bool


def acceptance(
    summary: Mapping[str, Mapping[str, Estimate]], row: str
) -> list[Requirement]:
    """The careful generator's requirements on the means over sites and seeds."""
    mine = summary[row]
    real = summary[REAL]
    ratio = mine["class_difference_r"].value / real["class_difference_r"].value
    gap = best_tstr(summary, REAL) - best_tstr(summary, row)
    checks = [
        ("within-class edge variance ratio", mine["variance_ratio"].value, 0.6, 1.4),
        (
            "edge-mean r with the training subjects",
            mine["edge_mean_r"].value,
            0.98,
            math.inf,
        ),
        ("class-difference r / real sample's", ratio, 0.8, math.inf),
        ("train-on-real minus train-on-synthetic accuracy", gap, -math.inf, 0.02),
        ("positive semidefinite share", mine["psd_share"].value, 0.95, math.inf),
    ]
    if "active_units" in mine:
        checks.insert(0, ("active units", mine["active_units"].value, 8, math.inf))
    return [
        Requirement(what, x, f"[{lo}, {hi}]", bool(lo <= x <= hi))
        for what, x, lo, hi in checks
    ]


class Collapse(NamedTuple):
    """A generator that collapsed, and how often and in what way."""

    row: str
    text: str


def collapse_list(records: Sequence[Mapping[str, Any]]) -> list[Collapse]:
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
    return {(classifier, row): " / ".join(four) for classifier, row, *four in lines}


def published(classifier: str, row: str) -> str:
    """``0.726 / 0.753 / 0.669 / 0.683``, a dash where the paper has no such cell."""
    return _printed().get((classifier, row), "–")
