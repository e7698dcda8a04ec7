r"""Bootstrap intervals over test subjects and trainings, shared by all runs of an experiment.

Resampling. A draw gives every subject and every training a weight; a score weighs their
product (Owen and Eckles 2012). A subject's weight is a pure function of (site, subject id): the
same subject weighs the same in every order, seed and method in which it is tested, so comparisons
are paired and the overlap of different seeds' test splits is accounted for. Weights are standard
exponential (the Bayesian bootstrap of Rubin 1981: like drawing with replacement, but no draw loses
a class of a small site), scaled so that each class of each site's test part keeps its size: the
splits are stratified by class, hence so is the bootstrap.
A training is a seed (with k-fold splits: a repeat, all of whose folds test everybody once): its
split, its start and its noise, in all orders together. Its weight is gamma of shape (n - 2) / n,
so that n seeds give the variance :math:`s^2 / n` of a mean, not less of it. With fewer than three
seeds trainings cannot be resampled, and the interval is over subjects alone.

The interval. It is the percentile interval of the mean over orders and seeds, with
the draws shifted so that their median is the estimate. For means the shift is negligible; for
forgetting measures it undoes the extra noise that resampling adds to a maximum. It covers other
test subjects of these sites and other trainings, in these orders, and is somewhat too wide: that
different seeds test different people is in both weights. Because of the shift, and because an AUROC is
resampled by its first-order change, an end can lie beyond what the metric can be (an AUROC above 1); it
is then cut to the metric's limits.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np

from fcforge.core.estimate import Estimate
from fcforge.core.names import site_of_visit
from fcforge.core.randomness import numpy_rng
from fcforge.core.result import RunResult, RunResults
from fcforge.core.target import kind_of, strata
from fcforge.evaluation.forgetting import (
    SUMMARIES,
    Runs,
    fm_split,
    limits_of,
    summaries_of,
)
from fcforge.evaluation.metrics import (
    METRICS,
    Limits,
    cell_values,
    combine_features,
    metric_named,
)

Weights = Callable[
    [str], np.ndarray
]  # site -> weights of its subjects (n_draws, n_test)
N_DRAWS = 1000
N_HALVES = 100
LEVEL = 0.95


@lru_cache(maxsize=16384)
def _draws_of(purpose: str, site: str, subject: str, n_draws: int) -> np.ndarray:
    """Return uniform numbers (n_draws,) of one subject, see `subject_draws`."""
    rng = numpy_rng(0, purpose, site, subject)
    return rng.random(n_draws, dtype=np.float32)


def subject_draws(
    purpose: str, site: str, ids: Sequence[str], n_draws: int = N_DRAWS
) -> np.ndarray:
    """Return uniform random numbers of each subject, the same wherever the subject is tested.

    Parameters
    ----------
    purpose : str
        Random numbers of different purposes are independent.
    site : str
    ids : sequence of n str
        Subject ids.
    n_draws : int

    Returns
    -------
    ndarray of shape (n_draws, n)
    """
    site = site_of_visit(site)  # a subject is tested at every visit of its site
    columns = [_draws_of(purpose, site, subject, n_draws) for subject in ids]
    return np.stack(columns, axis=1)


def subject_weights(
    site: str, ids: Sequence[str], labels: np.ndarray, n_draws: int = N_DRAWS
) -> np.ndarray:
    """Return bootstrap weights of a site's test subjects.

    Parameters
    ----------
    site : str
    ids : sequence of str
    labels : ndarray of shape (n,)
    n_draws : int

    Returns
    -------
    ndarray of shape (n_draws, n)
        Each class's weights sum to its number of subjects.
    """
    groups = strata(np.asarray(labels)).tolist()
    return _weights(site, tuple(ids), tuple(groups), n_draws)


@lru_cache(maxsize=256)
def _weights(
    site: str, ids: tuple[str, ...], labels: tuple[int, ...], n_draws: int
) -> np.ndarray:
    """Return `subject_weights` from hashable arguments, so that they can be cached."""
    drawn = subject_draws("bootstrap", site, ids, n_draws).astype(np.float64)
    raw = -np.log1p(-drawn)
    for label in set(labels):
        members = np.array(labels) == label
        total = raw[:, members].sum(1, keepdims=True)
        raw[:, members] *= members.sum() / total
    raw.flags.writeable = False  # the cache returns the same array to every caller
    return raw


def training_weights(results: RunResults, n_draws: int = N_DRAWS) -> np.ndarray:
    """Return bootstrap weights of the runs' trainings, (n_runs, n_draws); the mean of a draw is 1.

    Runs of one seed (one repeat of a k-fold split) are one training and share a weight. With
    fewer than three seeds all weights are 1.
    """
    units = [r.spec.seed // (r.spec.folds or 1) for r in results]
    n = len(set(units))
    if n < 3:
        return np.ones((len(results), n_draws))
    by_unit = {
        u: numpy_rng(0, "training", u).standard_gamma((n - 2) / n, n_draws)
        for u in set(units)
    }
    weights = np.stack([by_unit[u] for u in units])
    return weights / weights.mean(0)


def split_runs(results: RunResults) -> list[list[RunResult]]:
    """Group runs that were tested on the same subjects with orders of one length."""
    groups: dict[tuple[object, ...], list[RunResult]] = defaultdict(list)
    for r in results:
        ids = tuple(tuple(r.subject_ids[s]) for s in r.sites)
        groups[len(r.spec.order), r.sites, ids].append(r)
    return list(groups.values())


def pair_of(result: RunResult) -> tuple[int, tuple[str, ...]]:
    """Return seed and order, by which runs of two learners are paired."""
    return result.spec.seed, result.spec.order


def split_batches(results: RunResults) -> list[Runs]:
    """Return the groups of `split_runs` as batches."""
    return [Runs.of(runs) for runs in split_runs(results)]


def weights_of(batch: Runs, n_draws: int) -> Weights:
    """Return bootstrap weights of a batch's test subjects, site by site."""
    y = batch.runs[0].y
    ids = batch.runs[0].subject_ids
    return lambda site: subject_weights(site, ids[site], y[site], n_draws)


def bootstrap(
    results: RunResults,
    metric: str,
    statistic: Callable[[np.ndarray], np.ndarray],
    *,
    n_draws: int = N_DRAWS,
) -> tuple[np.ndarray, np.ndarray]:
    """Bootstrap any statistic of the score matrices: per run, and draws of the mean over runs.

    Parameters
    ----------
    results : sequence of RunResult
    metric : str
    statistic : callable
        ``(..., T + 1, T) -> (..., *shape)``, row 0 being the baseline.
    n_draws : int

    Returns
    -------
    points : ndarray of shape (n_runs, *shape)
        Statistic of each run, in the order of `results`.
    draws : ndarray of shape (n_draws, *shape)
        Its mean over all runs in each bootstrap draw.
    """

    def value(batch: Runs, weights: Weights | None) -> np.ndarray:
        return statistic(batch.values(metric, weights))

    return resampled(results, value, n_draws)


def resampled(
    results: RunResults,
    value: Callable[[Runs, Weights | None], np.ndarray],
    n_draws: int = N_DRAWS,
) -> tuple[np.ndarray, np.ndarray]:
    """Bootstrap any value of runs; `bootstrap` is the case of a statistic of score matrices.

    Parameters
    ----------
    results : sequence of RunResult
    value : callable
        Takes a batch of runs and None or the bootstrap weights of a site's subjects; returns
        (n_runs, *shape) without and (n_runs, n_draws, *shape) with weights.
    n_draws : int

    Returns
    -------
    points, draws : ndarray
        As `bootstrap` returns them.
    """
    place = {id(r): k for k, r in enumerate(results)}
    trainings = training_weights(results, n_draws)
    points: list[np.ndarray] = [np.empty(0)] * len(results)
    total = 0.0
    for batch in split_batches(results):
        rows = [place[id(r)] for r in batch.runs]
        for k, point in zip(rows, value(batch, None), strict=True):
            points[k] = point
        drawn = value(batch, weights_of(batch, n_draws))
        # sum over runs r for each draw d
        total = total + np.einsum("rd,rd...->d...", trainings[rows], drawn)
    return np.stack(points), np.asarray(total) / len(results)


@lru_cache(maxsize=256)
def halves(
    site: str, ids: tuple[str, ...], labels: tuple[int, ...], n_draws: int
) -> np.ndarray:
    """Draw random halves of a test part, each with half of every class.

    Parameters
    ----------
    site : str
    ids : tuple of n str
        Subject ids.
    labels : tuple of n int
        Classes.
    n_draws : int
        Number of halves.

    Returns
    -------
    ndarray of shape (n_draws, n)
        1 for subjects in the half, else 0.
    """
    uniform = subject_draws("half", site, ids, n_draws)
    chosen = np.zeros(uniform.shape, dtype=np.float32)
    for label in np.unique(labels):
        members = np.array(labels) == label
        rank = uniform[:, members].argsort(1).argsort(1)
        # half of an odd number is rounded up in half of the draws
        rng = numpy_rng(0, "half up", site, int(label))
        round_up = rng.random((n_draws, 1)) < 0.5
        chosen[:, members] = rank < (members.sum() + round_up) // 2
    return chosen


def split_forgetting(results: RunResults, metric: str) -> np.ndarray:
    """Return each run's FM whose best stage is chosen on other subjects than it is measured on.

    Mean over `N_HALVES` random halves, each used in both roles, shape (n_runs,); see
    `fcforge.evaluation.forgetting.fm_split`.
    """
    sign = -1.0 if metric_named(metric).lower_is_better else 1.0

    def both_halves(result: RunResult, site: str) -> np.ndarray:
        """Return weights (2 N_HALVES, n_test) that select the halves, then their complements."""
        groups = strata(result.y[site]).tolist()
        ids = tuple(result.subject_ids[site])
        half = halves(site, ids, tuple(groups), N_HALVES)
        return np.concatenate([half, 1 - half])

    by_run = dict[int, float]()
    for batch in split_batches(results):
        drawn = batch.values(metric, partial(both_halves, batch.runs[0]))
        a = sign * drawn[..., 1:, :]  # (run, 2 N_HALVES, T, T)
        other_half = np.roll(a, N_HALVES, axis=1)  # each half's complement in its place
        values = fm_split(a, other_half).mean(1)
        by_run |= zip(map(id, batch.runs), values, strict=True)
    return np.array([by_run[id(r)] for r in results])


def interval(
    mean: np.ndarray, draws: np.ndarray, limits: Limits | np.ndarray
) -> np.ndarray:
    """Return low and high end (2, *shape) of the percentile interval of draws (n_draws, *shape).

    The draws are shifted so that their median is `mean`, and the ends cut to `limits`: the smallest and
    the largest possible value, two numbers or an array (2, *shape).
    """
    tail = (1 - LEVEL) / 2
    low, middle, high = np.quantile(draws, [tail, 0.5, 1 - tail], axis=0)
    ends = np.stack([low, high]) + (mean - middle)
    return np.clip(ends, limits[0], limits[1])


def estimates(
    results: RunResults,
    points: np.ndarray,
    draws: np.ndarray,
    limits: Limits | np.ndarray,
) -> list[Estimate]:
    """Return estimates with intervals from the result of `bootstrap`.

    The `sd_orders` of an estimate is the standard deviation over orders of the mean over seeds; NaN with one
    order.

    Parameters
    ----------
    results : sequence of RunResult
    points : ndarray of shape (n_runs, m)
        Values of m statistics in every run.
    draws : ndarray of shape (n_draws, m)
        Their means over runs in every bootstrap draw.
    limits : (float, float) or ndarray of shape (2, m)
        Smallest and largest possible value of the statistics, which no interval leaves.

    Returns
    -------
    list of Estimate
        One for each of the m statistics.
    """
    by_order: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for k, r in enumerate(results):
        by_order[r.spec.order].append(k)
    mean = points.mean(0)
    sd = np.full(mean.shape, np.nan)
    if len(by_order) > 1:
        order_means = [points[places].mean(0) for places in by_order.values()]
        sd = np.stack(order_means).std(0, ddof=1)
    columns = np.stack([mean, *interval(mean, draws, limits), sd])
    return [Estimate(*map(float, column)) for column in columns.T]


def estimate(
    results: RunResults,
    metric: str = "accuracy",
    names: tuple[str, ...] = SUMMARIES,
    *,
    n_draws: int = N_DRAWS,
) -> dict[str, Estimate]:
    """Return continual-learning summaries of one learner's runs, each with its interval.

    Parameters
    ----------
    results : sequence of RunResult
        Runs of one learner.
    metric : str
    names : tuple of str
        Summaries of `fcforge.evaluation.forgetting.SUMMARIES`, and ``fm_split``.
    n_draws : int

    Returns
    -------
    dict of str to Estimate
    """
    # "fm_split" has no draws of its own: it gets those of FM, shifted to its value (`interval`).
    drawn = ["fm" if n == "fm_split" else n for n in names]

    def statistic(full: np.ndarray) -> np.ndarray:
        """Return the drawn summaries of score matrices along a new last axis."""
        summaries = summaries_of(full, metric, tuple(dict.fromkeys(drawn)))
        return np.stack([summaries[n] for n in drawn], axis=-1)

    points, draws = bootstrap(results, metric, statistic, n_draws=n_draws)
    if "fm_split" in names:
        points[:, names.index("fm_split")] = split_forgetting(results, metric)
    limits = np.array([limits_of(metric, name) for name in names]).T
    return dict(zip(names, estimates(results, points, draws, limits), strict=True))


def means(
    results: RunResults, metric: str, names: tuple[str, ...] = SUMMARIES
) -> dict[str, float]:
    """Return summaries of one learner's runs without intervals: mean over orders and seeds."""
    batches = split_batches(results)
    by_batch = [summaries_of(batch.values(metric), metric, names) for batch in batches]
    averaged = {}
    for name in names:
        values = np.concatenate([summaries[name] for summaries in by_batch])
        averaged[name] = float(values.mean())
    return averaged


def at_site(
    runs: RunResults,
    site: str,
    metric: str = "accuracy",
    stage: int = -1,
    limits: Limits | None = None,
) -> Estimate:
    """Return the value at one site after a stage, mean over orders and seeds, with its interval.

    Parameters
    ----------
    runs : sequence of RunResult
        Runs of one learner.
    site, metric : str
    stage : int
        Index into the stages of the order, 0 being before learning and -1 after the last site.
    limits : (float, float), optional
        Where the interval ends at the latest; by default at the metric's limits. An interval whose width
        stands for a variance (`fcforge.evaluation.random_effects.further_site`) is not cut.
    """
    m = metric_named(metric)

    def value(batch: Runs, weights: Weights | None) -> np.ndarray:
        """Return the metric of each run, (n_runs, 1), or of each run and draw, (n_runs, n_draws, 1)."""
        drawn = weights(site) if weights else None
        values = combine_features(batch.features(site, m), m, drawn)
        return values[batch.place[site][:, stage]][..., None]

    return estimates(runs, *resampled(runs, value), limits or m.limits)[0]


def per_site(
    results: RunResults, metric: str = "accuracy", limits: Limits | None = None
) -> dict[str, Estimate]:
    """Return the final value at each site, mean over orders and seeds, with its interval.

    The arguments are those of `at_site`.
    """
    sites = results[0].sites
    return {site: at_site(results, site, metric, limits=limits) for site in sites}


# -- one model, one group of people ----------------------------------------------------------------
MEASURES = (
    "accuracy",
    "balanced_accuracy",
    "auroc",
    "brier",
    "ece",
    "r2",
    "mae",
    "spearman",
)


def measure(
    p: np.ndarray, y: np.ndarray, ids: Sequence[str], site: str = ""
) -> dict[str, Estimate]:
    """Return the metrics of one model's predictions for n people, with intervals.

    Intervals resample people within each class, as everywhere (`subject_weights`), and end where
    the metric does; they are NaN where a metric needs both classes and there is one.

    Parameters
    ----------
    p : ndarray of shape (n,) or (n, K)
        P(patient) or predicted numbers; or the probabilities of K classes.
    y : ndarray of shape (n,)
        Diagnoses or numbers.
    ids : sequence of n str
        Subject ids, which decide the random weights.
    site : str

    Returns
    -------
    dict of str to Estimate
        The metrics of `MEASURES` that are defined for this kind of target.
    """
    weights = subject_weights(site, ids, y)
    kind = kind_of(p, y)
    truth = np.eye(p.shape[1])[y] if kind == "more classes" else y
    by_metric = {}
    for name in [name for name in MEASURES if kind in METRICS[name].kinds]:
        value = cell_values(p[None], truth, name)[0]  # p as one model of several
        drawn = cell_values(p[None], truth, name, weights)
        draws = drawn[0].astype(float)
        ends = np.full(2, np.nan)
        if np.isfinite(value):
            ends = interval(value, draws, METRICS[name].limits)
        by_metric[name] = Estimate(*map(float, (value, *ends)))
    return by_metric
