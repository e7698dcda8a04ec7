"""GraphSAGE (Hamilton et al. 2017) with mean aggregation, dense and batched."""

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
class SAGE(GraphModel):
    r"""4 layers of 128, dropout 0.3, learning rate 1e-3 (paper).

    .. math:: h_i' = W_l \, \mathrm{mean}_{j \in N(i)} h_j + W_r h_i + b

    as PyG's ``SAGEConv``: all neighbours, unweighted; an isolated ROI has neighbour mean 0.
    The first layer's neighbour mean is computed once per subject.
    """

    name: ClassVar[str] = "sage"
    lr: ClassVar[float] = 1e-3

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
        mean = graphs.mean_norm(graphs.adjacency(fc, self.tau, self.edges))
        x = graphs.node_features(fc)
        return {"mean": mean, "features": torch.cat([mean @ x, x], dim=-1)}

    def convolve(self, params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
        """``M h W_l^T + h W_r^T``."""
        weight, root = params[f"conv{layer}.weight"], params[f"conv{layer}.root"]
        if layer == 0:  # [M x, x] come side by side
            return layers.linear(h, torch.cat([weight, root], dim=-1))
        return torch.baddbmm(layers.linear(h, root), inputs["mean"], layers.linear(h, weight))
