"""Edge Gaussian: independent edges, the reference that has no network structure.

Shapes: n subjects, R ROIs, E = R(R-1)/2 edges, K classes.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.generators.base import RNG, FCBatch, Generator, normal
from fcforge.generators.gaussian import class_means, within_class_variance
from fcforge.graphs import edges, fisher_z, from_edges


class EdgeGaussState(NamedTuple):
    """Class means (K, E) of Fisher-z edges and their pooled standard deviation (E,)."""

    mean: Tensor
    sd: Tensor


@dataclass(frozen=True)
class EdgeGauss(Generator):
    """Generator whose Fisher-z edges are normal with their class mean and pooled variance.

    Edges are independent, so samples are practically never positive semidefinite and have no network
    structure beyond the mean. A metric of quality must be able to tell them from real FC.
    """

    name = "edge_gauss"
    state_type = EdgeGaussState
    learns = ("two classes", "more classes")
    learns_columns = True

    def learn(self, batch: FCBatch, rng: RNG) -> EdgeGaussState:
        """Compute class means and pooled variances of the edges."""
        z = fisher_z(edges(batch.fc))
        sd = within_class_variance(z, batch.y).sqrt()
        return EdgeGaussState(class_means(z, batch.y), sd)

    def draw(self, model: EdgeGaussState, y: Tensor, rng: RNG) -> Tensor:
        """Draw FC (n, R, R) for diagnoses y (n,), every edge independently in Fisher z."""
        mean = model.mean[y]
        noise = normal(*mean.shape, rng=rng, to=y.device)
        return from_edges(torch.tanh(mean + model.sd * noise))
