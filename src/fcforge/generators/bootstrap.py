"""Bootstrap: real subjects drawn again. The leaky reference, never for release."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.generators.base import Generator, GeneratorState
from fcforge.generators.checks import N_CLASSES
from fcforge.types import FCBatch


@dataclass(frozen=True)
class Bootstrap(Generator):
    """Draws training subjects of the asked class with replacement.

    The upper end of every fidelity scale and of every privacy risk: its state *is* the site.
    """

    name = "bootstrap"
    releases = "real subjects"
    min_subjects = 1

    def learn(self, batch: FCBatch, rng: torch.Generator) -> GeneratorState:
        """Keep the subjects."""
        return {"fc": batch.fc.clone(), "y": batch.y.clone()}

    def draw(self, state: GeneratorState, y: Tensor, rng: torch.Generator) -> Tensor:
        """A random training subject of each asked class."""
        index = torch.zeros_like(y)
        for label in range(N_CLASSES):
            pool = (state["y"] == label).nonzero().flatten()
            asked = y == label
            if pool.numel():
                n = int(asked.sum())
                index[asked] = pool[torch.randint(len(pool), (n,), generator=rng, device=y.device)]
        return state["fc"][index]
