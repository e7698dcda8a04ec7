"""Run a plan on this machine: worker processes on CPUs, lanes on a GPU."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    as_completed,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from fcforge.errors import DataError, FCForgeError, StoreError
from fcforge.runner.plan import Node, Work
from fcforge.runner.store import Store
from fcforge.sites import load_dataset
from fcforge.types import Component

if TYPE_CHECKING:
    from fcforge.runner.trainer import Trainer


# -- in a worker process, of this machine or of another: one trainer per run folder -------------
# The lock: Dask may give one process several threads, a trainer has one.
_trainers: dict[tuple[str, str], Trainer] = {}
_lock = threading.Lock()


def _trainer(dataset: Component, root: str, data_sha256: str) -> Trainer:
    """Trainer of this process for a dataset and a run folder; the data are loaded once."""
    import torch

    from fcforge.runner.trainer import Trainer

    # one thread: the order of sums, and so every number, is the same on any machine; set in the
    # task, as torch counts threads per thread, and Dask chooses the thread
    torch.set_num_threads(1)
    key = (repr(dataset), root)
    if key not in _trainers:
        if not Path(root).is_dir():
            raise StoreError(
                "a worker does not see the run folder.",
                where=root,
                do="Give --out on a drive that all machines share under the same path.",
            )
        cohort = load_dataset(dataset)
        if data_sha256 and cohort.content_sha256() != data_sha256:
            raise DataError(
                f"a worker finds other data than this machine in dataset '{dataset.name}'.",
                do="Put the data on a drive that all machines share.",
            )
        _trainers[key] = Trainer(cohort, Store(root))
    return _trainers[key]


def train(node: Node, dataset: Component, root: str) -> str:
    """Train a node into the run folder at `root`; returns its key."""
    with _lock:
        _trainer(dataset, root, node.spec.data_sha256).run([node])
    return node.key


def fit_generator(
    node: Node, dataset: Component, root: str, draw: bool = False
) -> None:
    """Fit the generator of a node's last site into the run folder's cache, and draw from it."""
    with _lock:
        trainer = _trainer(dataset, root, node.spec.data_sha256)
        trainer.fit_generator(node.spec, node.spec.order[-1], draw=draw)


# -- here --------------------------------------------------------------------------------------
def _exit_with_parent(parent: int) -> None:
    """End a worker whose parent was killed; nothing else would."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _start_worker(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _workers(n: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        max_workers=n,
        mp_context=get_context("spawn"),
        initializer=_start_worker,
        initargs=(os.getpid(),),
    )


def run_local(work: Work, dataset: Component, jobs: int) -> None:
    """Train all missing nodes with `jobs` worker processes; children follow their parents."""
    if not work.todo:
        return
    jobs = min(jobs, len(work.todo))
    pool = _workers(jobs)
    root = str(work.store.root)
    try:
        if jobs > 1:  # two workers that need a generator at one time would both fit it
            _fit_generators_first(work, pool, dataset, root)
        _train_all(work, jobs, lambda node: pool.submit(train, node, dataset, root))
    except BrokenProcessPool as error:
        what = "a worker process died (killed, or out of memory)."
        do = "The same command again continues; --jobs with a smaller number needs less memory."
        raise FCForgeError(what, do=do) from error
    except KeyboardInterrupt:  # what the workers are doing is lost, nothing else
        for worker in list(pool._processes.values()):
            worker.kill()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _fit_generators_first(
    work: Work, pool: ProcessPoolExecutor, dataset: Component, root: str
) -> None:
    """Fit every generator that the missing nodes need, and draw from it."""
    ahead = {}
    for node in wanted_generators(work.todo).values():
        ahead[pool.submit(fit_generator, node, dataset, root, draw=True)] = node
    for done in as_completed(ahead):
        done.result()
        work.done([], f"generator of {ahead[done].spec.order[-1]}")


def _train_all(work: Work, jobs: int, submit: Callable[[Node], Future[str]]) -> None:
    """Keep `jobs` workers busy, and one more node at hand, until nothing is left."""
    running: dict[Future[str], Node] = {}
    while True:
        while len(running) <= jobs and (node := work.take()) is not None:
            running[submit(node)] = node
        if not running:
            return
        ended, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in ended:
            node = running.pop(future)
            future.result()
            work.done([node], node.title)


def run_lanes(work: Work, trainer: Trainer, dataset: Component, jobs: int = 1) -> None:
    """Train all missing nodes in this process: learner by learner, depth by depth, many lanes.

    With several `jobs`, generators are fitted meanwhile in that many processes; learners without
    one go first.
    """
    order = lane_order(work.todo, trainer)
    together = sorted(work.todo, key=order)
    wanted = wanted_generators(work.todo)
    if trainer.device.startswith("cuda"):
        laned = [name for name, node in wanted.items() if in_lanes(node)]
        trainer.fit_generators([wanted.pop(name) for name in laned])
    with fitted_generators(wanted, dataset, work.store, jobs) as wait_for:
        for _, nodes in groupby(together, key=order):
            members = list(nodes)
            wait_for(members)
            trainer.run(members)
            last = members[-1]
            work.done(members, f"{last.spec.learner.title}, depth {last.depth}")


def lane_order(
    nodes: Sequence[Node], trainer: Trainer
) -> Callable[[Node], tuple[bool, str, int]]:
    """Sorting key of nodes: learners without a generator first, those alike together."""
    leader: dict[str, str] = {}  # first learner of those that train together
    by_title: dict[str, str] = {}
    for node in nodes:
        title = node.spec.learner.title
        if title not in by_title:
            alike = trainer.alike(replace(node.spec, order=()))
            by_title[title] = leader.setdefault(alike, title)

    def order(node: Node) -> tuple[bool, str, int]:
        learner = node.spec.learner
        return learner.generator is not None, by_title[learner.title], node.depth

    return order


def wanted_generators(nodes: Sequence[Node]) -> dict[Hashable, Node]:
    """One node for every generator that nodes need."""
    wanted = {generator_name(node): node for node in nodes}
    wanted.pop(None, None)
    return wanted


def in_lanes(node: Node) -> bool:
    """Whether a node's generator trains side by side with others."""
    from fcforge.generators import GENERATORS

    generator = node.spec.learner.generator
    return generator is not None and GENERATORS[generator.name].in_lanes()


@contextmanager
def fitted_generators(
    wanted: Mapping[Hashable, Node], dataset: Component, store: Store, jobs: int
) -> Iterator[Callable[[Sequence[Node]], None]]:
    """Fit `wanted_generators` in `jobs` processes, each once.

    Yields a function that waits for the generators of some nodes. With one job nothing is done
    ahead: whoever needs a generator fits it.
    """
    if jobs < 2 or len(wanted) < 2:
        yield lambda members: None
        return
    root = str(store.root)
    with _workers(min(jobs, len(wanted))) as pool:
        running = {}
        for name, node in wanted.items():
            running[name] = pool.submit(fit_generator, node, dataset, root)

        def wait_for(members: Sequence[Node]) -> None:
            for name in {generator_name(n) for n in members} & running.keys():
                running[name].result()

        try:
            yield wait_for
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def generator_name(node: Node) -> Hashable:
    """What decides the generator of a node's last site; None where there is none."""
    from fcforge.runner.site_loader import synthetic_name

    if node.depth == 0 or node.spec.learner.generator is None:
        return None
    return synthetic_name(node.spec, node.spec.order[-1], 0)
