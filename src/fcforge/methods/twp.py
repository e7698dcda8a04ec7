r"""Topology-aware weight preserving (TWP): protect what loss and graph attention depend on.

.. math::
    L = CE + \sum_{k<t} \sum_j (\lambda_l I^{loss}_{k,j} + \lambda_t I^{top}_{k,j})
        (\theta_j - \theta^*_{k,j})^2

with the sum over past sites k and parameters j; :math:`\theta^*_k` are the parameters after site k.

Shapes: n subjects, R ROIs, F features of a node after the first layer.
A lane is one training run: one learner, order of sites and seed.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge import graphs
from fcforge.core.settings import at_least, limits
from fcforge.methods.base import Lane, Model, SiteView
from fcforge.methods.shared import anchor
from fcforge.nn.layers import linear

FIRST = "conv0.weight"  # name of the first layer's weight
CHUNK = 16  # graphs whose attention is held at a time


def attention(h: Tensor, near: Tensor) -> Tensor:
    r"""Return the attention coefficients (n, R, R) of TWP, 0 where there is no edge.

    .. math:: e_{ij} = \mathrm{softmax}_{j \in N(i)} \,
        \mathrm{LeakyReLU}_{0.2} (\langle h_j, \tanh h_i \rangle)

    over the edges from j to their destination i.

    Parameters
    ----------
    h : Tensor of shape (n, R, F)
        Node features after the first weight matrix, before propagation.
    near : Tensor of shape (n, R, R), bool
        Whether two ROIs are connected.
    """
    score = F.leaky_relu(torch.tanh(h) @ h.transpose(-1, -2), 0.2)
    share = torch.softmax(torch.where(near, score, -1e9), dim=-1)
    return torch.where(near, share, 0.0)


def squared_energy(weight: Tensor, x: Tensor, near: Tensor) -> Tensor:
    r"""Return the sum :math:`\sum e_{ij}^2` over the edges of some graphs.

    As in the reference's convolution the features enter W divided by the root of their node's
    degree: :math:`h_i = d_i^{-1/2} W x_i`.

    Parameters
    ----------
    weight : Tensor of shape (F, R)
        First weight matrix W of the network.
    x : Tensor of shape (n, R, R)
        Node features: ROI i has R of them, its row of FC standardised (`graphs.node_features`).
    near : Tensor of shape (n, R, R), bool
        Whether two ROIs are connected.
    """
    degree = near.sum(-1, keepdim=True).clamp(min=1).to(x.dtype)
    return attention(linear(x * degree.rsqrt(), weight), near).square().sum()


def topology_importance(weight: Tensor, x: Tensor, near: Tensor) -> Tensor:
    r"""Return the squared gradient of the attention's norm by the first weight matrix.

    The norm :math:`\|e\|_2` is over all edges of all graphs. Arguments as of `squared_energy`; the
    result has the shape of `weight`.
    """
    energy = torch.zeros_like(weight[0, 0])
    gradient = torch.zeros_like(weight)
    of_chunk = torch.func.grad_and_value(squared_energy)
    for i in range(0, len(x), CHUNK):
        grad, value = of_chunk(weight, x[i : i + CHUNK], near[i : i + CHUNK])
        energy = energy + value
        gradient = gradient + grad
    # the derivative of the root of the energy, by the chain rule
    return (gradient / (2.0 * energy.clamp(min=1e-30).sqrt())).square()


@limits(loss_strength=at_least(0), topology_strength=at_least(0))
@dataclass(frozen=True)
class TWP(anchor.Anchored):
    """Topology-aware weight preserving: holds what the loss and the graph's attention need.

    Liu, Yang and Wang 2021, at graph level. The topology importance is that of the reference
    code: the first layer's weight alone, features scaled by the degree, the norm (not its square)
    of all coefficients of the site's training set. Squared gradients of the loss are taken per
    graph, in eval mode, and averaged. Not copied: gradients that pile up over batches, the
    cross-entropy counted twice, the topology gradient added to that of the loss before squaring,
    and the term beta |grad CE|_1, which has no effect there.

    Which attention: the sources have one branch for layers that widen (116 to 128 here) and one
    for layers that narrow. CGLB, as the authors, attends before W where a layer widens, so that
    no topology gradient reaches W. Ours is what CGLB does where a layer narrows and BeGin's
    graph-level layer (``TWPGCNConv``) always does: attention after W, both ends of an edge scaled
    by their degree (equal importances). BeGin's node-level layer (``TWPGraphConv``) leaves the
    receiving end unscaled; its importances correlate with ours by 0.7 on the 529 and by 0.3 on
    the 444.

    Parameters
    ----------
    loss_strength, topology_strength : float
        lambda_l, lambda_t; 1e4 and 100 in the authors' graph-level code. Theirs is tied to the
        gradient of the whole set's mean loss; `fcforge tune` tries 10 .. 1e6.
    """

    loss_strength: float = 1e4
    topology_strength: float = 100.0

    name = "twp"
    factors = ("loss_strength", "topology_strength")
    title = "TWP"
    source = "Liu, Yang and Wang 2021 (AAAI)"
    models = ("gcn", "gat", "sage", "gae")

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Add the site's importances, of loss and topology, and its parameters to the penalty."""
        by_loss = anchor.loss_gradients(model, lane, site.inputs(model), site.y)
        importance = {k: self.loss_strength * v for k, v in by_loss.items()}
        near = model.adjacency(site.fc) != 0  # type: ignore[attr-defined]
        topology = topology_importance(
            lane.params[FIRST], graphs.node_features(site.fc), near
        )
        importance[FIRST] = importance[FIRST] + self.topology_strength * topology
        return anchor.add_anchor(lane, importance)
