"""What a hospital's own threshold is worth, where shares of patients agree and where they do not.

usage: python benchmarks/own_threshold.py [--seeds 10] [--out results/own_threshold.json]

Four hospitals of the 871 (NYU, UM, USM, UCLA; all other sites are public) as they are, and made
unequal by one rule: NYU and USM keep 30 % patients, UM and UCLA 70 %. Of the diagnosis that is too
many, people are left out in an order drawn once from the hospital's name, before any model is
trained. Runs with ``own_threshold = true``, strict, the same four orders.
"""

from pathlib import Path

import numpy as np
from setting import FILES, FOLDER, MERGE, SITES, machine, options, save, tested_people
from sums import commit

from fcforge import run
from fcforge.randomness import numpy_rng
from fcforge.sites.cohort import Cohort
from fcforge.stats import Row

SHARES = {"NYU": 0.3, "UM": 0.7, "USM": 0.3, "UCLA": 0.7}
COLUMNS = ("aaa", "bacc", "auroc")
PENALTY = {"name": "analytic", "centre": False, "penalty": 6786.0}  # the start's
LEARNERS = (
    {"title": "public head", "method": "public_head"},
    {"title": "ridge + start", "method": PENALTY},
    {"title": "ridge", "method": PENALTY, "start": False},
)


def left_out(cohort: Cohort) -> list[str]:
    """Ids of those without whom every hospital has its share of patients."""
    found: list[str] = []
    for name, share in SHARES.items():
        own = cohort.site == name
        patients, controls = (
            cohort.subject_id[own & (cohort.y == k)].tolist() for k in (1, 0)
        )
        most = {
            "patients": round(len(controls) * share / (1 - share)),
            "controls": round(len(patients) * (1 - share) / share),
        }
        rng = numpy_rng(0, "unequal hospitals", name)
        found += rng.permutation(patients)[most["patients"] :].tolist()
        found += rng.permutation(controls)[most["controls"] :].tolist()
    return found


def rows(seeds: int, without: list[str]) -> list[Row]:
    """Every learner with and without own thresholds."""
    where = str(FOLDER / FILES["444"])
    people = {"name": "folder", "path": where, "sites": list(SITES), "merge": MERGE}
    asked = {
        "experiment": {"seeds": list(range(seeds)), "orders": 4, "protocol": "strict"},
        "dataset": people | {"leave_out": without},
        "start": {"sites": "others"},
        "evaluation": {"own_threshold": True},
        "learner_defaults": {"model": {"name": "linear", "features": "log+diagonal"}},
    }
    return run(asked, LEARNERS).rows


def record(hospitals: str, row: Row) -> dict[str, object]:
    """Columns of a row with their intervals."""
    found: dict[str, object] = {"hospitals": hospitals, "learner": row.learner}
    for column in COLUMNS:
        estimate = row.estimates[column]
        ends = (estimate.value, estimate.low, estimate.high)
        found[column] = [round(float(end), 5) for end in ends]
    return found


def main() -> None:
    args = options(__doc__, seeds=10, out=Path)
    told = machine()
    cohort = tested_people(FILES["444"])
    without = left_out(cohort)
    kept = cohort.select(~np.isin(cohort.subject_id, without))
    people = {name: int((kept.site == name).sum()) for name in SITES}
    found = []
    for hospitals, ids in (("as they are", []), ("unequal", without)):
        for row in rows(args.seeds, ids):
            found.append(record(hospitals, row))
            print(found[-1], flush=True)
    about = {
        "command": f"python benchmarks/own_threshold.py --seeds {args.seeds}",
        "commit": commit(),
        "machine": told,
        "shares": SHARES,
        "people": people,
    }
    save(args.out, about | {"rows": found})


if __name__ == "__main__":
    main()
