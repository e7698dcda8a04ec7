"""Graph transformer of Dwivedi and Bresson (2021) with Laplacian coordinates."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge import graphs
from fcforge.core.settings import at_least, limits
from fcforge.models.graph import AttentionModel
from fcforge.nn import layers
from fcforge.nn.tensors import Inputs, Key, Params


def attend(
    query: Tensor, keys: Tensor, values: Tensor, blocked: Tensor, heads: int
) -> Tensor:
    r"""Scaled dot-product attention over open pairs.

    .. math:: \mathrm{softmax}_{j \in N(i) \cup \{i\}} (q_i \cdot k_j / \sqrt{c}) \, v_j

    Parameters
    ----------
    query, keys, values : Tensors of shape (n, R, heads * c)
    blocked : Tensor of shape (n, R, R)
        0 or -inf, of `fcforge.graphs.attention_mask`.

    Returns
    -------
    Tensor of shape (n, R, heads * c)
    """
    q, k, v = (layers.split_heads(part, heads) for part in (query, keys, values))
    scores = q @ (k * k.shape[-1] ** -0.5).transpose(-1, -2)  # (n, heads, R, R)
    return layers.join_heads(layers.masked_softmax(scores, blocked) @ v)


@limits(depth=at_least(1), coordinates=at_least(1))
@dataclass(frozen=True)
class GraphTransformer(AttentionModel):
    """3 blocks of 128, dropout 0.3, learning rate 5e-4 (paper); 4 heads, 8 coordinates.

    Node features and Laplacian coordinates are embedded and added. A block is attention over
    connected ROIs, then a feed-forward network of twice the width, each with a skip connection
    and followed by the norm. Readout and head are those of the other graph models.
    """

    depth: int = 3
    coordinates: int = 8
    name = "graph_transformer"
    lr = 5e-4

    def norms(self) -> list[str]:
        """Two in every block: after attention and after the feed-forward network."""
        return [
            f"block{i}.norm_{part}"
            for i in range(self.depth)
            for part in ("attn", "ffn")
        ]

    def init(self, rng: torch.Generator) -> Params:
        """Linear layers as ``torch.nn.Linear``, norms at identity."""
        width = self.hidden
        params = layers.init_linear(rng, "embed", self.n_rois, width)
        params |= layers.init_linear(rng, "place", self.coordinates, width)
        for i in range(self.depth):
            params |= layers.init_linear(rng, f"block{i}.qkv", width, 3 * width)
            params |= layers.init_linear(rng, f"block{i}.out", width, width)
            params |= layers.init_linear(rng, f"block{i}.ffn_up", width, 2 * width)
            params |= layers.init_linear(rng, f"block{i}.ffn_down", 2 * width, width)
        for name in self.norms():
            params |= layers.init_norm(name, width)
        return params | self.init_head(rng)

    def prepare(self, fc: Tensor) -> Inputs:
        """Attention mask, node features (n, R, R) and Laplacian coordinates (n, R, k)."""
        adj = self.adjacency(fc)
        return {
            "blocked": graphs.attention_mask(adj),
            "features": graphs.node_features(fc),
            # Entries of a unit vector over R ROIs are about 1/sqrt(R); features are about 1.
            "places": graphs.laplacian_coordinates(adj, self.coordinates)
            * fc.shape[-1] ** 0.5,
        }

    def encode(
        self, params: Params, stats: Params, inputs: Inputs, train: bool, key: Key
    ) -> tuple[Tensor, Params]:
        """Node embeddings (n, R, hidden) and the new running statistics."""
        new_stats = {}
        keys = layers.dropout_keys(key, 2 * self.depth)
        zero = torch.zeros_like(params["place.bias"])

        def added(h: Tensor, move: Tensor, norm: str, number: int) -> Tensor:
            """One half of a block: dropout, skip connection, norm."""
            h = h + layers.dropout(move, self.dropout, keys[number])
            h, found = layers.normalise(h, zero, params, stats, norm, train)
            new_stats.update(found)
            return h

        h = layers.affine(params, "embed", inputs["features"])
        h = h + layers.affine(params, "place", inputs["places"])
        for i in range(self.depth):
            q, k, v = layers.affine(params, f"block{i}.qkv", h).chunk(3, dim=-1)
            seen = attend(q, k, v, inputs["blocked"], self.heads)
            mixed = layers.affine(params, f"block{i}.out", seen)
            h = added(h, mixed, f"block{i}.norm_attn", 2 * i)
            up = torch.relu(layers.affine(params, f"block{i}.ffn_up", h))
            down = layers.affine(params, f"block{i}.ffn_down", up)
            h = added(h, down, f"block{i}.norm_ffn", 2 * i + 1)
        return h, new_stats
