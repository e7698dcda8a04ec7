r"""Bootstrap intervals over test subjects, shared by all runs of an experiment.

What is resampled. A draw gives every subject a weight, a pure function of (bootstrap seed, site,
subject id): the same subject weighs the same in every order, seed and method in which it is
tested, so comparisons are paired and the overlap of different seeds' test splits is accounted
for. Weights are standard exponential (the Bayesian bootstrap of Rubin 1981: like drawing with
replacement, but no draw loses a class of a small site), scaled so that each class of each
site's test part keeps its size: the splits are stratified by class, hence so is the bootstrap.

What the interval says. It is the percentile interval of the mean over orders and seeds, with
the draws shifted so that their median is the estimate. For means the shift is negligible; for
forgetting measures it undoes the extra noise that resampling adds to a maximum. It covers the
choice of test subjects; orders and trainings are those that were run (see the SD over orders).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fcforge.metrics import SUMMARIES, cell_values, metric_named, stack, summaries_of
from fcforge.randomness import numpy_rng
from fcforge.types import RunResult

N_DRAWS = 1000
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over orders and seeds, its spread over orders, its interval over subjects."""

    mean: float
    sd_orders: float
    low: float
    high: float


@lru_cache(maxsize=16384)
def _draws_of_subject(seed: int, site: str, subject: str, n_draws: int) -> np.ndarray:
    return numpy_rng(seed, "bootstrap", site, subject).standard_exponential(
        n_draws, dtype=np.float32
    )


def subject_weights(
    site: str, ids: Sequence[str], labels: np.ndarray, n_draws: int = N_DRAWS, seed: int = 0
) -> np.ndarray:
    """Bootstrap weights of a site's test subjects.

    Parameters
    ----------
    site : str
    ids : sequence of str
    labels : ndarray of shape (n,)
    n_draws, seed : int

    Returns
    -------
    ndarray of shape (n_draws, n), float32
        Each class's weights sum to its number of subjects.
    """
    raw = np.stack([_draws_of_subject(seed, site, s, n_draws) for s in ids], axis=1)
    for label in np.unique(labels):
        members = labels == label
        raw[:, members] *= members.sum() / raw[:, members].sum(1, keepdims=True)
    return raw


def split_batches(results: Sequence[RunResult]) -> list[list[RunResult]]:
    """Group runs that were tested on the same subjects with orders of one length."""
    groups: dict[tuple[object, ...], list[RunResult]] = defaultdict(list)
    for r in results:
        ids = tuple(tuple(r.subject_ids[s]) for s in r.sites)
        groups[len(r.spec.order), r.sites, ids].append(r)
    return list(groups.values())


def score_matrices(
    results: Sequence[RunResult], metric: str, n_draws: int, seed: int
) -> Iterator[tuple[list[RunResult], np.ndarray, np.ndarray]]:
    """Yield (runs, points (n_runs, T+1, T), draws (n_runs, n_draws, T+1, T)) split by split."""
    for batch in split_batches(results):
        first = batch[0]

        def plain(site: str, p: np.ndarray, first: RunResult = first) -> np.ndarray:
            return cell_values(p, first.y[site], metric)

        def weighted(site: str, p: np.ndarray, first: RunResult = first) -> np.ndarray:
            y = first.y[site]
            w = subject_weights(site, first.subject_ids[site], y, n_draws, seed)
            return cell_values(p, y, metric, w)

        yield batch, stack(batch, plain), stack(batch, weighted)


def bootstrap(
    results: Sequence[RunResult],
    metric: str,
    statistic: Callable[[np.ndarray], np.ndarray],
    *,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Any statistic of the score matrices, per run and as draws of the mean over runs.

    Parameters
    ----------
    results : sequence of RunResult
    metric : str
    statistic : callable
        ``(..., T + 1, T) -> (..., *shape)``, row 0 being the baseline.
    n_draws, seed : int

    Returns
    -------
    points : ndarray of shape (n_runs, *shape)
        In the order of `results`.
    draws : ndarray of shape (n_draws, *shape)
    """
    place = {id(r): k for k, r in enumerate(results)}
    points: list[np.ndarray] = [np.empty(0)] * len(results)
    total = None
    for batch, at, draws in score_matrices(results, metric, n_draws, seed):
        for r, value in zip(batch, statistic(at), strict=True):
            points[place[id(r)]] = value
        part = statistic(draws).sum(0)
        total = part if total is None else total + part
    return np.stack(points), np.asarray(total) / len(results)


def interval(mean: np.ndarray, draws: np.ndarray, level: float = LEVEL) -> np.ndarray:
    """Percentile interval of `draws`, shifted to have `mean` as median. Shape (2, *shape)."""
    tail = (1 - level) / 2
    low, middle, high = np.quantile(draws, [tail, 0.5, 1 - tail], axis=0)
    return np.stack([low, high]) + (mean - middle)


def sd_over_orders(results: Sequence[RunResult], values: np.ndarray) -> np.ndarray:
    """SD over orders of the mean over seeds; NaN with one order. `values` is (n_runs, ...)."""
    by_order: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for k, r in enumerate(results):
        by_order[r.spec.order].append(k)
    if len(by_order) < 2:
        return np.full(values.shape[1:], np.nan)
    return np.stack([values[k].mean(0) for k in by_order.values()]).std(0, ddof=1)


def estimate(
    results: Sequence[RunResult],
    metric: str = "accuracy",
    names: tuple[str, ...] = SUMMARIES,
    *,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Continual-learning summaries of one learner's runs, each with its interval.

    Parameters
    ----------
    results : sequence of RunResult
        Runs of one learner.
    metric : str
    names : tuple of str
        Summaries of `fcforge.metrics.SUMMARIES`.
    n_draws, seed : int

    Returns
    -------
    dict of str to Estimate
    """
    lower = metric_named(metric).lower_is_better

    def statistic(full: np.ndarray) -> np.ndarray:
        found = summaries_of(full, lower_is_better=lower, names=names)
        return np.stack([found[n] for n in names], axis=-1)

    points, draws = bootstrap(results, metric, statistic, n_draws=n_draws, seed=seed)
    mean, sd = points.mean(0), sd_over_orders(results, points)
    bounds = interval(mean, draws)
    return {
        n: Estimate(*(float(x[k]) for x in (mean, sd, bounds[0], bounds[1])))
        for k, n in enumerate(names)
    }


def means(
    results: Sequence[RunResult], metric: str, names: tuple[str, ...] = SUMMARIES
) -> dict[str, float]:
    """Summaries of one learner's runs without intervals: mean over orders and seeds."""
    lower = metric_named(metric).lower_is_better
    found: dict[str, list[np.ndarray]] = {n: [] for n in names}
    for batch in split_batches(results):
        labels = batch[0].y
        full = stack(batch, lambda s, p, y=labels: cell_values(p, y[s], metric))  # type: ignore[misc]
        for n, v in summaries_of(full, lower_is_better=lower, names=names).items():
            found[n].append(v)
    return {n: float(np.concatenate(v).mean()) for n, v in found.items()}


def per_site(
    results: Sequence[RunResult], metric: str = "accuracy", *, n_draws: int = N_DRAWS, seed: int = 0
) -> dict[str, Estimate]:
    """Final value at each site, mean over orders and seeds, with its interval."""
    sites = results[0].sites
    found = {}
    for site in sites:
        final, draws = [], []
        for batch in split_batches(results):
            y, ids = batch[0].y[site], batch[0].subject_ids[site]
            w = subject_weights(site, ids, y, n_draws, seed)
            p = np.stack([r.scores[site][-1] for r in batch])
            final.append(cell_values(p, y, metric))
            draws.append(cell_values(p, y, metric, w).sum(0))
        runs = [r for batch in split_batches(results) for r in batch]
        values = np.concatenate(final)
        mean = values.mean()
        low, high = interval(mean, np.sum(draws, axis=0) / len(runs))
        sd = sd_over_orders(runs, values)
        found[site] = Estimate(float(mean), float(sd), float(low), float(high))
    return found
