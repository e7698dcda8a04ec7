"""A Dask cluster gives the numbers of the local run, also when its workers are killed."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

distributed = pytest.importorskip(
    "distributed", reason="the extra 'cluster' is not installed"
)

from fcforge.core.component import Component  # noqa: E402
from fcforge.core.errors import ConfigError, DataError, FCForgeError, StoreError  # noqa: E402
from fcforge.core.spec import LearnerSpec, Training  # noqa: E402
from fcforge.experiments import cluster as ours  # noqa: E402
from fcforge.experiments.cluster import run_on, train_node, versions  # noqa: E402
from fcforge.experiments.config import Experiment  # noqa: E402
from fcforge.experiments.run import Prepared, open_store, prepare, run_experiment  # noqa: E402
from fcforge.experiments.store import Store  # noqa: E402
from fcforge.experiments.work import Work  # noqa: E402
from real_runs import assert_same_run, fcforge  # noqa: E402

# Dask's own business: ports in use, event loops that close late, slow workers
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
NOWHERE = "tcp://127.0.0.1:9"  # the discard port: nobody listens

CONFIG = """\
[dataset]
name = "simulated"
n_sites = 3
n_rois = 8
scale = 0.1

[training]
epochs = 2
batch_size = 8

[[learner]]
method = "finetune"
model = "linear"

[[learner]]
method = "joint"
model = "linear"

[[learner]]
method = { name = "er", memory = 6 }
model = "linear"
"""


def small_experiment() -> Experiment:
    methods = Component("finetune"), Component("joint"), Component("er", {"memory": 6})
    return Experiment(
        Component("simulated", {"n_sites": 3, "n_rois": 8, "scale": 0.1}),
        tuple(LearnerSpec(method, Component("linear")) for method in methods),
        training=Training(epochs=2, batch_size=8),
    )


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(small_experiment())


@pytest.fixture(scope="module")
def local_run(prepared, tmp_path_factory) -> Path:
    """Folder of the same experiment, run by `run_local`."""
    folder = tmp_path_factory.mktemp("local") / "run"
    run_experiment(prepared, open_store(prepared, folder), jobs=1)
    return folder


@pytest.fixture(scope="module")
def dask_cluster() -> Iterator[Any]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster:
            yield cluster


def worker_processes(cluster: Any) -> list[int]:
    return [nanny.pid for nanny in cluster.workers.values()]


def train_on(cluster, prepared, store, progress=lambda *step: None) -> None:
    with ours.open_cluster(cluster.scheduler_address) as client:
        run_on(client, Work(prepared.plan, store, progress))


def test_the_same_numbers_as_the_local_run(prepared, local_run, dask_cluster, tmp_path):
    seen: list[tuple[int, int, str]] = []
    store = open_store(prepared, tmp_path / "run")
    train_on(dask_cluster, prepared, store, progress=lambda *step: seen.append(step))
    assert_same_run(store.root, local_run)
    total = prepared.plan.trainings  # scoring an untrained network moves nothing
    done = [step[0] for step in seen]
    assert done == sorted(done)
    assert set(done) == set(range(total + 1))
    assert {n for _, n, _ in seen} == {total}
    assert "finetune/linear" in " ".join(what for _, _, what in seen)
    assert not [p for p in (store.root / "nodes").iterdir() if p.name.startswith(".")]


def test_workers_that_are_killed_change_nothing(
    prepared, local_run, dask_cluster, tmp_path
):
    """One after the other, so that results of finished tasks are lost too."""
    victims = worker_processes(dask_cluster)
    killed_at: list[int] = []

    def kill_some(done: int, total: int, what: str) -> None:
        if len(killed_at) < len(victims) and done >= 3 + 6 * len(killed_at):
            os.kill(victims[len(killed_at)], signal.SIGKILL)
            killed_at.append(done)

    store = open_store(prepared, tmp_path / "run")
    train_on(dask_cluster, prepared, store, progress=kill_some)
    assert len(killed_at) == 2
    assert max(killed_at) < len(prepared.plan.nodes)  # there was work left
    assert not set(victims) & {
        p.pid for p in psutil.process_iter() if p.status() != "zombie"
    }
    assert_same_run(store.root, local_run)


def test_the_command_uses_the_cluster_and_trains_nothing_twice(
    dask_cluster, tmp_path, local_run
):
    config, folder = tmp_path / "small.toml", tmp_path / "run"
    config.write_text(CONFIG)
    command = (
        "run",
        config,
        "--out",
        folder,
        "--cluster",
        dask_cluster.scheduler_address,
    )
    answer = fcforge(*command)
    assert answer.code == 0, answer.err
    assert f"cluster {dask_cluster.scheduler_address}" in answer.err
    assert_same_run(folder, local_run)
    before = {p: p.stat().st_mtime_ns for p in (folder / "nodes").rglob("*")}
    assert fcforge(*command).out == answer.out
    assert before == {p: p.stat().st_mtime_ns for p in (folder / "nodes").rglob("*")}


def test_an_error_on_a_worker_arrives_as_it_is(prepared, dask_cluster, tmp_path):
    elsewhere = Component(
        "simulated", {"n_sites": 3, "n_rois": 8, "scale": 0.1, "seed": 5}
    )
    nodes = {
        key: replace(node, spec=replace(node.spec, dataset=elsewhere))
        for key, node in prepared.plan.nodes.items()
    }
    other = replace(prepared, plan=replace(prepared.plan, nodes=nodes))
    with pytest.raises(DataError, match="other data"):
        train_on(dask_cluster, other, open_store(prepared, tmp_path / "run"))


# -- without a cluster -------------------------------------------------------------------------
@pytest.mark.parametrize(
    "address", [NOWHERE, "nonsense", "tcp://", "ftp://127.0.0.1:1"]
)
def test_a_wrong_address_is_one_clear_error(address):
    with (
        pytest.raises(ConfigError, match="no Dask scheduler"),
        ours.open_cluster(address, timeout=1),
    ):
        pass


def test_a_client_that_could_not_connect_is_closed_at_once():
    """Left to the garbage collector it may be closed while another one starts, and both wait for ever."""

    def clients() -> int:
        return sum(isinstance(o, distributed.Client) for o in gc.get_objects())

    before = clients()
    with pytest.raises(ConfigError) as kept, ours.open_cluster(NOWHERE, timeout=1):
        pass
    assert clients() == before
    assert kept.value.__cause__ is not None


def test_a_scheduler_without_workers_says_so():
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=None) as empty,
        pytest.raises(ConfigError, match=r"no worker.*dask worker tcp://"),
        ours.open_cluster(empty.scheduler_address, timeout=1),
    ):
        pass


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--cluster", "nonsense"), "no Dask scheduler answers at 'nonsense'"),
        (("--cluster", "slurm:many"), "asks for 'many' Slurm jobs"),
        (("--cluster", "slurm:0"), "asks for '0' Slurm jobs"),
        (
            ("--cluster", NOWHERE, "--device", "cuda"),
            "workers of a cluster train on CPUs",
        ),
    ],
)
def test_the_command_refuses_in_one_line_and_writes_nothing(args, says, tmp_path):
    config = tmp_path / "small.toml"
    config.write_text(CONFIG)
    answer = fcforge("run", config, "--out", tmp_path / "run", *args)
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_without_dask_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"\.\[cluster\]"), ours.open_cluster(NOWHERE):
        pass


@pytest.fixture
def first_site(prepared) -> Any:
    return next(n for n in prepared.plan.nodes.values() if n.depth == 1)


def test_a_task_can_be_repeated(prepared, first_site, tmp_path):
    store = open_store(prepared, tmp_path)
    args = (first_site, str(tmp_path), versions(), None)
    assert train_node(*args) == first_site.key
    before = (tmp_path / "nodes" / first_site.key / "meta.json").stat().st_mtime_ns
    assert train_node(*args) == first_site.key
    assert (
        tmp_path / "nodes" / first_site.key / "meta.json"
    ).stat().st_mtime_ns == before
    assert store.done() == {first_site.key}


def test_a_worker_with_other_versions_refuses(prepared, first_site, tmp_path):
    with pytest.raises(ConfigError, match="same versions everywhere"):
        train_node(first_site, str(tmp_path), ("0", versions()[1]), None)


def test_a_worker_that_does_not_see_the_folder_says_so(prepared, first_site, tmp_path):
    gone = str(tmp_path / "gone")
    with pytest.raises(StoreError, match="drive that all machines share"):
        train_node(first_site, gone, versions(), None)
    assert not Path(gone).exists()


def test_a_parent_that_appears_late_is_waited_for(tmp_path):
    import threading

    node = tmp_path / "nodes" / "late"
    timer = threading.Timer(0.3, lambda: node.mkdir(parents=True))
    timer.start()
    assert ours._appears(Store(tmp_path), "late", patience=20)
    timer.join()
    assert not ours._appears(Store(tmp_path), "never", patience=0.1)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (distributed.CancelledError("x"), "scheduler does not answer any more"),
        (distributed.scheduler.KilledWorker("task", None, 3), "too many workers died"),
    ],
)
def test_a_lost_cluster_is_one_clear_error(
    error, says, prepared, tmp_path, monkeypatch
):
    class Future:
        key = "fcforge-x"

        def result(self) -> str:
            raise error

    class Client:
        status, loop = "closed", None

        def submit(self, *args, **kwargs):
            return Future()

    monkeypatch.setattr(
        distributed, "as_completed", lambda futures, loop: iter(futures)
    )
    work = Work(
        prepared.plan, open_store(prepared, tmp_path / "run"), lambda *step: None
    )
    with pytest.raises(FCForgeError, match=says):
        ours.run_on(Client(), work)


WITHOUT_JOBQUEUE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "dask_jobqueue":
            raise ModuleNotFoundError(name, name="dask_jobqueue")
sys.meta_path.insert(0, Missing())
from fcforge.cli import main
main(sys.argv[1:])
"""


def test_an_address_needs_no_jobqueue_and_slurm_does(tmp_path):
    config = tmp_path / "a.toml"
    config.write_text(CONFIG)

    def run_with(address: str) -> str:
        command = ["run", str(config), "--out", str(tmp_path / "run")]
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_JOBQUEUE, *command, "--cluster", address],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 2
        return done.stderr

    assert "no Dask scheduler answers" in run_with(NOWHERE)
    assert "needs dask-jobqueue" in run_with("slurm:2")


def test_a_scheduler_without_workers_is_told_from_none_and_the_client_is_closed(
    monkeypatch,
):
    from distributed import Client, LocalCluster

    closed = []
    close = Client.close
    monkeypatch.setattr(
        Client,
        "close",
        lambda self, *a, **k: (closed.append(self), close(self, *a, **k)),
    )
    with LocalCluster(
        n_workers=0, processes=False, dashboard_address=None, protocol="tcp"
    ) as empty:
        address = empty.scheduler_address
        with (
            pytest.raises(ConfigError, match="has no worker"),
            ours.open_cluster(address, timeout=1.0),
        ):
            pass
        assert closed
