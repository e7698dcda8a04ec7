"""Versions and hardware that a run was trained with."""

import os
import platform
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fcforge.core.version import __version__


@cache
def _cpu() -> str:
    """Return the model name of the processor."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def describe(device: str = "cpu") -> dict[str, Any]:
    """Return versions and hardware, for reports: no host name, no user name, no path."""
    import torch

    facts = {
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
        facts["gpu"] = torch.cuda.get_device_name()
    return facts
