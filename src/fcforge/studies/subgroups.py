"""`fcforge subgroups`: how a stored run does for women and men, children and adults.

People of all sites are counted together after the last stage. A covariate with few values makes
a group of each, an age three.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.errors import StoreError
from fcforge.metrics import metric_named
from fcforge.runner.collect import collect_some, stored_plan
from fcforge.runner.store import Store
from fcforge.stats.people import among, pooled
from fcforge.studies.unseen import Study, usable
from fcforge.types import Estimate, RunResults

CHILD = 12  # years, at the most
ADULT = 18  # years, at least
FEW = 5  # most values of a covariate that makes groups
METRICS = ("accuracy", "sensitivity", "specificity")
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
    values: dict[str, dict[tuple[str, str], float]] = {}
    for sites in facts.values():
        for site, about in sites.items():
            for name, column in about.get("covariates", {}).items():
                people = [(site, who) for who in about["subject_ids"]]
                values.setdefault(name, {}).update(zip(people, column, strict=True))
    found: Groups = {}
    for name, known in values.items():
        finite = {who: v for who, v in known.items() if np.isfinite(v)}
        if name != "age" and len(set(finite.values())) > FEW:
            continue
        for who, value in sorted(finite.items(), key=lambda item: item[1]):
            found.setdefault(group_name(name, value), set()).add(who)
    return found


def subgroup_tables(results: RunResults, groups: Groups) -> list[Study]:
    """Accuracy, sensitivity and specificity of every learner in every group.

    The majority reference is that of everybody: no group chooses a commonest class of its own.
    """
    tables = []
    for metric in METRICS:
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
    return subgroup_tables(collect_some(store)[0], groups)
