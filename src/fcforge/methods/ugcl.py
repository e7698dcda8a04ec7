r"""UGCL, our reconstruction: replay with distillation of logits, readout and local structure.

Only the abstract of the paper was at hand ("replay memory ... distillation ... coarse-to-grain
graph representations stay close to previous ones by minimizing global and local structure
losses"). Every formula here is our reading of it:

.. math::
    L = CE(B_c) + \lambda_r CE(B_m) + \lambda_d \, \mathrm{mean} (z - u)^2
        + \lambda_g (1 - \cos(r, r_{old})) + \lambda_l \, \mathrm{mean}_v KL(s_{old}(v) \| s(v))

with :math:`s(v) = \mathrm{softmax}_{j \in N(v)} (-\|h_v - h_j\|^2 / (F \tau))`. :math:`B_c` is the current
batch, :math:`B_m` one from the memory; z are logits, r readouts and :math:`h_v` the F features of node v
(an ROI) with neighbours N(v). u are the logits, and "old" marks the outputs, of the teacher, which is
the network before this site.

Shapes: n subjects, R ROIs, F features of a node, K classes.
A lane is one training run: one learner, order of sites and seed.
"""

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.core.settings import above, at_least, limits
from fcforge.methods.base import (
    Batch,
    Inputs,
    Lane,
    Loss,
    Model,
    Params,
    PublicView,
    is_used,
    label_loss,
)
from fcforge.methods.shared.rehearsal import Rehearsal
from fcforge.methods.shared.teacher import Taught
from fcforge.nn.layers import mean_max
from fcforge.replay.bank import joined_inputs
from fcforge.replay.memory import RankedMemory, Rule
from fcforge.replay.state import ABSENT, Absent, Network


def neighbours(inputs: Inputs) -> Tensor:
    """Return the connected ROIs, (n, R, R) bool without self loops, from prepared inputs.

    Every graph model prepares its graph in a form of its own: GAT an attention mask (0 for connected
    ROIs), GCN a propagation matrix, GraphSAGE a matrix that averages over neighbours.
    """
    if "blocked" in inputs:
        connected = inputs["blocked"] == 0
    else:
        matrix = inputs["propagation" if "propagation" in inputs else "mean"]
        connected = matrix != 0
    itself = torch.eye(connected.shape[-1], dtype=torch.bool, device=connected.device)
    return connected & ~itself


def local_structure(nodes: Tensor, near: Tensor, tau: float) -> Tensor:
    """Return log s(v) for every ROI v: (n, R, R), the last dimension being that of its neighbours.

    s(v) is the softmax of minus the squared distances to the neighbours of v. The term ``|h_v|^2`` is
    the same for all neighbours and drops out of the softmax.

    Parameters
    ----------
    nodes : Tensor of shape (n, R, F)
        Features h of the nodes.
    near : Tensor of shape (n, R, R), bool
        Whether two ROIs are connected (`neighbours`).
    tau : float
        Temperature.
    """
    scale = 1.0 / (nodes.shape[-1] * tau)
    size = nodes.square().sum(-1)
    score = 2.0 * nodes @ nodes.transpose(-1, -2) - size[..., None, :]
    return F.log_softmax(torch.where(near, score * scale, -1e9), dim=-1)


def local_divergence(old: Tensor, new: Tensor, near: Tensor, tau: float) -> Tensor:
    """Return the KL between old and new local structure, mean over ROIs with a neighbour.

    `old` and `new` (n, R, F) are node features of the teacher and of the present network; `near` and
    `tau` are those of `local_structure`.
    """
    log_p = local_structure(old, near, tau)
    log_q = local_structure(new, near, tau)
    each = log_p.exp() * (log_p - log_q)
    kl = torch.where(near, each, 0.0).sum(-1)
    return kl.sum() / near.any(-1).sum().clamp(min=1)


class UGCLState(NamedTuple):
    """State of UGCL: a memory of real subjects, and a teacher while a site is learned."""

    memory: RankedMemory
    teacher: Network | Absent = ABSENT


class GraphView(NamedTuple):
    """Outputs of a graph network: node features (n, R, F), readouts (n, 2 F) and logits (n, K)."""

    nodes: Tensor
    readout: Tensor
    logits: Tensor


def graph_view(
    model: Any, params: Params, stats: Params, inputs: Inputs, key: Tensor | None
) -> tuple[GraphView, Params]:
    """Return the outputs of a graph network, and its batch-norm statistics after this batch.

    Parameters
    ----------
    model : GraphModel
    params, stats, inputs : dict of Tensor
        As for `Model.apply`.
    key : int32 scalar or None
        Random key of dropout in training mode; None for evaluation mode.
    """
    train = key is not None
    nodes, stats = model.encode(params, stats, inputs, train, key)
    readout = mean_max(nodes)
    return GraphView(nodes, readout, model.classify(params, readout, key)), stats


@limits(
    rehearsal=at_least(0),
    logits_weight=at_least(0),
    global_weight=at_least(0),
    local_weight=at_least(0),
    tau=above(0),
)
@dataclass(frozen=True)
class UGCL(Taught, Rehearsal):
    """UGCL reconstructed from its abstract: replay with global and local distillation.

    After Hoang et al. 2023; all formulas and weights are guesses.

    Parameters
    ----------
    rehearsal, logits_weight, global_weight, local_weight : float
        lambda_r, lambda_d, lambda_g, lambda_l; grid 0.1, 0.5, 1.
    tau : float
        Temperature of the local structure.
    rule : {"reservoir", "balanced"}
        As in `Rehearsal`; balanced here.
    """

    rule: Rule = "balanced"
    rehearsal: float = 1.0
    logits_weight: float = 0.5
    global_weight: float = 0.5
    local_weight: float = 0.5
    tau: float = 1.0

    name = "ugcl"
    factors = ("rehearsal", "logits_weight", "global_weight", "local_weight", "tau")
    title = "UGCL (reconstruction)"
    source = "after Hoang et al. 2023 (TMLR), from its abstract"
    models = ("gcn", "gat", "sage")
    State = UGCLState

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane with an empty memory and without a teacher."""
        return lane._replace(state=UGCLState(self.empty(model, lane.device)))

    @property
    def draws(self) -> int:
        """One draw, or none if all weights are zero."""
        weights = (
            self.rehearsal,
            self.logits_weight,
            self.global_weight,
            self.local_weight,
        )
        return int(any(map(is_used, weights)))

    def loss(
        self, model: Model, params: Params, lane: Lane, batch: Batch, key: Tensor
    ) -> Loss:
        """Add label, logits, readout and structure losses of the replayed subjects."""
        teacher = lane.state.teacher
        replay = batch.replay
        if replay is None or not teacher:
            return super().loss(model, params, lane, batch, key)
        n = batch.y.shape[0]
        both = joined_inputs([batch.inputs, replay.inputs])
        now, stats = graph_view(model, params, lane.stats, both, key)
        with torch.no_grad():
            then, _ = graph_view(
                model, teacher.params, teacher.stats, replay.inputs, None
            )
        current = label_loss(now.logits[:n], batch.y)
        nodes, readout, logits = (part[n:] for part in now)  # of replayed subjects
        near = neighbours(replay.inputs)
        cosine = F.cosine_similarity(readout, then.readout, dim=-1)
        apart = local_divergence(then.nodes, nodes, near, self.tau)
        terms = {
            "replay": self.rehearsal * label_loss(logits, replay.y, replay.weight),
            "logits": self.logits_weight * (logits - then.logits).square().mean(),
            "readout": self.global_weight * (1.0 - cosine).mean(),
            "structure": self.local_weight * apart,
        }
        past = reduce(add, terms.values())
        return Loss(current + past, stats, {"current": current, **terms})
