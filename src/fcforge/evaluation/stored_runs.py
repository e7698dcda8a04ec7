r"""`fcforge unseen`, `calibration` and `subgroups`: what a stored run says of sites and people.

The score matrix of a run holds every site after every stage, so what a model does at a hospital
it has never seen needs no further training: after k sites,

.. math:: U_k = \frac{1}{T - k} \sum_{i > k} a_{k,i},

and the last column of the matrix before its own stage is leave-one-site-out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fcforge.core.errors import StoreError
from fcforge.core.estimate import Estimate
from fcforge.core.formatting import counted
from fcforge.core.result import RunResult, RunResults
from fcforge.evaluation.forgetting import finite
from fcforge.evaluation.metrics import metric_named
from fcforge.evaluation.resampling import at_site, bootstrap, estimates, per_site
from fcforge.evaluation.subgroups import (
    among,
    calibration_curve,
    decision_curve,
    everybody_treated,
    new_site,
    pooled,
)
from fcforge.evaluation.tables import group, longest, with_majority
from fcforge.experiments.collect import collect, stored_plan
from fcforge.experiments.store import Store

NEW_SITE = "a further site"


@dataclass(frozen=True)
class Study:
    """Learners by columns, each cell a mean with its interval."""

    title: str
    rows: Mapping[str, Mapping[str, Estimate]]

    @property
    def columns(self) -> list[str]:
        """All that rows have, as it comes."""
        return list(dict.fromkeys(chain.from_iterable(self.rows.values())))


def zero_shot(full: np.ndarray) -> np.ndarray:
    """Mean over the sites not yet learned: (..., T + 1, T) -> (..., T).

    Entry k is after k sites, k = 0 being the untrained network.
    """
    n = full.shape[-1]
    means = [full[..., k, k:].mean(-1) for k in range(n)]
    return np.stack(means, axis=-1)


def leave_one_out(runs: RunResults, metric: str = "accuracy") -> dict[str, Estimate]:
    """Value at each site just before it was learned last, all others having been learned."""
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
    """Zero-shot values after k sites, and leave-one-site-out by site.

    The last column is what a further site may expect: its interval is over sites, those of the
    others over people.
    """
    title = metric_named(metric).title
    curve = {}
    out = {}
    for learner, runs in usable(results).items():
        whole = longest(runs)
        found = estimates(whole, *bootstrap(whole, metric, zero_shot))
        after = enumerate(found[1:], start=1)  # not of the untrained network
        curve[learner] = {f"after {counted(k, 'site')}": e for k, e in after}
        out[learner] = leave_one_out(whole, metric)
        out[learner][NEW_SITE] = new_site(out[learner])
    zero_title = f"Zero-shot {title}: mean over the sites not learned yet [95 %]"
    left_out = f"Leave-one-site-out {title}: all other sites learned [95 %]"
    return [Study(zero_title, curve), Study(left_out, out)]


def calibration_tables(results: RunResults) -> list[Study]:
    """Brier score and calibration error by site; calibration and decision curve of everybody.

    A site's test part is small, and the ECE of a perfectly calibrated score is above zero there:
    compare learners at one site, not sites of different size.
    """
    learners = usable(results)
    found = []
    for metric in ("brier", "ece"):
        title = f"{metric_named(metric).title} per site after the last stage"
        rows = {k: per_site(runs, metric) for k, runs in learners.items()}
        found.append(Study(f"{title} (lower is better) [95 %]", rows))
    title = "Calibration: share of patients among people by their P(patient) [95 %]"
    rows = {k: calibration_curve(runs) for k, runs in learners.items()}
    found.append(Study(title, rows))
    title = "Decision curve: net benefit of treating above a P(patient) [95 %]"
    everybody = everybody_treated(next(iter(learners.values())))
    compared = {"everybody treated": everybody, **learners}
    rows = {k: decision_curve(runs) for k, runs in compared.items()}
    return [*found, Study(title, rows)]


def usable(results: RunResults) -> dict[str, list[RunResult]]:
    """Runs by learner, the majority class among them; diverged ones are left out."""
    found = {}
    for learner, runs in group(with_majority(results)).items():
        left = [run for run in runs if finite(run)]
        if left:
            found[learner] = left
    return found


def unseen_of(folder: Path, metric: str = "accuracy") -> list[Study]:
    """Values of a run folder at sites that were not learned yet."""
    metric_named(metric)
    results, _ = collect(Store(folder))
    if max(len(r.spec.order) for r in results) < 2:
        raise StoreError("the runs of this folder have one site: none is unseen.")
    return unseen_tables(results, metric)


def calibration_of(folder: Path) -> list[Study]:
    """How well a run folder's scores are calibrated, and what acting on them is worth."""
    results, _ = collect(Store(folder))
    return calibration_tables(results)


# -- women and men, children and adults ----------------------------------------------------------
# People of all sites are counted together after the last stage. A covariate with few values makes
# a group of each, an age three.
CHILD = 12  # years, at the most
ADULT = 18  # years, at least
FEW = 5  # most values of a covariate that makes groups
GROUP_METRICS = ("accuracy", "sensitivity", "specificity")
Groups = dict[str, set[tuple[str, str]]]  # (site, subject id) by name


def group_name(covariate: str, value: float) -> str:
    """Group that a person with this value belongs to.

    Examples
    --------
    >>> group_name("age", 12.0), group_name("age", 12.5), group_name("sex", 2.0)
    ('age up to 12', 'age 12 to 18', 'sex 2')
    """
    if covariate != "age":
        return f"{covariate} {value:g}"
    if value <= CHILD:
        return f"age up to {CHILD}"
    if value < ADULT:
        return f"age {CHILD} to {ADULT}"
    return f"age {ADULT} and more"


def groups_of(facts: Mapping[str, Mapping[str, Any]]) -> Groups:
    """Test people of every seed by covariate and value; `facts` are those of a run folder."""
    tables = []
    for sites in facts.values():
        for site, about in sites.items():
            people = [(site, who) for who in about["subject_ids"]]
            tables.append(pd.DataFrame(about.get("covariates", {}), index=people))
    found: Groups = {}
    for name, values in pd.concat(tables).items():
        if name == "age" or values.nunique() <= FEW:
            for who, value in values.dropna().sort_values().items():
                found.setdefault(group_name(name, value), set()).add(who)
    return found


def subgroup_tables(results: RunResults, groups: Groups) -> list[Study]:
    """Accuracy, sensitivity and specificity of every learner in every group.

    The majority reference is that of everybody: no group chooses a commonest class of its own.
    """
    tables = []
    for metric in GROUP_METRICS:
        rows: dict[str, dict[str, Estimate]] = {}
        for learner, runs in usable(results).items():
            rows[learner] = {}
            for name, people in groups.items():
                some = among(runs, lambda *who, of=people: who in of)
                rows[learner][name] = pooled(some, metric)
        title = f"{metric_named(metric).title} by group, all sites together [95 %]"
        tables.append(Study(title, rows))
    return tables


def subgroups_of(folder: Path) -> list[Study]:
    """Subgroups of a run folder."""
    store = Store(folder)
    _, _, data = stored_plan(store)
    groups = groups_of(data["site_facts"])
    if not groups:
        raise StoreError(
            "it knows neither age nor sex of the people, nor another covariate with few values.",
            where=folder,
            do="Give the covariates with the data (docs/experiments.md) and run it again.",
        )
    return subgroup_tables(collect(store)[0], groups)
