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


def init_convolution(rng: torch.Generator, layer: int, n_in: int, n_out: int) -> Params:
    """Glorot weight and zero bias of one graph convolution, as PyG's ``GCNConv``."""
    return {
        f"conv{layer}.weight": layers.glorot(rng, n_out, n_in),
        f"conv{layer}.bias": torch.zeros(n_out),
    }


def prepare_propagation(fc: Tensor, tau: float, kind: graphs.EdgeKind) -> Inputs:
    """Normalised adjacency P and propagated node features P X, both (n, R, R).

    P X does not depend on parameters: computed once per subject, it spares the first layer its
    propagation in every step.
    """
    propagation = graphs.gcn_norm(graphs.adjacency(fc, tau, kind))
    return {"propagation": propagation, "features": propagation @ graphs.node_features(fc)}


def propagate(params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
    """``P h W^T`` (the features of layer 0 come propagated)."""
    h = layers.linear(h, params[f"conv{layer}.weight"])
    return torch.bmm(inputs["propagation"], h) if layer > 0 else h


@dataclass(frozen=True)
class GCN(GraphModel):
    r"""The paper's backbone: 4 layers of 128, dropout 0.3, learning rate 1e-3.

    .. math:: H^{(l+1)} = \mathrm{drop}(\mathrm{ReLU}(\mathrm{norm}(P H^{(l)} W^{(l)} + b)))

    with :math:`P` of `fcforge.graphs.gcn_norm` (edge weights and self loops as PyG's ``GCNConv``).
    The bias comes after propagation; the last layer has no dropout.
    """

    name: ClassVar[str] = "gcn"
    lr: ClassVar[float] = 1e-3

    def init_layer(self, rng: torch.Generator, layer: int, n_in: int) -> Params:
        """Glorot weight, zero bias."""
        return init_convolution(rng, layer, n_in, self.hidden)

    def prepare(self, fc: Tensor) -> Inputs:
        """Normalised adjacency and propagated node features, both (n, R, R)."""
        return prepare_propagation(fc, self.tau, self.edges)

    def convolve(self, params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
        """``P h W``."""
        return propagate(params, layer, h, inputs)
