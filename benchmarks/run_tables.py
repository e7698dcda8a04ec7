"""Every table of the paper on one GPU machine, most wanted first, inside a wall-clock limit.

    python benchmarks/tables_schedule.py .carry/tables.json                     # here
    python benchmarks/run_tables.py .carry/tables.json --limit 540 --out $OUT   # there: torch alone
    python benchmarks/write_tables.py OUT                                       # here: Markdown

Trains learner by learner in the order of the schedule. All tables of a dataset share one store and
one bank, so a learner that two tables name is trained once; generators are fitted and sampled, and
ridge is solved, by CPU processes beside the one that feeds the GPU. After the limit nothing new is
started. Scores and metadata (no lane, no generator) go into ``OUT/*.tar.gz``. The same command
again continues.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from tables_beside import pack_nodes, pack_tables, sample_site, start_helper, train_on_cpu
from tables_schedule import model_steps
from tables_tuning import OutOfTime, tune

from fcforge.errors import FCForgeError
from fcforge.methods import make_method
from fcforge.runner.execute import missing_nodes
from fcforge.runner.experiment import Experiment
from fcforge.runner.run import Prepared, open_store, prepare
from fcforge.runner.store import Store
from fcforge.types import FCBatch

FAILURES = (FCForgeError, RuntimeError, ValueError, LookupError, OSError, TypeError, AssertionError)


# -- run ------------------------------------------------------------------------------------------
@contextmanager
def without_graphs() -> Iterator[None]:
    """Steps as they are written, without CUDA graphs."""
    from fcforge.engine import loop

    graphed, loop.Graphed = loop.Graphed, lambda fn, **_: fn  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        loop.Graphed = graphed  # type: ignore[misc]


@dataclass
class Unit:
    """One learner of one table."""

    table: str
    label: str
    prepared: Prepared
    experiment: Experiment

    @property
    def on_cpu(self) -> bool:
        return self.experiment.learners[0].method.name == "analytic"


class Tables:
    """Trains units; one store and one workshop per dataset."""

    def __init__(self, plan: dict[str, Any], args: argparse.Namespace) -> None:
        self.plan, self.args, self.started = plan, args, time.monotonic()
        self.root = Path(args.root)
        self.experiments = {k: Experiment.from_json(v) for k, v in plan["tables"].items()}
        self.pool = ProcessPoolExecutor(args.helpers, get_context("spawn"), start_helper)
        self.cohorts: dict[str, Prepared] = {}
        self.workshops: dict[str, Any] = {}
        self.samples: dict[tuple[str, Any], Future[Any]] = {}
        self.loading: dict[str, Future[Prepared]] = {}
        self.opened: dict[tuple[str, str], Unit] = {}
        self.beside: dict[Future[int], Unit] = {}
        self.packed, self.described = 0.0, set[str]()
        self.log: list[str] = []

    # -- small things --
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def say(self, text: str) -> None:
        self.log.append(f"{self.seconds():7.1f} s  {text}")
        print(self.log[-1], flush=True)

    def late(self, grace: float = 0.0) -> bool:
        return self.seconds() > self.args.limit + grace

    def tick(self) -> None:
        if self.late(self.args.grace):
            raise OutOfTime("stopped in the middle of a group")

    def place(self, experiment: Experiment) -> str:
        """Name of a dataset's store."""
        params = experiment.dataset.params
        simulated = f"{params.get('layout', 'sim')}{params.get('n_sites', '')}"
        return "abide" if experiment.dataset.name == "folder" else simulated

    def store(self, experiment: Experiment) -> Store:
        return Store(self.root / self.place(experiment))

    def workshop(self, unit: Unit) -> Any:
        from fcforge.runner.workshop import Workshop

        place = self.place(unit.experiment)
        if place not in self.workshops:
            store = self.store(unit.experiment)
            cohort = unit.prepared.cohort
            workshop = Workshop(cohort, store, self.args.device, self.args.group)
            if self.args.no_trial:
                workshop._lanes_that_fit = lambda *_: self.args.group  # type: ignore[method-assign]
            self.workshops[place] = workshop
        return self.workshops[place]

    # -- units --
    def entries(self) -> list[tuple[str, str]]:
        """(table, label) to do, most wanted first."""
        done = set(Path(self.args.skip).read_text().split("\n")) if self.args.skip else set()
        only = {*self.args.only.split(","), "main_abide_tuned"} if self.args.only else None
        wanted = [(t, k) for t, k in self.plan["schedule"] if only is None or t in only]
        return [(t, k) for t, k in wanted if f"{t}/{k}" not in done]

    def load(self) -> None:
        """The first dataset now; the others in helpers, so that the GPU need not wait."""
        tables = {self.place(self.experiments[t]): t for t, _ in reversed(self.entries())}
        for place, table in reversed(tables.items()):
            whole = self.experiments[table]
            one = replace(whole, learners=whole.learners[:1])
            if not self.cohorts:
                self.cohorts[place] = prepare(one)
            else:
                self.loading[place] = self.pool.submit(prepare, one)

    def loaded(self, place: str) -> bool:
        if place in self.loading and self.loading[place].done():
            self.cohorts[place] = self.loading.pop(place).result()
        return place in self.cohorts

    def unit(self, table: str, label: str) -> Unit:
        from fcforge.runner.learners import build_learner
        from fcforge.runner.plan import make_plan

        whole = self.experiments[table]
        base = self.cohorts[self.place(whole)]
        mine = tuple(le for le in whole.learners if le.title == label)
        experiment = replace(whole, learners=mine)
        build_learner(mine[0], base.cohort.n_rois)
        plan = make_plan(experiment.specs(base.sites, base.data_sha256), base.sites)
        prepared = Prepared(experiment, base.cohort, plan, base.data_sha256)
        return Unit(table, label, prepared, experiment)

    def wanted_samples(self, unit: Unit) -> list[tuple[str, Any]]:
        """Ask for the synthetic subjects of a unit; what to wait for."""
        from fcforge.runner.pools import synthetic_name

        learner = unit.experiment.learners[0]
        if learner.generator is None:
            return []
        method: Any = make_method(learner.method)
        n, place = method.candidates + method.dev, self.place(unit.experiment)
        names = []
        for node in unit.prepared.plan.nodes.values():
            if node.depth == 1:
                name = synthetic_name(node.spec, node.spec.order[0], n)
                names.append((place, name))
                if names[-1] not in self.samples:
                    cache = str(self.store(unit.experiment).generators)
                    task = self.pool.submit(sample_site, node, name.site, n, cache)
                    self.samples[names[-1]] = task
        return names

    def train(self, unit: Unit) -> None:
        """Train what is missing, depth by depth."""
        workshop, store = self.workshop(unit), self.store(unit.experiment)
        for place, name in self.wanted_samples(unit):
            if name not in workshop.bench.bank:
                fc, y = self.samples[place, name].result()
                workshop.bench.bank.add(name, FCBatch.from_numpy(fc, y))
        todo = missing_nodes(unit.prepared.plan, store)
        before = self.seconds()
        for _, members in groupby(todo, key=lambda n: n.depth):
            if self.late():
                raise OutOfTime("stopped between two depths")
            workshop.run(list(members), tick=self.tick)
        took, steps = self.seconds() - before, sum(model_steps(unit.prepared, n) for n in todo)
        rate = f"{len(todo)} nodes, {steps:,d} steps, {steps / max(took, 1e-9):,.0f}/s"
        self.say(f"{unit.table}/{unit.label}: {took:.1f} s, {rate}")

    def attempt(self, unit: Unit) -> bool:
        """Whether to go on after this unit."""
        for graphs in (nullcontext(), without_graphs()):  # a capture that fails runs eagerly
            try:
                with graphs:
                    self.train(unit)
            except OutOfTime as reason:
                self.say(f"{unit.table}/{unit.label}: {reason}")
                return False
            except FAILURES:
                self.say(f"{unit.table}/{unit.label} FAILED: {traceback.format_exc()[-1500:]}")
            else:
                break
        return True

    def open(self, entry: tuple[str, str]) -> bool:
        """Make a unit of an entry whose data are there; ask for what it needs of the helpers."""
        if entry not in self.opened and self.loaded(self.place(self.experiments[entry[0]])):
            unit = self.opened[entry] = self.unit(*entry)
            self.wanted_samples(unit)
            if unit.on_cpu:
                root = str(self.store(unit.experiment).root)
                self.beside[self.pool.submit(train_on_cpu, unit.experiment, root)] = unit
        return entry in self.opened

    def run(self) -> None:
        self.load()
        waiting = self.entries()
        while waiting and not self.late():
            there = [self.opened[e] for e in waiting if self.open(e)]
            waiting = [e for e in waiting if e not in self.opened or not self.opened[e].on_cpu]
            unit = next((u for u in there if not u.on_cpu and self.ready(u)), None)
            if unit is None:
                tasks = [*self.samples.values(), *self.loading.values()]
                wait([f for f in tasks if not f.done()], 5, FIRST_COMPLETED)
                continue
            waiting.remove((unit.table, unit.label))
            if not self.attempt(unit):
                break
            if self.seconds() - self.packed > self.args.pack_every:
                self.pack()
        if self.args.tune and not self.late():
            tune(self)
        done, late = wait(self.beside, max(self.args.limit - self.seconds(), 0.0))
        for task in done:
            unit, error = self.beside[task], task.exception()
            self.say(f"{unit.table}/{unit.label} on the CPU: {error or 'done'}")
        for table, label in [
            *waiting,
            *((self.beside[f].table, self.beside[f].label) for f in late),
        ]:
            self.say(f"{table}/{label}: not done")

    def close(self) -> None:
        """Pack what there is, end the helpers."""
        self.pack()
        self.pool.shutdown(wait=False, cancel_futures=True)
        for process in list((self.pool._processes or {}).values()):
            process.terminate()

    def ready(self, unit: Unit) -> bool:
        return all(self.samples[k].done() for k in self.wanted_samples(unit))

    def pack(self) -> None:
        """Scores, metadata, experiments and the log so far."""
        out = Path(self.args.out)
        out.mkdir(parents=True, exist_ok=True)
        places = {self.place(e) for e in self.experiments.values()}
        for place in places:
            pack_nodes(self.root, place, out)
        known = [(k, e) for k, e in self.experiments.items() if self.place(e) in self.cohorts]
        for name, experiment in known:
            base = self.cohorts[self.place(experiment)]
            if name not in self.described:  # takes a second
                open_store(replace(base, experiment=experiment), self.root / "experiments" / name)
                self.described.add(name)
        log = self.root / f"log-{os.getpid()}.txt"
        log.write_text("\n".join(self.log) + "\n")
        pack_tables(self.root, {name: self.place(e) for name, e in known}, out)
        self.packed = self.seconds()
        self.say(f"packed {sum(p.stat().st_size for p in out.glob('*.tar.gz')) / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="of benchmarks/tables_schedule.py")
    parser.add_argument("--limit", type=float, default=540, help="seconds; then nothing new starts")
    parser.add_argument("--grace", type=float, default=15, help="seconds a started group may go on")
    parser.add_argument("--out", default="out", help="where the archives go")
    parser.add_argument("--root", default="/tmp/tables", help="where the stores are")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument(
        "--no-trial", action="store_true", help="no lane tried for its memory; halved when it ends"
    )
    parser.add_argument("--helpers", type=int, default=11, help="CPU processes beside the GPU's")
    parser.add_argument("--only", default="", help="tables, by comma")
    parser.add_argument("--skip", default="", help="file of TABLE/LABEL lines that are done")
    parser.add_argument(
        "--tune", action="store_true", help="tune the main table's rivals at the end"
    )
    parser.add_argument("--repeats", type=int, default=5, help="inner cuts of the tuning")
    parser.add_argument("--pack-every", type=float, default=120)
    args = parser.parse_args()
    tables = Tables(json.loads(args.file.read_text()), args)
    try:
        tables.run()
    finally:
        tables.close()


if __name__ == "__main__":
    main()
