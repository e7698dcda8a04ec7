"""Network of PDGNN: a perceptron on topology-aware embeddings."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fcforge import graphs
from fcforge.core.constants import TAU
from fcforge.core.settings import SHARE_BELOW_ONE, at_least, limits, within
from fcforge.models.base import Model, Output
from fcforge.nn import layers
from fcforge.nn.tensors import Inputs, Key, Params


@limits(hidden=at_least(1), dropout=SHARE_BELOW_ONE, tau=within(0, 1))
@dataclass(frozen=True)
class TEM(Model):
    """Parameter-decoupled network: ``P^2 X`` -> 256 -> 2, no biases, dropout 0.3.

    Features are propagated twice and pooled (mean and maximum over ROIs). Made for the method
    `pdgnn`, which remembers these embeddings; any other method can use it.

    Attributes
    ----------
    hidden : int
    dropout : float
    tau
        As in the graph models.

    References
    ----------
    Zhang et al., Topology-aware embedding memory for continual learning on expanding networks,
    KDD 2024 (node level; the pooling is ours).
    """

    hidden: int = 256
    dropout: float = 0.3
    tau: float = TAU
    name = "tem"
    belongs_to = "pdgnn"

    @property
    def readout_size(self) -> int:
        """That of the hidden layer."""
        return self.hidden

    def init(self, rng: torch.Generator) -> Params:
        """Glorot weights."""
        return {
            "embed.weight": layers.glorot(rng, self.hidden, 2 * self.n_rois),
            "head.weight": layers.glorot(rng, self.n_outputs, self.hidden),
        }

    def prepare(self, fc: Tensor) -> Inputs:
        """Topology-aware embedding (n, 2 R): nothing learnt."""
        propagation = graphs.gcn_norm(graphs.adjacency(fc, self.tau))
        nodes = propagation @ (propagation @ graphs.node_features(fc))
        return {"topology": layers.mean_max(nodes)}

    def apply(
        self,
        params: Params,
        stats: Params,
        inputs: Inputs,
        *,
        train: bool = False,
        key: Key = None,
    ) -> Output:
        """Logits and hidden layer of a prepared batch."""
        embedding = torch.relu(
            layers.linear(inputs["topology"], params["embed.weight"])
        )
        dropped = layers.dropout(
            embedding, self.dropout, layers.dropout_keys(key, 1)[0]
        )
        return Output(layers.linear(dropped, params["head.weight"]), embedding, {})
