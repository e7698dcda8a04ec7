"""Generators that only mark the ends of a scale: real subjects again, and independent edges."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.generators.base import FCBatch, Generator, GeneratorState
from fcforge.generators.corr_gauss import class_means, within_class_variance
from fcforge.generators.layers import RNG, normal
from fcforge.graphs import edges, fisher_z, from_edges


@dataclass(frozen=True)
class Bootstrap(Generator):
    """Draws training subjects of the asked class with replacement.

    The upper end of every fidelity scale and of every privacy risk: its state *is* the site.
    """

    name = "bootstrap"
    learns = ("two classes", "more classes")
    releases = "real subjects"
    min_subjects = 1

    def learn(self, batch: FCBatch, rng: RNG) -> GeneratorState:
        """Keep the subjects."""
        return {"fc": batch.fc.clone(), "y": batch.y.clone()}

    def draw(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """A random training subject of each asked class."""
        index = torch.zeros_like(y)
        for label in y.unique():
            pool = (state["y"] == label).nonzero().flatten()
            asked = y == label
            n = int(asked.sum())
            index[asked] = pool[
                torch.randint(len(pool), (n,), generator=rng).to(y.device)
            ]
        return state["fc"][index]


@dataclass(frozen=True)
class EdgeGauss(Generator):
    """Every Fisher-z edge is normal with its class mean and its pooled variance.

    Edges are independent, so samples are never positive semidefinite and have no network
    structure beyond the mean: what a metric must be able to tell from real FC.
    """

    name = "edge_gauss"
    learns = ("two classes", "more classes")

    def learn(self, batch: FCBatch, rng: RNG) -> GeneratorState:
        """Class means and pooled variances."""
        z = fisher_z(edges(batch.fc))
        return {
            "mean": class_means(z, batch.y),
            "sd": within_class_variance(z, batch.y).sqrt(),
        }

    def draw(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """Independent draws, back through tanh."""
        mean = state["mean"][y]
        return from_edges(
            torch.tanh(mean + state["sd"] * normal(*mean.shape, rng=rng, to=y.device))
        )
