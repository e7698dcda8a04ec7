"""Graph convolutional network (Kipf and Welling 2017), dense and batched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fcforge import graphs
from fcforge.models import layers
from fcforge.models.base import Inputs, Params
from fcforge.models.message_passing import GraphModel


@dataclass(frozen=True)
class GCN(GraphModel):
    r"""The paper's backbone: 4 layers of 128, dropout 0.3, learning rate 1e-3.

    .. math:: H^{(l+1)} = \mathrm{drop}(\mathrm{ReLU}(\mathrm{norm}(P H^{(l)} W^{(l)} + b)))

    with :math:`P` of `fcforge.graphs.gcn_norm` (edge weights and self loops as PyG's
    ``GCNConv``). The bias is added after propagation. :math:`P X` does not depend on
    parameters and is computed once per subject, so the first layer needs no propagation.
    """

    name: ClassVar[str] = "gcn"
    lr: ClassVar[float] = 1e-3

    def init_layer(self, rng: torch.Generator, layer: int, n_in: int) -> Params:
        """Glorot weight, zero bias."""
        return {
            f"conv{layer}.weight": layers.glorot(rng, self.hidden, n_in),
            f"conv{layer}.bias": torch.zeros(self.hidden),
        }

    def prepare(self, fc: Tensor) -> Inputs:
        """Normalised adjacency and propagated node features, both (n, R, R)."""
        propagation = graphs.gcn_norm(graphs.adjacency(fc, self.tau, self.edges))
        return {
            "propagation": propagation,
            "features": propagation @ graphs.node_features(fc),
        }

    def convolve(self, params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
        """``P h W``."""
        h = layers.linear(h, params[f"conv{layer}.weight"])
        return inputs["propagation"] @ h if layer > 0 else h  # features come propagated
