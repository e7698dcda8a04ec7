"""`--cluster slurm` on a real Slurm of one node, started here; skipped where it cannot start."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("dask_jobqueue", reason="the extra 'cluster' is not installed")

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec, Training
from fcforge.experiments import cluster
from fcforge.experiments.config import Experiment
from fcforge.experiments.run import Prepared, open_store, prepare, run_experiment
from fcforge.experiments.work import Work
from real_runs import assert_same_run

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
SCRIPT = Path(__file__).with_name("slurm_node.sh")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "mungekey", "runuser")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Path]:
    """Folder of a running one-node Slurm, with SLURM_CONF set; or skip with the reason."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        pytest.skip(
            f"no {', '.join(missing)} here (Debian: apt-get install slurm-wlm munge)"
        )
    if os.geteuid() != 0:
        pytest.skip("slurmctld and slurmd are started as root, and this is not root")
    # not pytest's folder: munged runs as another user and must get in
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    try:
        started = subprocess.run(
            [SCRIPT, "start", folder],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if started.returncode != 0:
            pytest.skip(f"Slurm does not start here: {started.stderr[-500:]}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
            yield folder
    finally:
        subprocess.run([SCRIPT, "stop", folder], timeout=60, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def jobs() -> list[str]:
    asked = subprocess.run(
        ["squeue", "--noheader", "-o", "%i"], capture_output=True, check=True
    )
    return asked.stdout.decode().split()


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    learners = tuple(
        LearnerSpec(method, Component("linear"))
        for method in (Component("finetune"), Component("er", {"memory": 6}))
    )
    return prepare(
        Experiment(
            Component("simulated", {"n_sites": 3, "n_rois": 8, "scale": 0.1}),
            learners,
            training=Training(epochs=2, batch_size=8),
        )
    )


def test_jobs_of_slurm_train_and_a_cancelled_one_comes_back(
    slurm, prepared, tmp_path, monkeypatch
):
    import dask.config

    monkeypatch.chdir(tmp_path)  # Slurm writes its logs where it was called
    monkeypatch.setattr(cluster, "TOP_UP_SECONDS", 0.5)
    local = open_store(prepared, tmp_path / "local")
    run_experiment(prepared, local, jobs=1)
    store, cancelled, seen = (
        open_store(prepared, tmp_path / "run"),
        list[str](),
        set[str](),
    )

    def cancel_the_job(done: int, total: int, what: str) -> None:
        seen.update(jobs())
        if done >= 3 and not cancelled:
            assert done < total
            cancelled.extend(jobs())
            subprocess.run(["scancel", *cancelled], check=True)

    settings = {
        "jobqueue.slurm.memory": "1.5 GiB",
        "distributed.deploy.lost-worker-timeout": "1s",
    }
    with dask.config.set(settings), cluster.open_cluster("slurm:1") as client:
        cluster.run_on(client, Work(prepared.plan, store, cancel_the_job))
    assert_same_run(store.root, local.root)
    assert len(cancelled) == 1
    assert seen > set(cancelled)  # the rest was done by another job
    limit = time.monotonic() + 30
    while jobs():  # none is left behind
        assert time.monotonic() < limit
        time.sleep(0.2)
