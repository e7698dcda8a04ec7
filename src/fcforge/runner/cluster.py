"""Run a plan on many machines: the prefix tree as a Dask graph.

Every missing node is one task that depends on the task of its parent. A task reads its parent
from the run folder, trains, writes its own node whole or not at all, and returns only the key.
So it may be repeated at will: a worker that dies costs what it was working on, nothing else.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fcforge.errors import ConfigError, DataError, FCForgeError, StoreError
from fcforge.runner.execute import Progress, missing_nodes
from fcforge.runner.plan import Node, Plan, trainings
from fcforge.runner.store import Store
from fcforge.sites import load_dataset
from fcforge.types import Component

if TYPE_CHECKING:
    from distributed import Client, Future

    from fcforge.runner.workshop import Workshop

RETRIES = 3  # of a task that failed, e.g. because a network drive did
ALLOWED_DEATHS = 10  # of workers under one task, for schedulers that we start
SLURM_JOBS = 4  # where `slurm` names no number
TOP_UP_SECONDS = 15.0  # how often lost Slurm jobs are replaced
_PATHS = ("path", "subjects")  # settings of datasets that name files
_DO_INSTALL = "Install it: pip install 'fcforge[cluster]'."

# Of a worker process. The lock: Dask may give one process several threads, a workshop has one.
_workshops: dict[tuple[str, str], Workshop] = {}
_lock = threading.Lock()


# -- on a worker -------------------------------------------------------------------------------
def versions() -> tuple[str, str]:
    """What must be the same on all machines for the same numbers: fcforge and torch."""
    import torch

    from fcforge import __version__

    return __version__, str(torch.__version__)


def _workshop(dataset: Component, root: str, data_sha256: str) -> Workshop:
    """Workshop of this process for a dataset and a run folder; the data are loaded once."""
    from fcforge.runner.workshop import Workshop

    key = (repr(dataset), root)
    if key not in _workshops:
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
        _workshops[key] = Workshop(cohort, Store(root))
    return _workshops[key]


def _appears(store: Store, key: str, patience: float = 60.0) -> bool:
    """Wait for a node that another machine wrote: network drives show new names late."""
    limit = time.monotonic() + patience
    while key not in store.done():  # a listing: asking for one name may be answered from a cache
        if time.monotonic() > limit:
            return False
        time.sleep(0.2)
    return True


def train_node(
    node: Node, dataset: Component, root: str, ours: tuple[str, str], parent: str | None
) -> str:
    """Train one node unless it is stored; returns its key. `parent` only orders the tasks."""
    import torch

    if versions() != ours:
        raise ConfigError(
            f"a worker has fcforge and torch {versions()}, this machine {ours}.",
            do="Install the same versions everywhere: other versions give other numbers.",
        )
    with _lock:
        store = Store(root)
        if store.has(node.key):  # its worker died after it was written
            return node.key
        if parent is not None and not _appears(store, parent):
            raise StoreError(f"a worker does not see node {parent}.", where=root)
        # in the task: torch counts threads per thread, and Dask chooses the thread
        torch.set_num_threads(1)
        _workshop(dataset, root, node.spec.data_sha256).run([node])
    return node.key


# -- here --------------------------------------------------------------------------------------
@contextmanager
def open_cluster(address: str, *, timeout: float = 10.0) -> Iterator[Client]:
    """Client of a running scheduler (``tcp://host:port``) or of our own Slurm jobs.

    Parameters
    ----------
    address : str
        Address of a Dask scheduler, or ``slurm`` or ``slurm:JOBS``.
    timeout : float
        Seconds for the scheduler to answer and to have a worker. Slurm jobs may queue for hours
        and are waited for without a limit.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigError("--cluster needs Dask, which is missing.", do=_DO_INSTALL) from error
    if address == "slurm" or address.startswith("slurm:"):
        with _slurm(_slurm_jobs(address)) as cluster, Client(cluster, set_as_default=False) as ours:
            yield ours
        return
    try:
        client = Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"no Dask scheduler answers at '{address}'.",
            do="Start one (`dask scheduler`) and give its address, tcp://HOST:PORT, or slurm.",
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=timeout)
        except TimeoutError as error:
            raise ConfigError(
                f"the Dask scheduler at '{address}' has no worker.",
                do=f"Start some: `dask worker {address} --nthreads 1 --nworkers 8`.",
            ) from error
        yield client


def _slurm_jobs(address: str) -> int:
    text = address.partition(":")[2] or str(SLURM_JOBS)
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"'{address}' asks for '{text}' Slurm jobs.", do="Write e.g. slurm:8.")
    return int(text)


@contextmanager
def _slurm(jobs: int) -> Iterator[Any]:
    """Scheduler in this process and `jobs` Slurm jobs; a job that is lost is submitted again."""
    import dask.config

    try:
        from dask_jobqueue import SLURMCluster
    except ImportError as error:
        raise ConfigError("--cluster slurm needs dask-jobqueue.", do=_DO_INSTALL) from error

    def setting(name: str, default: Any) -> Any:
        return dask.config.get(f"jobqueue.slurm.{name}", None) or default

    cores = int(setting("cores", 1))
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": ALLOWED_DEATHS}),
        SLURMCluster(
            cores=cores,
            processes=int(setting("processes", cores)),
            memory=setting("memory", f"{4 * cores} GiB"),
        ) as cluster,
    ):
        stop = threading.Event()

        def top_up() -> None:
            cluster.scale(jobs=jobs)
            while not stop.wait(TOP_UP_SECONDS):
                cluster.scale(jobs=jobs)

        thread = threading.Thread(target=top_up, daemon=True)
        thread.start()
        try:
            yield cluster
        finally:
            stop.set()
            thread.join()


def run_on(
    client: Client, plan: Plan, dataset: Component, store: Store, *, progress: Progress
) -> None:
    """Train all missing nodes on the workers of `client`; children follow their parents."""
    from distributed import CancelledError, KilledWorker, as_completed
    from distributed.comm import CommClosedError

    todo = missing_nodes(plan, store)
    total, finished = plan.trainings, plan.trainings - trainings(todo)
    progress(finished, total, "")
    futures = _submit(client, todo, shareable(dataset), str(store.root.resolve()))
    node_of = {future.key: node for future, node in zip(futures, todo, strict=True)}
    try:
        for future in as_completed(futures, loop=client.loop):
            future.result()
            node = node_of[future.key]
            finished += trainings([node])
            progress(finished, total, node.title)
    except KilledWorker as error:
        raise FCForgeError(
            "too many workers died under one site training (out of memory?).",
            do="The same command again continues; give the workers more memory.",
        ) from error
    except (CancelledError, CommClosedError) as error:
        raise FCForgeError(
            "the Dask scheduler is gone.", do="The same command again continues."
        ) from error
    finally:
        if client.status == "running":
            client.cancel(futures)


def _submit(client: Client, todo: Sequence[Node], dataset: Component, root: str) -> list[Future]:
    """One task per node, shallow first; a parent that is not to do is in the store."""
    run, ours = uuid.uuid4().hex[:8], versions()  # names of tasks that no other run has
    futures: dict[str, Future] = {}
    for node in todo:
        parent = futures.get(node.parent, node.parent) if node.parent else None
        futures[node.key] = client.submit(
            train_node,
            node,
            dataset,
            root,
            ours,
            parent,
            key=f"fcforge-{run}-{node.key}",
            retries=RETRIES,
        )
    return list(futures.values())


def shareable(dataset: Component) -> Component:
    """The dataset with whole paths: a worker stands in another folder.

    Examples
    --------
    >>> shareable(Component("folder", {"path": "/", "sites": ["tests"]})).params
    {'path': '/', 'sites': ['tests']}
    """
    whole = {
        key: str(Path(value).resolve())
        for key, value in dataset.params.items()
        if key in _PATHS and isinstance(value, str) and Path(value).exists()
    }
    return replace(dataset, params={**dataset.params, **whole})
