"""Graph transformer of Dwivedi and Bresson (2021) with Laplacian coordinates.

Shapes: n subjects, R ROIs, k Laplacian coordinates, c features of an attention head.
"""

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
    r"""Apply scaled dot-product attention of every ROI to its neighbours and itself.

    .. math:: \mathrm{softmax}_{j \in N(i) \cup \{i\}} (q_i \cdot k_j / \sqrt{c}) \, v_j

    for ROI i, summed over j, in every head by itself.

    Parameters
    ----------
    query, keys, values : Tensors of shape (n, R, heads * c)
        q, k and v, with c features per head.
    blocked : Tensor of shape (n, R, R)
        0 for pairs that may attend, -inf for others, by `fcforge.graphs.attention_mask`.
    heads : int
        Number of attention heads.

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
    """Graph transformer with 3 blocks of 128, dropout 0.3, learning rate 5e-4 (paper).

    The 4 heads and 8 Laplacian coordinates are our choice.

    Node features and Laplacian coordinates are embedded and added. A block is attention over
    connected ROIs, then a feed-forward network of twice the width, each with a skip connection
    and followed by the norm. Readout and head are those of the other graph models.
    """

    depth: int = 3
    coordinates: int = 8
    name = "graph_transformer"
    lr = 5e-4

    def norms(self) -> list[str]:
        """Return two names per block: after attention and after the feed-forward network."""
        return [
            f"block{i}.norm_{part}"
            for i in range(self.depth)
            for part in ("attn", "ffn")
        ]

    def init(self, rng: torch.Generator) -> Params:
        """Draw linear layers as ``torch.nn.Linear`` does; norms start with scale 1 and shift 0."""
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
        """Compute attention masks, node features (n, R, R) and Laplacian coordinates (n, R, k)."""
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
        """Embed nodes and coordinates, then apply the blocks of attention and feed-forward network.

        Arguments and results as of `GraphModel.encode`.
        """
        new_stats = {}
        keys = layers.dropout_keys(key, 2 * self.depth)  # two updates per block
        # the norm can add the bias of the layer before; here every layer has added its own
        zero = torch.zeros_like(params["place.bias"])

        def add_and_norm(h: Tensor, update: Tensor, norm: str, number: int) -> Tensor:
            """Add an update to h by a skip connection, after dropout, and normalise the sum.

            `norm` is the name of the batch norm, `number` that of the dropout key.
            """
            h = h + layers.dropout(update, self.dropout, keys[number])
            h, norm_stats = layers.normalise(h, zero, params, stats, norm, train)
            new_stats.update(norm_stats)
            return h

        h = layers.affine(params, "embed", inputs["features"])
        h = h + layers.affine(params, "place", inputs["places"])
        for i in range(self.depth):
            q, k, v = layers.affine(params, f"block{i}.qkv", h).chunk(3, dim=-1)
            attended = attend(q, k, v, inputs["blocked"], self.heads)
            mixed = layers.affine(params, f"block{i}.out", attended)
            h = add_and_norm(h, mixed, f"block{i}.norm_attn", 2 * i)
            up = torch.relu(layers.affine(params, f"block{i}.ffn_up", h))
            down = layers.affine(params, f"block{i}.ffn_down", up)
            h = add_and_norm(h, down, f"block{i}.norm_ffn", 2 * i + 1)
        return h, new_stats
