"""Training of a plan on many machines: the prefix tree as a Dask graph.

Every missing node is one task that depends on the task of its parent. A task reads its parent from the run
folder, trains, writes its own node whole or not at all, and returns only the node's key. So a task can be
repeated: if a worker dies, only the node that it was training is lost.
"""

import gc
import threading
import time
import traceback
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fcforge.core.errors import ConfigError, FCForgeError, StoreError
from fcforge.experiments import execute
from fcforge.experiments.plan import Node
from fcforge.experiments.store import Store
from fcforge.experiments.work import Work

if TYPE_CHECKING:
    from distributed import Client, Future

RETRIES = (
    3  # how often a failed task is repeated, e.g. after an error of a network drive
)
ALLOWED_DEATHS = 10  # workers that may die in one task, for schedulers that we start
SLURM_JOBS = 4  # number of jobs for the address `slurm` without a number
INSTALL = "Install it: pip install '.[cluster]' in the folder of fcforge."
TOP_UP_SECONDS = 15.0  # how often lost Slurm jobs are replaced


# -- on a worker -------------------------------------------------------------------------------
def versions() -> tuple[str, str]:
    """Return the versions of fcforge and torch, which must be equal on all machines."""
    import torch

    from fcforge.core.version import __version__

    return __version__, str(torch.__version__)


def _appears(store: Store, key: str, patience: float = 60.0) -> bool:
    """Wait until a node that another machine wrote is visible; network drives show new names late.

    Parameters
    ----------
    store : Store
    key : str
    patience : float
        Seconds to wait at most.

    Returns
    -------
    bool
        Whether the node is visible.
    """
    limit = time.monotonic() + patience
    # the folder is listed, because a look-up of one name may be answered from a cache
    while key not in store.done():
        if time.monotonic() > limit:
            return False
        time.sleep(0.2)
    return True


def train_node(node: Node, root: str, ours: tuple[str, str], parent: str | None) -> str:
    """Train one node unless it is stored, and return its key; this is the task of a worker.

    Parameters
    ----------
    node : Node
    root : str
        Run folder.
    ours : (str, str)
        Versions of the machine that runs the command, from `versions`.
    parent : str or None
        Key of the parent node. As the result of the parent's task it also makes Dask wait for that.

    Raises
    ------
    ConfigError
        If the worker has other versions.
    StoreError
        If the worker does not see the parent in the run folder.
    """
    if versions() != ours:
        raise ConfigError(
            f"a worker has fcforge and torch {versions()}, this machine {ours}.",
            do="Install the same versions everywhere: other versions give other numbers.",
        )
    store = Store(root)
    if store.has(node.key):  # the worker died after it had written the node
        return node.key
    if parent is not None and not _appears(store, parent):
        raise StoreError(
            f"a worker does not see node {parent}.",
            where=root,
            do="Give --out on a drive that all machines share under the same path.",
        )
    return execute.train(node, root)


# -- here --------------------------------------------------------------------------------------
@contextmanager
def open_cluster(address: str, *, timeout: float = 10.0) -> "Iterator[Client]":
    """Yield the client of a running Dask scheduler, or of one whose workers are our own Slurm jobs.

    Parameters
    ----------
    address : str
        Address of a Dask scheduler, or ``slurm`` or ``slurm:JOBS``.
    timeout : float
        Seconds that the scheduler has to answer and to have a worker. There is no limit for Slurm jobs, which
        may queue for hours.

    Raises
    ------
    ConfigError
        If Dask is not installed, or no scheduler with a worker answers in time.
    """
    try:
        from distributed import Client
    except ImportError as error:
        message = "--cluster needs Dask, which is missing."
        raise ConfigError(message, do=INSTALL) from error
    if address.partition(":")[0] == "slurm":
        jobs = _slurm_jobs(address)
        with _slurm(jobs) as cluster, Client(cluster, set_as_default=False) as client:
            yield client
        return
    try:
        client = Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError) as error:
        _forget_frames(error)
        message = f"no Dask scheduler answers at '{address}'."
        hint = "Start one (`dask scheduler`) and give its address, tcp://HOST:PORT, or slurm."
        raise ConfigError(message, do=hint) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=timeout)
        except TimeoutError as error:
            message = f"the Dask scheduler at '{address}' has no worker."
            hint = f"Start some: `dask worker {address} --nthreads 1 --nworkers 8`."
            raise ConfigError(message, do=hint) from error
        yield client


def _forget_frames(error: BaseException) -> None:
    """Let go of what the frames of an error hold: here the client that could not connect.

    It closes itself when it is deleted. If the garbage collector did that while another client starts its
    thread, the two would wait for each other for ever.
    """
    chained: BaseException | None = error
    while chained is not None:
        traceback.clear_frames(chained.__traceback__)
        chained = chained.__context__
    gc.collect()


def _slurm_jobs(address: str) -> int:
    """Return the number of jobs in an address such as ``slurm:8``."""
    text = address.partition(":")[2] or str(SLURM_JOBS)
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(
            f"'{address}' asks for '{text}' Slurm jobs, which is not a positive number.",
            do="Write e.g. slurm:8.",
        )
    return int(text)


@contextmanager
def _slurm(jobs: int) -> Iterator[Any]:
    """Yield a scheduler in this process with `jobs` Slurm jobs; a lost job is submitted again."""
    import dask.config

    try:
        from dask_jobqueue import SLURMCluster
    except ImportError as error:
        message = "--cluster slurm needs dask-jobqueue, which is missing."
        raise ConfigError(message, do=INSTALL) from error
    # the user's Dask configuration decides; the defaults after `or` fill what it leaves open
    configured = dask.config.get("jobqueue.slurm", {})
    cores = int(configured.get("cores") or 1)
    processes = int(configured.get("processes") or cores)
    memory = configured.get("memory") or f"{4 * cores} GiB"
    deaths = {"distributed.scheduler.allowed-failures": ALLOWED_DEATHS}
    with (
        dask.config.set(deaths),
        SLURMCluster(cores=cores, processes=processes, memory=memory) as cluster,
    ):
        stop = threading.Event()

        def top_up() -> None:
            """Submit lost jobs again, every `TOP_UP_SECONDS` until the block has ended."""
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


def run_on(client: "Client", work: Work) -> None:
    """Train all missing nodes on the workers of a cluster, each after its parent.

    Parameters
    ----------
    client : Client
        From `open_cluster`.
    work : Work
        Missing nodes.

    Raises
    ------
    FCForgeError
        If too many workers died, or the scheduler does not answer any more.
    """
    from distributed import CancelledError, KilledWorker, as_completed
    from distributed.comm import CommClosedError

    root = str(work.store.root.resolve())
    futures = _submit(client, work.todo, root)
    nodes = {node.key: node for node in work.todo}
    try:
        for future in as_completed(futures, loop=client.loop):
            node = nodes[future.result()]
            work.done([node], node.title)
    except KilledWorker as error:
        raise FCForgeError(
            "too many workers died under one site training (out of memory?).",
            do="Give the workers more memory; the same command again continues.",
        ) from error
    except (CancelledError, CommClosedError) as error:
        raise FCForgeError(
            "the Dask scheduler does not answer any more.",
            do="Start it again; the same command then continues.",
        ) from error
    finally:
        if client.status == "running":
            client.cancel(futures)


def _submit(client: "Client", todo: Sequence[Node], root: str) -> "list[Future]":
    """Submit one task per node and return their futures.

    Parameters
    ----------
    client : Client
    todo : sequence of Node
        Missing nodes, shallow first. A parent that is not among them is in the store.
    root : str
        Run folder.
    """
    run = uuid.uuid4().hex[:8]  # makes the names of tasks unique on the scheduler
    ours = versions()
    futures: dict[str, Future] = {}
    for node in todo:
        parent = futures.get(node.parent, node.parent) if node.parent else None
        futures[node.key] = client.submit(
            train_node,
            node,
            root,
            ours,
            parent,
            key=f"fcforge-{run}-{node.key}",
            retries=RETRIES,
            priority=node.depth,  # deep nodes first, so that fewer stored states are needed
        )
    return list(futures.values())
