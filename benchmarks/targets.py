"""Tables of runs with another target than two classes, for pages: results/age.json and its like.

usage: fcforge run experiments/age_abide.toml --out A
       fcforge run experiments/age_529.toml --out B
       python benchmarks/targets.py A B results/age.json

       python benchmarks/targets.py groups abide1_aal116_dparsf.npz three_groups.npz
       fcforge run experiments/three_groups_529.toml --set dataset.path=three_groups.npz --out C
       python benchmarks/targets.py C results/three_groups.json
"""

import csv
import json
import sys
from pathlib import Path

import numpy as np

GROWN = 16.0
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

from run_tables import commit  # noqa: E402

from fcforge.runner.execute import describe  # noqa: E402
from fcforge.stats.table import columns_of  # noqa: E402
from fcforge.types import Target  # noqa: E402


def rows_of(folder: Path) -> dict[str, dict[str, dict[str, float | None]]]:
    """Mean and interval of every shown column of a run's table.csv, by learner."""
    told = json.loads((folder / "experiment.json").read_text())["target"]
    shown = [c for c in columns_of(Target(**told).kind) if c.shown == "yes"]
    found = {}
    with (folder / "table.csv").open() as lines:
        for row in csv.DictReader(lines):
            cells = {}
            for c in shown:
                ends = {"mean": c.key, "low": f"{c.key}_low", "high": f"{c.key}_high"}
                values = {k: row[name] for k, name in ends.items()}
                cells[c.title] = {k: float(v) if v else None for k, v in values.items()}
            found[row["learner"]] = cells
    return found


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
    configs = [f"experiments/{folder.name}.toml" for folder in folders]
    data = {
        "command": "; ".join(f"fcforge run {config}" for config in configs),
        "commit": commit(),
        "machine": describe("cpu"),
        "found": {folder.name: rows_of(folder) for folder in folders},
    }
    out.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
