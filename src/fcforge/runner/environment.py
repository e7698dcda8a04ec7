"""What a run ran on."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
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


@cache
def bfloat16_works() -> bool:
    """Whether this CPU survives a bfloat16 product.

    Some virtual machines announce AMX and kill the process that uses it, so it is tried in a
    process of its own.
    """
    code = "import torch; x = torch.randn(64, 64).bfloat16(); print(float((x @ x).sum()))"
    tried = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    return tried.returncode == 0


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
