"""Where a run is trained: this process, worker processes, a GPU, or a cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcforge.errors import ConfigError
from fcforge.runner.execute import default_jobs
from fcforge.runner.run import Prepared, open_store, run_experiment
from fcforge.runner.store import Store
from fcforge.runner.work import Progress


@dataclass(frozen=True)
class Place:
    """A device, a number of worker processes, and the cluster's address if there is one."""

    device: str = "cpu"
    jobs: int = 1
    cluster: str = ""


def place_to_train(device: str = "auto", jobs: int = 0, cluster: str = "") -> Place:
    """The place asked for; `ConfigError` where this machine does not have it."""
    if cluster and device not in ("auto", "cpu"):
        raise ConfigError(
            f"device '{device}' was asked for, but the workers of a cluster train on CPUs.",
            do="Leave out --device, or leave out --cluster.",
        )
    return Place("cpu" if cluster else pick_device(device), jobs or default_jobs(), cluster)


def pick_device(wanted: str) -> str:
    """'auto' takes CUDA where there is one."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted not in ("cpu", "cuda") and not wanted.startswith("cuda:"):
        raise ConfigError(f"unknown device '{wanted}'.", do="Give cpu, cuda, cuda:N or auto.")
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device '{wanted}' was asked for, but torch sees no GPU.")
    return wanted


def train(prepared: Prepared, folder: Path, place: Place, progress: Progress) -> Store:
    """Train what the run folder does not hold yet."""
    from fcforge.runner.cluster import open_cluster, run_on

    # before the folder is made: a cluster that does not answer leaves nothing behind
    found: AbstractContextManager[Any] = (
        open_cluster(place.cluster) if place.cluster else nullcontext()
    )
    with found as client:
        store = open_store(prepared, folder)
        if client is None:
            run_experiment(prepared, store, jobs=place.jobs, device=place.device, progress=progress)
        else:
            run_on(client, prepared.plan, prepared.experiment.dataset, store, progress=progress)
    return store
