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


class Interval(NamedTuple):
    """Mean over seeds of the mean over sites, with its 95 % t interval over seeds."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95 % t interval of independent values; no interval from one value."""
    x = np.asarray(values, dtype=np.float64)
    x = x[np.isfinite(x)]
    mean = float(x.mean()) if len(x) else math.nan
    if len(x) < 2:
        return Interval(mean, math.nan, math.nan)
    half = float(student.ppf(0.975, len(x) - 1) * x.std(ddof=1)) / math.sqrt(len(x))
    return Interval(mean, mean - half, mean + half)


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


def summarise(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Interval]]:
    """Row name to metric to interval: mean over sites within a seed, interval over seeds."""
    summary: dict[str, dict[str, Interval]] = {}
    for (row, name), seeds in by_seed(records).items():
        summary.setdefault(row, {})[name] = interval(list(seeds.values()))
    return summary


def best_tstr(summary: Mapping[str, Mapping[str, Interval]], row: str) -> float:
    """Best train-on-synthetic accuracy over classifiers (the same rule for the real row)."""
    found = [
        v.mean
        for k, v in summary[row].items()
        if k.startswith("tstr_") and k.endswith("_acc") and math.isfinite(v.mean)
    ]
    return max(found, default=math.nan)


class Requirement(NamedTuple):
    """One requirement on a generator: what was asked, what was found."""

    what: str
    found: float
    asked: str
    ok: bool


def acceptance(
    summary: Mapping[str, Mapping[str, Interval]], row: str
) -> list[Requirement]:
    """The careful generator's requirements on the means over sites and seeds."""
    mine, real = summary[row], summary[REAL]
    ratio = mine["class_difference_r"].mean / real["class_difference_r"].mean
    gap = best_tstr(summary, REAL) - best_tstr(summary, row)
    checks = [
        ("within-class edge variance ratio", mine["variance_ratio"].mean, 0.6, 1.4),
        (
            "edge-mean r with the training subjects",
            mine["edge_mean_r"].mean,
            0.98,
            math.inf,
        ),
        ("class-difference r / real sample's", ratio, 0.8, math.inf),
        ("train-on-real minus train-on-synthetic accuracy", gap, -math.inf, 0.02),
        ("positive semidefinite share", mine["psd_share"].mean, 0.95, math.inf),
    ]
    if "active_units" in mine:
        checks.insert(0, ("active units", mine["active_units"].mean, 8, math.inf))
    return [
        Requirement(what, x, f"[{lo}, {hi}]", bool(lo <= x <= hi))
        for what, x, lo, hi in checks
    ]


def collapse_list(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Collapse warnings, one line per row: how often, and what."""
    total = Counter(record["row"] for record in records)
    found: Counter[tuple[str, str]] = Counter()
    for record in records:
        for text in record["numbers"]["warnings"]:
            what = "no latent unit is active"
            if "variance" in text:
                what = "within-class edge variance is below a fifth of the real one"
            found[record["row"], what] += 1
    return [
        f"{row} COLLAPSED in {n} of {total[row]} trainings (site, seed): {what}."
        for (row, what), n in found.items()
    ]


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
