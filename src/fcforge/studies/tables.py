"""The paper's tables from our own runs, with the numbers the paper prints beside them.

Run folders are named as the experiments are (``fcforge run experiments/NAME.toml --out
FOLDER/NAME``); what the paper prints and what a row is compared with stands in
``paper_tables.toml``. Intervals are 95 % over test subjects; differences are paired over orders,
seeds and subjects.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np

from fcforge.metrics import finite
from fcforge.runner.collect import collect, kept_by, stored_plan
from fcforge.runner.store import Store
from fcforge.stats import Comparer, Comparison, Estimate, estimate, group, with_majority
from fcforge.types import RunResult

Runs = list[RunResult]
SUMMARIES = ("aaa", "fm", "for_literal", "acc")
MAJORITY = "majority class"


@dataclass(frozen=True)
class Printed:
    """A table of the paper; the fields are explained in paper_tables.toml."""

    title: str
    printed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    ranked: bool = False
    minus: str = ""
    of: str = ""
    of_row: Mapping[str, str] = field(default_factory=dict)
    leaks: str = ""


def printed_tables() -> dict[str, Printed]:
    """The paper's tables by the name of the experiment."""
    text = files("fcforge.studies").joinpath("paper_tables.toml").read_text(encoding="utf-8")
    found = {}
    for name, table in tomllib.loads(text).items():
        pairs = {k: (float(aaa), float(fm)) for k, (aaa, fm) in table.pop("printed", {}).items()}
        found[name] = Printed(**table, printed=pairs)
    return found


@dataclass(frozen=True)
class Finished:
    """Learners of a run folder all of whose runs are there.

    A learner that was stopped half-way would be a mean over other orders than its rivals'.
    """

    groups: Mapping[str, Runs]
    keeps: Mapping[str, str]
    missing: tuple[str, ...] = ()


def read_folder(folder: str | Path) -> Finished:
    """Finished learners of a run folder."""
    store = Store(folder)
    groups = group(collect(store)[0])
    titles = [spec.learner.title for spec, _ in stored_plan(store)[1].stages]
    whole = {
        k: groups[k] for k in dict.fromkeys(titles) if len(groups.get(k, ())) == titles.count(k)
    }
    return Finished(
        whole, kept_by(store), tuple(k for k in dict.fromkeys(titles) if k not in whole)
    )


@dataclass(frozen=True)
class Line:
    """A learner: the paper's AAA and FOR, ours, and what it is compared with.

    `against` is the AAA of the learner that `difference` is taken from, `leaky` that of the same
    learner with leaks on, `cost` the training time of an order as a multiple of Base's.
    """

    learner: str
    keeps: str
    printed: tuple[float, float] | None
    numbers: Mapping[str, Estimate]
    against: Estimate | None = None
    difference: Comparison | None = None
    leaky: Estimate | None = None
    cost: float = math.nan


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper beside ours."""

    name: str
    title: str
    about: str
    lines: tuple[Line, ...]
    rank_correlation: float


class Numbers:
    """Estimates and comparisons, each computed once."""

    def __init__(self, n_draws: int = 1000) -> None:
        self._n_draws = n_draws
        self._known: dict[int, tuple[Runs, dict[str, Estimate]]] = {}
        self._comparer = Comparer("accuracy", "aaa", n_draws)

    def of(self, runs: Runs) -> dict[str, Estimate]:
        """Summaries of a learner's runs, those that diverged left out; NaN if all did."""
        if id(runs) not in self._known:
            good = [r for r in runs if finite(r)]
            found = dict.fromkeys(SUMMARIES, Estimate(*[math.nan] * 4))
            if good:
                found = estimate(good, "accuracy", SUMMARIES, n_draws=self._n_draws)
            self._known[id(runs)] = (runs, found)
        return self._known[id(runs)][1]

    def minus(self, a: Runs, b: Runs) -> Comparison:
        """Paired difference in AAA."""
        return self._comparer.compare([r for r in a if finite(r)], [r for r in b if finite(r)])


def paper_tables(found: Mapping[str, Finished], n_draws: int = 1000) -> list[PaperTable]:
    """Every table of the paper that there are runs for, by the name of its experiment."""
    numbers = Numbers(n_draws)
    known = {name: table for name, table in printed_tables().items() if name in found}
    return [_table(name, table, found, numbers) for name, table in known.items()]


def _table(
    name: str, asked: Printed, found: Mapping[str, Finished], numbers: Numbers
) -> PaperTable:
    mine = found[name]
    groups = dict(mine.groups)
    if asked.ranked:
        everything = [r for runs in groups.values() for r in runs]
        majority = [
            r for r in with_majority(everything) if r.spec.learner.method.name == "majority"
        ]
        groups = {MAJORITY: majority, **groups}
    base = seconds(groups["Base"]) if "Base" in groups else math.nan
    lines = [_line(k, name, asked, found, numbers, groups[k], base) for k in groups]
    if asked.ranked:
        lines.sort(key=lambda line: (line.learner != MAJORITY, -line.numbers["aaa"].mean))
    return PaperTable(name, asked.title, about(mine), tuple(lines), rank_correlation(lines))


def _line(
    learner: str,
    name: str,
    asked: Printed,
    found: Mapping[str, Finished],
    numbers: Numbers,
    runs: Runs,
    base: float,
) -> Line:
    other = _partner(learner, name, asked, found)
    leaky = found[asked.leaks].groups.get(learner) if asked.leaks in found else None
    on_cpu = learner == MAJORITY or runs[0].environment.get("device") == "cpu"
    return Line(
        learner,
        found[name].keeps.get(learner, "counts"),
        asked.printed.get(learner),
        numbers.of(runs),
        against=numbers.of(other)["aaa"] if other else None,
        difference=numbers.minus(runs, other) if other else None,
        leaky=numbers.of(leaky)["aaa"] if leaky else None,
        cost=math.nan if on_cpu else seconds(runs) / base,
    )


def _partner(learner: str, name: str, asked: Printed, found: Mapping[str, Finished]) -> Runs | None:
    """Runs that a row is compared with; None where they are missing or the row's own."""
    if not asked.minus or learner == MAJORITY:
        return None
    title = asked.minus.format(first=learner.split()[0], row=learner)
    where = asked.of_row.get(learner, asked.of or name)
    if (where, title) == (name, learner) or where not in found:
        return None
    return found[where].groups.get(title)


def seconds(runs: Sequence[RunResult]) -> float:
    """Training time of an order; `joint` trains once, whatever the number of stages."""
    once = runs[0].spec.learner.method.name == "joint"
    return float(np.mean([r.seconds[-1] if once else r.seconds.sum() for r in runs]))


def rank_correlation(lines: Sequence[Line]) -> float:
    """Spearman's correlation of our AAA with the paper's; NaN for fewer than four methods."""
    from scipy.stats import spearmanr

    both = [(line.numbers["aaa"].mean, line.printed[0]) for line in lines if line.printed]
    return float(spearmanr(*zip(*both, strict=True)).statistic) if len(both) >= 4 else math.nan


def about(table: Finished) -> str:
    """Orders, seeds, epochs, precision and device behind a table, and what is missing from it."""
    runs = [r for group in table.groups.values() for r in group]
    orders = len({r.spec.order for r in runs})
    seeds = sorted({r.spec.seed for r in runs})
    epochs = sorted({r.spec.training.epochs for r in runs})
    precision = sorted({str(r.spec.training.precision) for r in runs})
    devices = sorted({str(r.environment.get("gpu", r.environment.get("device"))) for r in runs})
    text = f"{orders} orders, seeds {seeds}, {epochs} epochs, {', '.join(precision)}, {devices}"
    return text + (f"; not finished: {', '.join(table.missing)}" if table.missing else "")
