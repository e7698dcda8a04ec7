"""The contract of a generator of FC matrices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fcforge.generators.checks import check_site, check_y, device_rng
from fcforge.settings import Checked
from fcforge.types import FCBatch

GeneratorState = dict[str, Tensor]


@dataclass(frozen=True)
class Generator(Checked, ABC):
    """A generator: frozen hyper-parameters; what it learnt is a dict of tensors.

    One generator is fitted per site, on that site's training subjects alone. A subclass says how
    it learns and draws (`learn`, `draw`); what every generator asks of its site and of the
    diagnoses to draw is asked here.
    """

    kind: ClassVar[str] = "generator"
    name: ClassVar[str]
    releases: ClassVar[Literal["real subjects", "synthetic subjects"]] = "synthetic subjects"
    min_subjects: ClassVar[int] = 4
    needs_start: ClassVar[bool] = False

    def fit(self, batch: FCBatch, rng: torch.Generator) -> GeneratorState:
        """Learn from one site's training subjects. Raises `DataError` on a site it cannot use."""
        return self.fit_lanes([batch], [rng])[0]

    def fit_lanes(
        self, batches: Sequence[FCBatch], rngs: Sequence[torch.Generator]
    ) -> list[GeneratorState]:
        """One state per site, each as if its site were alone; no site is learnt if one is bad."""
        counts = [check_site(batch, self.name, self.min_subjects) for batch in batches]
        learnt = self.learn_lanes(batches, rngs)
        return [{"counts": n, **state} for n, state in zip(counts, learnt, strict=True)]

    def sample(self, state: GeneratorState, y: Tensor, rng: torch.Generator) -> FCBatch:
        """One synthetic subject per diagnosis of `y` (n,), symmetric with unit diagonal."""
        y = check_y(y, state["counts"], self.name)
        with torch.no_grad():
            return FCBatch(self.draw(state, y, device_rng(rng, y.device)), y)

    def learn_lanes(
        self, batches: Sequence[FCBatch], rngs: Sequence[torch.Generator]
    ) -> list[GeneratorState]:
        """States of checked sites, one after another."""
        return [self.learn(batch, rng) for batch, rng in zip(batches, rngs, strict=True)]

    @abstractmethod
    def learn(self, batch: FCBatch, rng: torch.Generator) -> GeneratorState:
        """State of a checked site, less the ``counts`` of its classes."""

    @abstractmethod
    def draw(self, state: GeneratorState, y: Tensor, rng: torch.Generator) -> Tensor:
        """FC (n, R, R) of diagnoses that the site had; `rng` lives where the state does."""

    def diagnoses(self, state: GeneratorState, y: Tensor, n: int) -> Tensor:
        """Labels (n,) of a synthetic set: the class shares of `y`, at least one of each class."""
        return in_shares(float(y.float().mean()), n)

    def diagnostics(self, state: GeneratorState) -> Mapping[str, Any]:
        """Plain numbers on what was learnt (active units, KL, epochs, seconds, ...)."""
        return {}


@dataclass(frozen=True)
class LaneGenerator(Generator):
    """A generator that trains several sites side by side: what a GPU is for."""

    def learn(self, batch: FCBatch, rng: torch.Generator) -> GeneratorState:
        """One lane."""
        return self.learn_lanes([batch], [rng])[0]

    @abstractmethod
    def learn_lanes(
        self, batches: Sequence[FCBatch], rngs: Sequence[torch.Generator]
    ) -> list[GeneratorState]:
        """States of checked sites of equal ROIs, trained in the same steps."""


def in_shares(patients: float, n: int) -> Tensor:
    """Labels (n,), controls first, with this share of patients but at least one of each class."""
    count = min(max(round(n * patients), 1), n - 1)
    return (torch.arange(n) >= n - count).long()
