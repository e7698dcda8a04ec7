"""Graph convolutions, dense and batched: GCN, GAE, GAT and GraphSAGE."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge import graphs
from fcforge.models import layers
from fcforge.models.base import Inputs, Params
from fcforge.models.message_passing import ConvolutionModel
from fcforge.settings import ShareBelowOne, Size

SLOPE = 0.2  # of the leaky ReLU of attention, as PyG


@dataclass(frozen=True)
class GCN(ConvolutionModel):
    r"""The paper's backbone: 4 layers of 128, dropout 0.3, learning rate 1e-3.

    .. math:: H^{(l+1)} = \mathrm{drop}(\mathrm{ReLU}(\mathrm{norm}(P H^{(l)} W^{(l)} + b)))

    with :math:`P` of `fcforge.graphs.gcn_norm` (edge weights and self loops as PyG's ``GCNConv``).
    The bias comes after propagation; the last layer has no dropout.
    """

    name = "gcn"
    lr = 1e-3

    def init_layer(self, rng: torch.Generator, layer: int, n_in: int) -> Params:
        """Glorot weight and zero bias, as PyG's ``GCNConv``."""
        weight = layers.glorot(rng, self.hidden, n_in)
        return {
            f"conv{layer}.weight": weight,
            f"conv{layer}.bias": torch.zeros(self.hidden),
        }

    def prepare(self, fc: Tensor) -> Inputs:
        """Normalised adjacency P and propagated node features P X, both (n, R, R).

        P X does not depend on parameters: computed once per subject, it spares the first layer
        its propagation in every step.
        """
        propagation = graphs.gcn_norm(graphs.adjacency(fc, self.tau))
        return {
            "propagation": propagation,
            "features": propagation @ graphs.node_features(fc),
        }

    def convolve(self, params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
        """``P h W^T`` (the features of layer 0 come propagated)."""
        h = layers.linear(h, params[f"conv{layer}.weight"])
        return torch.bmm(inputs["propagation"], h) if layer > 0 else h


@dataclass(frozen=True)
class GAE(GCN):
    """3 graph convolutions of 128, dropout 0.2, learning rate 1e-3 (paper).

    The paper uses the encoder of a graph auto-encoder followed by global pooling; nothing is
    decoded.
    """

    depth: Size = 3
    dropout: ShareBelowOne = 0.2
    name = "gae"
    lr = 1e-3


@dataclass(frozen=True)
class GAT(ConvolutionModel):
    r"""3 layers of 128, dropout 0.4, learning rate 5e-4 (paper); 4 heads of 32, concatenated.

    .. math::
        H' = \big\Vert_k \alpha^k H W_k, \quad \alpha^k_{ij} = \mathrm{softmax}_{j \in N(i)
        \cup \{i\}} \mathrm{LeakyReLU}(a^k_{dst} \cdot W_k h_i + a^k_{src} \cdot W_k h_j)

    as PyG's ``GATConv``: attention sees which ROIs are connected, not the edge weights. The
    paper does not say how many heads it uses.
    """

    depth: Size = 3
    dropout: ShareBelowOne = 0.4
    heads: Size = 4
    name = "gat"
    lr = 5e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        layers.check_heads(self.where(), self.heads, self.hidden)

    def init_layer(self, rng: torch.Generator, layer: int, n_in: int) -> Params:
        """Glorot weight and attention vectors, zero bias."""
        size = self.hidden // self.heads
        return {
            f"conv{layer}.weight": layers.glorot(rng, self.hidden, n_in),
            f"conv{layer}.source": layers.glorot(rng, self.heads, size),
            f"conv{layer}.target": layers.glorot(rng, self.heads, size),
            f"conv{layer}.bias": torch.zeros(self.hidden),
        }

    def prepare(self, fc: Tensor) -> Inputs:
        """Attention mask and node features, both (n, R, R)."""
        adj = graphs.adjacency(fc, self.tau)
        return {
            "blocked": graphs.attention_mask(adj),
            "features": graphs.node_features(fc),
        }

    def convolve(self, params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
        """Attention-weighted sum over neighbours, heads side by side."""
        weight = params[f"conv{layer}.weight"]
        # a . (W h) = (W^T a) . h: the attention vectors are carried to the input side, where
        # both scores of all heads are one thin product.
        by_head = weight.reshape(self.heads, -1, weight.shape[-1])  # (heads, c, in)
        ends = torch.cat([params[f"conv{layer}.target"], params[f"conv{layer}.source"]])
        carried = (ends[:, None] @ torch.cat([by_head, by_head])).squeeze(
            1
        )  # (2 heads, in)
        target, source = (
            layers.linear(h, carried).transpose(-1, -2).split(self.heads, dim=-2)
        )
        scores = F.leaky_relu(target[..., :, None] + source[..., None, :], SLOPE)
        attention = layers.masked_softmax(scores, inputs["blocked"])  # (n, heads, R, R)
        values = layers.split_heads(layers.linear(h, weight), self.heads)
        return layers.join_heads(attention @ values)


@dataclass(frozen=True)
class SAGE(ConvolutionModel):
    r"""4 layers of 128, dropout 0.3, learning rate 1e-3 (paper).

    .. math:: h_i' = W_l \, \mathrm{mean}_{j \in N(i)} h_j + W_r h_i + b

    as PyG's ``SAGEConv``: all neighbours, unweighted; an isolated ROI has neighbour mean 0.
    The first layer's neighbour mean is computed once per subject.
    """

    name = "sage"
    lr = 1e-3

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
        mean = graphs.mean_norm(graphs.adjacency(fc, self.tau))
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
