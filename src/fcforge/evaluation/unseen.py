r"""`fcforge analyse unseen`: values of a stored run at hospitals that a learner has not seen.

The score matrix of a run holds every site after every stage, so that values at unseen hospitals
need no further training. After k sites

.. math:: U_k = \frac{1}{T - k} \sum_{i > k} a_{k,i},

and the last column of the matrix before its own stage is leave-one-site-out.
"""

from pathlib import Path

import numpy as np

from fcforge.core.errors import StoreError
from fcforge.core.estimate import Estimate
from fcforge.core.formatting import counted
from fcforge.core.result import RunResults
from fcforge.evaluation.metrics import metric_named
from fcforge.evaluation.random_effects import further_site
from fcforge.evaluation.resampling import at_site, bootstrap, estimates
from fcforge.evaluation.study import Study, finite_runs
from fcforge.evaluation.tables import longest_orders
from fcforge.experiments.collect import collect
from fcforge.experiments.store import Store

NEW_SITE = "a further site"


def zero_shot(full: np.ndarray) -> np.ndarray:
    """Return the mean over the sites not yet learned: (..., T + 1, T) -> (..., T).

    Entry k is after k sites, k = 0 being the untrained network.
    """
    n = full.shape[-1]
    means = [full[..., k, k:].mean(-1) for k in range(n)]
    return np.stack(means, axis=-1)


def leave_one_out(runs: RunResults, metric: str = "accuracy") -> dict[str, Estimate]:
    """Return the value at each site just before it was learned last, all others having been learned."""
    found = {}
    for site in runs[0].sites:
        last = []
        for run in runs:
            order = run.spec.order
            if order[-1] == site and len(order) > 1:
                last.append(run)
        if last:
            found[site] = at_site(last, site, metric, stage=-2)
    return found


def unseen_tables(results: RunResults, metric: str = "accuracy") -> list[Study]:
    """Return zero-shot values after k sites, and leave-one-site-out by site.

    The last column is what a further site may expect: its interval is over sites, those of the
    others over people.
    """
    title = metric_named(metric).title
    curve = {}
    out = {}
    for learner, runs in finite_runs(results).items():
        whole = longest_orders(runs)
        found = estimates(whole, *bootstrap(whole, metric, zero_shot))
        after = enumerate(found[1:], start=1)  # not of the untrained network
        curve[learner] = {f"after {counted(k, 'site')}": e for k, e in after}
        out[learner] = leave_one_out(whole, metric)
        out[learner][NEW_SITE] = further_site(out[learner])
    zero_title = f"Zero-shot {title}: mean over the sites not learned yet [95 %]"
    left_out = f"Leave-one-site-out {title}: all other sites learned [95 %]"
    return [Study(zero_title, curve), Study(left_out, out)]


def unseen_of(folder: Path, metric: str = "accuracy") -> list[Study]:
    """Return values of a run folder at sites that were not learned yet."""
    metric_named(metric)
    results, _ = collect(Store(folder))
    if max(len(r.spec.order) for r in results) < 2:
        raise StoreError("the runs of this folder have one site: none is unseen.")
    return unseen_tables(results, metric)
