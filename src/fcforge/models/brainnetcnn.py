"""BrainNetCNN: a convolutional network whose kernels are the rows and columns of FC.

Shapes: n subjects, R ROIs.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge import graphs
from fcforge.core.constants import LOG_SCALE
from fcforge.core.settings import SHARE_BELOW_ONE, at_least, limits
from fcforge.models.base import Model, Output
from fcforge.nn import layers
from fcforge.nn.edge_to_edge import edge_to_edge, init_edge_to_edge
from fcforge.nn.tensors import Inputs, Key, Params

SLOPE = 0.33  # of the leaky ReLU, as Kawahara et al.
HEAD_WIDTHS = (128, 30)


@limits(
    width=at_least(1), nodes=at_least(1), hidden=at_least(1), dropout=SHARE_BELOW_ONE
)
@dataclass(frozen=True)
class BrainNetCNN(Model):
    """BrainNetCNN of Kawahara et al. (2017): two edge-to-edge layers, edge-to-node, node-to-graph.

    Its readout, the node-to-graph layer, is learned and is what methods distil.

    Parameters
    ----------
    features : {"fc", "log"}
        Input matrix: Fisher-z FC without diagonal, or the matrix logarithm of the shrunk FC; both
        scaled to roughly unit spread.
    width, nodes, hidden : int
        Channels of the edge-to-edge layers, features of a node, length of the readout.
    dropout : float
        Drop probability after the readout and after each hidden layer of the head.

    References
    ----------
    Kawahara et al., BrainNetCNN: convolutional neural networks for brain networks, NeuroImage
    2017.
    """

    features: Literal["fc", "log"] = "fc"
    width: int = 32
    nodes: int = 64
    hidden: int = 256
    dropout: float = 0.5
    name = "brainnetcnn"
    lr = 1e-4

    @property
    def readout_size(self) -> int:
        """Length of the node-to-graph layer."""
        return self.hidden

    def init(self, rng: torch.Generator) -> Params:
        """Draw all layers as ``torch.nn.Linear`` does; the biases of edge-to-edge layers start at 0."""
        rois, width = self.n_rois, self.width
        params = init_edge_to_edge(rng, "edge0", 1, width, rois)
        params |= init_edge_to_edge(rng, "edge1", width, width, rois)
        params |= layers.init_linear(rng, "node", width * rois, self.nodes)
        params |= layers.init_linear(rng, "graph", self.nodes * rois, self.hidden)
        widths = (self.hidden, *HEAD_WIDTHS, self.n_outputs)
        return params | layers.init_head(rng, "head", widths)

    def prepare(self, fc: Tensor) -> Inputs:
        """Compute the input matrix (n, R, R)."""
        if self.features == "log":
            return {"matrix": graphs.log_matrix(fc) / LOG_SCALE}
        z = graphs.fisher_z(graphs.without_diagonal(fc))
        return {"matrix": z / graphs.EDGE_SCALE}

    def apply(
        self,
        params: Params,
        stats: Params,
        inputs: Inputs,
        *,
        train: bool = False,
        key: Key = None,
    ) -> Output:
        """Apply edge-to-edge, edge-to-node and node-to-graph layers (the readout), then the head.

        The readout is returned before its dropout, for which a `key` is needed. There is no batch norm:
        `stats` and `train` have no effect. Arguments as of `Model.apply`.
        """
        x = inputs["matrix"][:, None]  # (n, channels, R, R) with one channel
        for name in ("edge0", "edge1"):
            x = F.leaky_relu(edge_to_edge(params, name, x), SLOPE)
        by_node = x.transpose(1, 2).flatten(2)  # (n, R, width * R)
        nodes = F.leaky_relu(layers.affine(params, "node", by_node), SLOPE)
        flat = nodes.flatten(1)
        embedding = F.leaky_relu(layers.affine(params, "graph", flat), SLOPE)
        dropped = layers.dropout(
            embedding, self.dropout, layers.dropout_keys(key, 1)[0]
        )
        logits = layers.head(params, "head", dropped, self.dropout, key)
        return Output(logits, embedding, {})
