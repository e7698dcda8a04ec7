"""Graph convolutional network, the paper's backbone.

Shapes: n subjects, R ROIs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge import graphs
from fcforge.models.graph import ConvolutionModel
from fcforge.nn import layers
from fcforge.nn.tensors import Inputs, Params


@dataclass(frozen=True)
class GCN(ConvolutionModel):
    r"""The paper's backbone: 4 layers of 128, dropout 0.3, learning rate 1e-3.

    .. math:: H^{(l+1)} = \mathrm{drop}(\mathrm{ReLU}(\mathrm{norm}(P H^{(l)} W^{(l)} + b)))

    where H are node features and P is the propagation matrix of `fcforge.graphs.gcn_norm` (edge
    weights and self loops as in ``GCNConv`` of PyTorch Geometric, PyG).
    The bias comes after propagation; the last layer has no dropout.
    """

    name = "gcn"

    def init_layer(self, rng: torch.Generator, layer: int, n_in: int) -> Params:
        """Draw a Glorot weight and return it with a bias of 0, as PyG's ``GCNConv`` starts."""
        weight = layers.glorot(rng, self.hidden, n_in)
        return {
            f"conv{layer}.weight": weight,
            f"conv{layer}.bias": torch.zeros(self.hidden),
        }

    def prepare(self, fc: Tensor) -> Inputs:
        """Compute the propagation matrices P and propagated node features P X, both (n, R, R).

        P X does not depend on parameters. Computed once per subject, it spares the first layer its
        propagation in every training step.
        """
        propagation = graphs.gcn_norm(self.adjacency(fc))
        return {
            "propagation": propagation,
            "features": propagation @ graphs.node_features(fc),
        }

    def convolve(self, params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
        """Return ``P h W^T``; the features of layer 0 are propagated already, by `prepare`."""
        h = layers.linear(h, params[f"conv{layer}.weight"])
        return torch.bmm(inputs["propagation"], h) if layer > 0 else h
