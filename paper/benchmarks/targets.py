"""Write the data file of paper/experiments/three_groups_529.toml.

usage: python paper/benchmarks/targets.py groups abide1_aal116_dparsf.npz three_groups.npz
"""

import sys
from pathlib import Path

import numpy as np

GROWN = 16.0


def write_groups(people: Path, out: Path) -> None:
    """Write the same people in three groups: controls, patients below `GROWN` years, the others."""
    arrays = dict(np.load(people))
    grown = np.where(arrays["age"] < GROWN, "under 16", "16 and over")
    arrays["label"] = np.where(arrays["label"] == 1, grown, "control")
    np.savez(out, **arrays)


def main() -> None:
    """Write the file of groups."""
    if len(sys.argv) != 4 or sys.argv[1] != "groups":
        raise SystemExit(__doc__)
    write_groups(*map(Path, sys.argv[2:]))


if __name__ == "__main__":
    main()
