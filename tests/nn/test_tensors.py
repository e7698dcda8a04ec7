"""Typed states are stored by the path of their fields and come back as they were."""

from typing import NamedTuple

import pytest
import torch

from fcforge.nn.tensors import from_named, to_named


class Inner(NamedTuple):
    count: torch.Tensor


class Outer(NamedTuple):
    weights: dict[str, torch.Tensor]
    inner: Inner
    scale: torch.Tensor


def test_a_state_comes_back_from_its_names() -> None:
    state = Outer({"a.weight": torch.ones(2)}, Inner(torch.tensor(3)), torch.zeros(()))
    named = to_named(state)
    assert list(named) == ["weights.a.weight", "inner.count", "scale"]
    again = from_named(Outer, dict(reversed(named.items())))
    assert isinstance(again.inner, Inner)
    assert to_named(again) == named
    del named["inner.count"]
    with pytest.raises(KeyError, match=r"inner\.count"):
        from_named(Outer, named)
