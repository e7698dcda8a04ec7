"""A run folder as the page shows it: plain means, or the reason why it cannot be read."""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

from fcforge.errors import StoreError
from fcforge.methods import METHODS
from fcforge.metrics import cell_values, finite
from fcforge.runner.collect import collect
from fcforge.runner.experiment import MOST_ORDERS
from fcforge.runner.store import Store
from fcforge.serve.damage import BROKEN, reason
from fcforge.serve.shelf import Item, read_inside, require_inside
from fcforge.stats import group, leaks_on, means, with_majority
from fcforge.text import printable
from fcforge.types import RunResult

MOST_TEXT = 16 << 20
MOST_REPORT = 64 << 20
MOST_RUNS, MOST_NODES, MOST_SCORES = 50_000, 20_000, 64 << 20
COLUMNS = (
    ("aaa", "AAA", "accuracy", "aaa", "accuracy averaged over all stages"),
    ("acc", "Final ACC", "accuracy", "acc", "mean accuracy after the last site"),
    ("bacc", "bACC", "balanced_accuracy", "aaa", "balanced accuracy, as AAA"),
    ("auroc", "AUROC", "auroc", "aaa", "area under the ROC curve, as AAA"),
    ("fm", "Forgetting", "accuracy", "fm", "best minus final accuracy; low is good"),
)


@dataclass(frozen=True)
class LearnerView:
    """One learner of a run.

    Attributes
    ----------
    since : mapping of site to ndarray of shape (2 T - 1,)
        Accuracy at the site, k sites after it was learned, for k = 1 - T .. T - 1; NaN where
        no run has it. Negative k: not learned yet.
    """

    title: str
    keeps: str
    n_runs: int
    n_left_out: int
    means: dict[str, float]
    since: dict[str, np.ndarray]
    is_majority: bool


@dataclass(frozen=True)
class RunView:
    """What is known of a run folder."""

    item: Item
    damage: str = ""
    title: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    sites: tuple[str, ...] = ()
    done: int = 0
    asked: int = 0
    learners: tuple[LearnerView, ...] = ()
    leaks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    has_report: bool = False


def view_run(root: Path, item: Item) -> RunView:
    """Read a run folder; whatever is wrong with it becomes `damage`."""
    try:
        require_inside(root, item.path)
        data = _experiment(root, item.path)
        _check_nodes(item.path)
        results, asked = collect(Store(item.path))
        asked_for = data["experiment"]
        return RunView(
            item=item,
            title=printable(str(asked_for["title"])),
            settings=asked_for,
            sites=tuple(printable(s) for s in data["sites"]),
            done=len(results),
            asked=asked,
            learners=_learners(results),
            leaks=leaks_on(results) if results else {},
            has_report=(item.path / "report.html").is_file(),
        )
    except BROKEN as error:
        return RunView(item, damage=printable(reason(error)))


def report_of(root: Path, item: Item) -> bytes:
    """The run's report page as it is on disk."""
    return read_inside(root, item.path / "report.html", MOST_REPORT)


def _experiment(root: Path, path: Path) -> dict[str, Any]:
    """experiment.json, its size and the number of runs it asks for checked first."""
    data = json.loads(read_inside(root, path / "experiment.json", MOST_TEXT))
    asked = data["experiment"]
    orders, n_sites = asked["orders"], len(data["sites"])
    n_orders = len(orders) if isinstance(orders, list) else MOST_ORDERS
    if not isinstance(orders, list) and n_sites < 8:
        n_orders = math.factorial(n_sites)
    if n_orders * len(asked["learners"]) * len(asked["seeds"]) > MOST_RUNS:
        raise StoreError(f"asks for more than the {MOST_RUNS} runs shown here.")
    return data


def _check_nodes(path: Path) -> None:
    """Raise on links, odd files and sizes that no run writes, before anything is read."""
    nodes = path / "nodes"
    if nodes.is_symlink():
        raise StoreError("its nodes are a link; links are not followed.")
    found = [p for p in nodes.iterdir() if not p.name.startswith(".")] if nodes.is_dir() else []
    if len(found) > MOST_NODES:
        raise StoreError(f"has more than the {MOST_NODES} nodes shown here.")
    for node in found:
        if node.is_symlink():
            raise StoreError(f"node {node.name} is a link; links are not followed.")
        for name in ("meta.json", "scores.npz"):
            info = (node / name).lstat()
            if not stat.S_ISREG(info.st_mode):
                raise StoreError(f"{name} of node {node.name} is a link or no file.")
            if info.st_size > MOST_SCORES:
                raise StoreError(f"{name} of node {node.name} is too large.")
        with ZipFile(node / "scores.npz") as packed:
            if sum(member.file_size for member in packed.infolist()) > MOST_SCORES:
                raise StoreError(f"scores of node {node.name} are too large.")


def _learners(results: Sequence[RunResult]) -> tuple[LearnerView, ...]:
    if not results:
        return ()
    found = []
    for title, runs in group(with_majority(results)).items():
        usable = [run for run in runs if finite(run)]
        spec = runs[0].spec.learner
        known = METHODS.get(spec.method.name)
        numbers = {k: math.nan for k, *_ in COLUMNS}
        if usable:
            numbers = {k: means(usable, m, (s,))[s] for k, _, m, s, _ in COLUMNS}
        found.append(
            LearnerView(
                title=printable(title),
                keeps=known.keeps if known else "?",
                n_runs=len(usable),
                n_left_out=len(runs) - len(usable),
                means=numbers,
                since=_since_learned(usable) if usable else {},
                is_majority=spec.method.name == "majority",
            )
        )
    return tuple(sorted(found, key=lambda v: -np.nan_to_num(v.means["aaa"], nan=-1.0)))


def _since_learned(runs: Sequence[RunResult]) -> dict[str, np.ndarray]:
    """Accuracy at every site k sites after it was learned, mean over orders and seeds."""
    most = max(len(run.spec.order) for run in runs)
    sums = {site: np.zeros((2, 2 * most - 1)) for site in runs[0].sites}
    for run in runs:
        for at, site in enumerate(run.spec.order):
            values = cell_values(run.scores[site], run.y[site], "accuracy")  # (T,)
            place = np.arange(len(values)) - at + most - 1
            sums[site][0, place] += values
            sums[site][1, place] += 1
    with np.errstate(invalid="ignore", divide="ignore"):
        return {printable(site): s[0] / s[1] for site, s in sums.items() if s[1].any()}
