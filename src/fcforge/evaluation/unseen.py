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
from fcforge.evaluation.metrics import UNLIMITED, Limits, metric_named
from fcforge.evaluation.random_effects import further_site
from fcforge.evaluation.resampling import at_site, bootstrap, estimates
from fcforge.evaluation.study import Study, finite_runs
from fcforge.evaluation.tables import longest_orders
from fcforge.experiments.collect import collect
from fcforge.experiments.store import Store

NEW_SITE = "a further site"


def zero_shot(full: np.ndarray) -> np.ndarray:
    """Return the mean value at the sites that are not learned yet, after 0 to T - 1 sites.

    Parameters
    ----------
    full : ndarray of shape (..., T + 1, T)
        Values of T sites (columns, in order of arrival) before training and after each site.

    Returns
    -------
    ndarray of shape (..., T)
        Entry k is after k sites, k = 0 being the untrained network.
    """
    n = full.shape[-1]
    means = [full[..., k, k:].mean(-1) for k in range(n)]
    return np.stack(means, axis=-1)


def leave_one_out(
    runs: RunResults, metric: str = "accuracy", limits: Limits | None = None
) -> dict[str, Estimate]:
    """Return the value at each site after all other sites were learned and it was not.

    It is read from the runs whose order ends with the site, at their last stage but one. A site
    at which no order ends is missing. `limits` is that of `fcforge.evaluation.resampling.at_site`.
    """
    by_site = {}
    for site in runs[0].sites:
        runs_ending_here = []
        for run in runs:
            order = run.spec.order
            if order[-1] == site and len(order) > 1:
                runs_ending_here.append(run)
        if runs_ending_here:
            by_site[site] = at_site(runs_ending_here, site, metric, -2, limits)
    return by_site


def unseen_tables(results: RunResults, metric: str = "accuracy") -> list[Study]:
    """Return two tables of values at sites that were not learned.

    The first holds zero-shot values after k sites. The second holds leave-one-site-out values by
    site; its last column is what a further site may expect: its interval is over sites, those of
    the other columns over people.
    """
    m = metric_named(metric)
    zero_shot_rows = {}
    left_out_rows = {}
    for learner, runs in finite_runs(results).items():
        complete = longest_orders(runs)
        by_stage = estimates(
            complete, *bootstrap(complete, metric, zero_shot), m.limits
        )
        # without the untrained network, which comes first
        learned_stages = enumerate(by_stage[1:], start=1)
        zero_shot_rows[learner] = {
            f"after {counted(k, 'site')}": e for k, e in learned_stages
        }
        uncut = leave_one_out(complete, metric, UNLIMITED)
        left_out_rows[learner] = {k: e.within(*m.limits) for k, e in uncut.items()}
        left_out_rows[learner][NEW_SITE] = further_site(uncut, m.limits)
    zero_title = f"Zero-shot {m.title}: mean over the sites not learned yet [95 %]"
    left_out_title = f"Leave-one-site-out {m.title}: all other sites learned [95 %]"
    return [Study(zero_title, zero_shot_rows), Study(left_out_title, left_out_rows)]


def unseen_of(folder: Path, metric: str = "accuracy") -> list[Study]:
    """Return values of a run folder at sites that were not learned yet."""
    metric_named(metric)
    results, _ = collect(Store(folder))
    if max(len(r.spec.order) for r in results) < 2:
        raise StoreError("the runs of this folder have one site: none is unseen.")
    return unseen_tables(results, metric)
