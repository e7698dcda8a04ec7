"""Bootstrap: real subjects drawn again. The leaky reference, never for release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fcforge.generators.base import Generator, GeneratorState
from fcforge.generators.checks import N_CLASSES, check_labels, check_site, device_rng
from fcforge.types import FCBatch


@dataclass(frozen=True)
class Bootstrap(Generator):
    """Draws training subjects of the asked class with replacement.

    The upper end of every fidelity scale and of every privacy risk: its state *is* the site.
    """

    name: ClassVar[str] = "bootstrap"
    releases: ClassVar[Literal["real subjects", "synthetic subjects"]] = "real subjects"

    def fit(self, batch: FCBatch, rng: torch.Generator) -> GeneratorState:
        """Keep the subjects."""
        counts = check_site(batch, self.name, min_subjects=1)
        return {"fc": batch.fc.clone(), "y": batch.y.clone(), "counts": counts}

    def sample(self, state: GeneratorState, labels: Tensor, rng: torch.Generator) -> FCBatch:
        """A random training subject of each asked class."""
        labels = check_labels(labels, state["counts"], self.name)
        rng = device_rng(rng, labels.device)
        index = torch.zeros_like(labels)
        for label in range(N_CLASSES):
            pool = (state["y"] == label).nonzero().flatten()
            asked = labels == label
            if pool.numel():
                pick = torch.randint(
                    pool.numel(), (int(asked.sum()),), generator=rng, device=rng.device
                )
                index[asked] = pool[pick]
        return FCBatch(state["fc"][index], labels)
