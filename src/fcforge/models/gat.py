"""Graph attention network.

Shapes: n subjects, R ROIs.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge import graphs
from fcforge.core.settings import SHARE_BELOW_ONE, at_least, limits
from fcforge.models.graph import AttentionModel, ConvolutionModel
from fcforge.nn import layers
from fcforge.nn.tensors import Inputs, Params

SLOPE = 0.2  # of the leaky ReLU of attention, as PyG


@limits(depth=at_least(1), dropout=SHARE_BELOW_ONE)
@dataclass(frozen=True)
class GAT(AttentionModel, ConvolutionModel):
    r"""Graph attention network with 3 layers of 128, dropout 0.4, learning rate 5e-4 (paper).

    It has 4 heads of 32 features, concatenated.

    .. math::
        H' = \big\Vert_k \alpha^k H W_k, \quad \alpha^k_{ij} = \mathrm{softmax}_{j \in N(i)
        \cup \{i\}} \mathrm{LeakyReLU}(a^k_{dst} \cdot W_k h_i + a^k_{src} \cdot W_k h_j)

    where k is the head; the vectors :math:`a_{dst}` and :math:`a_{src}` are stored as ``conv<l>.target``
    and ``conv<l>.source`` of layer l. As in ``GATConv`` of PyTorch Geometric, attention depends on which
    ROIs are connected, not on the edge weights. The paper does not give the number of heads.
    """

    depth: int = 3
    dropout: float = 0.4
    name = "gat"
    lr = 5e-4

    def init_layer(self, rng: torch.Generator, layer: int, n_in: int) -> Params:
        """Draw Glorot weight and attention vectors; the bias starts at 0."""
        size = self.hidden // self.heads
        return {
            f"conv{layer}.weight": layers.glorot(rng, self.hidden, n_in),
            f"conv{layer}.source": layers.glorot(rng, self.heads, size),
            f"conv{layer}.target": layers.glorot(rng, self.heads, size),
            f"conv{layer}.bias": torch.zeros(self.hidden),
        }

    def prepare(self, fc: Tensor) -> Inputs:
        """Compute attention masks and node features, both (n, R, R)."""
        adj = self.adjacency(fc)
        return {
            "blocked": graphs.attention_mask(adj),
            "features": graphs.node_features(fc),
        }

    def convolve(self, params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
        """Return the attention-weighted sums over neighbours, heads side by side."""
        weight = params[f"conv{layer}.weight"]
        # Each ROI needs two scores per head, a_dst . (W h) as the one that attends and a_src . (W h)
        # as the one attended to. a . (W h) = (W^T a) . h: with W^T a they are all one thin product.
        # c are the features of a head, `in` those of h.
        by_head = weight.reshape(self.heads, -1, weight.shape[-1])  # (heads, c, in)
        vectors = [params[f"conv{layer}.target"], params[f"conv{layer}.source"]]
        both = torch.cat(vectors)[:, None]  # (2 heads, 1, c)
        to_scores = (both @ torch.cat([by_head, by_head])).squeeze(1)  # (2 heads, in)
        both_scores = layers.linear(h, to_scores).transpose(-1, -2)
        target, source = both_scores.split(self.heads, dim=-2)  # (n, heads, R)
        scores = F.leaky_relu(target[..., :, None] + source[..., None, :], SLOPE)
        attention = layers.masked_softmax(scores, inputs["blocked"])  # (n, heads, R, R)
        values = layers.split_heads(layers.linear(h, weight), self.heads)
        return layers.join_heads(attention @ values)
