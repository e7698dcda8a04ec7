"""Edge Gaussian: independent edges, the reference that has no network structure."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.generators.base import RNG, FCBatch, Generator, normal
from fcforge.generators.gaussian import class_means, within_class_variance
from fcforge.graphs import edges, fisher_z, from_edges


class EdgeGaussState(NamedTuple):
    """Class means (K, p) of Fisher-z edges and their pooled standard deviation (p,)."""

    mean: Tensor
    sd: Tensor


@dataclass(frozen=True)
class EdgeGauss(Generator):
    """Generator whose Fisher-z edges are normal with their class mean and pooled variance.

    Edges are independent, so samples are never positive semidefinite and have no network
    structure beyond the mean: a metric must be able to tell them from real FC.
    """

    name = "edge_gauss"
    state_type = EdgeGaussState
    learns = ("two classes", "more classes")

    def learn(self, batch: FCBatch, rng: RNG) -> EdgeGaussState:
        """Compute class means and pooled variances."""
        z = fisher_z(edges(batch.fc))
        sd = within_class_variance(z, batch.y).sqrt()
        return EdgeGaussState(class_means(z, batch.y), sd)

    def draw(self, model: EdgeGaussState, y: Tensor, rng: RNG) -> Tensor:
        """Draw edges independently and map them back through tanh."""
        mean = model.mean[y]
        noise = normal(*mean.shape, rng=rng, to=y.device)
        return from_edges(torch.tanh(mean + model.sd * noise))
