"""What GCN, GAT, GraphSAGE and GAE share: convolutions, readout and head."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.graphs import EdgeKind
from fcforge.models import layers
from fcforge.models.base import Inputs, Model, Output, Params
from fcforge.randomness import fold
from fcforge.settings import Share, ShareBelowOne, Size

HEAD_WIDTHS = (64, 32, 2)
HEAD_KEYS = 1000  # dropout keys of the head start here, those of layer l are l


@dataclass(frozen=True)
class GraphModel(Model):
    """Layers of graph convolution, mean+max readout and the authors' head 2F-64-32-2.

    Dropout follows every convolution but the last, as in the authors' code: after it, it would
    disturb the maximum of the readout, which FORGE distils.

    Attributes
    ----------
    hidden, depth, dropout
        Width and number of layers and drop probability (paper, hyper-parameter table).
    norm : {"batch", "layer", "none"}
        After every convolution. ``batch`` is the authors'; its running statistics follow the
        last site and no penalty on parameters protects them.
    tau, edges
        Threshold of an edge; ``positive`` (authors) or ``absolute`` correlations.
    """

    hidden: Size = 128
    depth: Size = 4
    dropout: ShareBelowOne = 0.3
    norm: layers.Norm = "batch"
    tau: Share = 0.4
    edges: EdgeKind = "positive"

    @abstractmethod
    def init_layer(self, rng: torch.Generator, layer: int, n_in: int) -> Params:
        """Parameters of convolution `layer`, from `n_in` to ``hidden`` features."""

    @abstractmethod
    def convolve(self, params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
        """Convolution `layer` of h (n, R, F), without its bias.

        Layer 0 gets ``inputs["features"]``. The bias ``conv<layer>.bias`` comes after
        propagation and is left to the normalisation, which can often do without adding it.
        """

    def init(self, rng: torch.Generator) -> Params:
        """Convolutions as PyG draws them, norms at identity, head as ``torch.nn.Linear``."""
        params: Params = {}
        for i in range(self.depth):
            params |= self.init_layer(rng, i, self.n_rois if i == 0 else self.hidden)
            params |= layers.init_norm(self.norm, f"norm{i}", self.hidden)
        return params | layers.init_head(rng, "head", (2 * self.hidden, *HEAD_WIDTHS))

    def init_stats(self) -> Params:
        """Running mean 0 and variance 1 of every batch norm."""
        stats: Params = {}
        for i in range(self.depth):
            stats |= layers.init_norm_stats(self.norm, f"norm{i}", self.hidden)
        return stats

    def encode(
        self, params: Params, stats: Params, inputs: Inputs, train: bool, key: Tensor | None
    ) -> tuple[Tensor, Params]:
        """Node embeddings (n, R, hidden) and the new running statistics."""
        h = inputs["features"]
        new_stats: Params = {}
        keys = convolution_keys(key, self.depth)
        for i in range(self.depth):
            h = self.convolve(params, i, h, inputs)
            bias = params[f"conv{i}.bias"]
            h, layer_stats = layers.norm_relu_dropout(
                self.norm, h, bias, params, stats, f"norm{i}", train, self.dropout, keys[i]
            )
            new_stats |= layer_stats
        return h, new_stats

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
        nodes, new_stats = self.encode(params, stats, inputs, train, key)
        embedding = layers.mean_max(nodes)
        return Output(self.classify(params, embedding, key), embedding, new_stats)

    def classify(self, params: Params, embedding: Tensor, key: Tensor | None) -> Tensor:
        """Logits (n, 2) of readouts (n, 2 hidden)."""
        keys = head_keys(key, len(HEAD_WIDTHS) - 1)
        return layers.head(params, "head", embedding, self.dropout, keys)


def dropout_key(key: Tensor | None, number: int) -> Tensor | None:
    """Dropout key of layer `number`, or None where nothing is dropped."""
    return None if key is None else fold(key, number)


def convolution_keys(key: Tensor | None, depth: int) -> Sequence[Tensor | None]:
    """Dropout keys of `depth` convolutions: those of `dropout_key`, none for the last."""
    if key is None:
        return [None] * depth
    numbers = torch.arange(depth, dtype=torch.int32, device=key.device)
    return [*fold(key, numbers).unbind()[:-1], None]


def head_keys(key: Tensor | None, n: int) -> tuple[Tensor, ...] | None:
    """Dropout keys of the head's `n` hidden layers, or None where nothing is dropped."""
    if key is None:
        return None
    numbers = torch.arange(HEAD_KEYS, HEAD_KEYS + n, dtype=torch.int32, device=key.device)
    return fold(key, numbers).unbind()
