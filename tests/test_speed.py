"""What is done for speed alone leaves things as they were."""

import contextlib

import pytest
import torch

from fcforge import speed
from fcforge.speed import one_thread


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


def test_buffers_are_filled_by_name_whatever_the_order_of_a_dictionary():
    """Networks read from a file came in another order: means were taken for variances."""
    buffers = ({"mean": torch.zeros(2), "var": torch.zeros(2)}, torch.zeros(1))
    speed._copy(
        buffers, ({"var": torch.ones(2), "mean": -torch.ones(2)}, torch.ones(1))
    )
    assert buffers[0]["mean"].tolist() == [-1, -1]
    assert buffers[0]["var"].tolist() == [1, 1]
    assert buffers[1].tolist() == [1]
