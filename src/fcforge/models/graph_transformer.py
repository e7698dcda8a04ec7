"""Graph transformer (Dwivedi and Bresson 2021) with Laplacian coordinates, dense and batched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fcforge import graphs
from fcforge.models import layers
from fcforge.models.base import Inputs, Model, Output, Params
from fcforge.models.message_passing import HEAD_WIDTHS, dropout_key, head_keys
from fcforge.settings import Share, ShareBelowOne, Size


def attend(query: Tensor, keys: Tensor, values: Tensor, blocked: Tensor, heads: int) -> Tensor:
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


@dataclass(frozen=True)
class GraphTransformer(Model):
    """3 blocks of 128, dropout 0.3, learning rate 5e-4 (paper); 4 heads, 8 coordinates.

    Node features and Laplacian coordinates are embedded and added. A block is attention over
    connected ROIs, then a feed-forward network of twice the width, each with a skip connection
    and followed by the norm. Readout and head are those of the other graph models.
    """

    hidden: Size = 128
    depth: Size = 3
    dropout: ShareBelowOne = 0.3
    heads: Size = 4
    coordinates: Size = 8
    norm: layers.Norm = "batch"
    tau: Share = 0.4
    edges: graphs.EdgeKind = "positive"
    name: ClassVar[str] = "graph_transformer"
    lr: ClassVar[float] = 5e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        layers.check_heads(self.where(), self.heads, self.hidden)

    def _norms(self) -> list[str]:
        return [f"block{i}.norm_{part}" for i in range(self.depth) for part in ("attn", "ffn")]

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
        for name in self._norms():
            params |= layers.init_norm(self.norm, name, width)
        return params | layers.init_head(rng, "head", (2 * width, *HEAD_WIDTHS))

    def init_stats(self) -> Params:
        """Running mean 0 and variance 1 of every batch norm."""
        stats: Params = {}
        for name in self._norms():
            stats |= layers.init_norm_stats(self.norm, name, self.hidden)
        return stats

    def prepare(self, fc: Tensor) -> Inputs:
        """Attention mask, node features (n, R, R) and Laplacian coordinates (n, R, k)."""
        adj = graphs.adjacency(fc, self.tau, self.edges)
        return {
            "blocked": graphs.attention_mask(adj),
            "features": graphs.node_features(fc),
            # Entries of a unit vector over R ROIs are about 1/sqrt(R); features are about 1.
            "places": graphs.laplacian_coordinates(adj, self.coordinates) * fc.shape[-1] ** 0.5,
        }

    def _linear(self, params: Params, name: str, h: Tensor) -> Tensor:
        return layers.linear(h, params[f"{name}.weight"]) + params[f"{name}.bias"]

    def _block(
        self,
        params: Params,
        stats: Params,
        i: int,
        h: Tensor,
        blocked: Tensor,
        train: bool,
        key: Tensor | None,
    ) -> tuple[Tensor, Params]:
        block = f"block{i}"
        zero = torch.zeros_like(params[f"{block}.out.bias"])
        q, k, v = self._linear(params, f"{block}.qkv", h).chunk(3, dim=-1)
        mixed = self._linear(params, f"{block}.out", attend(q, k, v, blocked, self.heads))
        h = h + layers.dropout(mixed, self.dropout, dropout_key(key, 2 * i))
        h, first = layers.normalise(self.norm, h, zero, params, stats, f"{block}.norm_attn", train)
        up = torch.relu(self._linear(params, f"{block}.ffn_up", h))
        down = self._linear(params, f"{block}.ffn_down", up)
        h = h + layers.dropout(down, self.dropout, dropout_key(key, 2 * i + 1))
        h, second = layers.normalise(self.norm, h, zero, params, stats, f"{block}.norm_ffn", train)
        return h, first | second

    def apply(
        self,
        params: Params,
        stats: Params,
        inputs: Inputs,
        *,
        train: bool = False,
        key: Tensor | None = None,
    ) -> Output:
        """Logits, 2F readout and statistics of a prepared batch."""
        h = self._linear(params, "embed", inputs["features"])
        h = h + self._linear(params, "place", inputs["places"])
        new_stats: Params = {}
        for i in range(self.depth):
            h, block_stats = self._block(params, stats, i, h, inputs["blocked"], train, key)
            new_stats |= block_stats
        embedding = layers.mean_max(h)
        keys = head_keys(key, len(HEAD_WIDTHS) - 1)
        logits = layers.head(params, "head", embedding, self.dropout, keys)
        return Output(logits, embedding, new_stats)
