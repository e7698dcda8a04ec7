"""What `benchmarks/run_tables.py` runs, in which order, and what it costs.

    python benchmarks/tables_schedule.py .carry/tables.json [--precision tf32] [--tiny]

Turns experiments/*.toml into one JSON file that a bare GPU machine can read, and prints the
model-steps (optimiser steps of one network) of every learner that no earlier entry has paid for.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np

from fcforge.methods import METHODS
from fcforge.runner.experiment import Experiment
from fcforge.runner.plan import Node
from fcforge.runner.run import Prepared, prepare
from fcforge.types import Component, LearnerSpec

FOLDER = Path(__file__).parents[1] / "experiments"
MAIN_FIRST = (
    *("Base", "ER", "DER++", "FORGE (Gaussian)", "Cumulative", "Joint", "DER", "EWC", "SI", "LwF"),
    *("PackNet", "TWP", "UGCL (reconstruction)", "PDGNN", "FORGE (FCM-VAE)", "Analytic ridge"),
)
# Five sites have 120 orders: the core first, the rest when there is time, fewer epochs.
CORE = ("Base", "FORGE (Gaussian)", "ER", "DER++", "Joint", "Analytic ridge", "PDGNN", "LwF", "EWC")
REST = (
    *("Cumulative", "SI", "DER", "TWP", "UGCL (reconstruction)", "PackNet"),
    "FORGE (FCM-VAE)",
)
FIVE = ("main_mdd", "main_bsnip")
EPOCHS = dict.fromkeys((*FIVE, "ablation_mdd", "ablation_bsnip"), 50)
TUNED = ("EWC", "SI", "LwF", "TWP", "UGCL (reconstruction)", "DER")
LEAKY = (
    "experiment.protocol=paper",
    "leaks.select_on_test=true",
    "leaks.context_on_test=true",
    "leaks.generator_sees_test=true",
)
# table, seeds, labels in order of importance (None: as in the file); "+leaks": under the paper's
# protocol with its leaks on
WANTED: tuple[tuple[str, int, tuple[str, ...] | None], ...] = (
    ("main_abide", 5, MAIN_FIRST),
    ("leaks", 3, ("Base", "ER", "DER++", "FORGE", "Cumulative")),
    # Base, ER, DER++ and cumulative have no preset: without leaks they are the main table's rows
    ("paper_protocol", 3, ("FORGE",)),
    ("leaks", 3, ("FORGE (FCM-VAE)",)),
    ("ablation", 3, None),
    ("ladder", 3, None),
    ("buffer", 3, None),
    *((table, 1, (label,)) for label in CORE for table in FIVE),
    ("leaks", 3, ("PDGNN", "UGCL (reconstruction)", "TWP", "SI", "DER", "LwF", "PackNet", "EWC")),
    ("tau", 3, None),
    ("ablation+leaks", 1, None),
    ("lambda", 3, None),
    ("ladder+leaks", 1, None),
    ("buffer+leaks", 1, None),
    ("tau+leaks", 1, None),
    ("lambda+leaks", 1, None),
    *((table, 1, (label,)) for label in REST for table in FIVE),
    *((f"{table}+leaks", 1, ("Base", "ER", "FORGE (Gaussian)")) for table in FIVE),
    ("ablation_mdd", 1, None),
    ("ablation_bsnip", 1, None),
)


def make_plan_file(path: Path, data: str, precision: str, tiny: bool) -> None:
    """Write the tables and their schedule; print what they cost."""
    from fcforge.runner.config import load_experiment

    tables: dict[str, Any] = {}
    schedule: list[list[str]] = []
    for name, seeds, labels in WANTED:
        file, plus, _ = name.partition("+")
        experiment = load_experiment(FOLDER / f"{file}.toml", LEAKY if plus else ())
        epochs = EPOCHS.get(file, experiment.training.epochs)
        training = replace(experiment.training, precision=precision, epochs=epochs)
        experiment = replace(experiment, seeds=tuple(range(seeds)), training=training)
        if experiment.dataset.name == "folder":
            place = {**experiment.dataset.params, "path": data}
            experiment = replace(experiment, dataset=Component("folder", place))
        if tiny:
            experiment = shrink(experiment)
        tables[name] = experiment.to_json()
        known = [learner.title for learner in experiment.learners]
        schedule += [[name, label] for label in labels or known]
    path.write_text(json.dumps({"tables": tables, "schedule": schedule, "tune": TUNED}, indent=1))
    say_costs(tables, schedule)


def say_costs(tables: dict[str, Any], schedule: Sequence[Sequence[str]]) -> None:
    """Model-steps of every entry of the schedule that no earlier one has paid for."""
    prepared = {name: prepare(Experiment.from_json(table)) for name, table in tables.items()}
    seen: set[str] = set()
    total = 0
    for (name, label), _ in groupby(schedule):
        nodes = [
            node
            for node in prepared[name].plan.nodes.values()
            if node.spec.learner.title == label and node.key not in seen
        ]
        seen.update(node.key for node in nodes)
        new = sum(model_steps(prepared[name], node) for node in nodes)
        total += new
        print(f"{name:15s} {label:24s} {len(nodes):5d} nodes {new:8,d} steps {total:10,d} so far")


def shrink(experiment: Experiment) -> Experiment:
    """The same table in seconds on a CPU: few simulated subjects, 16 ROIs, two epochs."""
    sites = {"mdd": 4, "bsnip": 4}.get(str(experiment.dataset.params.get("layout")), 3)
    data = {"preset": "hard_shift", "n_sites": sites, "n_rois": 16, "scale": 0.25}
    small = {"d_model": 16, "d_ff": 16, "d_z": 4, "rank": 2, "epochs": 2}

    def smaller(learner: LearnerSpec) -> LearnerSpec:
        generator = learner.generator
        if generator is not None and generator.name == "fcm_vae":
            generator = replace(generator, params={**generator.params, **small})
        return replace(learner, generator=generator)

    return replace(
        experiment,
        dataset=Component("simulated", data),
        learners=tuple(map(smaller, experiment.learners)),
        seeds=experiment.seeds[:2],
        training=replace(experiment.training, epochs=2),
    )


def model_steps(prepared: Prepared, node: Node) -> int:
    """Optimiser steps of a node."""
    spec, method = node.spec, METHODS[node.spec.learner.method.name]
    if not spec.order or not method.fits:
        return 0
    learned = spec.order if method.depends_on in ("set", "all") else spec.order[-1:]
    n = sum(
        round(int(np.sum(prepared.cohort.site == s)) * (1 - spec.test_fraction)) for s in learned
    )
    return math.ceil(n / spec.training.batch_size) * spec.training.epochs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--data", default=".carry/abide1_aal116.npz")
    parser.add_argument("--precision", default="float32", choices=["float32", "tf32", "bfloat16"])
    parser.add_argument("--tiny", action="store_true", help="a rehearsal in minutes on a CPU")
    args = parser.parse_args()
    make_plan_file(args.file, args.data, args.precision, args.tiny)


if __name__ == "__main__":
    main()
