"""Do explanations name what matters, and are they stable?

usage: python paper/benchmarks/explanations.py [--out paper/results/explanations.json]

Simulated people (presets easy and realistic), whose disease is known edge by edge, and ABIDE's four
tested sites in both files (444 quality-checked subjects; the paper's own 529), where it is not. A
model learns three quarters of the people; those left out are explained.

*truth*: rank correlation over edges between the model's slopes and the simulated disease, ROI
strength taken out of both. *deletion*: how far the log odds move when the 1 % strongest edges of a
scan are set to the reference, mean over scans, beside 20 draws of as many random edges; *wins* is
the share of scans where the explained edges move it more than every draw. *gap*: largest part of a
change that contributions leave out. *stable*: edges that trainings on 20 random halves agree
about, and with shuffled diagnoses.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from setting import FILES, machine, options, save, tested_people

from fcforge.data.simulated import simulate
from fcforge.data.simulated_calibrated import World, atlas_of, recipe_of
from fcforge.estimator import ForgeClassifier, edge_stability
from fcforge.graphs import centre_edges

GCV = {"method_params": {"penalty": "gcv"}}
MODELS: dict[str, dict[str, Any]] = {
    "ridge": {"model_params": {"features": "centred"}, **GCV},
    "ridge, matrix log": {"model_params": {"features": "log"}, **GCV},
    "mlp": {"method": "finetune", "model": "mlp", "epochs": 20},
}


def centred(edges: np.ndarray) -> np.ndarray:
    """Edges (E,) without the strength of their ROIs."""
    return centre_edges(torch.from_numpy(edges)[None])[0].numpy()


def truth_of(preset: str) -> np.ndarray:
    """The simulated disease of each edge, seed 0."""
    return World(atlas_of(116), recipe_of(preset, None, None), 0).population.disorder[
        np.triu_indices(116, 1)
    ]


def people() -> dict[str, tuple[Any, np.ndarray | None]]:
    """Cohorts, and the disease of each edge where it is known."""
    results: dict[str, Any] = {
        f"simulated, {p}": (simulate(p), truth_of(p)) for p in ("easy", "realistic")
    }
    return results | {
        f"ABIDE, {k}": (tested_people(file), None) for k, file in FILES.items()
    }


def measured(
    model: ForgeClassifier, cohort: Any, truth: np.ndarray | None
) -> dict[str, Any]:
    """One row of the table."""
    rng = np.random.default_rng(0)
    train = rng.permutation(len(cohort)) % 4 > 0
    results = model.fit(cohort.fc[train], cohort.y[train]).explain(
        cohort.fc[~train][:60]
    )
    moved, random = results.deletion.explained, results.deletion.random
    right = model.predict(cohort.fc[~train]) == cohort.y[~train]
    gap = np.abs(results.gap) / np.abs(results.contribution).sum(1)
    row: dict[str, Any] = {
        "accuracy": float(right.mean()),
        "deletion": float(moved.mean()),
    }
    row |= {
        "random": float(random.mean()),
        "wins": float((moved > random.max(1)).mean()),
    }
    row["gap"] = float(gap.max())
    if truth is not None:
        row["truth"] = float(
            spearmanr(centred(results.slope.mean(0)), centred(truth)).statistic
        )
    if model.method == "analytic":
        for name, y in (("stable", cohort.y), ("shuffled", rng.permutation(cohort.y))):
            row[name] = int(edge_stability(model, cohort.fc, y).stable.sum())
    return row


def main() -> None:
    """Measure all and print the table."""
    args, rows = options(__doc__, out=Path), []
    for name, (cohort, truth) in people().items():
        for title, params in MODELS.items():
            row = measured(
                ForgeClassifier(**{"method": "analytic", **params}), cohort, truth
            )
            rows.append({"people": name, "n": len(cohort), "model": title, **row})
            print(
                {
                    k: round(v, 4) if isinstance(v, float) else v
                    for k, v in rows[-1].items()
                }
            )
    save(args.out, {"machine": machine(), "rows": rows})


if __name__ == "__main__":
    main()
