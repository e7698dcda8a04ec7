"""GraphSAGE with mean aggregation.

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
class SAGE(ConvolutionModel):
    r"""GraphSAGE with 4 layers of 128, dropout 0.3, learning rate 1e-3 (paper).

    .. math:: h_i' = W_l \, \mathrm{mean}_{j \in N(i)} h_j + W_r h_i + b

    as ``SAGEConv`` of PyTorch Geometric: N(i) are all neighbours of ROI i, unweighted; the mean of an
    isolated ROI is 0. The first layer's neighbour means are computed once per subject.
    """

    name = "sage"

    def init_layer(self, rng: torch.Generator, layer: int, n_in: int) -> Params:
        """Draw both weights and the bias as ``torch.nn.Linear`` does, and so ``SAGEConv``."""
        bound = n_in**-0.5
        shape = (self.hidden, n_in)
        return {
            f"conv{layer}.weight": layers.uniform(rng, shape, bound),
            f"conv{layer}.root": layers.uniform(rng, shape, bound),
            f"conv{layer}.bias": layers.uniform(rng, (self.hidden,), bound),
        }

    def prepare(self, fc: Tensor) -> Inputs:
        """Compute the matrices (n, R, R) that average over neighbours, and the first features.

        The latter (n, R, 2 R) are the neighbours' mean features beside the ROI's own.
        """
        mean = graphs.mean_norm(self.adjacency(fc))
        x = graphs.node_features(fc)
        return {"mean": mean, "features": torch.cat([mean @ x, x], dim=-1)}

    def convolve(self, params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
        """Return ``M h W_l^T + h W_r^T``, M being the matrix that averages over neighbours.

        W_l is stored as ``conv<layer>.weight``, W_r as ``conv<layer>.root``.
        """
        weight = params[f"conv{layer}.weight"]
        root = params[f"conv{layer}.root"]
        if layer == 0:  # `prepare` returned [M x, x] side by side
            return layers.linear(h, torch.cat([weight, root], dim=-1))
        return torch.baddbmm(
            layers.linear(h, root), inputs["mean"], layers.linear(h, weight)
        )
