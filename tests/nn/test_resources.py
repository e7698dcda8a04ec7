"""Settings made for speed are restored afterwards."""

import contextlib
import os
from pathlib import Path

import pytest
import torch

from fcforge.nn import resources as speed
from fcforge.nn.cuda_graphs import _copy
from fcforge.nn.resources import one_thread


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize("fails", [False, True])
def test_threads_are_put_back_whatever_happens(two_threads, fails) -> None:
    with contextlib.suppress(ZeroDivisionError), one_thread():
        assert torch.get_num_threads() == 1
        _ = 1 / (0 if fails else 1)
    assert torch.get_num_threads() == 2


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="needs Linux")
def test_freed_memory_goes_back() -> None:
    """glibc keeps blocks below a limit that grows to 32 MB with what was freed."""

    def resident() -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    first = torch.ones(7 << 20)  # 28 MB: when it is freed the limit is above the others
    del first
    held = [torch.ones(1 << 20) for _ in range(16)]
    last = torch.ones(16)  # above them, so that they cannot go by themselves
    before = resident()
    del held
    speed.give_back()
    assert resident() < before - (32 << 20)
    assert last.sum() == 16


def test_a_system_without_trimming_is_left_alone(monkeypatch) -> None:
    monkeypatch.setattr(speed.ctypes, "CDLL", lambda name: object())
    speed.give_back()


def test_buffers_are_filled_by_name_whatever_the_order_of_a_dictionary():
    """Networks read from a file came in another order: means were taken for variances."""
    buffers = ({"mean": torch.zeros(2), "var": torch.zeros(2)}, torch.zeros(1))
    _copy(buffers, ({"var": torch.ones(2), "mean": -torch.ones(2)}, torch.ones(1)))
    assert buffers[0]["mean"].tolist() == [-1, -1]
    assert buffers[0]["var"].tolist() == [1, 1]
    assert buffers[1].tolist() == [1]
