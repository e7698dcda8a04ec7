"""Tables of learners from stored scores.

Tables are named as the experiments are. Intervals are 95 % over test subjects and trainings; differences
are paired over orders, seeds and subjects, their p-values corrected within the table (Holm).
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import stdev

import bootstrap_intervals
import permutation_p_values

from fcforge.core.estimate import Estimate
from fcforge.core.formatting import bracket, number, p_value, with_interval
from fcforge.core.result import RunResult
from fcforge.evaluation.comparison import Comparer, Comparison, holm
from fcforge.evaluation.forgetting import finite
from fcforge.evaluation.tables import Row, by_learner, results_rows
from fcforge.report.tables import Table

Runs = list[RunResult]


@dataclass(frozen=True)
class Finished:
    """Learners of a run folder all of whose runs are there.

    A learner that was stopped half-way would be a mean over other orders than its rivals'.
    """

    groups: Mapping[str, Runs]
    keeps: Mapping[str, str]
    missing: tuple[str, ...] = ()
    n_draws: int = 500

    @cached_property
    def rows(self) -> dict[str, Row]:
        """Lines of the results table by learner: the majority classes, then by falling AAA."""
        runs = [r for results in self.groups.values() for r in results]
        return {
            r.learner: r
            for r in results_rows(runs, keeps=self.keeps, n_draws=self.n_draws)
        }

    def about(self) -> str:
        """Orders, seeds, epochs, precision and device behind a table, and what is missing."""
        runs = [r for results in self.groups.values() for r in results]
        n_orders, seeds = (
            len({r.spec.order for r in runs}),
            sorted({r.spec.seed for r in runs}),
        )
        epochs = sorted({r.spec.training.epochs for r in runs})
        precision = sorted({str(r.spec.training.precision) for r in runs})
        devices = sorted(
            {str(r.environment.get("gpu", r.environment.get("cpu"))) for r in runs}
        )
        whole = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
        span = f"{seeds[0]} to {seeds[-1]}" if whole else ", ".join(map(str, seeds))
        text = f"{n_orders} orders, seeds {span}, {'/'.join(map(str, epochs))} epochs"
        text = ", ".join([text, *precision, *devices])
        return text + (
            f"; not finished: {', '.join(self.missing)}" if self.missing else ""
        )


def read_folder(folder: str | Path) -> Finished:
    """Return the finished learners of a run folder."""
    # `make tables` reads no run folder, and needs no torch
    from fcforge.experiments.collect import collect, kept_by, stored_plan
    from fcforge.experiments.store import Store

    store = Store(folder)
    groups = by_learner(collect(store)[0])
    titles = [spec.learner.title for spec, _ in stored_plan(store)[1].stages]
    unique = dict.fromkeys(titles)
    whole = {k: groups[k] for k in unique if len(groups.get(k, ())) == titles.count(k)}
    return Finished(whole, kept_by(store), tuple(k for k in unique if k not in whole))


Found = Mapping[str, Finished]


def differences(
    pairs: Mapping[str, tuple[Runs, Runs]], metric: str = "accuracy"
) -> dict[str, Comparison]:
    """Return paired differences in AAA, runs that diverged left out, with Holm's p-values."""
    good = [
        ([r for r in a if finite(r)], [r for r in b if finite(r)])
        for a, b in pairs.values()
    ]
    if not good:
        return {}
    if not sums_over_people(good[0][0], metric):
        comparer = Comparer(metric)
        return dict(zip(pairs, holm([comparer.compare(*g) for g in good]), strict=True))
    chances = permutation_p_values.p_values(good, metric)
    n = permutation_p_values.N_PERMUTATIONS
    made = [
        Comparison(gap.value, gap.low, gap.high, p, n_draws=n)
        for gap, p in zip(
            bootstrap_intervals.intervals(good, metric), chances, strict=True
        )
    ]
    return dict(zip(pairs, holm(made), strict=True))


def sums_over_people(runs: Runs, metric: str) -> bool:
    """Return whether a metric of these runs is a sum over tested people, as `person_shares` needs it."""
    return metric in ("accuracy", "auroc") and runs[0].kind == "two classes"


def corrected(
    groups: Mapping[str, Runs], reference: str, metric: str = "accuracy"
) -> dict[str, Comparison]:
    """Return every learner minus a reference, with p-values corrected for all of them (Holm)."""
    pairs = {
        k: (runs, groups[reference]) for k, runs in groups.items() if k != reference
    }
    return differences(pairs, metric)


def p_text(c: Comparison) -> str:
    """Return the corrected p-value of a comparison as text."""
    return p_value(c.p_holm, c.holm_at_floor)


def difference_text(gap: Estimate | Comparison) -> str:
    """Return a difference with its interval; the sign of a bound near zero can be read.

    A bound that three digits round to zero has as many digits as show its sign, at most six.
    """
    value = gap.difference if isinstance(gap, Comparison) else gap.value
    return f"{number(value, sign=True)} [{_bound(gap.low)}, {_bound(gap.high)}]"


def _bound(value: float) -> str:
    texts = [number(value, digits, sign=True) for digits in range(3, 7)]
    return next((t for t in texts if re.search("[1-9]", t)), texts[0])


KEYS = {
    "AAA": "aaa",
    "final accuracy": "acc",
    "AUROC": "auroc",
    "FM": "fm",
    "FM unb.": "fm_split",
    "bACC": "bacc",
    "FM of bACC": "bacc_fm",
    "FM of AUROC": "auroc_fm",
    "FOR": "for_literal",
}


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a GitHub table."""
    return Table.of(heads, lines).markdown().rstrip()


WITH_INTERVAL = ("aaa", "fm_split", "auroc")


def numbers(
    row: Row | None,
    keys: Sequence[str] = ("aaa", "fm", "fm_split", "for_literal", "auroc"),
) -> list[str]:
    """Return the cells of a learner; some columns with their interval."""
    if row is None:
        return [""] * len(keys)
    return [_cell(row.estimates[k], k in WITH_INTERVAL) for k in keys]


def _cell(e: Estimate, interval: bool) -> str:
    if not math.isfinite(e.value):
        return ""
    return with_interval(e.value, e.low, e.high) if interval else number(e.value)


NONE = "–"
POINT = re.compile(r"l1 (\S+) l2 (\S+) l3 (\S+)")


def grid(name: str, chosen: str, found: Found) -> str:
    """Return AAA over a grid of three weights, its range, and the place of one point in it."""
    points = {}
    for title, row in found[name].rows.items():
        if match := POINT.fullmatch(title):
            points[tuple(map(float, match.groups()))] = row.estimates["aaa"].value
    thirds = sorted({p[2] for p in points})
    pairs = sorted({p[:2] for p in points})
    lines = [
        [f"{a:g}", f"{b:g}", *(number(points[a, b, c]) for c in thirds)]
        for a, b in pairs
    ]
    values = list(points.values())
    mine = points[tuple(map(float, chosen.split()))]
    place = 1 + sum(v > mine for v in values)
    table = markdown(["l1", "l2", *(f"l3 {c:g}" for c in thirds)], lines)
    return (
        f"{table}\n\n{len(values)} points from {number(min(values))} to "
        f"{number(max(values))}, standard deviation {number(stdev(values))}; the paper's choice "
        f"({chosen.replace(' ', ' / ')}) has {number(mine)}, place {place}."
    )


def studies(path: Path, title: str) -> str:
    """Return one table of a file of studies: learners by columns, means with intervals."""
    rows = json.loads(path.read_text())["found"][title]
    columns = list(next(iter(rows.values())))
    lines = [[k, *(_with_interval(row[c]) for c in columns)] for k, row in rows.items()]
    return markdown(["learner", *columns], lines)


def _with_interval(cell: Mapping[str, float | None]) -> str:
    value, low, high = cell.values()
    if value is None:
        return NONE
    whole = float(value).is_integer() and low is None
    text = number(value, 0 if whole else 3)
    return text if low is None else f"{text} {bracket(low, high)}"
