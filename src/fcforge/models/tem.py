"""PDGNN's network at graph level: an MLP on fixed topology-aware embeddings."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fcforge import graphs
from fcforge.models import layers
from fcforge.models.base import Inputs, Key, Model, Output, Params
from fcforge.settings import Share, ShareBelowOne, Size


def topology_embedding(fc: Tensor, tau: float, kind: graphs.EdgeKind, hops: int) -> Tensor:
    """Propagated node features ``P^hops X`` (n, R, R): nothing learnt."""
    propagation = graphs.gcn_norm(graphs.adjacency(fc, tau, kind))
    x = graphs.node_features(fc)
    for _ in range(hops):
        x = propagation @ x
    return x


@dataclass(frozen=True)
class TEM(Model):
    """Parameter-decoupled network: ``P^2 X`` -> 256 -> 2, no biases, dropout 0.3.

    Made for the method `pdgnn`, which remembers these embeddings; any other method can use it.

    Attributes
    ----------
    hidden : int
    hops : int
        How often features are propagated.
    te : {"pooled", "nodes"}
        What is embedded, and remembered: the mean and maximum over ROIs (2 R numbers), or all
        ROIs (R times R numbers, nothing compressed), which are then mapped one by one and pooled
        behind the hidden layer, as in a graph network.
    dropout : float
    tau, edges
        As in the graph models.

    References
    ----------
    Zhang et al., Topology-aware embedding memory for continual learning on expanding networks,
    KDD 2024 (node level; both ways of pooling are ours).
    """

    hidden: Size = 256
    hops: Size = 2
    dropout: ShareBelowOne = 0.3
    tau: Share = 0.4
    edges: graphs.EdgeKind = "positive"
    te: Literal["pooled", "nodes"] = "pooled"
    name = "tem"
    lr = 1e-3
    belongs_to = "pdgnn"

    def init(self, rng: torch.Generator) -> Params:
        """Glorot weights."""
        n_in, n_out = (2, 1) if self.te == "pooled" else (1, 2)  # pooling doubles the width
        return {
            "embed.weight": layers.glorot(rng, self.hidden, n_in * self.n_rois),
            "head.weight": layers.glorot(rng, 2, n_out * self.hidden),
        }

    def prepare(self, fc: Tensor) -> Inputs:
        """Topology-aware embedding (n, 2 R) or (n, R, R)."""
        nodes = topology_embedding(fc, self.tau, self.edges, self.hops)
        return {"topology": layers.mean_max(nodes) if self.te == "pooled" else nodes}

    def apply(
        self, params: Params, stats: Params, inputs: Inputs, *, train: bool = False, key: Key = None
    ) -> Output:
        """Logits and hidden layer of a prepared batch."""
        embedding = torch.relu(layers.linear(inputs["topology"], params["embed.weight"]))
        if self.te == "nodes":
            embedding = layers.mean_max(embedding)
        dropped = layers.dropout(embedding, self.dropout, layers.dropout_key(key, 0))
        return Output(layers.linear(dropped, params["head.weight"]), embedding, {})
