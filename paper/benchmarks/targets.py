"""Tables of runs with another target than two classes, for pages.

They are paper/results/age.json, three_groups.json and three_classes.json.

usage: fcforge run paper/experiments/age_abide.toml --out A
       fcforge run paper/experiments/age_529.toml --out B
       python paper/benchmarks/targets.py A B paper/results/age.json

       python paper/benchmarks/targets.py groups abide1_aal116_dparsf.npz three_groups.npz
       fcforge run paper/experiments/three_groups_529.toml --out C \
           --set dataset.path=three_groups.npz
       python paper/benchmarks/targets.py C paper/results/three_groups.json
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np

GROWN = 16.0
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]

from run_tables import commit  # noqa: E402

from fcforge.core.target import Target  # noqa: E402
from fcforge.evaluation.columns import columns_of  # noqa: E402
from fcforge.experiments.environment import describe  # noqa: E402


def rows_of(folder: Path) -> dict[str, dict[str, dict[str, float | None]]]:
    """Mean and interval of every shown column of a run's table.csv, by learner."""
    about = json.loads((folder / "experiment.json").read_text())["target"]
    shown = [c for c in columns_of(Target(**about).kind) if c.shown]
    results = {}
    with (folder / "table.csv").open() as lines:
        for row in csv.DictReader(lines):
            cells = {}
            for c in shown:
                ends = {"mean": c.key, "low": f"{c.key}_low", "high": f"{c.key}_high"}
                values = {k: row[name] for k, name in ends.items()}
                cells[c.title] = {k: float(v) if v else None for k, v in values.items()}
            results[row["learner"]] = cells
    return results


def write_groups(people: Path, out: Path) -> None:
    """The same people in three groups: controls, patients below `GROWN` years, and the others."""
    arrays = dict(np.load(people))
    grown = np.where(arrays["age"] < GROWN, "under 16", "16 and over")
    arrays["label"] = np.where(arrays["label"] == 1, grown, "control")
    np.savez(out, **arrays)


def main() -> None:
    """Write the tables of some run folders into one file."""
    *folders, out = map(Path, sys.argv[1:])
    if sys.argv[1] == "groups":
        write_groups(folders[1], out)
        return
    configs = [f"paper/experiments/{folder.name}.toml" for folder in folders]
    data = {
        "command": "; ".join(f"fcforge run {config}" for config in configs),
        "commit": commit(),
        "machine": describe("cpu"),
        "found": {folder.name: rows_of(folder) for folder in folders},
    }
    out.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
