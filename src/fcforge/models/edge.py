"""Models of the edges of FC matrices: logistic regression and a multilayer perceptron.

E is the number of edges of R ROIs, R (R - 1) / 2. These models have no graph and no threshold, and are
what a graph network must surpass.

Shapes: n subjects.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fcforge import graphs
from fcforge.core.constants import LOG_SCALE
from fcforge.core.settings import SHARE_BELOW_ONE, at_least, limits
from fcforge.core.target import Kind
from fcforge.graphs import EDGE_SCALE
from fcforge.models.base import Model, Output
from fcforge.nn import layers
from fcforge.nn.tensors import Inputs, Key, Params

Features = Literal["z", "centred", "log", "log+diagonal", "centred+log"]
WHOLE_LOG = "log+diagonal"


def edge_features(fc: Tensor, kind: str = "z") -> Tensor:
    """Compute features of FC matrices (n, R, R), scaled to roughly unit spread over subjects.

    Parameters
    ----------
    fc : Tensor of shape (n, R, R)
    kind : str
        - "z": Fisher-z edges.
        - "centred": the same without the strength of their ROIs (`graphs.centre_edges`).
        - "log": edges of the matrix logarithm (`graphs.log_edges`).
        - "log+diagonal": its diagonal too, divided by sqrt 2, so that distances between subjects
          are the log-Euclidean ones of whole matrices.
        - "centred+log": edges of both, side by side.

    Returns
    -------
    Tensor of shape (n, E), (n, E + R) for "log+diagonal" or (n, 2 E) for "centred+log"
    """
    if kind == "log":
        return graphs.log_edges(fc) / LOG_SCALE
    if kind == WHOLE_LOG:
        return graphs.log_features(fc)
    z = graphs.fisher_z(graphs.edges(fc)) / EDGE_SCALE
    if kind == "z":
        return z
    centred = graphs.centre_edges(z)
    if kind == "centred":
        return centred
    return torch.cat([centred, graphs.log_edges(fc) / LOG_SCALE], dim=1)


def n_features(n_rois: int, kind: str) -> int:
    """Return the number of features that `edge_features` computes per subject."""
    n_edges = n_rois * (n_rois - 1) // 2
    beyond_edges = {WHOLE_LOG: n_rois, "centred+log": n_edges}
    return n_edges + beyond_edges.get(kind, 0)


@dataclass(frozen=True)
class EdgeModel(Model):
    """A model of `edge_features` of the kind `features`; it learns every kind of target."""

    features: Features = "z"

    learns = get_args(Kind)

    def prepare(self, fc: Tensor) -> Inputs:
        """Compute the edge features of FC (n, R, R)."""
        return {"edges": edge_features(fc, self.features)}


@dataclass(frozen=True)
class Linear(EdgeModel):
    """Logistic regression on edge features; these are its readout.

    Parameters start at zero. A random start adds noise in directions that no subject spans, and
    training never removes it.
    """

    name = "linear"
    lr = 3e-5

    def init(self, rng: torch.Generator) -> Params:
        """Return parameters of zero; `rng` is not used."""
        n_inputs = n_features(self.n_rois, self.features)
        return {
            "head.0.weight": torch.zeros(self.n_outputs, n_inputs),
            "head.0.bias": torch.zeros(self.n_outputs),
        }

    def apply(
        self,
        params: Params,
        stats: Params,
        inputs: Inputs,
        *,
        train: bool = False,
        key: Key = None,
    ) -> Output:
        """Compute logits; the readout is the edge features themselves.

        There is neither batch norm nor dropout: `stats`, `train` and `key` have no effect. Arguments as
        of `Model.apply`.
        """
        x = inputs["edges"]
        return Output(layers.head(params, "head", x, 0.0, None), x, {})


@limits(hidden=at_least(1), dropout=SHARE_BELOW_ONE)
@dataclass(frozen=True)
class MLP(EdgeModel):
    """Multilayer perceptron on edge features, 256 and 64 hidden units, dropout 0.5.

    Its readout is the first hidden layer.

    Attributes
    ----------
    hidden : int
        Width of the first hidden layer; the second has a quarter of it.
    dropout : float
        Drop probability after each hidden layer.
    """

    hidden: int = 256
    dropout: float = 0.5
    name = "mlp"
    lr = 1e-4

    @property
    def readout_size(self) -> int:
        """Width of the first hidden layer."""
        return self.hidden

    def init(self, rng: torch.Generator) -> Params:
        """Draw all layers as ``torch.nn.Linear`` does."""
        n_inputs = n_features(self.n_rois, self.features)
        params = layers.init_linear(rng, "embed", n_inputs, self.hidden)
        return params | layers.init_head(
            rng, "head", (self.hidden, max(self.hidden // 4, 2), self.n_outputs)
        )

    def apply(
        self,
        params: Params,
        stats: Params,
        inputs: Inputs,
        *,
        train: bool = False,
        key: Key = None,
    ) -> Output:
        """Compute logits; the readout is the first hidden layer, before its dropout.

        With a `key` both hidden layers have dropout. There is no batch norm: `stats` and `train` have no
        effect. Arguments as of `Model.apply`.
        """
        embedding = torch.relu(layers.affine(params, "embed", inputs["edges"]))
        dropped = layers.dropout(
            embedding, self.dropout, layers.dropout_keys(key, 1)[0]
        )
        logits = layers.head(params, "head", dropped, self.dropout, key)
        return Output(logits, embedding, {})
