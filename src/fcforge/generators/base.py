"""The contract of a generator of FC matrices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fcforge.types import FCBatch

GeneratorState = dict[str, Tensor]


@dataclass(frozen=True)
class Generator(ABC):
    """A generator: frozen hyper-parameters; what it learnt is a dict of tensors.

    One generator is fitted per site, on that site's training subjects alone.
    """

    name: ClassVar[str]
    releases: ClassVar[Literal["real subjects", "synthetic subjects"]] = "synthetic subjects"

    @abstractmethod
    def fit(self, batch: FCBatch, rng: torch.Generator) -> GeneratorState:
        """Learn from one site's training subjects. Raises `DataError` on a site it cannot use."""

    @abstractmethod
    def sample(self, state: GeneratorState, labels: Tensor, rng: torch.Generator) -> FCBatch:
        """One synthetic subject per entry of `labels` (n,), symmetric with unit diagonal."""

    def diagnostics(self, state: GeneratorState) -> Mapping[str, Any]:
        """Plain numbers on what was learnt (active units, KL, epochs, seconds, ...)."""
        return {}
