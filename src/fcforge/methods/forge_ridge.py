r"""FORGE in closed form: the same objective with squared loss on a linear head, solved exactly.

The memory, its tuples (G, y, u, r) and the sampler are FORGE's
(`fcforge.methods.shared.synthetic_memory`). A
linear head on fixed features has logits :math:`h = (-s, s)` with score :math:`s = x^\top w + b`.
With labels :math:`t = \mp 1` the objective over the n subjects of the open site becomes

.. math::

    \frac1n \sum_{i} (s_i - t_i)^2 + \sum_{t} E_{R_t}\Bigl[\lambda_1 (s - t)^2
        + \lambda_2 (s - u)^2 + \lambda_3 \|\rho(G) - r\|^2\Bigr] + \frac{\alpha}{n} \|w\|^2,

where cross-entropy is replaced by the squared distance of the logits to :math:`(-t, t)`, halved,
and :math:`(s - u)^2 = \tfrac12 \|h(G) - u\|^2` is the logits distillation as it was. The readout
of a linear model is its input: the :math:`\lambda_3` term is zero for every w, readouts only serve
the sampler. What is left is one weighted ridge regression, in which a remembered subject has the
target :math:`(\lambda_1 t + \lambda_2 u) / (\lambda_1 + \lambda_2)`.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.core.settings import above, at_least, limits, within
from fcforge.methods.base import Lane, Model, Output, PublicView, SiteView, State
from fcforge.methods.shared.ridge import (
    Dual,
    balance_classes,
    coded,
    dual_ridge,
    linear_head,
    logits_of,
    n_columns,
    recalled_targets,
)
from fcforge.methods.shared.synthetic_memory import SyntheticMemory
from fcforge.models.edge import WHOLE_LOG
from fcforge.replay.memory import ROWS

CHUNK = 256  # subjects whose features are made float64 at once


class Seen(NamedTuple):
    """The N subjects that a solution is made of, as far as it sees them.

    Attributes
    ----------
    rows, place : Tensor of shape (N,) and (bank,), int64
        Their bank rows, in order, and the place of a bank row among them.
    gram : Tensor of shape (N, N), float64
        Inner products of their features.
    public : Tensor of shape (N, c)
        What the public head says of them; 0 without one.
    own, mass : Tensor of shape (n,)
        Places of the open site's subjects, and what each counts.
    t : Tensor of shape (n, c)
        Their targets.
    """

    rows: Tensor
    place: Tensor
    gram: Tensor
    public: Tensor
    own: Tensor
    t: Tensor
    mass: Tensor


def _scores(edges: Tensor, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Scores (n, c) that a head (q, c) gives some rows, in its own precision."""
    said = [edges[some].to(weight) @ weight for some in rows.split(CHUNK)]
    return torch.cat(said) + bias


def _looked_up(place: Tensor, score: Tensor, n_outputs: int, rows: Tensor) -> Output:
    """Logits of bank rows whose scores are known; readouts are known already."""
    s = score[place[rows]]
    return Output(logits_of(s, n_outputs), s[:, :0], {})


@limits(penalty=above(0), rounds=at_least(1), balance=within(0, 1))
@dataclass(frozen=True)
class ForgeRidge(SyntheticMemory):
    """FORGE on a linear model without a gradient step.

    At every site the sampler chooses K remembered subjects `rounds` times. Each time the
    objective is solved exactly; the head is the mean of the solutions so far, and what it now
    says of past sites is what the sampler sees next. Averaging lets all candidates be heard
    although only K are replayed at once. With ``l1 = l2 = 0`` nothing of the past is left and
    every site is a ridge regression of its own, whatever came before: the exact form of
    fine-tuning.

    Parameters
    ----------
    penalty : float
        Ridge penalty per feature: alpha = penalty * p, for features of about unit spread.
        Fixed, because choosing it by generalised cross-validation at every stage was worse on
        inner validation (docs/results/history.md): a single site is too small to tell.
    rounds : int
        Choices per site, 60 epochs at a refresh of 5 being 12.
    balance : float
        How far the classes of a site are brought to equal weight, 0 (each subject counts alike)
        to 1 (each class counts alike); see `balance_classes`.
    **settings
        Those of the memory and its sampler, `fcforge.methods.shared.synthetic_memory.SyntheticMemory`.
    """

    penalty: float = 0.5
    rounds: int = 10
    balance: float = 0.0

    name = "forge_ridge"
    title = "FORGE, closed form"
    source = "the FORGE paper's objective with squared loss"
    fits = False
    from_public = "head"
    models = ("linear",)
    features = WHOLE_LOG

    def learn_public(self, model: Model, lane: Lane, public: PublicView) -> Lane:
        """Ridge on the public people; from now on heads are penalised for leaving this one."""
        x = public.inputs(model)["edges"].double()
        t = coded(public.y, model.n_outputs)
        mass = torch.ones_like(t[:, 0])
        dual = dual_ridge(x @ x.T, t, mass, self.penalty * x.shape[1])
        head = torch.cat([x.T @ dual.coefficient, dual.bias[None]])
        params = linear_head(head[:-1], head[-1], model.n_outputs)
        return lane._replace(params=params).holding({"public.head": head})

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Solve the objective, then store the site's synthetic subjects."""
        return super().end_site(model, self._solve(model, lane, site), site)

    def _solve(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Mean of the solutions for each choice; scores in between follow from the products."""
        seen = self._products(model, lane, site)
        edges = site.bank.inputs(model)["edges"]
        keys = torch.randint(
            2**31 - 1, (self.rounds,), generator=site.rng, dtype=torch.int32
        )
        outputs = model.n_outputs
        columns = slice(outputs - n_columns(outputs), None)
        weight = lane.params["head.0.weight"][columns].T
        bias = lane.params["head.0.bias"][columns]
        score = _scores(edges, seen.rows, weight, bias)
        rounds = self.rounds if len(lane.state[ROWS]) and self.chooses else 1
        total = torch.zeros_like(seen.public)
        level = torch.zeros_like(seen.public[0])
        for done, key in enumerate(keys[:rounds].to(score.device), 1):
            if self.chooses:
                look = partial(_looked_up, seen.place, score, outputs)
                lane = self.choose(look, lane, key)
            where, dual = self._ridge(seen, lane.state, edges.shape[1])
            total = total.index_add(0, where, dual.coefficient)
            level = level + dual.bias
            score = seen.public + (seen.gram @ total + level) / done
        parts = zip(seen.rows.split(CHUNK), total.split(CHUNK), strict=True)
        weight = sum(edges[rows].double().T @ c for rows, c in parts)
        head = torch.cat([weight, level[None]]) / rounds
        head = lane.state.get("public.head", torch.zeros_like(head)) + head
        return lane._replace(params=linear_head(head[:-1], head[-1], outputs))

    def _products(self, model: Model, lane: Lane, site: SiteView) -> Seen:
        """The open site, and the candidates and held-out subjects of the past ones."""
        edges = site.bank.inputs(model)["edges"]
        held = [lane.state[k] for k in self.row_keys]
        rows = torch.cat([site.rows, *held]).unique()
        rows = rows[rows >= 0]
        place = torch.zeros(len(edges), dtype=torch.int64, device=rows.device)
        place[rows] = torch.arange(len(rows), device=rows.device)
        outputs = model.n_outputs
        t = coded(site.y, outputs)
        one = torch.ones_like(t[:, 0])
        here = torch.zeros_like(site.y)
        mass = balance_classes(one, site.y, here, self.balance, outputs)
        public = t.new_zeros(len(rows), t.shape[1])
        if (head := lane.state.get("public.head")) is not None:
            public = _scores(edges, rows, head[:-1], head[-1])
        gram = site.bank.products(model, rows)
        return Seen(rows, place, gram, public, place[site.rows], t, mass)

    def _ridge(self, seen: Seen, state: State, n_features: int) -> tuple[Tensor, Dual]:
        """Places of the open site's subjects and of those chosen now, and their solution."""
        slot, target, mass = self.targets(state, len(seen.t))
        where = torch.cat([seen.own, seen.place[state[ROWS][slot]]])
        # what the public leave
        left = torch.cat([seen.t, target]) - seen.public[where]
        gram = seen.gram[where[:, None], where]
        weights = torch.cat([seen.mass, mass])
        return where, dual_ridge(gram, left, weights, self.penalty * n_features)

    def targets(self, state: State, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Slots (k,), targets (k, c) and masses (k,) of the chosen, at a site of `n` subjects.

        Past sites share alike, and together count as one site or as so many (`sum_sites`).
        """
        l1, l2, _ = self.weights
        slot = state["replay.active"]
        quota = state["replay.quota"]
        if l1 + l2 == 0:
            slot = slot[:0]
        y = state["memory.y"][slot]
        site = state["memory.site"][slot]
        mass = 1.0 / (quota[site].double() * max(len(quota), 1))
        logits = state["memory.logits"][slot].double()
        mass = balance_classes(mass, y, site, self.balance, logits.shape[1])
        sites = len(quota) if self.sum_sites else 1
        target = recalled_targets(y, logits, l1, l2)
        return slot, target, n * sites * (l1 + l2) * mass
