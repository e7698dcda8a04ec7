"""Questions of reviewers about people: subgroups, calibration, a further site, motion, site.

    python paper/benchmarks/people.py     # minutes; needs $FCFORGE_DATA

Writes paper/results/people.json. Scores are those of paper/results/*.npz, as pages show them; ages,
sexes and head motion come from the data files, in which a subject is found by its place in the
sorted list of ids. `make tables` puts them into docs/results/people.md. A table whose scores are not
stored is left out. Probabilities are stored to about 0.01 on
average, so that the ends of a bin or a threshold other than 0.5 may take a person in or out.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "paper" / "benchmarks"), str(ROOT / "src")]

import numpy as np  # noqa: E402
from run_tables import EXPERIMENTS, commit  # noqa: E402
from scores import places, read_table  # noqa: E402
from sklearn.linear_model import RidgeClassifier  # noqa: E402
from sklearn.model_selection import StratifiedKFold, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from fcforge.core.estimate import Estimate  # noqa: E402
from fcforge.core.result import RunResult  # noqa: E402
from fcforge.data.datasets import load_dataset  # noqa: E402
from fcforge.data.edges import upper_from_fc  # noqa: E402
from fcforge.evaluation.calibration import calibration_tables  # noqa: E402
from fcforge.evaluation.metrics import UNLIMITED  # noqa: E402
from fcforge.evaluation.motion import motion_rows  # noqa: E402
from fcforge.evaluation.random_effects import further_site  # noqa: E402
from fcforge.evaluation.resampling import per_site  # noqa: E402
from fcforge.evaluation.study import Study, finite_runs  # noqa: E402
from fcforge.evaluation.subgroups import subgroup_tables, subject_groups  # noqa: E402
from fcforge.experiments.config import Experiment, load_experiment  # noqa: E402
from fcforge.experiments.environment import describe  # noqa: E402
from fcforge.report.results_table import study_json  # noqa: E402

OUT = ROOT / "paper" / "results" / "people.json"
# With a start: exact, with little noise, with much, and nothing but the start.
WITH_START = (
    "Ridge on a base model",
    "Sum of contributions, epsilon 8",
    "Sum of contributions, epsilon 1",
    "Base model alone",
)
OF_GROUPS = ("contributions_444", "contributions_529")
SITE_LEVEL = {
    "contributions_444": WITH_START,
    "main_gcn_444": ("Fine-tuning", "ER", "FORGE", "Ridge"),
    "main_gcn_529": ("Fine-tuning", "ER", "FORGE", "Ridge"),
    "twenty_sites_gcn": ("Fine-tuning", "ER", "FORGE", "Ridge"),
}
# Mean FD of the 444 is that of the other file.
MOTION = {
    "main_gcn_529": [],
    "main_gcn_444": ["dataset.covariates=$FCFORGE_DATA/abide1_aal116_dparsf.npz"],
}
COLUMNS = ("aaa", "acc", "auroc")
MAJORITY = (
    "majority class",
    "majority class of each site",
)  # of no use among some people


def runs_of(name: str, learners: Sequence[str]) -> tuple[list[RunResult], Experiment]:
    """Runs of some learners of a stored table, and its experiment."""
    table, _ = read_table(ROOT / "paper" / "results" / f"{name}.npz")
    runs = [r for title in learners for r in table.groups[title]]
    return runs, load_experiment(EXPERIMENTS / f"{name}.toml")


def facts_of(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Ages and sexes by site, subjects by their places."""
    cohort = load_dataset(experiment.dataset)
    numbers = places(experiment.dataset)
    facts = {}
    for site in cohort.site_names:
        here = cohort.site == site
        facts[site] = {
            "subject_ids": [str(numbers[who]) for who in cohort.subject_id[here]],
            "covariates": {k: cohort.covariates[k][here] for k in ("age", "sex")},
        }
    return facts


def site_level(name: str, learners: Sequence[str]) -> Study:
    """Accuracy after the last site: over people, and as a further site may expect it."""
    runs, _ = runs_of(name, learners)
    rows = {}
    for title, finite in finite_runs(runs).items():
        by_site = per_site(finite, "accuracy", UNLIMITED)  # widths are variances
        results = [e for e in by_site.values() if np.isfinite(e.value)]
        spread = np.std([e.value for e in results], ddof=1)
        rows[title] = {
            "sites": Estimate(float(len(results)), np.nan, np.nan),
            "over people": _mean(results),
            "over sites (random effects)": further_site(by_site),
            "SD between sites": Estimate(float(spread), np.nan, np.nan),
        }
    return Study("Accuracy after all sites", rows)


def _mean(results: Sequence[Estimate]) -> Estimate:
    """Mean over these sites; test people of two sites are drawn independently."""
    value = np.mean([e.value for e in results])
    below, above = (
        np.sqrt(np.sum([d**2 for d in ends])) / len(results)
        for ends in (
            [e.value - e.low for e in results],
            [e.high - e.value for e in results],
        )
    )
    return Estimate(float(value), float(value - below), float(value + above))


def site_prediction(name: str) -> float:
    """Balanced accuracy of naming the site of a held-out subject by ridge on its edges."""
    cohort = load_dataset(load_experiment(EXPERIMENTS / f"{name}.toml").dataset)
    x = np.arctanh(upper_from_fc(cohort.fc).astype(float).clip(-0.999, 0.999))
    model = make_pipeline(StandardScaler(), RidgeClassifier(1e4))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    results = cross_val_score(
        model, x, cohort.site, cv=folds, scoring="balanced_accuracy"
    )
    return float(results.mean())


def motion_alone(name: str, settings: Sequence[str]) -> dict[str, Any]:
    """Rows of logistic regression on log mean FD and of the majority classes."""
    experiment = load_experiment(EXPERIMENTS / f"{name}.toml", list(settings))
    rows = {}
    for row in motion_rows(experiment):
        results = ((c, row.estimates[c]) for c in COLUMNS)
        rows[row.learner] = {c: Estimate(e.value, e.low, e.high) for c, e in results}
    return study_json(rows)


def measured() -> dict[str, Any]:
    """Everything of paper/results/people.json."""
    results: dict[str, Any] = {}
    for name in OF_GROUPS:
        runs, experiment = runs_of(name, WITH_START)
        groups = subject_groups({"all": facts_of(experiment)})
        for study in [*subgroup_tables(runs, groups), *calibration_tables(runs)]:
            rows = {k: study.rows[k] for k in study.rows if k not in MAJORITY}
            results[f"{name} / {study.title}"] = study_json(rows)
        results[f"{name} / people"] = {k: len(people) for k, people in groups.items()}
        print(name, flush=True)
    for name, learners in SITE_LEVEL.items():
        if not (ROOT / "paper" / "results" / f"{name}.npz").is_file():
            continue
        study = site_level(name, learners)
        results[f"{name} / {study.title}"] = study_json(study.rows)
        print(name, flush=True)
    for name, settings in MOTION.items():
        results[f"{name} / motion alone"] = motion_alone(name, settings)
        results[f"{name} / site prediction"] = site_prediction(name)
        print(name, flush=True)
    return results


def main() -> None:
    about = {
        "command": "python paper/benchmarks/people.py",
        "commit": commit(),
        "machine": describe(),
        "found": measured(),
    }
    OUT.write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
