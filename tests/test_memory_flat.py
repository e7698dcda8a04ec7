"""Memory does not grow over hundreds of training steps, with replay and refreshes of the memory."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fcforge.core.component import Component
from fcforge.core.spec import Training
from fcforge.core.subjects import FCBatch
from fcforge.methods import make_method
from fcforge.methods.base import Learner
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site
from small_world import make_model

STEPS = 365


def subjects(n: int, rois: int, seed: int) -> FCBatch:
    series = torch.randn(n, rois, 40, generator=torch.Generator().manual_seed(seed))
    return FCBatch(
        torch.stack([torch.corrcoef(s) for s in series]), torch.arange(n) % 2
    )


class Machine:
    """Lanes of FORGE that have learned one site and can be sent to the next."""

    def __init__(
        self,
        device: str,
        lanes: int,
        *,
        rois: int,
        hidden: int,
        depth: int = 2,
        memory: int = 16,
        refresh: int = 5,
    ) -> None:
        sizes = {
            "memory": memory,
            "candidates": memory,
            "dev": 8,
            "replay": 8,
            "refresh": refresh,
        }
        self.learner = Learner(
            make_method(Component("forge", sizes)),
            make_model(Component("gcn", {"hidden": hidden, "depth": depth}), rois),
        )
        self.bank, self.rois, self.memory = Bank(device), rois, memory
        lanes_now = [start_lane(self.learner, s, device) for s in range(lanes)]
        self.lanes = learn_site(
            self.learner, self.jobs(lanes_now, "A", 0), self.bank, Training(epochs=1)
        )

    def jobs(self, lanes: list, site: str, position: int) -> list[Job]:
        """Everybody's next site: as many subjects as fit into one step, so a tick is a step."""
        rows = self.bank.add(
            PoolName("real", site, 0, "train"), subjects(16, self.rois, position)
        )
        made = self.bank.add(
            PoolName("synthetic", site, 0, "x"),
            subjects(self.memory + 8, self.rois, 10 + position),
        )
        view = SiteView(
            site, position, self.bank, rows, rows[:0], synthesise=lambda n: made[:n]
        )
        return [
            Job(lane, view, s, ("A", "B")[: position + 1])
            for s, lane in enumerate(lanes)
        ]

    def run(self, steps: int, tick: Callable[[], Any]) -> None:
        """`steps` steps at the second site; what is replayed is chosen anew in between."""
        jobs = self.jobs(self.lanes, "B", 1)
        learn_site(self.learner, jobs, self.bank, Training(epochs=steps), tick=tick)


class Meter:
    """Reads memory at some steps."""

    def __init__(self, read: Callable[[], int], at: tuple[int, ...]) -> None:
        self.read, self.at, self.step = read, at, 0
        self.seen: dict[int, int] = {}

    def __call__(self) -> None:
        self.step += 1
        if self.step in self.at:
            self.seen[self.step] = self.read()


def resident() -> int:
    """Bytes of this process that are in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def live_tensors() -> int:
    """Bytes of all tensors that Python can still reach."""
    gc.collect()
    return sum(
        x.numel() * x.element_size()
        for x in gc.get_objects()
        if type(x) is torch.Tensor
    )


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(),
    reason="no /proc: resident memory cannot be read",
)


@needs_proc
def test_flat_over_hundreds_of_steps() -> None:
    """Live tensors stay the same to the byte; the process grows by less than a lane per 100."""
    machine = Machine("cpu", lanes=2, rois=12, hidden=64, refresh=40)
    lane = sum(v.numel() * v.element_size() for v in machine.lanes[0].named().values())
    meter = Meter(lambda: live_tensors() * 2**40 + resident(), (85, STEPS))
    machine.run(STEPS, meter)
    tensors = [value // 2**40 for value in meter.seen.values()]
    process = [value % 2**40 for value in meter.seen.values()]
    assert tensors[0] == tensors[1] > 2 * lane
    # keeping one lane per step would add 280 of them; the allocator itself wanders a little
    assert process[1] - process[0] < 8 * 2**20
    assert 2 * lane * (STEPS - 85) > 16 * 2**20, (
        "a leak would not be seen: the lanes are too small"
    )


@needs_proc
def test_a_leak_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same measure on a method that hoards its parameters at every refresh."""
    machine = Machine("cpu", lanes=2, rois=12, hidden=32)
    hoard: list[Any] = []
    method = type(machine.learner.method)
    honest = method.begin_epoch

    def greedy(self: Any, model: Any, lane: Any, *rest: Any) -> Any:
        hoard.append(torch.zeros(1000))
        return honest(self, model, lane, *rest)

    monkeypatch.setattr(method, "begin_epoch", greedy)
    meter = Meter(live_tensors, (10, 60))
    machine.run(60, meter)
    assert meter.seen[60] - meter.seen[10] == 10 * 1000 * 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_flat_on_a_gpu_at_120_lanes() -> None:
    """Allocated device memory is the same after ten steps and after hundreds."""
    machine = Machine("cuda", lanes=120, rois=116, hidden=128, depth=4, memory=64)
    meter = Meter(torch.cuda.memory_allocated, (10, STEPS))
    machine.run(STEPS, meter)
    assert meter.seen[10] == meter.seen[STEPS]
