"""The results table: one row per learner, the majority row always among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.errors import DataError
from fcforge.metrics import Runs, cell_values, finite, majority_result
from fcforge.metrics.cells import PRIMARY
from fcforge.metrics.continual import intransigence
from fcforge.stats import resampling
from fcforge.stats.resampling import N_DRAWS
from fcforge.types import Estimate, Kind, RunResult

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Column:
    """One number of the table: a summary of a metric, and which way is good."""

    key: str
    title: str
    metric: str
    summary: str
    higher_is_better: bool
    help: str
    extra: bool = False
    """Whether only CSV, JSON and the fold of the report show it."""


COLUMNS: tuple[Column, ...] = (
    Column("aaa", "AAA", "accuracy", "aaa", True, "accuracy averaged over all stages"),
    Column(
        "acc", "Final ACC", "accuracy", "acc", True, "mean accuracy after the last site"
    ),
    Column(
        "bacc", "bACC", "balanced_accuracy", "aaa", True, "balanced accuracy, as AAA"
    ),
    Column("auroc", "AUROC", "auroc", "aaa", True, "area under the ROC curve, as AAA"),
    Column(
        "fm",
        "FM",
        "accuracy",
        "fm",
        False,
        "forgetting (Chaudhry 2018): best minus final",
    ),
    Column(
        "fm_split",
        "FM unb.",
        "accuracy",
        "fm_split",
        False,
        "FM without luck: the best stage "
        "chosen on half of the subjects, measured on the others",
        extra=True,
    ),
    Column(
        "bacc_fm",
        "bACC FM",
        "balanced_accuracy",
        "fm",
        False,
        "balanced accuracy lost",
        True,
    ),
    Column("auroc_fm", "AUROC FM", "auroc", "fm", False, "AUROC lost", extra=True),
    Column(
        "for_triangular",
        "FOR tri.",
        "accuracy",
        "for_triangular",
        False,
        "FM × (T-1)/T",
    ),
    Column(
        "for_literal",
        "FOR lit.",
        "accuracy",
        "for_literal",
        False,
        "FOR as in the paper",
    ),
    Column(
        "bwt",
        "BWT",
        "accuracy",
        "bwt",
        True,
        "backward transfer: final minus just learned",
    ),
    Column(
        "fwt",
        "FWT",
        "accuracy",
        "fwt",
        True,
        "zero-shot gain over the untrained network",
    ),
)


NUMBER_COLUMNS: tuple[Column, ...] = (
    Column("aaa", "R²", "r2", "aaa", True, "R² at a site, averaged over all stages"),
    Column("acc", "Final R²", "r2", "acc", True, "mean R² after the last site"),
    Column("mae", "MAE", "mae", "aaa", False, "mean absolute error, averaged as R²"),
    Column("spearman", "Spearman", "spearman", "aaa", True, "rank correlation, as R²"),
    Column("fm", "FM", "r2", "fm", False, "R² lost: best minus final"),
    Column("bwt", "BWT", "r2", "bwt", True, "R²: final minus just learned"),
)


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """The columns of a target of this kind."""
    return NUMBER_COLUMNS if kind == "number" else COLUMNS


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


def group(results: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """Results by learner title, learners in order of first appearance."""
    groups: dict[str, list[RunResult]] = {}
    for r in results:
        groups.setdefault(r.spec.learner.title, []).append(r)
    return groups


def longest(runs: Sequence[RunResult]) -> list[RunResult]:
    """Runs whose order has the greatest length: curves over stages need one length."""
    most = max(len(r.spec.order) for r in runs)
    return [r for r in runs if len(r.spec.order) == most]


def with_majority(
    results: Sequence[RunResult], *, own: bool = False
) -> list[RunResult]:
    """`results` and, unless a majority learner is among them, the majority reference.

    It is computed once for every (dataset, seed, order) that was run. With `own` the commonest
    class of each site by itself is added too.
    """
    if not results:
        raise DataError(
            "there is no finished run to summarise.", do="Run `fcforge run` first."
        )
    there = [r.spec.learner for r in results if is_majority(r)]
    known = {learner.model.name for learner in there}
    wanted = [False] * (not there) + [True] * (own and "own" not in known)
    seen = {
        (r.spec.seed, r.spec.order): r for r in reversed(results) if not is_majority(r)
    }
    first = list(reversed(seen.values()))
    return [
        *(majority_result(r, own=which) for which in wanted for r in first),
        *results,
    ]


def is_majority(result: RunResult) -> bool:
    """Whether a run is a majority reference."""
    return result.spec.learner.method.name == "majority"


def _matrices(batches: Sequence[Runs]) -> Iterator[tuple[tuple, np.ndarray]]:
    """(Seed, order) and matrix (T, T) of the primary metric of every run."""
    for batch in batches:
        keys = [(r.spec.seed, r.spec.order) for r in batch.runs]
        yield from zip(
            keys, batch.values(PRIMARY[batch.runs[0].kind])[:, 1:], strict=True
        )


def _a_star(
    groups: Mapping[str, list[RunResult]], model: str
) -> dict[tuple, np.ndarray]:
    """Diagonal of the cumulative (else joint) learner on `model`, by (seed, order)."""
    for method in ("cumulative", "joint"):
        for runs in groups.values():
            learner = runs[0].spec.learner
            if learner.method.name == method and learner.model.name == model:
                return {
                    key: np.diag(a)
                    for key, a in _matrices(resampling.split_batches(runs))
                }
    return {}


def _row(runs: list[RunResult], keeps: str, star: dict, n_draws: int) -> Row:
    good = [r for r in runs if finite(r)]
    batches = resampling.split_batches(good)
    majority = is_majority(runs[0])
    costs = [
        intransigence(a, star[key]) for key, a in _matrices(batches) if key in star
    ]
    return Row(
        learner=runs[0].spec.learner.title,
        keeps=keeps or ("statistics" if majority else "not stated"),
        n_runs=len(good),
        n_left_out=len(runs) - len(good),
        n_orders=len({r.spec.order for r in good}),
        n_seeds=len({r.spec.seed for r in good}),
        estimates=_estimates(good, batches, runs[0].kind, n_draws),
        intransigence=float(np.mean(costs)) if costs else float("nan"),
        memory_bytes=float(np.mean([np.max(r.memory_bytes) for r in runs])),
        seconds=float(np.mean([np.sum(r.seconds) for r in runs])),
        is_majority=majority,
        kind=runs[0].kind,
    )


def _estimates(
    runs: list[RunResult], batches: list[Runs], kind: Kind, n_draws: int
) -> dict[str, Estimate]:
    """Estimate of every column; NaN where no run is left."""
    nothing = Estimate(np.nan, np.nan, np.nan)
    columns = columns_of(kind)
    found = dict.fromkeys((c.key for c in columns), nothing)
    for metric in dict.fromkeys(c.metric for c in columns) if runs else ():
        same = [c for c in columns if c.metric == metric]
        names = tuple(dict.fromkeys(c.summary for c in same))
        own = resampling.estimate(runs, metric, names, n_draws=n_draws, batches=batches)
        found.update({c.key: own[c.summary] for c in same})
    return found


def rows(
    results: Sequence[RunResult],
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
    found = []
    models = {runs[0].spec.learner.model.name for runs in groups.values()}
    stars = {model: _a_star(groups, model) for model in models}
    for title, runs in groups.items():
        kept = (keeps or {}).get(title, "")
        star = stars[runs[0].spec.learner.model.name]
        found.append(_row(runs, kept, star, n_draws))
    # the majority class, that of each site, the learners by falling AAA
    references = [row for row in found if row.is_majority]
    learners = [row for row in found if not row.is_majority]
    learners.sort(key=lambda row: -np.nan_to_num(row.estimates["aaa"].value))
    return [*sorted(references, key=lambda row: row.learner), *learners]


def table(results: Sequence[RunResult], **options: Any) -> pd.DataFrame:
    """The table as a DataFrame, one row per learner; options are those of `rows`.

    Every column of `columns_of` gives four: the mean over orders and seeds under its own key,
    and ``_sd`` (over orders), ``_low``, ``_high`` (95 % interval over subjects).
    """
    import pandas as pd

    return pd.DataFrame(records(rows(results, **options)))


def records(found: Sequence[Row]) -> list[dict[str, str | float | int]]:
    """Flat dicts of the rows, for a DataFrame, CSV or JSON."""
    out = []
    for row in found:
        record: dict[str, str | float | int] = {
            "learner": row.learner,
            "keeps": row.keeps,
        }
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


# -- one model, one group of people ----------------------------------------------------------------
MEASURES = ("accuracy", "balanced_accuracy", "auroc", "brier", "ece")


def measure(
    p: np.ndarray, y: np.ndarray, ids: Sequence[str], site: str = ""
) -> dict[str, Estimate]:
    """Metrics of P(patient) `p` (n,) against diagnoses `y` (n,).

    Intervals resample people within each class, as everywhere (`subject_weights`); they are NaN
    where a metric needs both classes and there is one.
    """
    weights = resampling.subject_weights(site, ids, y)
    found = {}
    for name in MEASURES:
        value = cell_values(p[None], y, name)[0]
        draws = cell_values(p[None], y, name, weights)[0].astype(float)
        low, high = (
            resampling.interval(value, draws)
            if np.isfinite(value)
            else (np.nan, np.nan)
        )
        found[name] = Estimate(float(value), float(low), float(high))
    return found
