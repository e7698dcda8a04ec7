"""Base classes of graph networks, whose nodes are ROIs: graph, readout, head, convolutions.

A network has two parts. The encoder turns a subject's graph into F features of each node (`encode`); their
mean and maximum over the nodes are the readout, which the head turns into logits (`classify`).

Shapes: n subjects, R ROIs, F features of a node.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fcforge import graphs
from fcforge.core.constants import TAU
from fcforge.core.errors import ConfigError
from fcforge.core.settings import SHARE_BELOW_ONE, at_least, limits, within
from fcforge.models.base import Model, Output
from fcforge.nn import layers
from fcforge.nn.tensors import Inputs, Key, Params

HEAD_WIDTHS = (64, 32)


@limits(
    hidden=at_least(1), depth=at_least(1), dropout=SHARE_BELOW_ONE, tau=within(0, 1)
)
@dataclass(frozen=True)
class GraphModel(Model):
    """A graph network with mean and maximum over ROIs as readout and the authors' head.

    The head maps the 2 F numbers of the readout to 64, to 32 and to the logits, with ReLU and dropout
    between, as in the public code of FORGE's authors. As there, a batch norm follows every layer of the
    encoder; the head has none. The running statistics of the batch norms adapt to the last site, and no
    penalty on parameters protects them.

    Attributes
    ----------
    hidden, depth, dropout
        Width F and number of layers of the encoder, drop probability of encoder and head (paper,
        hyper-parameter table).
    tau : float
        Threshold of an edge.
    edges : {"positive", "absolute"}
        What is compared with the threshold: the correlation (authors) or its absolute value.
    """

    hidden: int = 128
    depth: int = 4
    dropout: float = 0.3
    tau: float = TAU
    edges: Literal["positive", "absolute"] = "positive"

    def adjacency(self, fc: Tensor) -> Tensor:
        """Return the weighted graphs (n, R, R) of FC matrices (n, R, R), by threshold `tau`."""
        return graphs.adjacency(fc.abs() if self.edges == "absolute" else fc, self.tau)

    @property
    def readout_size(self) -> int:
        """Length of mean and maximum over ROIs."""
        return 2 * self.hidden

    @abstractmethod
    def norms(self) -> list[str]:
        """Return the names of the normalisation layers, each ``hidden`` wide."""

    @abstractmethod
    def encode(
        self, params: Params, stats: Params, inputs: Inputs, train: bool, key: Key
    ) -> tuple[Tensor, Params]:
        """Compute node embeddings and new running statistics.

        Parameters
        ----------
        params, stats, inputs, train, key
            As for `Model.apply`.

        Returns
        -------
        nodes : Tensor of shape (n, R, hidden)
            Features of every node after the last layer.
        stats : dict of Tensor
            Batch-norm running statistics after this batch.
        """

    def init_stats(self) -> Params:
        """Return running mean 0 and variance 1 of every batch norm."""
        stats: Params = {}
        for name in self.norms():
            stats[f"{name}.mean"] = torch.zeros(self.hidden)
            stats[f"{name}.var"] = torch.ones(self.hidden)
        return stats

    def init_head(self, rng: torch.Generator) -> Params:
        """Return the head's parameters, drawn as ``torch.nn.Linear`` does."""
        return layers.init_head(
            rng, "head", (self.readout_size, *HEAD_WIDTHS, self.n_outputs)
        )

    def classify(self, params: Params, embedding: Tensor, key: Key) -> Tensor:
        """Compute logits (n, n_outputs) of readouts (n, 2 hidden), by the head.

        The head has no batch norm, so training differs from evaluation by dropout alone, which needs a
        `key`.
        """
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
        """Compute logits, readout and statistics of a prepared batch.

        With `train` the encoder's batch norms use the moments of the batch and update the running ones;
        with a `key` encoder and head have dropout. Arguments as of `Model.apply`.
        """
        nodes, new_stats = self.encode(params, stats, inputs, train, key)
        embedding = layers.mean_max(nodes)
        return Output(self.classify(params, embedding, key), embedding, new_stats)


@dataclass(frozen=True)
class ConvolutionModel(GraphModel):
    """A graph network made of graph convolutions.

    Dropout follows every convolution but the last, as in the authors' code. After the last it would
    disturb the maximum of the readout, which FORGE distils.
    """

    @abstractmethod
    def init_layer(self, rng: torch.Generator, layer: int, n_in: int) -> Params:
        """Draw the parameters of convolution number `layer` (from 0), from `n_in` to ``hidden`` features.

        Their names begin with ``conv<layer>.``; one is ``conv<layer>.bias``.
        """

    @abstractmethod
    def convolve(self, params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
        """Apply a graph convolution, without its bias.

        The bias ``conv<layer>.bias`` is left to the normalisation, which need not add it in training.

        Parameters
        ----------
        params : dict of Tensor
        layer : int
            Number of the convolution, from 0.
        h : Tensor of shape (n, R, features)
            Node features from the layer before; for layer 0 ``inputs["features"]``.
        inputs : dict of Tensor
            Prepared batch, which has the graph.

        Returns
        -------
        Tensor of shape (n, R, hidden)
        """

    def norms(self) -> list[str]:
        """Return the names of the batch norms, one per convolution."""
        return [f"norm{i}" for i in range(self.depth)]

    def init(self, rng: torch.Generator) -> Params:
        """Draw convolutions as PyTorch Geometric does and the head as ``torch.nn.Linear`` does.

        Batch norms start with scale 1 and shift 0.
        """
        params: Params = {}
        for i, name in enumerate(self.norms()):
            params |= self.init_layer(rng, i, self.n_rois if i == 0 else self.hidden)
            params |= layers.init_norm(name, self.hidden)
        return params | self.init_head(rng)

    def encode(
        self, params: Params, stats: Params, inputs: Inputs, train: bool, key: Key
    ) -> tuple[Tensor, Params]:
        """Apply convolution, batch norm, ReLU and dropout layer by layer; see `GraphModel.encode`."""
        new_stats: Params = {}
        h = inputs["features"]
        # one dropout key per convolution; the last has no dropout
        keys = [*layers.dropout_keys(key, self.depth - 1), None]
        for i, name in enumerate(self.norms()):
            h = self.convolve(params, i, h, inputs)
            bias = params[f"conv{i}.bias"]
            h, layer_stats = layers.norm_relu_dropout(
                h, bias, params, stats, name, train, self.dropout, keys[i]
            )
            new_stats |= layer_stats
        return h, new_stats


@limits(heads=at_least(1))
@dataclass(frozen=True)
class AttentionModel(GraphModel):
    """A graph network with several attention heads of ``hidden / heads`` features each."""

    heads: int = 4

    def __post_init__(self) -> None:
        """Raise `ConfigError` unless the heads divide the width."""
        super().__post_init__()
        if self.hidden % self.heads:
            raise ConfigError(
                f"hidden = {self.hidden} cannot be shared among heads = {self.heads}.",
                where=self.where(),
                do="Make hidden a multiple of heads.",
            )
