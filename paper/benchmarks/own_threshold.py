"""Gain by a hospital's own threshold, where shares of patients agree and where they differ.

usage: python paper/benchmarks/own_threshold.py [--seeds 10] [--people 444] [--out FILE.json]

Four hospitals (NYU, UM, USM, UCLA; all other sites of the file are public) as they are, and made
unequal by one rule: NYU and USM keep 30 % patients, UM and UCLA 70 %. Of the diagnosis that is too
many, people are left out in an order drawn once from the hospital's name, before any model is
trained. Runs with ``own_threshold = true``, strict, the same four orders. Differences are paired,
own minus common threshold of the same learner; p-values are of permutations over subjects,
corrected over the learners (Holm).
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from scores import DUPLICATE_SCANS
from setting import FILES, FOLDER, MERGE, SITES, machine, options, save, tested_people
from sums import commit

from fcforge import run
from fcforge.core.randomness import numpy_rng
from fcforge.data.cohort import Cohort
from fcforge.evaluation.comparison import Comparer, holm
from fcforge.evaluation.tables import by_learner
from fcforge.experiments.site_thresholds import OWN
from fcforge.python_api import Results

SHARES = {"NYU": 0.3, "UM": 0.7, "USM": 0.3, "UCLA": 0.7}
COLUMNS = ("aaa", "bacc", "auroc")
TESTED = {"aaa": "accuracy", "bacc": "balanced_accuracy"}
N_DRAWS = 10_000
LEARNERS = (
    {"title": "base model alone", "method": "base_model_alone"},
    {"title": "ridge on a base model", "method": "analytic"},
    {"title": "ridge", "method": "analytic", "base_model": False},
    {
        "title": "ridge on plain edges",  # as in the paper's main table
        "method": {"name": "analytic", "penalty": "gcv"},
        "model": {"name": "linear", "features": "centred"},
        "base_model": False,
    },
)


def left_out(cohort: Cohort) -> list[str]:
    """Ids of those without whom every hospital has its share of patients."""
    results: list[str] = []
    for name, share in SHARES.items():
        local = cohort.site == name
        patients, controls = (
            cohort.subject_id[local & (cohort.y == k)].tolist() for k in (1, 0)
        )
        most = {
            "patients": round(len(controls) * share / (1 - share)),
            "controls": round(len(patients) * (1 - share) / share),
        }
        rng = numpy_rng(0, "unequal hospitals", name)
        results += rng.permutation(patients)[most["patients"] :].tolist()
        results += rng.permutation(controls)[most["controls"] :].tolist()
    return results


def config(file: str, seeds: int, without: list[str]) -> dict[str, Any]:
    """Content of the config that is run, without its learners."""
    people = {"name": "folder", "path": str(FOLDER / file), "sites": list(SITES)}
    return {
        "experiment": {"seeds": list(range(seeds)), "orders": 4, "protocol": "strict"},
        "dataset": people | {"merge": MERGE, "leave_out": without},
        "base_model": {"sites": "others"},
        "evaluation": {"own_threshold": True},
        "learner_defaults": {"model": {"name": "linear", "features": "log+diagonal"}},
    }


def results(file: str, seeds: int, without: list[str]) -> Results:
    """Every learner with and without own thresholds."""
    return run(config(file, seeds, without), learners=LEARNERS)


def records(results: Results, hospitals: str) -> list[dict[str, Any]]:
    """Columns of every row with their intervals; below them own minus common thresholds."""
    made = []
    for row in results.rows:
        ends = {
            column: [round(float(x), 5) for x in list(asdict(estimate).values())[:3]]
            for column, estimate in row.estimates.items()
            if column in COLUMNS
        }
        made.append({"hospitals": hospitals, "learner": row.learner, **ends})
    groups = by_learner(results.runs)
    titles = [learner["title"] for learner in LEARNERS]
    for column, metric in TESTED.items():
        comparer = Comparer(metric, n_draws=N_DRAWS)
        pairs = [comparer.compare(groups[t + OWN], groups[t]) for t in titles]
        for title, d in zip(titles, holm(pairs), strict=True):
            row = next(r for r in made if r["learner"] == title + OWN)
            ends = [d.difference, d.low, d.high, d.p_holm]
            row[f"{column}_gain"] = [round(end, 5) for end in ends]
    return made


def main() -> None:
    args = options(__doc__, seeds=10, people="444", out=Path)
    hardware = machine()
    file = FILES[args.people]
    cohort = tested_people(file)
    twice = [who for who in DUPLICATE_SCANS[file] if who in cohort.subject_id]
    cohort = cohort.select(~np.isin(cohort.subject_id, twice))
    unequal = left_out(cohort)
    kept = cohort.select(~np.isin(cohort.subject_id, unequal))
    rows = []
    for hospitals, ids in (("as they are", []), ("unequal", unequal)):
        ran = results(file, args.seeds, [*ids, *twice])
        rows += records(ran, hospitals)
        print(*rows[-len(ran.rows) :], sep="\n", flush=True)
    command = f"own_threshold.py --seeds {args.seeds} --people {args.people}"
    about = {
        "command": f"python paper/benchmarks/{command}",
        "commit": commit(),
        "machine": hardware,
        "shares": SHARES,
        "people": {name: int((kept.site == name).sum()) for name in SITES},
    }
    save(args.out, about | {"rows": rows})


if __name__ == "__main__":
    main()
