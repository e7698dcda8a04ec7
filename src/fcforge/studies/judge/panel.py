"""All generators on all sites and seeds: records, then a table with intervals over seeds."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import t as student

from fcforge.generators import make_generator
from fcforge.generators.cache import fit_cached
from fcforge.randomness import torch_rng
from fcforge.studies.judge.core import collapse_warnings, judge_fidelity
from fcforge.studies.judge.utility import Task, add_utility
from fcforge.types import Component, FCBatch, Site, Training

REAL = "real"
REFERENCES = {"bootstrap": Component("bootstrap"), "corr_gauss": Component("corr_gauss")}


class Interval(NamedTuple):
    """Mean over seeds of the mean over sites, with its 95 % t interval over seeds."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Panel:
    """What is judged, and how.

    Attributes
    ----------
    generators : mapping of row name to Component
        The real/real, bootstrap and corr_gauss rows are always added.
    classifiers : tuple of str
        For train-on-synthetic-test-on-real.
    augment : tuple of str
        For 1:1 augmentation.
    multiple : int
        Synthetic subjects per training subject (diagnoses as in the training part).
    training : Training
        Of the network classifiers.
    lanes : int
        Classifiers trained side by side on a GPU.
    """

    generators: Mapping[str, Component]
    classifiers: tuple[str, ...] = ("linear", "gcn")
    augment: tuple[str, ...] = ()
    multiple: int = 4
    training: Training = field(default_factory=Training)
    lanes: int = 32

    @property
    def rows(self) -> dict[str, Component | None]:
        """Row names and generators; None is the real/real row."""
        extra = {k: v for k, v in REFERENCES.items() if k not in self.generators}
        return {REAL: None, **extra, **self.generators}


Made = tuple[FCBatch, dict[str, Any]]
Maker = Callable[[Component, FCBatch, str, int], Made]


def synthesise(
    component: Component,
    train: FCBatch,
    site: str,
    seed: int,
    *,
    multiple: int = 4,
    folder: Path | None = None,
) -> Made:
    """Synthetic subjects, `multiple` per training subject, and the generator's diagnostics."""
    generator = make_generator(component)
    state = fit_cached(generator, train, (seed, site), folder)
    rng = torch_rng(seed, "judge", site, component.name)
    return generator.sample(state, train.y.repeat(multiple), rng), dict(
        generator.diagnostics(state)
    )


def judge_site(
    panel: Panel,
    sites: Mapping[int, Site],
    device: torch.device | str = "cpu",
    make: Maker | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Records of all rows and seeds of one site.

    Parameters
    ----------
    panel : Panel
    sites : mapping of seed to Site
        The same site, split by each seed.
    device : torch.device or str
    make : callable, optional
        (generator, training subjects, site, seed) to synthetic subjects; `synthesise` by
        default.
    say : callable
        Told what is going on.
    """
    make = make or partial(synthesise, multiple=panel.multiple)
    records: list[dict[str, Any]] = []
    tasks: dict[str, list[Task]] = {"tstr": [], "aug": []}
    for seed, site in sites.items():
        train, test = (to_device(b, device) for b in (site.learning(with_val=True), site.test))
        for row, component in panel.rows.items():
            made = make(component, train, site.name, seed) if component else (train, {})
            synthetic = to_device(made[0], device)
            numbers = judge_fidelity(train, test, synthetic, seed=seed)
            said = {**numbers, "warnings": collapse_warnings(numbers, made[1])}
            place = {"site": site.name, "seed": seed, "row": row}
            records.append({**place, "diagnostics": dict(made[1]), "numbers": said})
            tasks["tstr"].append(Task(synthetic, test, seed))
            tasks["aug"].append(Task(augment(row, train, synthetic), test, seed))
            say(f"{site.name} seed {seed} {row}: judged")
    found = [record["numbers"] for record in records]
    for prefix, models in (("tstr", panel.classifiers), ("aug", panel.augment)):
        add_utility(found, prefix, tasks[prefix], models, panel.training, device, panel.lanes)
    return records


def augment(row: str, train: FCBatch, synthetic: FCBatch) -> FCBatch:
    """Real subjects plus as many synthetic ones; the real row stays as it is."""
    if row == REAL:
        return train
    return FCBatch.concat([train, synthetic.select(slice(0, len(train)))])


def to_device(batch: FCBatch, device: torch.device | str) -> FCBatch:
    """The subjects on a device."""
    return FCBatch(batch.fc.to(device), batch.y.to(device))


def interval(values: Sequence[float]) -> Interval:
    """Mean and 95 % t interval of independent values; no interval from one value."""
    x = np.asarray(values, dtype=np.float64)
    x = x[np.isfinite(x)]
    mean = float(x.mean()) if len(x) else math.nan
    if len(x) < 2:
        return Interval(mean, math.nan, math.nan)
    half = float(student.ppf(0.975, len(x) - 1) * x.std(ddof=1)) / math.sqrt(len(x))
    return Interval(mean, mean - half, mean + half)


def by_seed(records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[int, float]]:
    """Row and metric to its mean over sites, seed by seed."""
    cells: dict[tuple[str, str], dict[int, list[float]]] = {}
    for record in records:
        for name, value in {**record["diagnostics"], **record["numbers"]}.items():
            if isinstance(value, int | float):
                seeds = cells.setdefault((record["row"], name), defaultdict(list))
                seeds[record["seed"]].append(float(value))
    return {k: {s: float(np.mean(v)) for s, v in seeds.items()} for k, seeds in cells.items()}


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


def acceptance(summary: Mapping[str, Mapping[str, Interval]], row: str) -> list[Requirement]:
    """The careful generator's requirements on the means over sites and seeds."""
    mine, real = summary[row], summary[REAL]
    ratio = mine["class_difference_r"].mean / real["class_difference_r"].mean
    gap = best_tstr(summary, REAL) - best_tstr(summary, row)
    checks = [
        ("within-class edge variance ratio", mine["variance_ratio"].mean, 0.6, 1.4),
        ("edge-mean r with the training subjects", mine["edge_mean_r"].mean, 0.98, math.inf),
        ("class-difference r / real sample's", ratio, 0.8, math.inf),
        ("train-on-real minus train-on-synthetic accuracy", gap, -math.inf, 0.02),
        ("positive semidefinite share", mine["psd_share"].mean, 0.95, math.inf),
    ]
    if "active_units" in mine:
        checks.insert(0, ("active units", mine["active_units"].mean, 8, math.inf))
    return [
        Requirement(what, x, f"[{lo}, {hi}]", bool(lo <= x <= hi)) for what, x, lo, hi in checks
    ]
