"""Parts that all benchmarks share: command line, data, machine, clocks that see children, printing.

The parts of fcforge that need more than torch and numpy are imported where they are used, so that
`bench.py` runs on a bare GPU machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

import numpy as np
import torch
from torch import nn

from fcforge.core.component import Component

if TYPE_CHECKING:
    from fcforge.data.cohort import Cohort
    from fcforge.experiments.config import Experiment

ROOT = Path(__file__).parents[2]
FOLDER = Path(
    os.environ.setdefault("FCFORGE_DATA", str(ROOT.parent / "shared" / "data"))
)
PLACES = (FOLDER / "abide1_aal116.npz", ROOT / ".carry" / "abide1_aal116.npz")
FILES = {"444": "abide1_aal116.npz", "529": "abide1_aal116_dparsf.npz"}
SITES = ("NYU", "UM", "USM", "UCLA")
MERGE = {"UM": ["UM_1", "UM_2"], "UCLA": ["UCLA_1", "UCLA_2"]}
TWICE = (
    "50286",
    "50602",
    "50808",
)  # second of each pair that looks like one person (PROVENANCE)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


# -- command line and printing ---------------------------------------------------------------------
def options(doc: str, *commands: str, **defaults: Any) -> argparse.Namespace:
    """The command line: `--name` for every default and of its type.

    A bare type has no default, a tuple takes several values, False is a switch; `commands` are
    the choices of a first word.
    """
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=form)
    if commands:
        parser.add_argument("command", choices=commands)
    for name, default in defaults.items():
        several = isinstance(default, tuple)
        one, kind, known = default[0] if several else default, None, default
        if isinstance(one, type):
            kind, known = one, () if several else None
        how = {"type": kind or type(one), "nargs": "*" if several else None}
        if default is False:
            how = {"action": "store_true"}
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, default=known, help=f"default: {known}", **how)
    return parser.parse_args()


def orders(text: str) -> Any:
    """A number of orders, or all."""
    return text if text == "all" else int(text)


def show(rows: Iterable[Mapping[str, Any]], form: str = ".3g") -> str:
    """Print rows as a Markdown table, floats in a form of their own, and give it back."""
    lines: list[str] = []
    for row in rows:
        if not lines:
            lines += ["| " + " | ".join(row) + " |", "|" + "---|" * len(row)]
        cells = [
            f"{v:{form}}" if isinstance(v, float) else str(v) for v in row.values()
        ]
        lines.append("| " + " | ".join(cells) + " |")
    text = "\n".join(lines)
    print(text, flush=True)
    return text


def save(path: Path | None, results: Any) -> None:
    """JSON of what was found, where a path was given; the load at the end is printed."""
    print(f"load after: {', '.join(f'{x:.2f}' for x in os.getloadavg())}")
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n")


# -- data ------------------------------------------------------------------------------------------
def abide(data: str | None = None, scale: float = 1.0) -> tuple[Component, str]:
    """The four large ABIDE sites where the file is, else simulated ones of the same sizes."""
    results = [Path(data)] if data else [p for p in PLACES if p.exists()]
    if data == "simulated" or not results:
        return Component("simulated", {"scale": scale}), f"simulated, scale {scale}"
    params = {"path": str(results[0].resolve()), "sites": list(SITES), "merge": MERGE}
    return Component("folder", params), "ABIDE-I, 4 sites, AAL-116"


def whole_abide(path: Path) -> tuple[Cohort, list[str]]:
    """Everybody in a file, the four tested hospitals merged, and the names of the other sites."""
    from fcforge.data.datasets import load_dataset

    cohort = load_dataset(Component("folder", {"path": str(path), "merge": MERGE}))
    return cohort, [s for s in cohort.site_names if s not in SITES]


def tested_people(file: str) -> Cohort:
    """Subjects of the four tested hospitals in a file."""
    return whole_abide(FOLDER / file)[0].select_sites(SITES)


def public_people(file: str) -> Cohort:
    """Everybody else, the second of each pair that looks like one person left out."""
    cohort, names = whole_abide(FOLDER / file)
    rest = cohort.select_sites(names)
    return rest.select(~np.isin(rest.subject_id, TWICE))


def quality(score: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Accuracy of the scores' signs and AUROC."""
    from fcforge.evaluation.metrics import cell_values

    auroc = float(cell_values(score[None], y, "auroc")[0])
    return float(((score > 0) == (y == 1)).mean()), auroc


# -- machine and clocks ----------------------------------------------------------------------------
def machine(device: str = "cpu") -> str:
    """One line: device, torch, load."""
    load = ", ".join(f"{x:.2f}" for x in os.getloadavg())
    name = platform.processor() or platform.machine()
    if device.startswith("cuda"):
        name = torch.cuda.get_device_name()
    elif Path("/proc/cpuinfo").is_file():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((x.split(": ")[1] for x in lines if x[:10] == "model name"), name)
    return f"{name}, {cores()} cores, torch {torch.__version__}, load {load}"


def cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
    used = [
        resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return Spent(time.perf_counter(), sum(u.ru_utime + u.ru_stime for u in used))


def since(start: Spent, device: str = "cpu") -> Spent:
    """Spent since a reading."""
    return now(device) + start.times(-1)


def own_seconds(device: str) -> float:
    """The wall clock of a GPU; on a CPU the process's seconds, whoever else uses the machine."""
    return now(device).wall if device.startswith("cuda") else time.process_time()


MOST = 60  # epochs that are timed


class Enough(Exception):
    """Raised by the epoch timer once it has seen enough."""


class EpochTimer:
    """Collects the seconds of epochs; stops the loop after `seconds` or `MOST` epochs."""

    def __init__(self, device: str, seconds: float) -> None:
        self.device, self.seconds = device, seconds
        self.ends = [own_seconds(device)]

    def __call__(self) -> None:
        """After every epoch."""
        self.ends.append(own_seconds(self.device))
        over = self.ends[-1] - self.ends[0] > self.seconds or len(self.ends) > MOST
        if len(self.ends) > 3 and over:
            raise Enough

    @property
    def median(self) -> float:
        """Median epoch; the first one pays for warm-up and graph capture."""
        return statistics.median(
            b - a for a, b in zip(self.ends[1:], self.ends[2:], strict=False)
        )


def timed(work: Callable[[], Any], device: str = "cpu") -> tuple[Spent, Any]:
    """Return the time of some work, rounded to milliseconds, and its result."""
    begun = now(device)
    results = work()
    return Spent(*(round(v, 3) for v in since(begun, device))), results


def whole_run(
    experiment: Experiment, device: str = "cpu", **how: Any
) -> tuple[Spent, int]:
    """Return the time of a run from reading its data to the last node, and its site trainings."""

    from fcforge.experiments.run import open_store, prepare, run_experiment

    def run() -> int:
        prepared = prepare(experiment)
        with tempfile.TemporaryDirectory() as scratch:
            store = open_store(prepared, Path(scratch) / "run")
            run_experiment(prepared, store, device=device, **how)
        return prepared.plan.trainings

    return timed(run, device)


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
        self.spent[name] = self.spent.get(name, Spent(0.0, 0.0)) + since(
            start, self.device
        )
        self.count[name] = self.count.get(name, 0) + units

    def unit(self, name: str) -> Spent:
        """Mean cost of one run of a stage."""
        return self.spent[name].times(1 / self.count[name])


def clock_text(seconds: float) -> str:
    """Readable duration."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.2f} h"


# -- the network that others would write -----------------------------------------------------------
class Net(nn.Module):
    """The paper's GCN in plain PyTorch: 4 x 128, head 256-64-32-2, dropout 0.3.

    The convolution (a module of input and output width) and the pooling are given from outside.
    """

    def __init__(
        self, conv: Callable[[int, int], nn.Module], rois: int, width: int = 128
    ) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            conv(a, b) for a, b in pairwise([rois] + [width] * 4)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in self.convs)
        self.head = nn.Sequential(
            *[nn.Linear(2 * width, 64), nn.ReLU(), nn.Dropout(0.3)],
            *[nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2)],
        )

    def forward(
        self, x: torch.Tensor, graph: tuple, pool: Callable
    ) -> tuple[torch.Tensor, ...]:
        """Logits (n, 2) and readouts (n, 256) of nodes x (nodes, ROIs)."""
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = nn.functional.dropout(norm(conv(x, *graph)).relu(), 0.3, self.training)
        readout = pool(x)
        return self.head(readout), readout

    def optimiser(self) -> torch.optim.Adam:
        """Adam as the authors set it."""
        return torch.optim.Adam(self.parameters(), lr=1e-3, weight_decay=2e-4)

    def learn(self, optimiser: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        """One clipped step down a loss."""
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        optimiser.step()
