"""Graph autoencoder (Kipf and Welling 2016): its encoder, pooled, as a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge import graphs
from fcforge.models import gcn, layers
from fcforge.models.base import Inputs, Output, Params
from fcforge.models.message_passing import GraphModel
from fcforge.settings import NotNegative, ShareBelowOne, Size


def decode(z: Tensor) -> Tensor:
    """Inner-product decoder: edge logits ``z z^T``, (n, R, d) -> (n, R, R)."""
    return z @ z.transpose(-1, -2)


def reconstruction_loss(z: Tensor, adj: Tensor) -> Tensor:
    r"""Class-balanced cross-entropy between decoded and real edges, self loops left out.

    .. math:: -\tfrac12 \Big( \mathrm{mean}_{A_{ij}=1} \log \sigma(z_i \cdot z_j)
        + \mathrm{mean}_{A_{ij}=0} \log (1 - \sigma(z_i \cdot z_j)) \Big)

    Parameters
    ----------
    z : Tensor of shape (n, R, d)
    adj : Tensor of shape (n, R, R), 0/1
    """
    logits = decode(z)
    absent = graphs.without_diagonal(1.0 - adj)
    log_edge, log_none = F.logsigmoid(logits), F.logsigmoid(-logits)
    edge = (log_edge * adj).sum() / adj.sum().clamp_min(1.0)
    none = (log_none * absent).sum() / absent.sum().clamp_min(1.0)
    return -0.5 * (edge + none)


@dataclass(frozen=True)
class GAE(GraphModel):
    """3 graph convolutions of 128, dropout 0.2, learning rate 1e-3 (paper).

    The paper uses the encoder followed by global pooling. With ``reconstruction`` > 0 a linear
    map of the nodes is also decoded by inner products, and that weight times the
    reconstruction loss is returned as ``Output.penalty``.
    """

    depth: Size = 3
    dropout: ShareBelowOne = 0.2
    reconstruction: NotNegative = 0.0
    latent: Size = 32
    name: ClassVar[str] = "gae"
    lr: ClassVar[float] = 1e-3

    def init(self, rng: torch.Generator) -> Params:
        """Encoder and head; the decoder's linear map where it is used."""
        params = super().init(rng)
        if self.reconstruction > 0:
            params["latent.weight"] = layers.glorot(rng, self.latent, self.hidden)
        return params

    def init_layer(self, rng: torch.Generator, layer: int, n_in: int) -> Params:
        """Glorot weight, zero bias."""
        return gcn.init_convolution(rng, layer, n_in, self.hidden)

    def prepare(self, fc: Tensor) -> Inputs:
        """As the GCN; with reconstruction also the 0/1 adjacency."""
        inputs = gcn.prepare_propagation(fc, self.tau, self.edges)
        if self.reconstruction > 0:
            adj = graphs.adjacency(fc, self.tau, self.edges, weighted=False)
            inputs["adjacency"] = adj
        return inputs

    def convolve(self, params: Params, layer: int, h: Tensor, inputs: Inputs) -> Tensor:
        """``P h W``."""
        return gcn.propagate(params, layer, h, inputs)

    def penalty(self, params: Params, nodes: Tensor, inputs: Inputs) -> Tensor | float:
        """Weighted reconstruction loss of encoded nodes (n, R, hidden)."""
        if self.reconstruction == 0:
            return 0.0
        z = layers.linear(nodes, params["latent.weight"])
        return self.reconstruction * reconstruction_loss(z, inputs["adjacency"])

    def apply(
        self,
        params: Params,
        stats: Params,
        inputs: Inputs,
        *,
        train: bool = False,
        key: Tensor | None = None,
    ) -> Output:
        """Logits, readout, statistics and, in training, the reconstruction penalty."""
        nodes, new_stats = self.encode(params, stats, inputs, train, key)
        embedding = layers.mean_max(nodes)
        logits = self.classify(params, embedding, key)
        training = train or key is not None
        penalty = self.penalty(params, nodes, inputs) if training else 0.0
        return Output(logits, embedding, new_stats, penalty)
