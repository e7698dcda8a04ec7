"""Run a plan on this machine: worker processes on CPUs, lanes on a GPU."""

import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    as_completed,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import groupby
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError, FCForgeError, StoreError
from fcforge.core.formatting import counted
from fcforge.core.spec import RunSpec
from fcforge.data.datasets import load_dataset
from fcforge.experiments.config_code import import_dataset
from fcforge.experiments.plan import Node
from fcforge.experiments.store import Store
from fcforge.experiments.work import Work

if TYPE_CHECKING:
    from fcforge.experiments.trainer import Trainer


def default_jobs() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Place:
    """A device, a number of worker processes, and the cluster's address if there is one."""

    device: str = "cpu"
    jobs: int = 1
    cluster: str = ""

    @property
    def words(self) -> str:
        """Device and workers, in words."""
        workers = counted(self.jobs, "worker")
        if self.cluster:
            workers = f"cluster {self.cluster}"
        return f"{self.device}, {workers}"


def place_to_train(device: str = "auto", jobs: int = 0, cluster: str = "") -> Place:
    """Return where to train; raise `ConfigError` if this machine does not have that device."""
    if cluster and device not in ("auto", "cpu"):
        raise ConfigError(
            f"device '{device}' was asked for, but the workers of a cluster train on CPUs.",
            do="Leave out --device, or leave out --cluster.",
        )
    return Place(
        "cpu" if cluster else pick_device(device), jobs or default_jobs(), cluster
    )


def pick_device(wanted: str) -> str:
    """Return a device; ``"auto"`` is CUDA if this machine has it."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted not in ("cpu", "cuda") and not wanted.startswith("cuda:"):
        raise ConfigError(
            f"unknown device '{wanted}'.", do="Give cpu, cuda, cuda:N or auto."
        )
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device '{wanted}' was asked for, but torch sees no GPU.")
    return wanted


# -- in a worker process, of this machine or of another: one trainer per run folder -------------
# The lock: Dask may give one process several threads, a trainer has one.
_trainers: "dict[tuple[Component, str], Trainer]" = {}
_lock = threading.Lock()


def _trainer(spec: RunSpec, root: str) -> "Trainer":
    """Return the trainer of this process for a dataset and a run folder; data are loaded once."""
    import torch

    from fcforge.experiments.trainer import Trainer

    # one thread: the order of sums, and so every number, is the same on any machine; set in the
    # task, as torch counts threads per thread, and Dask chooses the thread
    torch.set_num_threads(1)
    key = (spec.dataset, root)
    if key not in _trainers:
        if not Path(root).is_dir():
            raise StoreError(
                "a worker does not see the run folder.",
                where=root,
                do="Give --out on a drive that all machines share under the same path.",
            )
        import_dataset(spec.dataset)
        cohort = load_dataset(spec.dataset)
        if spec.data_sha256 and cohort.content_sha256() != spec.data_sha256:
            raise DataError(
                f"a worker finds other data than this machine in dataset '{spec.dataset.name}'.",
                do="Put the data on a drive that all machines share.",
            )
        _trainers[key] = Trainer(cohort, Store(root))
    return _trainers[key]


def train(node: Node, root: str) -> str:
    """Train a node into the run folder at `root` and return its key."""
    with _lock:
        _trainer(node.spec, root).run([node])
    return node.key


def fit_generator(node: Node, root: str) -> None:
    """Fit the generator of a node's last site into the run folder's cache, and draw from it."""
    with _lock:
        _trainer(node.spec, root).parts.fit_generator(node.spec)


# -- here --------------------------------------------------------------------------------------
def _exit_with_parent() -> None:
    """End a worker whose parent was killed; nothing else would."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _workers(n: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(n, get_context("spawn"), _start_worker)


def run_local(work: Work, jobs: int) -> None:
    """Train all missing nodes with `jobs` worker processes; children follow their parents."""
    if not work.todo:
        return
    jobs = min(jobs, len(work.todo))
    pool = _workers(jobs)
    try:
        if jobs > 1:  # two workers that need a generator at one time would both fit it
            fit_ahead(work, pool)
        _train_all(work, jobs, pool)
    except BrokenProcessPool as error:
        message = "a worker process died (killed, or out of memory)."
        hint = "The same command again continues; --jobs with a smaller number needs less memory."
        raise FCForgeError(message, do=hint) from error
    except KeyboardInterrupt:  # what the workers are doing is lost, nothing else
        for worker in list(pool._processes.values()):
            worker.kill()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def fit_ahead(work: Work, pool: ProcessPoolExecutor) -> None:
    """Fit `wanted_generators` in the processes of a pool, and draw from them."""
    root = str(work.store.root)
    ahead = {}
    for node in wanted_generators(work.todo):
        ahead[pool.submit(fit_generator, node, root)] = node
    for done in as_completed(ahead):
        done.result()
        work.done([], f"generator of {ahead[done].spec.order[-1]}")


def _train_all(work: Work, jobs: int, pool: ProcessPoolExecutor) -> None:
    """Keep `jobs` workers busy, and one more node at hand, until nothing is left."""
    root = str(work.store.root)
    running: dict[Future[str], Node] = {}
    while True:
        while len(running) <= jobs and (node := work.take()) is not None:
            running[pool.submit(train, node, root)] = node
        if not running:
            return
        ended, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in ended:
            node = running.pop(future)
            future.result()
            work.done([node], node.title)


def run_lanes(work: Work, trainer: "Trainer") -> None:
    """Train all missing nodes in this process, depth by depth, many lanes at once.

    Learners that differ in factors of their method alone (`RunParts.alike`) train side by side.
    """
    if trainer.device.startswith("cuda"):
        trainer.parts.fit_generators(wanted_generators(work.todo))

    leaders: dict[
        Any, str
    ] = {}  # title of the first of the learners that train together
    by_title: dict[str, str] = {}
    for node in work.todo:
        title = node.spec.learner.title
        if title not in by_title:
            alike = trainer.parts.alike(node.spec.prefix(0))
            by_title[title] = leaders.setdefault(alike, title)

    def order(node: Node) -> tuple[str, int]:
        return by_title[node.spec.learner.title], node.depth

    for _, nodes in groupby(sorted(work.todo, key=order), key=order):
        members = list(nodes)
        trainer.run(members)
        last = members[-1]
        work.done(members, f"{last.spec.learner.title}, depth {last.depth}")


def wanted_generators(nodes: Sequence[Node]) -> list[Node]:
    """Return one node for every generator of a last site that nodes need."""
    from fcforge.experiments.site_loader import synthetic_name

    wanted = {}
    for node in nodes:
        if node.depth and node.spec.learner.generator:
            wanted[synthetic_name(node.spec, node.spec.order[-1], 0)] = node
    return list(wanted.values())
