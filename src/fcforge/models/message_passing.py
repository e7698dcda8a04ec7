"""What the graph networks share: settings, readout and head; layers of graph convolution."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge.graphs import EdgeKind
from fcforge.models import layers
from fcforge.models.base import Inputs, Key, Model, Output, Params
from fcforge.settings import Share, ShareBelowOne, Size

HEAD_WIDTHS = (64, 32, 2)


@dataclass(frozen=True)
class GraphModel(Model):
    """A network over ROIs with mean+max readout and the authors' head 2F-64-32-2.

    Attributes
    ----------
    hidden, depth, dropout
        Width and number of layers and drop probability (paper, hyper-parameter table).
    norm : {"batch", "layer", "none"}
        After every layer. ``batch`` is the authors'; its running statistics follow the
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
            stats |= layers.init_norm_stats(self.norm, name, self.hidden)
        return stats

    def init_head(self, rng: torch.Generator) -> Params:
        """The head as ``torch.nn.Linear`` draws it."""
        return layers.init_head(rng, "head", (2 * self.hidden, *HEAD_WIDTHS))

    def classify(self, params: Params, embedding: Tensor, key: Key) -> Tensor:
        """Logits (n, 2) of readouts (n, 2 hidden)."""
        return layers.head(params, "head", embedding, self.dropout, key)

    def penalty(self, params: Params, nodes: Tensor, inputs: Inputs) -> Tensor | float:
        """What the model adds to the training loss, from its nodes (n, R, hidden)."""
        return 0.0

    def apply(
        self, params: Params, stats: Params, inputs: Inputs, *, train: bool = False, key: Key = None
    ) -> Output:
        """Logits, 2F readout and statistics of a prepared batch; in training the penalty."""
        nodes, new_stats = self.encode(params, stats, inputs, train, key)
        embedding = layers.mean_max(nodes)
        logits = self.classify(params, embedding, key)
        training = train or key is not None
        penalty = self.penalty(params, nodes, inputs) if training else 0.0
        return Output(logits, embedding, new_stats, penalty)


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
            params |= layers.init_norm(self.norm, name, self.hidden)
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
                self.norm, h, bias, params, stats, name, train, self.dropout, keys[i]
            )
            new_stats |= layer_stats
        return h, new_stats
