"""The results table: one row per learner, the majority row always among them."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fcforge.core.component import Component
from fcforge.core.errors import DataError
from fcforge.core.estimate import Estimate
from fcforge.core.result import RunResult, RunResults
from fcforge.core.spec import LearnerSpec
from fcforge.core.target import Kind
from fcforge.evaluation import resampling
from fcforge.evaluation.forgetting import finite, intransigence
from fcforge.evaluation.metrics import PRIMARY
from fcforge.evaluation.resampling import N_DRAWS, pair_of

if TYPE_CHECKING:
    import pandas as pd


class Column(NamedTuple):
    """One number of the table, a row of columns.csv.

    `good` is "high" or "low"; what is not `shown` is in CSV, JSON and the fold of the report.
    """

    key: str
    title: str
    metric: str
    summary: str
    good: str
    shown: str
    help: str


@cache
def columns_of(kind: Kind) -> tuple[Column, ...]:
    """The columns of a target of this kind."""
    wanted = "number" if kind == "number" else "classes"
    text = files("fcforge.evaluation").joinpath("columns.csv").read_text("utf-8")
    rows = csv.reader(text.splitlines())
    return tuple(Column(*row) for target, *row in rows if target == wanted)


@dataclass(frozen=True)
class Row:
    """One learner's line.

    Attributes
    ----------
    learner : str
    keeps : str
        What the method keeps between sites.
    n_runs, n_left_out : int
        Runs behind the numbers; runs left out because their scores are not finite.
    n_orders, n_seeds : int
    estimates : mapping of column key to Estimate
    intransigence : float
        Against the cumulative (else joint) learner of the same model; NaN without one.
    memory_bytes, seconds : float
        Largest memory kept between sites, and total training time, mean over runs.
    is_majority : bool
    kind : Kind
        Of the target; says which columns there are (`columns_of`).
    """

    learner: str
    keeps: str
    n_runs: int
    n_left_out: int
    n_orders: int
    n_seeds: int
    estimates: Mapping[str, Estimate]
    intransigence: float
    memory_bytes: float
    seconds: float
    is_majority: bool
    kind: Kind = "two classes"


def group(results: RunResults) -> dict[str, list[RunResult]]:
    """Results by learner title, learners in order of first appearance."""
    groups: dict[str, list[RunResult]] = {}
    for r in results:
        groups.setdefault(r.spec.learner.title, []).append(r)
    return groups


def longest(runs: RunResults) -> list[RunResult]:
    """Runs whose order has the greatest length: curves over stages need one length."""
    most = max(len(r.spec.order) for r in runs)
    return [r for r in runs if len(r.spec.order) == most]


# -- the references: what knows how common classes are, or the mean number, and no scan ---------
class Words(NamedTuple):
    """What tables, pages and sentences call things, by kind of target.

    Attributes
    ----------
    metric, average : str
        The primary metric, and its average along the way.
    all_sites, own : str
        Titles of the two references of `majority_result`.
    naive : str
        What a hospital does that learns nothing from scans.
    """

    metric: str
    average: str
    all_sites: str
    own: str
    naive: str


_OF_CLASSES = Words(
    "accuracy",
    "AAA",
    "majority class",
    "majority class of each site",
    "always naming each site's commonest class",
)
WORDS: dict[Kind, Words] = {
    "two classes": _OF_CLASSES,
    "more classes": _OF_CLASSES,
    "number": Words(
        "R²",
        "R²",
        "mean of all sites",
        "mean of each site",
        "always saying each site's mean",
    ),
}


def majority_result(result: RunResult, *, own: bool = False) -> RunResult:
    """What the commonest class of the sites learned so far would score on the same splits.

    P(patient) of everybody is the share of patients in the training parts seen so far, each
    site weighted by its number of test subjects (proportional to its training subjects, as all
    sites are split alike). Before learning it is 0.5. With `own` every site has the share of its
    own training part, at every stage: it forgets nothing, and is what a hospital knows by itself.
    Of more classes it is the share of each; of a number its mean, and the untrained model's
    number before learning.
    """
    order = result.spec.order
    n = np.array([len(result.y[s]) for s in order], dtype=float)
    means = {s: np.asarray(mean, dtype=float) for s, mean in result.train_mean.items()}
    weighted = [k * means[s] for k, s in zip(n, order, strict=True)]
    prior = (np.cumsum(weighted, 0).T / np.cumsum(n)).T  # (T,) or (T, K)
    scores = {}
    for site in result.sites:
        share = np.stack([means[site]] * len(order)) if own else prior
        scores[site] = np.repeat(share[:, None], len(result.y[site]), axis=1)
    before = dict(result.initial)
    if result.kind != "number":
        even = 1 / max(2, prior[0].size)
        before = {s: np.full(p.shape, even) for s, p in before.items()}
    title = WORDS[result.kind].own if own else WORDS[result.kind].all_sites
    model = Component("own" if own else "none")
    learner = LearnerSpec(Component("majority"), model, title=title)
    return replace(
        result,
        spec=replace(result.spec, learner=learner),
        scores=scores,
        initial=before,
        memory_bytes=np.full(len(order), 16),  # two counts
        seconds=np.zeros(len(order)),
    )


def with_majority(results: RunResults, *, own: bool = False) -> list[RunResult]:
    """`results` and, unless a majority learner is among them, the majority reference.

    It is computed once for every (dataset, seed, order) that was run. With `own` the commonest
    class of each site by itself is added too.
    """
    if not results:
        raise DataError(
            "there is no finished run to summarise.", do="Run `fcforge run` first."
        )
    known = {r.spec.learner.model.name for r in results if is_majority(r)}
    first: dict[tuple, RunResult] = {}
    for r in results:
        if not is_majority(r):
            first.setdefault(pair_of(r), r)
    found = list(results)
    if own and "own" not in known:
        found = [majority_result(r, own=True) for r in first.values()] + found
    if not known:
        found = [majority_result(r) for r in first.values()] + found
    return found


def is_majority(result: RunResult) -> bool:
    """Whether a run is a majority reference."""
    return result.spec.learner.method.name == "majority"


def _matrices(runs: RunResults) -> dict[tuple, np.ndarray]:
    """Matrix (T, T) of the primary metric of every run, by (seed, order)."""
    found = {}
    for batch in resampling.split_batches(runs):
        metric = PRIMARY[batch.runs[0].kind]
        values = batch.values(metric)[:, 1:]
        for run, matrix in zip(batch.runs, values, strict=True):
            found[pair_of(run)] = matrix
    return found


def _a_star(
    groups: Mapping[str, list[RunResult]], model: str
) -> dict[tuple, np.ndarray]:
    """Matrices of the cumulative (else joint) learner on `model`."""
    for method in ("cumulative", "joint"):
        for runs in groups.values():
            learner = runs[0].spec.learner
            if (learner.method.name, learner.model.name) == (method, model):
                return _matrices(runs)
    return {}


def _row(runs: list[RunResult], keeps: str, star: dict, n_draws: int) -> Row:
    good = [r for r in runs if finite(r)]
    majority = is_majority(runs[0])
    costs = []
    for key, matrix in _matrices(good).items() if star else ():
        if key in star:
            costs.append(intransigence(matrix, np.diag(star[key])))
    return Row(
        learner=runs[0].spec.learner.title,
        keeps=keeps or ("statistics" if majority else "not stated"),
        n_runs=len(good),
        n_left_out=len(runs) - len(good),
        n_orders=len({r.spec.order for r in good}),
        n_seeds=len({r.spec.seed for r in good}),
        estimates=_estimates(good, runs[0].kind, n_draws),
        intransigence=float(np.mean(costs)) if costs else float("nan"),
        memory_bytes=float(np.mean([np.max(r.memory_bytes) for r in runs])),
        seconds=float(np.mean([np.sum(r.seconds) for r in runs])),
        is_majority=majority,
        kind=runs[0].kind,
    )


def _estimates(runs: list[RunResult], kind: Kind, n_draws: int) -> dict[str, Estimate]:
    """Estimate of every column; NaN where no run is left."""
    columns = columns_of(kind)
    if not runs:
        nothing = Estimate(np.nan, np.nan, np.nan)
        return {column.key: nothing for column in columns}
    found = {}
    for metric in dict.fromkeys(c.metric for c in columns):
        names = tuple(c.summary for c in columns if c.metric == metric)
        found[metric] = resampling.estimate(runs, metric, names, n_draws=n_draws)
    return {c.key: found[c.metric][c.summary] for c in columns}


def rows(
    results: RunResults,
    *,
    keeps: Mapping[str, str] | None = None,
    n_draws: int = N_DRAWS,
) -> list[Row]:
    """One `Row` per learner, the majority class first, then by falling AAA.

    Parameters
    ----------
    results : sequence of RunResult
    keeps : mapping of learner title to what its method keeps, optional
    n_draws : int
        Of the bootstrap.
    """
    groups = group(with_majority(results, own=True))
    stars: dict[str, dict] = {}
    found = []
    for title, runs in groups.items():
        model = runs[0].spec.learner.model.name
        if model not in stars:
            stars[model] = _a_star(groups, model)
        kept = (keeps or {}).get(title, "")
        found.append(_row(runs, kept, stars[model], n_draws))
    return sorted(found, key=_rank)


def _rank(row: Row) -> tuple[float, str]:
    """The majority class, that of each site, the learners by falling AAA."""
    if row.is_majority:
        return -np.inf, row.learner
    return -np.nan_to_num(row.estimates["aaa"].value), ""


def table(results: RunResults, **options: Any) -> "pd.DataFrame":
    """The table as a DataFrame, one row per learner; options are those of `rows`.

    Every column of `columns_of` gives four: the mean over orders and seeds under its own key,
    and ``_sd`` (over orders), ``_low``, ``_high`` (95 % interval over subjects).
    """
    import pandas as pd

    return pd.DataFrame(records(rows(results, **options)))


def records(found: Sequence[Row]) -> list[dict[str, Any]]:
    """Flat dicts of the rows, for a DataFrame, CSV or JSON."""
    out = []
    for row in found:
        record: dict[str, Any] = {"learner": row.learner, "keeps": row.keeps}
        for key, e in row.estimates.items():
            record[key] = e.value
            record[f"{key}_sd"] = e.sd_orders
            record[f"{key}_low"] = e.low
            record[f"{key}_high"] = e.high
        record |= {
            "intransigence": row.intransigence,
            "memory_bytes": row.memory_bytes,
            "seconds": row.seconds,
            "runs": row.n_runs,
            "runs_left_out": row.n_left_out,
            "orders": row.n_orders,
            "seeds": row.n_seeds,
        }
        out.append(record)
    return out
