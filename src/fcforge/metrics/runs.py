"""Metrics of whole runs: matrices from raw scores, the majority reference, constant predictors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fcforge.errors import DataError
from fcforge.metrics.cells import Metric, called, combined, features_of, metric_named
from fcforge.metrics.continual import summaries_of
from fcforge.types import Component, Kind, LearnerSpec, RunResult


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


def majority_learner(kind: Kind, own: bool) -> LearnerSpec:
    """The learner of `majority_result`: it knows how common classes are, or the mean number."""
    title = WORDS[kind].own if own else WORDS[kind].all_sites
    model = Component("own" if own else "none")
    return LearnerSpec(Component("majority"), model, title=title)


@dataclass(frozen=True)
class Runs:
    """Runs tested on the same subjects, with orders of one length T.

    Orders share their first stages and an order-free method all of them: equal scores are held
    once, and so are their metrics.

    Attributes
    ----------
    runs : list of RunResult
    scores : dict of site to ndarray of shape (m, n_test)
        Different scores of the site's test subjects.
    place : dict of site to ndarray of shape (n_runs, T + 1)
        Which of them a run gave before learning and after every stage.
    """

    runs: list[RunResult]
    scores: dict[str, np.ndarray]
    place: dict[str, np.ndarray]
    _known: dict[tuple[str, object], np.ndarray] = field(
        default_factory=dict, repr=False
    )

    @classmethod
    def of(cls, runs: Sequence[RunResult]) -> "Runs":
        """Runs with equal sites, equal test subjects and orders of one length."""
        scores = {}
        place = {}
        for site in runs[0].sites:
            rows = []
            for run in runs:
                rows += [run.initial[site], *run.scores[site]]
            known: dict[bytes, int] = {}
            numbers = [known.setdefault(row.tobytes(), len(known)) for row in rows]
            at = np.array(numbers)
            _, first = np.unique(at, return_index=True)
            scores[site] = np.stack([rows[k] for k in first])
            place[site] = at.reshape(len(runs), -1)
        return cls(list(runs), scores, place)

    def beside(self, other: "Runs") -> "Runs":
        """These runs with a partner each: `scores` (m, 2) says which of ours, which of theirs."""
        scores = {}
        place = {}
        for site, theirs in other.scores.items():
            pairs = self.place[site] * len(theirs) + other.place[site]
            found, at = np.unique(pairs, return_inverse=True)
            ours_and_theirs = np.divmod(found, len(theirs))
            scores[site] = np.stack(ours_and_theirs, axis=1)
            place[site] = at.reshape(pairs.shape)
        return Runs(self.runs, scores, place)

    def features(self, site: str, metric: Metric) -> np.ndarray:
        """`features_of` the site's scores, computed once. (k, m, n_test)."""
        key = site, metric.features
        first = self.runs[0]
        if first.kind not in metric.kinds:
            what = f"{metric.title} is for {' or '.join(metric.kinds)}; these runs have"
            raise DataError(f"{what} {first.kind}.", do="Choose another metric.")
        if key not in self._known:
            truth = first.truth(site)
            self._known[key] = features_of(self.scores[site], truth, metric)
        return self._known[key]

    def values(
        self, metric: str, weights: Callable[[str], np.ndarray] | None = None
    ) -> np.ndarray:
        """Score matrices (n_runs, T + 1, T); under `weights` of a site (n_draws, n_test) as many.

        Returns
        -------
        ndarray of shape (n_runs, T + 1, T) or (n_runs, n_draws, T + 1, T)
        """
        m = metric_named(metric)

        def cells(site: str, _: np.ndarray) -> np.ndarray:
            own = weights(site) if weights else None
            return combined(self.features(site, m), m, own)

        return self.stack(cells)

    def stack(self, cells: Callable[[str, np.ndarray], np.ndarray]) -> np.ndarray:
        """Cells of all runs, columns in each run's order of arrival.

        Parameters
        ----------
        cells : callable
            ``(site, scores (m, n_test)) -> (m, ...)``.

        Returns
        -------
        ndarray of shape (n_runs, ..., T + 1, T)
            Row 0 is the baseline, rows 1..T follow the stages.
        """
        orders = np.array([[*r.spec.order] for r in self.runs])
        full = np.empty(0)
        for site, scores in self.scores.items():
            values = cells(site, scores)
            run, column = np.nonzero(orders == site)
            if not full.size:
                stages = orders.shape[1] + 1
                shape = (*orders.shape, stages, *values.shape[1:])
                full = np.empty(shape, dtype=values.dtype)
            full[run, column] = values[self.place[site][run]]
        return np.moveaxis(full, (1, 2), (-1, -2))


def score_matrix(result: RunResult, metric: str = "accuracy") -> np.ndarray:
    """Full matrix ``a[t, i]``, columns in order of arrival, zero-shot cells included. (T, T)."""
    return Runs.of([result]).values(metric)[0, 1:]


def summary(result: RunResult, metric: str = "accuracy") -> dict[str, float]:
    """Every continual-learning summary of one run.

    Parameters
    ----------
    result : RunResult
    metric : str
        A name of `fcforge.metrics.METRICS`. For Brier and ECE, where lower is better, see
        `summaries_of` for the signs.
    """
    full = Runs.of([result]).values(metric)[0]
    lower = metric_named(metric).lower_is_better
    found = summaries_of(full, lower_is_better=lower)
    return {name: float(value) for name, value in found.items()}


def finite(result: RunResult) -> bool:
    """False when any score is NaN or infinite: the run diverged."""
    return all(bool(np.isfinite(s).all()) for s in result.scores.values())


def constant_predictor(
    result: RunResult, tolerance: float = 1e-6
) -> dict[str, np.ndarray]:
    """Cells in which a learner says the same of everybody.

    Returns
    -------
    dict
        ``one_class``: every subject of the cell gets one class although both are present;
        ``flat``: the standard deviation of the scores is below `tolerance`. Both of shape
        (T, T), bool, columns in order of arrival.
    """

    def cells(site: str, p: np.ndarray) -> np.ndarray:
        y = result.truth(site)
        spread = p.std(1).max(-1) if y.ndim == 2 else p.std(-1)
        said, own = called(p, y)
        several = result.kind != "number" and len(np.unique(own)) > 1
        one = (said == said[:, :1]).all(-1) & several
        return np.stack([one, spread < tolerance], axis=-1)

    one, flat = Runs.of([result]).stack(cells)[0, :, 1:]
    return {"one_class": one, "flat": flat}


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
    seen = np.stack(weighted)
    prior = (np.cumsum(seen, 0).T / np.cumsum(n)).T  # (T,) or (T, K)
    scores = {}
    for site in result.sites:
        share = np.stack([means[site]] * len(order)) if own else prior
        scores[site] = np.repeat(share[:, None], len(result.y[site]), axis=1)
    before = dict(result.initial)
    if result.kind != "number":
        even = 1 / max(2, prior[0].size)
        before = {s: np.full(p.shape, even) for s, p in before.items()}
    return replace(
        result,
        spec=replace(result.spec, learner=majority_learner(result.kind, own)),
        scores=scores,
        initial=before,
        memory_bytes=np.full(len(order), 16),  # two counts
        seconds=np.zeros(len(order)),
    )
