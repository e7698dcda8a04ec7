"""What the benchmarks share: which data, which machine, and a clock that also sees children."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import torch

from fcforge.runner.environment import default_jobs
from fcforge.types import Component

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("FCFORGE_DATA", ROOT.parent / "shared" / "data"))
PLACES = (FOLDER / "abide1_aal116.npz", ROOT / ".carry" / "abide1_aal116.npz")
SITES = ("NYU", "UM", "USM", "UCLA")
MERGE = {"UM": ["UM_1", "UM_2"], "UCLA": ["UCLA_1", "UCLA_2"]}


def abide(data: str | None = None, scale: float = 1.0) -> tuple[Component, str]:
    """The four large ABIDE sites where the file is, else simulated ones of the same sizes."""
    if data == "simulated":
        return Component("simulated", {"scale": scale}), f"simulated, scale {scale}"
    found = [Path(data)] if data else [p for p in PLACES if p.exists()]
    if not found:
        return Component("simulated", {"scale": scale}), f"simulated, scale {scale}"
    params = {"path": str(found[0].resolve()), "sites": list(SITES), "merge": MERGE}
    return Component("folder", params), "ABIDE-I, 4 sites, AAL-116"


def cpu_name() -> str:
    """Model name of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "unknown")


def machine(device: str) -> str:
    """One line: device, torch, load."""
    name = torch.cuda.get_device_name() if device.startswith("cuda") else cpu_name()
    load = ", ".join(f"{x:.2f}" for x in os.getloadavg())
    return f"{name}, {default_jobs()} cores, torch {torch.__version__}, load {load}"


class Spent(NamedTuple):
    """Seconds on the wall clock, and CPU seconds of this process and its ended children."""

    wall: float
    cpu: float

    def __add__(self, other: Spent) -> Spent:  # type: ignore[override]
        return Spent(self.wall + other.wall, self.cpu + other.cpu)

    def times(self, factor: float) -> Spent:
        """Both scaled."""
        return Spent(self.wall * factor, self.cpu * factor)


def now(device: str = "cpu") -> Spent:
    """Readings of both clocks, after the device has finished."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return Spent(time.perf_counter(), sum(u.ru_utime + u.ru_stime for u in used))


def since(start: Spent, device: str = "cpu") -> Spent:
    """Spent since a reading."""
    end = now(device)
    return Spent(end.wall - start.wall, end.cpu - start.cpu)


def ceilings(device: str) -> tuple[float, float]:
    """FLOP/s of a float32 product and bytes/s of a copy, measured."""
    size, length = (8192, 2**29) if device.startswith("cuda") else (1024, 2**25)
    m, a = torch.randn(size, size, device=device), torch.empty(length, device=device)
    b = torch.empty_like(a)

    def best(fn: Callable[[], Any]) -> float:
        took = []
        for _ in range(6):
            start = now(device).wall
            fn()
            took.append(now(device).wall - start)
        return min(took)

    return 2 * size**3 / best(lambda: m @ m), 8 * length / best(lambda: b.copy_(a))


@dataclass
class Stopwatch:
    """Adds up what named stages took and how often they ran."""

    device: str = "cpu"
    spent: dict[str, Spent] = field(default_factory=dict)
    count: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, units: int = 1) -> Iterator[None]:
        """Time a block as `units` runs of a stage."""
        start = now(self.device)
        yield
        self.spent[name] = self.spent.get(name, Spent(0.0, 0.0)) + since(start, self.device)
        self.count[name] = self.count.get(name, 0) + units

    def unit(self, name: str) -> Spent:
        """Mean cost of one run of a stage."""
        return self.spent[name].times(1 / self.count[name])


def clock_text(seconds: float) -> str:
    """Readable duration."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.2f} h"
