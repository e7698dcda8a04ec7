"""Checks of the public base model, and its gain for a hospital with thirty people.

usage: python paper/benchmarks/published_base_model.py processors|hospitals
           [--out paper/results/published_base_model.json]

*processors*: SHA-256 of the arrays of `abide-aal`, made with the matrix products of other
processors (OPENBLAS_CORETYPE, one process each, on this machine).

*hospitals*: each of NYU, UM, USM and UCLA in turn is a new hospital, and the base model is made of
all other sites of abide1_aal116.npz. The hospital draws thirty of its people, with its own share of
patients, twenty times; everybody else of it is tested. Three ways: thirty people alone
(`ForgeClassifier("ridge")`), nobody (the base model alone), the base model and thirty people
(`ConsortiumClassifier(base_model=...)`, exact sums). Nothing is chosen here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from setting import FILES, FOLDER, MERGE, SITES, machine, options, save
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from fcforge.core.component import Component
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import load_dataset
from fcforge.estimator import ForgeClassifier
from fcforge_consortium.base_model.record import make_base_model
from fcforge_consortium.estimator import ConsortiumClassifier
from fcforge_consortium.records.kinds import Plan
from fcforge_consortium.records.policy import Policy

KERNELS = ("Prescott", "Nehalem", "Haswell", "SkylakeX")
PEOPLE = 30
DRAWS = 20


def everybody(**more: Any) -> Cohort:
    """All people of the first file."""
    settings = {"path": str(FOLDER / FILES["444"]), **more}
    return load_dataset(Component("folder", settings))


def arrays_sha256() -> str:
    """Return the SHA-256 of the base model's arrays, as `fcforge consortium base-model --public` makes them."""
    exact = Policy(exact_allowed=True)
    made = make_base_model(everybody(), policy=exact, plan=Plan(epsilon=None))
    return made.root.payload


def processors() -> list[dict[str, str]]:
    """One row per kind of processor."""
    results = []
    for kernel in KERNELS:
        where = {**os.environ, "OPENBLAS_CORETYPE": kernel}
        command = [sys.executable, __file__, "arrays"]
        output = subprocess.run(command, env=where, capture_output=True, check=True)
        results.append({"kernel": kernel, "arrays": output.stdout.decode().strip()})
        print(results[-1], flush=True)
    return results


def measured(odds: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Accuracy and AUROC of log odds."""
    right = float(((odds > 0) == y).mean())
    return {"accuracy": right, "auroc": float(roc_auc_score(y, odds))}


def hospital(cohort: Cohort, site: str) -> list[dict[str, Any]]:
    """Rows of one hospital, one per way, means over draws."""
    others = [name for name in cohort.site_names if name != site]
    exact = {"policy": Policy(exact_allowed=True), "plan": Plan(epsilon=None)}
    base = make_base_model(cohort.select_sites(others), **exact)
    mine = cohort.select_sites([site])
    results: dict[str, list[dict[str, float]]] = {}
    for draw in range(DRAWS):
        local, rest = train_test_split(
            np.arange(len(mine)), train_size=PEOPLE, stratify=mine.y, random_state=draw
        )
        people = (mine.fc[local], mine.y[local])
        alone = ForgeClassifier("ridge").fit(*people).decision_function(mine.fc[rest])
        both = ConsortiumClassifier(base_model=base).fit(*people, site=site)
        ways = {
            "thirty people alone": alone,
            "base model alone": base.model.calibrated(mine.fc[rest], {}),
            "base model and thirty people": both.decision_function(mine.fc[rest]),
        }
        for way, odds in ways.items():
            results.setdefault(way, []).append(measured(odds, mine.y[rest]))
    rows = []
    for way, each in results.items():
        means = {k: round(float(np.mean([e[k] for e in each])), 4) for k in each[0]}
        rows.append({"site": site, "tested": len(rest), "way": way, **means})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure and store."""
    if sys.argv[1:] == ["arrays"]:
        print(arrays_sha256())
        return
    out = Path("paper/results/published_base_model.json")
    given = options(__doc__, "processors", "hospitals", out=out)
    known = json.loads(given.out.read_text()) if given.out.is_file() else {}
    if given.command == "processors":
        results: Any = processors()
    else:
        cohort = everybody(merge=MERGE)
        results = [row for site in SITES for row in hospital(cohort, site)]
    command = f"paper/benchmarks/published_base_model.py {given.command}"
    about = {"machine": machine(), "commands": [command], given.command: results}
    about["commands"] = sorted({*known.get("commands", []), command})
    save(given.out, {**known, **about})


if __name__ == "__main__":
    main()
