"""Network of the method PDGNN: a perceptron on topology-aware embeddings.

A topology-aware embedding of a subject is its node features after propagation over its graph. Nothing
in it is learned, so a memory can hold it instead of the graph.

Shapes: n subjects, R ROIs.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fcforge import graphs
from fcforge.core.constants import TAU
from fcforge.core.settings import SHARE_BELOW_ONE, at_least, limits, within
from fcforge.models.base import Model, Output
from fcforge.nn import layers
from fcforge.nn.tensors import Inputs, Key, Params


@limits(hidden=at_least(1), dropout=SHARE_BELOW_ONE, tau=within(0, 1), hops=at_least(0))
@dataclass(frozen=True)
class TEM(Model):
    """Parameter-decoupled network: ``P^2 X`` -> 256 -> 2, no biases, dropout 0.3.

    Node features X are propagated twice by the matrix P of `fcforge.graphs.gcn_norm` and pooled (mean
    and maximum over ROIs), by default before the network. It is made for the method `pdgnn`, which
    remembers these embeddings; any other method can use it.

    Attributes
    ----------
    hidden : int
        Width of the hidden layer.
    dropout : float
        Drop probability after the hidden layer.
    tau : float
        Threshold of an edge.
    hops : int
        Number of propagations.
    te : {"pooled", "nodes"}
        Topology-aware embedding: the mean and maximum over ROIs (2 R numbers), or all ROIs (R
        times R numbers), each of which the hidden layer maps before they are pooled, as in a
        graph network. `pdgnn` remembers R / 2 times as much with "nodes".

    References
    ----------
    Zhang et al., Topology-aware embedding memory for continual learning on expanding networks,
    KDD 2024 (node level; both ways of pooling are ours).
    """

    hidden: int = 256
    dropout: float = 0.3
    tau: float = TAU
    hops: int = 2
    te: Literal["pooled", "nodes"] = "pooled"

    name = "tem"
    belongs_to = "pdgnn"

    @property
    def readout_size(self) -> int:
        """Width of the hidden layer, doubled where mean and maximum are taken after it."""
        return self.hidden if self.te == "pooled" else 2 * self.hidden

    @property
    def embedding_shape(self) -> tuple[int, ...]:
        """Shape of a subject's topology-aware embedding: (2 R,) or (R, R)."""
        rois = self.n_rois
        return (2 * rois,) if self.te == "pooled" else (rois, rois)

    def init(self, rng: torch.Generator) -> Params:
        """Draw Glorot weights."""
        return {
            "embed.weight": layers.glorot(rng, self.hidden, self.embedding_shape[-1]),
            "head.weight": layers.glorot(rng, self.n_outputs, self.readout_size),
        }

    def prepare(self, fc: Tensor) -> Inputs:
        """Compute topology-aware embeddings (n, 2 R) or (n, R, R): nothing is learned."""
        propagation = graphs.gcn_norm(graphs.adjacency(fc, self.tau))
        nodes = graphs.node_features(fc)
        for _ in range(self.hops):
            nodes = propagation @ nodes
        return {"topology": layers.mean_max(nodes) if self.te == "pooled" else nodes}

    def apply(
        self,
        params: Params,
        stats: Params,
        inputs: Inputs,
        *,
        train: bool = False,
        key: Key = None,
    ) -> Output:
        """Compute logits; the readout is the hidden layer, before its dropout.

        With ``te = "nodes"`` the hidden layer has features of every ROI and is pooled over them first;
        otherwise the inputs were pooled already. There is no batch norm: `stats` and `train` have no
        effect. Arguments as of `Model.apply`.
        """
        embedding = torch.relu(
            layers.linear(inputs["topology"], params["embed.weight"])
        )
        if self.te == "nodes":
            embedding = layers.mean_max(embedding)
        dropped = layers.dropout(
            embedding, self.dropout, layers.dropout_keys(key, 1)[0]
        )
        return Output(layers.linear(dropped, params["head.weight"]), embedding, {})
