"""Independent edges: right means and variances, nothing else. A calibration point."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.generators.base import Generator, GeneratorState
from fcforge.generators.gaussian import class_means, within_class_variance
from fcforge.generators.layers import normal
from fcforge.graphs import edges, fisher_z, from_edges
from fcforge.types import FCBatch


@dataclass(frozen=True)
class EdgeGauss(Generator):
    """Every Fisher-z edge is normal with its class mean and its pooled variance.

    Edges are independent, so samples are never positive semidefinite and have no network
    structure beyond the mean: what a metric must be able to tell from real FC.
    """

    name = "edge_gauss"

    def learn(self, batch: FCBatch, rng: torch.Generator) -> GeneratorState:
        """Class means and pooled variances."""
        z = fisher_z(edges(batch.fc))
        return {"mean": class_means(z, batch.y), "sd": within_class_variance(z, batch.y).sqrt()}

    def draw(self, state: GeneratorState, y: Tensor, rng: torch.Generator) -> Tensor:
        """Independent draws, back through tanh."""
        mean = state["mean"][y]
        return from_edges(torch.tanh(mean + state["sd"] * normal(*mean.shape, rng=rng)))
