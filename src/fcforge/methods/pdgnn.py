r"""PDGNN with topology-aware embedding memory, at graph level.

Propagation has no parameters, so a subject's embedding (``te`` of the model `tem`) never changes:
it is stored instead of the graph and a small network is trained on current and stored embeddings,

.. math:: L = \tfrac1K \sum_{c} \mathrm{mean}_{i \in B \cup M, \, y_i = c} CE_i

with the current batch B, the memory M and K classes c.

This is not a GCN: "GCN is adopted as backbone for all methods" cannot hold for it.

Shapes: n subjects, R ROIs, q numbers of an embedding, K classes.
A lane is one training run: one learner, order of sites and seed.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge import graphs
from fcforge.core.settings import at_least, limits
from fcforge.methods.base import (
    Batch,
    Lane,
    Loss,
    Method,
    Model,
    Params,
    PublicView,
    SiteView,
)
from fcforge.replay.memory import admit, weighted_priority


class EmbeddingMemory(NamedTuple):
    """A memory of embeddings with n slots.

    Attributes
    ----------
    topology : Tensor of shape (n, q) or (n, R, R)
        Embeddings of the subjects, of all ROIs with ``te = "nodes"`` of the model.
    y, site : Tensor of shape (n,), int64
        Labels, and positions of the subjects' sites; -1 for a free slot.
    priority : Tensor of shape (n,), float64
        A full memory keeps the highest (`fcforge.replay.memory`).
    """

    topology: Tensor
    y: Tensor
    site: Tensor
    priority: Tensor


class PDGNNState(NamedTuple):
    """State of PDGNN."""

    memory: EmbeddingMemory


def balanced_cross_entropy(logits: Tensor, y: Tensor, counts: Tensor) -> Tensor:
    """Return the cross-entropy over the subjects that count, with equal weight of the classes.

    Parameters
    ----------
    logits : Tensor of shape (n, K)
    y : Tensor of shape (n,)
        Labels; any for a free slot.
    counts : Tensor of shape (n,)
        1 for a subject, 0 for a free slot of the memory.
    """
    each = F.cross_entropy(logits, y, reduction="none") * counts
    classes = range(logits.shape[-1])
    member = torch.stack([y == k for k in classes], dim=1) * counts[:, None]  # (n, K)
    size = member.sum(0)
    by_class = (each[:, None] * member).sum(0) / size.clamp(min=1.0)
    return by_class.sum() / (size > 0).sum()  # mean over the classes that occur


@limits(memory=at_least(0))
@dataclass(frozen=True)
class PDGNN(Method):
    """PDGNN-TEM: a small network on fixed graph embeddings, which are remembered.

    Zhang et al. 2024, carried from nodes to whole graphs. At graph level every node is covered,
    so their coverage sampling means nothing; its literal port is a probability proportional to
    the number of edges. The embeddings are not FC, but they are features of single patients all
    the same: this method keeps real subjects.

    Parameters
    ----------
    memory : int
        Stored embeddings, shared equally by the classes of all sites (256 like the others; the
        authors: 400 per class).
    """

    memory: int = 256

    name = "pdgnn"
    title = "PDGNN-TEM"
    source = "Zhang et al. 2024 (KDD), at graph level"
    keeps = "real subjects"
    models = ("tem",)
    weighs = False  # its loss balances the classes of the memory by itself
    State = PDGNNState

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane with an empty memory of embeddings; site -1 marks a free slot."""
        weight = lane.params["embed.weight"]
        free = torch.full((self.memory,), -1, dtype=torch.int64, device=weight.device)
        memory = EmbeddingMemory(
            topology=weight.new_zeros(self.memory, *model.embedding_shape),  # type: ignore[attr-defined]
            y=torch.zeros_like(free),
            site=free,
            priority=weight.new_zeros(self.memory, dtype=torch.float64),
        )
        return lane._replace(state=PDGNNState(memory))

    def loss(
        self, model: Model, params: Params, lane: Lane, batch: Batch, key: Tensor
    ) -> Loss:
        """Return the balanced cross-entropy of the current batch and the whole memory."""
        memory = lane.state.memory
        x = torch.cat([batch.inputs["topology"], memory.topology])
        y = torch.cat([batch.y, memory.y])
        counts = torch.cat([torch.ones_like(batch.y), (memory.site >= 0).long()])
        out = model.apply(params, lane.stats, {"topology": x}, train=True, key=key)
        loss = balanced_cross_entropy(out.logits, y, counts.to(x.dtype))
        return Loss(loss, out.stats, {"current and replay": loss})

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Store embeddings of the site; those of earlier sites make room.

        Subjects are sampled in proportion to the number of edges of their graphs.
        """
        near = graphs.adjacency(site.fc, model.tau) != 0  # type: ignore[attr-defined]
        n_edges = near.sum((-1, -2))  # each counted twice, which no proportion shows
        new = EmbeddingMemory(
            topology=site.inputs(model)["topology"],
            y=site.y,
            site=torch.full_like(site.y, site.position),
            priority=weighted_priority(n_edges, site.rng),
        )
        return lane.with_state(memory=admit(lane.state.memory, new, "balanced"))
