"""From the archives of `benchmarks/run_tables.py` to run folders, and from those to runs."""

from __future__ import annotations

import shutil
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from fcforge.runner.collect import collect, kept_by, stored_plan
from fcforge.runner.store import Store
from fcforge.stats import group
from fcforge.types import RunResult

Runs = list[RunResult]


def unpack(archives: Path, runs: Path) -> None:
    """One run folder per table; tables of one dataset share their nodes by a link."""
    pool = runs / ".pool"
    for path in sorted(archives.rglob("*.tar.gz")):
        with tarfile.open(path) as tar:
            last = ""
            try:
                for member in tar:
                    last = member.name
                    tar.extract(member, pool, filter="data")
            except EOFError:  # its writer was killed: what came before is good
                print(f"{path} is cut short", file=sys.stderr)
                shutil.rmtree((pool / last).parent)
    for node in pool.glob("*/nodes/*"):
        if not (node / "scores.npz").is_file():
            shutil.rmtree(node)
    for table in sorted(pool.glob("*/tables/*.json")):
        folder = runs / table.stem
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "experiment.json").write_bytes(table.read_bytes())
        nodes = folder / "nodes"
        if not nodes.is_symlink() and not nodes.exists():
            nodes.symlink_to((table.parents[1] / "nodes").resolve(), target_is_directory=True)


@dataclass(frozen=True)
class Table:
    """Finished runs of a run folder by learner."""

    folder: Path
    groups: Mapping[str, Runs]
    keeps: Mapping[str, str]
    asked: Mapping[str, int]

    def complete(self) -> list[str]:
        """Learners all of whose runs are there."""
        return [k for k, runs in self.groups.items() if len(runs) == self.asked.get(k)]


def read(folder: Path) -> Table:
    store = Store(folder)
    results, _ = collect(store)
    _, plan, _ = stored_plan(store)
    titles = [spec.learner.title for spec, _ in plan.stages]
    groups = group(results)
    asked = {title: titles.count(title) for title in dict.fromkeys(titles)}
    # a learner that was stopped half-way would be a mean over other orders than its rivals'
    whole = {k: v for k, v in groups.items() if len(v) == asked[k]}
    return Table(folder, whole, kept_by(store), asked)
