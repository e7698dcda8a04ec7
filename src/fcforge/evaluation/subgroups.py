"""Accuracy of a stored run's learners by sex, age group and other covariates.

Test subjects of all sites are counted together after the last stage. A covariate with few values
makes one group per value; age makes three groups.
"""

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fcforge.core.errors import StoreError
from fcforge.core.estimate import Estimate
from fcforge.core.result import RunResults
from fcforge.evaluation.metrics import metric_named
from fcforge.evaluation.pooled import pooled_estimate, select_subjects
from fcforge.evaluation.study import Study, finite_runs
from fcforge.experiments.collect import collect, stored_plan
from fcforge.experiments.store import Store

CHILD = 12  # years, at the most
ADULT = 18  # years, at least
FEW = 5  # most values of a covariate that makes groups
GROUP_METRICS = ("accuracy", "sensitivity", "specificity")
Groups = dict[str, set[tuple[str, str]]]  # (site, subject id) by name


def group_name(covariate: str, value: float) -> str:
    """Return the name of the group that a person with this value of a covariate belongs to.

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


def subject_groups(facts: Mapping[str, Mapping[str, Any]]) -> Groups:
    """Return the tested people by group, from the facts that a run folder stores.

    Parameters
    ----------
    facts : mapping
        Subject ids and covariates of the test part, by seed (of the split) and then by site.

    Returns
    -------
    dict of str to set of (site, subject id)
        Groups by name (`group_name`); covariates with more than `FEW` values make none but age.
    """
    tables = []
    for sites in facts.values():
        for site, about in sites.items():
            people = [(site, who) for who in about["subject_ids"]]
            tables.append(pd.DataFrame(about.get("covariates", {}), index=people))
    groups: Groups = {}
    for name, values in pd.concat(tables).items():
        if name == "age" or values.nunique() <= FEW:
            for who, value in values.dropna().sort_values().items():
                groups.setdefault(group_name(name, value), set()).add(who)
    return groups


def subgroup_tables(results: RunResults, groups: Groups) -> list[Study]:
    """Return accuracy, sensitivity and specificity of every learner in every group.

    The majority reference is that of everybody: no group chooses a commonest class of its own.
    """
    tables = []
    for metric in GROUP_METRICS:
        rows: dict[str, dict[str, Estimate]] = {}
        for learner, runs in finite_runs(results).items():
            rows[learner] = {}
            for name, people in groups.items():
                group_runs = select_subjects(runs, partial(_is_in, people))
                rows[learner][name] = pooled_estimate(group_runs, metric)
        title = f"{metric_named(metric).title} by group, all sites together [95 %]"
        tables.append(Study(title, rows))
    return tables


def _is_in(people: Collection[tuple[str, str]], site: str, subject_id: str) -> bool:
    """Return whether a subject of a site is among the people of a group."""
    return (site, subject_id) in people


def subgroups_of(folder: Path) -> list[Study]:
    """Return subgroups of a run folder."""
    store = Store(folder)
    _, _, data = stored_plan(store)
    groups = subject_groups(data["site_facts"])
    if not groups:
        raise StoreError(
            "it knows neither age nor sex of the people, nor another covariate with few values.",
            where=folder,
            do="Give the covariates with the data (docs/experiments.md) and run it again.",
        )
    return subgroup_tables(collect(store)[0], groups)
