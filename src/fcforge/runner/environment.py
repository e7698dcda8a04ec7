"""Where a run is trained, and what it ran on."""

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fcforge import __version__
from fcforge.errors import ConfigError


@cache
def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe(device: str = "cpu") -> dict[str, Any]:
    """Versions and hardware, for reports. No host name, no user name, no path."""
    import torch

    found = {
        "fcforge": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "device": device,
    }
    if device.startswith("cuda"):
        found["gpu"] = torch.cuda.get_device_name()
    return found


def default_jobs() -> int:
    """Worker processes: the cores this process may use."""
    return (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )


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
    return Place(
        "cpu" if cluster else pick_device(device), jobs or default_jobs(), cluster
    )


def pick_device(wanted: str) -> str:
    """'auto' takes CUDA where there is one."""
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
