"""Networks over ROIs, dense and batched: GCN, GAE, GAT, GraphSAGE, and the graph transformer.

The transformer is that of Dwivedi and Bresson (2021) with Laplacian coordinates.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge import graphs
from fcforge.core.constants import TAU
from fcforge.core.errors import ConfigError
from fcforge.core.settings import Share, ShareBelowOne, Size
from fcforge.models.base import Model, Output
from fcforge.nn import layers
from fcforge.nn.tensors import Inputs, Key, Params

HEAD_WIDTHS = (64, 32)
SLOPE = 0.2  # of the leaky ReLU of attention, as PyG


@dataclass(frozen=True)
class GraphModel(Model):
    """A network over ROIs with mean+max readout and the authors' head 2F-64-32-2.

    A batch norm follows every layer, as in the authors' code: its running statistics follow the
    last site, and no penalty on parameters protects them.

    Attributes
    ----------
    hidden, depth, dropout
        Width and number of layers and drop probability (paper, hyper-parameter table).
    tau, edges
        Threshold of an edge; ``positive`` (authors) or ``absolute`` correlations.
    """

    hidden: Size = 128
    depth: Size = 4
    dropout: ShareBelowOne = 0.3
    tau: Share = TAU
    edges: Literal["positive", "absolute"] = "positive"

    def adjacency(self, fc: Tensor) -> Tensor:
        """Graph (n, R, R) of FC."""
        return graphs.adjacency(fc.abs() if self.edges == "absolute" else fc, self.tau)

    @property
    def readout(self) -> int:
        """Mean and maximum over ROIs."""
        return 2 * self.hidden

    @abstractmethod
    def norms(self) -> list[str]:
        """Names of the normalisation layers, each ``hidden`` wide."""

    @abstractmethod
    def encode(
        self, params: Params, stats: Params, inputs: Inputs, train: bool, key: Key
    ) -> tuple[Tensor, Params]:
        """Node embeddings (n, R, hidden) and the new running statistics."""

    def init_stats(self) -> Params:
        """Running mean 0 and variance 1 of every batch norm."""
        stats: Params = {}
        for name in self.norms():
            stats[f"{name}.mean"] = torch.zeros(self.hidden)
            stats[f"{name}.var"] = torch.ones(self.hidden)
        return stats

    def init_head(self, rng: torch.Generator) -> Params:
        """The head as ``torch.nn.Linear`` draws it."""
        return layers.init_head(
            rng, "head", (self.readout, *HEAD_WIDTHS, self.n_outputs)
        )

    def classify(self, params: Params, embedding: Tensor, key: Key) -> Tensor:
        """Logits (n, n_outputs) of readouts (n, 2 hidden)."""
        return layers.head(params, "head", embedding, self.dropout, key)

    def apply(
        self,
        params: Params,
        stats: Params,
        inputs: Inputs,
        *,
        train: bool = False,
        key: Key = None,
    ) -> Output:
        """Logits, 2F readout and statistics of a prepared batch."""
        nodes, new_stats = self.encode(params, stats, inputs, train, key)
        embedding = layers.mean_max(nodes)
        return Output(self.classify(params, embedding, key), embedding, new_stats)


@dataclass(frozen=True)
class ConvolutionModel(GraphModel):
    """Layers of graph convolution.

    Dropout follows every convolution but the last, as in the authors' code: after it, it would
    disturb the maximum of the readout, which FORGE distils.
    """

    @abstractmethod
    def init_layer(self, rng: torch.Generator, layer: int, n_in: int) -> Params:
        """Parameters of convolution `layer`, from `n_in` to ``hidden`` features."""

    @abstractmethod
    def convolve(self, params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
        """Convolution `layer` of h (n, R, F), without its bias.

        Layer 0 gets ``inputs["features"]``. The bias ``conv<layer>.bias`` comes after
        propagation and is left to the normalisation, which can often do without adding it.
        """

    def norms(self) -> list[str]:
        """One after every convolution."""
        return [f"norm{i}" for i in range(self.depth)]

    def init(self, rng: torch.Generator) -> Params:
        """Convolutions as PyG draws them, norms at identity, head as ``torch.nn.Linear``."""
        params: Params = {}
        for i, name in enumerate(self.norms()):
            params |= self.init_layer(rng, i, self.n_rois if i == 0 else self.hidden)
            params |= layers.init_norm(name, self.hidden)
        return params | self.init_head(rng)

    def encode(
        self, params: Params, stats: Params, inputs: Inputs, train: bool, key: Key
    ) -> tuple[Tensor, Params]:
        """Node embeddings (n, R, hidden) and the new running statistics."""
        new_stats: Params = {}
        h = inputs["features"]
        keys = [*layers.dropout_keys(key, self.depth - 1), None]
        for i, name in enumerate(self.norms()):
            h = self.convolve(params, i, h, inputs)
            bias = params[f"conv{i}.bias"]
            h, layer_stats = layers.norm_relu_dropout(
                h, bias, params, stats, name, train, self.dropout, keys[i]
            )
            new_stats |= layer_stats
        return h, new_stats


@dataclass(frozen=True)
class GCN(ConvolutionModel):
    r"""The paper's backbone: 4 layers of 128, dropout 0.3, learning rate 1e-3.

    .. math:: H^{(l+1)} = \mathrm{drop}(\mathrm{ReLU}(\mathrm{norm}(P H^{(l)} W^{(l)} + b)))

    with :math:`P` of `fcforge.graphs.gcn_norm` (edge weights and self loops as PyG's ``GCNConv``).
    The bias comes after propagation; the last layer has no dropout.
    """

    name = "gcn"

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
        propagation = graphs.gcn_norm(self.adjacency(fc))
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


@dataclass(frozen=True)
class AttentionModel(GraphModel):
    """A network whose attention has several heads, which share its width."""

    heads: Size = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % self.heads:
            raise ConfigError(
                f"hidden = {self.hidden} cannot be shared among heads = {self.heads}.",
                where=self.where(),
                do="Make hidden a multiple of heads.",
            )


@dataclass(frozen=True)
class GAT(AttentionModel, ConvolutionModel):
    r"""3 layers of 128, dropout 0.4, learning rate 5e-4 (paper); 4 heads of 32, concatenated.

    .. math::
        H' = \big\Vert_k \alpha^k H W_k, \quad \alpha^k_{ij} = \mathrm{softmax}_{j \in N(i)
        \cup \{i\}} \mathrm{LeakyReLU}(a^k_{dst} \cdot W_k h_i + a^k_{src} \cdot W_k h_j)

    as PyG's ``GATConv``: attention sees which ROIs are connected, not the edge weights. The
    paper does not say how many heads it uses.
    """

    depth: Size = 3
    dropout: ShareBelowOne = 0.4
    name = "gat"
    lr = 5e-4

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
        adj = self.adjacency(fc)
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


@dataclass(frozen=True)
class GraphTransformer(AttentionModel):
    """3 blocks of 128, dropout 0.3, learning rate 5e-4 (paper); 4 heads, 8 coordinates.

    Node features and Laplacian coordinates are embedded and added. A block is attention over
    connected ROIs, then a feed-forward network of twice the width, each with a skip connection
    and followed by the norm. Readout and head are those of the other graph models.
    """

    depth: Size = 3
    coordinates: Size = 8
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
