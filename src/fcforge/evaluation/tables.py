"""The results table: one row per learner, the majority row always among them.

T is the number of sites of a run.
AAA is the average over stages (sites learned so far) of the mean accuracy at these sites.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.core.estimate import Estimate
from fcforge.core.result import RunResult, RunResults
from fcforge.core.target import Kind
from fcforge.evaluation import resampling
from fcforge.evaluation.forgetting import finite, intransigence
from fcforge.evaluation.metrics import PRIMARY
from fcforge.evaluation.resampling import N_DRAWS, pair_of

if TYPE_CHECKING:
    import pandas as pd
from fcforge.evaluation.columns import columns_of
from fcforge.evaluation.majority import is_majority, with_majority

UNKNOWN = "not stated"  # what a learner keeps, where results alone are known


@dataclass(frozen=True)
class Row:
    """One learner's row of the results table.

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
        Accuracy that the cumulative (else joint) learner of the same model has more at a site when
        it is learned (`fcforge.evaluation.forgetting.intransigence`); NaN without such a learner.
    memory_bytes, seconds : float
        Largest memory kept between sites, and total training time, mean over runs.
    is_majority : bool
    kind : Kind
        Kind of the target, which decides the columns (`columns_of`).
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


def by_learner(results: RunResults) -> dict[str, list[RunResult]]:
    """Return results by learner title, learners in order of first appearance."""
    groups: dict[str, list[RunResult]] = {}
    for r in results:
        groups.setdefault(r.spec.learner.title, []).append(r)
    return groups


def longest_orders(runs: RunResults) -> list[RunResult]:
    """Return runs whose order has the greatest length: curves over stages need one length."""
    most = max(len(r.spec.order) for r in runs)
    return [r for r in runs if len(r.spec.order) == most]


def _matrices(runs: RunResults) -> dict[tuple, np.ndarray]:
    """Return the matrix (T, T) of the primary metric of every run, by (seed, order)."""
    by_pair = {}
    for batch in resampling.split_batches(runs):
        metric = PRIMARY[batch.runs[0].kind]
        values = batch.values(metric)[:, 1:]
        for run, matrix in zip(batch.runs, values, strict=True):
            by_pair[pair_of(run)] = matrix
    return by_pair


def _a_star(
    groups: Mapping[str, list[RunResult]], model: str
) -> dict[tuple, np.ndarray]:
    """Return the matrices of the learner with all data so far, the reference of intransigence.

    Parameters
    ----------
    groups : mapping of learner title to runs
    model : str
        Name of the model that the reference must have.

    Returns
    -------
    dict of (seed, order) to ndarray of shape (T, T)
        Those of the cumulative learner, else of the joint one; empty without either.
    """
    for method in ("cumulative", "joint"):
        for runs in groups.values():
            learner = runs[0].spec.learner
            if (learner.method.name, learner.model.name) == (method, model):
                return _matrices(runs)
    return {}


def _row(runs: list[RunResult], keeps: str, reference: dict, n_draws: int) -> Row:
    """Return the row of one learner.

    Parameters
    ----------
    runs : list of RunResult
        Runs of the learner.
    keeps : str
        What its method keeps between sites; "" if unknown.
    reference : dict
        Matrices of the learner with all data so far (`_a_star`).
    n_draws : int
        Draws of the bootstrap.
    """
    finite_runs = [r for r in runs if finite(r)]
    majority = is_majority(runs[0])
    differences = []
    if reference:
        for key, matrix in _matrices(finite_runs).items():
            if key in reference:
                diagonal = np.diag(reference[key])
                differences.append(intransigence(matrix, diagonal))
    return Row(
        learner=runs[0].spec.learner.title,
        keeps=keeps or ("statistics" if majority else UNKNOWN),
        n_runs=len(finite_runs),
        n_left_out=len(runs) - len(finite_runs),
        n_orders=len({r.spec.order for r in finite_runs}),
        n_seeds=len({r.spec.seed for r in finite_runs}),
        estimates=_estimates(finite_runs, runs[0].kind, n_draws),
        intransigence=float(np.mean(differences)) if differences else float("nan"),
        memory_bytes=float(np.mean([np.max(r.memory_bytes) for r in runs])),
        seconds=float(np.mean([np.sum(r.seconds) for r in runs])),
        is_majority=majority,
        kind=runs[0].kind,
    )


def _estimates(runs: list[RunResult], kind: Kind, n_draws: int) -> dict[str, Estimate]:
    """Return the estimate of every column by its key; NaN where no run is left."""
    columns = columns_of(kind)
    if not runs:
        nothing = Estimate(np.nan, np.nan, np.nan)
        return {column.key: nothing for column in columns}
    estimates = {}
    for metric in dict.fromkeys(c.metric for c in columns):
        names = tuple(c.summary for c in columns if c.metric == metric)
        estimates[metric] = resampling.estimate(runs, metric, names, n_draws=n_draws)
    return {c.key: estimates[c.metric][c.summary] for c in columns}


def results_rows(
    results: RunResults,
    *,
    keeps: Mapping[str, str] | None = None,
    n_draws: int = N_DRAWS,
) -> list[Row]:
    """Return one `Row` per learner, the majority class first, then by falling AAA.

    Parameters
    ----------
    results : sequence of RunResult
    keeps : mapping of str to str, optional
        What a learner's method keeps between sites, by the learner's title.
    n_draws : int
        Draws of the bootstrap.
    """
    groups = by_learner(with_majority(results, per_site=True))
    references: dict[str, dict] = {}
    rows = []
    for title, runs in groups.items():
        model = runs[0].spec.learner.model.name
        if model not in references:
            references[model] = _a_star(groups, model)
        kept_data = (keeps or {}).get(title, "")
        rows.append(_row(runs, kept_data, references[model], n_draws))
    return sorted(rows, key=_rank)


def _rank(row: Row) -> tuple[float, str]:
    """Return the sort key of a row: majority references first, then learners by falling AAA."""
    if row.is_majority:
        return -np.inf, row.learner
    return -np.nan_to_num(row.estimates["aaa"].value), ""


def results_frame(results: RunResults, **options: Any) -> "pd.DataFrame":
    """Return the table as a DataFrame, one row per learner; options are those of `results_rows`.

    Results do not say what a method keeps: the column ``keeps`` is "not stated" without the option `keeps`,
    which `fcforge.experiments.collect.kept_by` reads from a run folder.

    Every column of `columns_of` gives four: the mean over orders and seeds under its own key,
    and ``_sd`` (over orders), ``_low``, ``_high`` (95 % interval over subjects).
    """
    import pandas as pd

    return pd.DataFrame(records(results_rows(results, **options)))


def records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return flat dicts of the rows, for a DataFrame, CSV or JSON."""
    flat = []
    for row in rows:
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
        flat.append(record)
    return flat
