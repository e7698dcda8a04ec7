"""What a run ran on."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fcforge import __version__


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
