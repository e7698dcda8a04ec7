r"""What each tested person adds to a run's AAA, and moves a difference of two learners.

Accuracy and AUROC (by DeLong's placements) are sums over subjects, and so is their average along the
way (AAA). So person i moves the difference of two learners by :math:`d_i`, whatever the others do:
:math:`\Delta = \sum_i d_i`. `permutation_p_values` and `bootstrap_intervals` are products with these numbers.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from fcforge.core.result import RunResult
from fcforge.evaluation.metrics import features_of, metric_named
from fcforge.evaluation.resampling import pair_of

Person = tuple[str, str]  # site, id
# What people add to a run, by its address and the metric; the run is kept, so that its address stays its own.
_KNOWN: dict[tuple[int, str], tuple[RunResult, dict[Person, float]]] = {}


def shares(run: RunResult, metric: str) -> dict[Person, float]:
    """Return what each tested person adds to a run's accuracy or AUROC, averaged over stages."""
    key = id(run), metric
    if key not in _KNOWN:
        _KNOWN[key] = run, _shares(run, metric)
    return _KNOWN[key][1]


def _shares(run: RunResult, metric: str) -> dict[Person, float]:
    """Compute `shares`."""
    stages = np.arange(1, len(run.spec.order) + 1)
    results = {}
    for place, site in enumerate(run.spec.order):
        right = _at_site(run, site, metric)[place:]  # (stages that know the site, n)
        share_of_each = right.T @ (1 / stages[place:]) / len(stages)
        results |= {
            (site, who): float(share)
            for who, share in zip(run.subject_ids[site], share_of_each, strict=True)
        }
    return results


def _at_site(run: RunResult, site: str, metric: str) -> np.ndarray:
    """Return what each of n people of a site adds to its value after each stage, (stages, n)."""
    of = features_of(run.scores[site], run.y[site], metric_named(metric))
    if metric == "accuracy":
        return of[:2].sum(0) / of.shape[-1]
    above, patients, below, controls = of
    half = above / patients.sum(-1, keepdims=True)
    return half + below / controls.sum(-1, keepdims=True)


def moves(
    a: Sequence[RunResult], b: Sequence[RunResult], metric: str
) -> dict[Person, float]:
    """Return how far each person moves the sum over runs of A minus B."""
    others = {pair_of(r): r for r in b}
    results: dict[Person, float] = defaultdict(float)
    for run in a:
        other = others.get(pair_of(run))
        if other is not None:
            for sign, one in ((1, run), (-1, other)):
                for who, share in shares(one, metric).items():
                    results[who] += sign * share
    return results
