"""Metrics of whole runs: matrices from raw scores, the majority reference, constant predictors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fcforge.metrics.cells import THRESHOLD, Metric, combined, features_of, metric_named
from fcforge.metrics.continual import SUMMARIES, intransigence, summaries_of
from fcforge.types import Component, LearnerSpec, RunResult

Baseline = Literal["initial", "majority"]

MAJORITY, OWN_MAJORITY = (
    LearnerSpec(Component("majority"), Component(model), title=title)
    for model, title in (
        ("none", "majority class"),
        ("own", "majority class of each site"),
    )
)
"""The learners of `majority_result`."""


def baseline(result: RunResult, kind: Baseline = "initial") -> dict[str, np.ndarray]:
    """Scores before learning, per site: what forward transfer is measured against.

    ``initial`` is the untrained network; ``majority`` gives every subject the share of patients
    in the site's own training part, hence its majority class.
    """
    if kind == "initial":
        return dict(result.initial)
    return {
        site: np.full(len(result.y[site]), result.train_positive[site])
        for site in result.sites
    }


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
    def of(cls, runs: Sequence[RunResult], kind: Baseline = "initial") -> "Runs":
        """Runs with equal sites, equal test subjects and orders of one length."""
        before = [baseline(r, kind) for r in runs]
        scores = {}
        place = {}
        for site in runs[0].sites:
            rows = [
                row
                for r, b in zip(runs, before, strict=True)
                for row in (b[site], *r.scores[site])
            ]
            known: dict[bytes, int] = {}
            at = np.array([known.setdefault(row.tobytes(), len(known)) for row in rows])
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
            scores[site] = np.stack(np.divmod(found, len(theirs)), axis=1)
            place[site] = at.reshape(pairs.shape)
        return Runs(self.runs, scores, place)

    def features(self, site: str, metric: Metric) -> np.ndarray:
        """`features_of` the site's scores, computed once. (k, m, n_test)."""
        key = site, metric.features
        if key not in self._known:
            self._known[key] = features_of(
                self.scores[site], self.runs[0].y[site], metric
            )
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
            return combined(
                self.features(site, m), m, weights(site) if weights else None
            )

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
                shape = (*orders.shape, orders.shape[1] + 1, *values.shape[1:])
                full = np.empty(shape, dtype=values.dtype)
            full[run, column] = values[self.place[site][run]]
        return np.moveaxis(full, (1, 2), (-1, -2))


def score_matrix_with_initial(
    result: RunResult, metric: str, kind: Baseline = "initial"
) -> np.ndarray:
    """Matrix of shape (T + 1, T): row 0 the baseline, then ``a[t, i]``."""
    return Runs.of([result], kind).values(metric)[0]


def score_matrix(result: RunResult, metric: str = "accuracy") -> np.ndarray:
    """Full matrix ``a[t, i]``, columns in order of arrival, zero-shot cells included. (T, T)."""
    return score_matrix_with_initial(result, metric)[1:]


def summary(
    result: RunResult,
    metric: str = "accuracy",
    *,
    baseline: Baseline = "initial",
    a_star: np.ndarray | None = None,
) -> dict[str, float]:
    """Every continual-learning summary of one run.

    Parameters
    ----------
    result : RunResult
    metric : str
        A name of `fcforge.metrics.METRICS`. For Brier and ECE, where lower is better, see
        `summaries_of` for the signs.
    baseline : {"initial", "majority"}
        What FWT is measured against.
    a_star : ndarray of shape (T,), optional
        Reference values in order of arrival; adds ``intransigence``.
    """
    m = metric_named(metric)
    full = score_matrix_with_initial(result, metric, baseline)
    found = summaries_of(full, lower_is_better=m.lower_is_better, names=SUMMARIES)
    if a_star is not None:
        cost = intransigence(full[1:], np.asarray(a_star, dtype=float))
        found["intransigence"] = -cost if m.lower_is_better else cost
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
        said = p > THRESHOLD
        both = len(set(result.y[site].tolist())) > 1
        one = (said.all(-1) | ~said.any(-1)) & both
        return np.stack([one, p.std(-1) < tolerance], axis=-1)

    one, flat = Runs.of([result]).stack(cells)[0, :, 1:]
    return {"one_class": one, "flat": flat}


def majority_result(result: RunResult, *, own: bool = False) -> RunResult:
    """What the commonest class of the sites learned so far would score on the same splits.

    P(patient) of everybody is the share of patients in the training parts seen so far, each
    site weighted by its number of test subjects (proportional to its training subjects, as all
    sites are split alike). Before learning it is 0.5. With `own` every site has the share of its
    own training part, at every stage: it forgets nothing, and is what a hospital knows by itself.
    """
    order = result.spec.order
    n = np.array([len(result.y[s]) for s in order], dtype=float)
    share = np.array([result.train_positive[s] for s in order])
    prior = np.cumsum(n * share) / np.cumsum(n)  # (T,)
    at = {
        s: np.full(len(order), result.train_positive[s]) if own else prior
        for s in result.y
    }
    counts = {s: len(result.y[s]) for s in result.sites}
    return replace(
        result,
        spec=replace(result.spec, learner=OWN_MAJORITY if own else MAJORITY),
        scores={s: np.repeat(at[s][:, None], k, axis=1) for s, k in counts.items()},
        initial={s: np.full(k, 0.5) for s, k in counts.items()},
        memory_bytes=np.full(len(order), 16),  # two counts
        seconds=np.zeros(len(order)),
    )
