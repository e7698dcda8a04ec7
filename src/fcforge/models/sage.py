"""GraphSAGE with mean aggregation."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge import graphs
from fcforge.models.graph import ConvolutionModel
from fcforge.nn import layers
from fcforge.nn.tensors import Inputs, Params


@dataclass(frozen=True)
class SAGE(ConvolutionModel):
    r"""4 layers of 128, dropout 0.3, learning rate 1e-3 (paper).

    .. math:: h_i' = W_l \, \mathrm{mean}_{j \in N(i)} h_j + W_r h_i + b

    as PyG's ``SAGEConv``: all neighbours, unweighted; an isolated ROI has neighbour mean 0.
    The first layer's neighbour mean is computed once per subject.
    """

    name = "sage"

    def init_layer(self, rng: torch.Generator, layer: int, n_in: int) -> Params:
        """Both weights and the bias as ``torch.nn.Linear``, like PyG."""
        bound = n_in**-0.5
        shape = (self.hidden, n_in)
        return {
            f"conv{layer}.weight": layers.uniform(rng, shape, bound),
            f"conv{layer}.root": layers.uniform(rng, shape, bound),
            f"conv{layer}.bias": layers.uniform(rng, (self.hidden,), bound),
        }

    def prepare(self, fc: Tensor) -> Inputs:
        """Neighbour-mean operator (n, R, R); neighbour means beside own features (n, R, 2 R)."""
        mean = graphs.mean_norm(self.adjacency(fc))
        x = graphs.node_features(fc)
        return {"mean": mean, "features": torch.cat([mean @ x, x], dim=-1)}

    def convolve(self, params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
        """``M h W_l^T + h W_r^T``."""
        weight = params[f"conv{layer}.weight"]
        root = params[f"conv{layer}.root"]
        if layer == 0:  # [M x, x] come side by side
            return layers.linear(h, torch.cat([weight, root], dim=-1))
        return torch.baddbmm(
            layers.linear(h, root), inputs["mean"], layers.linear(h, weight)
        )
