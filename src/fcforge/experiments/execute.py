"""Training of a plan on this machine: by worker processes on CPUs, by lanes on a GPU.

A lane is one network among several that train in parallel: one order, seed and learner. A node is one site
training of the prefix tree (`fcforge.experiments.plan`).
"""

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
    """Where an experiment is trained.

    Attributes
    ----------
    device : str
        "cpu", "cuda" or "cuda:N".
    jobs : int
        Number of worker processes.
    cluster : str
        Address of a cluster (`fcforge.experiments.cluster.open_cluster`); "" for none.
    """

    device: str = "cpu"
    jobs: int = 1
    cluster: str = ""

    @property
    def words(self) -> str:
        """Description of device and workers."""
        workers = counted(self.jobs, "worker")
        if self.cluster:
            workers = f"cluster {self.cluster}"
        return f"{self.device}, {workers}"


def place_to_train(device: str = "auto", jobs: int = 0, cluster: str = "") -> Place:
    """Return where to train.

    Parameters
    ----------
    device : str
        "auto", "cpu", "cuda" or "cuda:N".
    jobs : int
        Number of worker processes; 0 for all cores.
    cluster : str
        Address of a cluster; "" for none.

    Raises
    ------
    ConfigError
        If this machine does not have the device, or a cluster is combined with a GPU.
    """
    if cluster and device not in ("auto", "cpu"):
        raise ConfigError(
            f"device '{device}' is requested, but the workers of a cluster train on CPUs.",
            do="Leave out --device, or leave out --cluster.",
        )
    return Place(
        "cpu" if cluster else pick_device(device), jobs or default_jobs(), cluster
    )


def pick_device(wanted: str) -> str:
    """Return the device for a wish: ``"auto"`` is CUDA if torch sees a GPU, else the CPU.

    Raises
    ------
    ConfigError
        If the device is unknown, or torch sees no GPU.
    """
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted not in ("cpu", "cuda") and not wanted.startswith("cuda:"):
        raise ConfigError(
            f"unknown device '{wanted}'.", do="Give cpu, cuda, cuda:N or auto."
        )
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(
            f"device '{wanted}' is requested, but torch sees no GPU.",
            do="Use --device cpu, or install torch with CUDA.",
        )
    return wanted


# -- in a worker process, of this machine or of another: one trainer per run folder -------------
# Dask may run several threads in a process, but only one may use a trainer at a time.
_trainers: "dict[tuple[Component, str, str], Trainer]" = {}
_lock = threading.Lock()


def _trainer(spec: RunSpec, root: str) -> "Trainer":
    """Return the trainer of this process for a dataset and a run folder; data are loaded once."""
    import torch

    from fcforge.experiments.trainer import Trainer

    # With one thread the order of sums, and so every number, is the same on any machine. It is set here,
    # because the setting holds for the calling thread, which Dask chooses.
    torch.set_num_threads(1)
    # a worker of a cluster lives on, and the files may have changed since an earlier run
    key = (spec.dataset, spec.data_sha256, root)
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
                f"a worker reads other data than this machine from dataset '{spec.dataset.name}'.",
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
    """Fit the generator of a node's last site and draw its synthetic subjects, into the cache at `root`."""
    with _lock:
        _trainer(node.spec, root).parts.fit_generator(node.spec)


# -- here --------------------------------------------------------------------------------------
def _exit_with_parent() -> None:
    """Wait until the parent process has ended, then end this worker."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _start_worker() -> None:
    """Make a worker process ignore Ctrl-C, which its parent handles, and end with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _workers(n: int) -> ProcessPoolExecutor:
    """Return a pool of n worker processes."""
    return ProcessPoolExecutor(n, get_context("spawn"), _start_worker)


def run_local(work: Work, jobs: int) -> None:
    """Train all missing nodes with worker processes, each after its parent.

    Parameters
    ----------
    work : Work
        Missing nodes.
    jobs : int
        Number of worker processes.

    Raises
    ------
    FCForgeError
        If a worker process dies.
    """
    if not work.todo:
        return
    jobs = min(jobs, len(work.todo))
    pool = _workers(jobs)
    try:
        if jobs > 1:
            # generators first: two workers that need the same one would both fit it
            fit_ahead(work, pool)
        _train_all(work, jobs, pool)
    except BrokenProcessPool as error:
        message = "a worker process died (killed, or out of memory)."
        hint = "The same command again continues; --jobs with a smaller number needs less memory."
        raise FCForgeError(message, do=hint) from error
    except KeyboardInterrupt:  # only the nodes in training are lost
        for worker in list(pool._processes.values()):
            worker.kill()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def fit_ahead(work: Work, pool: ProcessPoolExecutor) -> None:
    """Fit all generators that missing nodes need, in a pool of processes, before the nodes are trained."""
    root = str(work.store.root)
    node_of = {}
    for node in wanted_generators(work.todo):
        node_of[pool.submit(fit_generator, node, root)] = node
    for future in as_completed(node_of):
        future.result()
        work.done([], f"generator of {node_of[future].spec.order[-1]}")


def _train_all(work: Work, jobs: int, pool: ProcessPoolExecutor) -> None:
    """Train all missing nodes in a pool of `jobs` processes, with one more node submitted than run."""
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

    Learners that differ only in factors of their method (`RunParts.alike`) train together.

    Parameters
    ----------
    work : Work
        Missing nodes.
    trainer : Trainer
    """
    if trainer.device.startswith("cuda"):
        trainer.parts.fit_generators(wanted_generators(work.todo))

    # Learners that train together are named by the title of their first.
    first_titles: dict[Any, str] = {}
    group_of: dict[str, str] = {}
    for node in work.todo:
        title = node.spec.learner.title
        if title not in group_of:
            # prefix(0) has no sites: only the learners are compared
            alike = trainer.parts.alike(node.spec.prefix(0))
            group_of[title] = first_titles.setdefault(alike, title)

    def order(node: Node) -> tuple[str, int]:
        """Return the group and the depth of a node; nodes with the same are trained together."""
        return group_of[node.spec.learner.title], node.depth

    for _, nodes in groupby(sorted(work.todo, key=order), key=order):
        members = list(nodes)
        trainer.run(members)
        last = members[-1]
        work.done(members, f"{last.spec.learner.title}, depth {last.depth}")


def wanted_generators(nodes: Sequence[Node]) -> list[Node]:
    """Return one node for every generator to fit: that of a node's last site.

    Parameters
    ----------
    nodes : sequence of Node
        Nodes to train.

    Returns
    -------
    list of Node
        For each (site, seed, generator) one node that needs it.
    """
    from fcforge.experiments.site_loader import synthetic_name

    wanted = {}
    for node in nodes:
        if node.depth and node.spec.learner.generator:
            # the name of its synthetic subjects identifies a generator; their number does not matter
            wanted[synthetic_name(node.spec, node.spec.order[-1], 0)] = node
    return list(wanted.values())
