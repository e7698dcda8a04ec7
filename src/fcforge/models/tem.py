"""PDGNN's network at graph level: an MLP on fixed topology-aware embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fcforge import graphs
from fcforge.models import layers
from fcforge.models.base import Inputs, Model, Output, Params
from fcforge.models.message_passing import dropout_key
from fcforge.settings import Share, ShareBelowOne, Size


def topology_embedding(fc: Tensor, tau: float, kind: graphs.EdgeKind, hops: int) -> Tensor:
    """Mean and maximum over ROIs of ``P^hops X``: nothing learnt, (n, R, R) -> (n, 2 R)."""
    propagation = graphs.gcn_norm(graphs.adjacency(fc, tau, kind))
    x = graphs.node_features(fc)
    for _ in range(hops):
        x = propagation @ x
    return layers.mean_max(x)


@dataclass(frozen=True)
class TEM(Model):
    """Parameter-decoupled network: pooled ``P^2 X`` -> 256 -> 2, no biases, dropout 0.3.

    Made for the method `pdgnn`, which remembers these embeddings; any other method can use it.

    Attributes
    ----------
    hidden : int
    hops : int
        How often features are propagated.
    dropout : float
    tau, edges
        As in the graph models.

    References
    ----------
    Zhang et al., Topology-aware embedding memory for continual learning on expanding networks,
    KDD 2024 (node level; the pooling is ours).
    """

    hidden: Size = 256
    hops: Size = 2
    dropout: ShareBelowOne = 0.3
    tau: Share = 0.4
    edges: graphs.EdgeKind = "positive"
    name: ClassVar[str] = "tem"
    lr: ClassVar[float] = 1e-3
    belongs_to: ClassVar[str] = "pdgnn"

    def init(self, rng: torch.Generator) -> Params:
        """Glorot weights."""
        return {
            "embed.weight": layers.glorot(rng, self.hidden, 2 * self.n_rois),
            "head.weight": layers.glorot(rng, 2, self.hidden),
        }

    def prepare(self, fc: Tensor) -> Inputs:
        """Topology-aware embedding (n, 2 R)."""
        return {"topology": topology_embedding(fc, self.tau, self.edges, self.hops)}

    def apply(
        self,
        params: Params,
        stats: Params,
        inputs: Inputs,
        *,
        train: bool = False,
        key: Tensor | None = None,
    ) -> Output:
        """Logits and hidden layer of a prepared batch."""
        embedding = torch.relu(layers.linear(inputs["topology"], params["embed.weight"]))
        dropped = layers.dropout(embedding, self.dropout, dropout_key(key, 0))
        return Output(layers.linear(dropped, params["head.weight"]), embedding, {})
