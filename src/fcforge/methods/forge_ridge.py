r"""FORGE in closed form: the same objective with squared loss on a linear head, solved exactly.

The memory, its tuples (G, y, u, r) and the sampler are FORGE's
(`fcforge.methods.shared.synthetic_memory`). A linear head on fixed features has logits
:math:`h = (-s, s)` with score :math:`s = x^\top w + b`. With targets :math:`t = \mp 1`, the coded
labels, the objective over the n subjects of the open site (the one being learned) becomes

.. math::

    \frac1n \sum_{i} (s_i - t_i)^2 + \sum_{j} E_{R_j}\Bigl[\lambda_1 (s - t)^2
        + \lambda_2 (s - u)^2 + \lambda_3 \|\rho(G) - r\|^2\Bigr] + \frac{\alpha}{n} \|w - w_0\|^2,

where :math:`R_j` are the active subjects of past site j, and :math:`w_0` is the head of a ridge
regression on public subjects, or 0 without them. Cross-entropy is replaced by the squared
distance of the logits to :math:`(-t, t)`, halved. The logits distillation is as it was, with the stored
score u in place of the stored logits: :math:`(s - u)^2 = \tfrac12 \|h - (-u, u)\|^2`. The readout of a
linear model is its input: the :math:`\lambda_3` term is zero for every w, readouts only serve the
sampler. What is left is one weighted ridge regression, in which a remembered subject has the
target :math:`(\lambda_1 t + \lambda_2 u) / (\lambda_1 + \lambda_2)`.

Shapes: n subjects of the open site, N subjects of the open site and of the memory, k remembered
subjects that are replayed, q features, c columns of targets (one, or one per class if there are more
than two).
A lane is one training run: one learner, order of sites and seed.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fcforge.core.settings import above, at_least, limits, within
from fcforge.methods.base import Lane, Model, Output, PublicView, SiteView
from fcforge.methods.shared.ridge import (
    Dual,
    balance_classes,
    coded,
    dual_ridge,
    linear_head,
    logits_of,
    n_columns,
    recalled_targets,
    weigh_subjects,
)
from fcforge.methods.shared.synthetic_memory import HeldOut, SyntheticMemory, n_learned
from fcforge.models.edge import WHOLE_LOG
from fcforge.replay.hcts import Choice, HCTSState
from fcforge.replay.memory import Memory
from fcforge.replay.selection import Geometry
from fcforge.replay.state import ABSENT, Absent, rows_of

CHUNK = 256  # subjects whose features are made float64 at once


class ForgeRidgeState(NamedTuple):
    """State of the closed form: that of its memory (`SyntheticState`), and a base model's head.

    `public_head` (q + 1, c) holds the weights and, in its last row, the bias of the ridge regression on
    the public subjects; it is absent in a run without them.
    """

    memory: Memory
    held_out: HeldOut
    choice: Choice
    hcts: HCTSState | Absent = ABSENT
    geometry: Geometry | Absent = ABSENT
    public_head: Tensor | Absent = ABSENT


class Problem(NamedTuple):
    """The N subjects that the solutions at one site are made of.

    Attributes
    ----------
    rows : Tensor of shape (N,), int64
        Their bank rows, in ascending order.
    place : Tensor of shape (rows of the bank,), int64
        The inverse of `rows`: the number from 0 to N - 1 of a bank row among them.
    gram : Tensor of shape (N, N), float64
        Inner products of their features.
    public : Tensor of shape (N, c)
        Their scores by the base model's head; 0 without one.
    current : Tensor of shape (n,), int64
        Places of the open site's subjects.
    t : Tensor of shape (n, c)
        Targets of the open site's subjects.
    mass : Tensor of shape (n,)
        Weights of the open site's subjects in the objective.
    weight : Tensor of shape (rows of the bank,) or None
        The user's training weights of all rows of the bank.
    """

    rows: Tensor
    place: Tensor
    gram: Tensor
    public: Tensor
    current: Tensor
    t: Tensor
    mass: Tensor
    weight: Tensor | None = None


def _scores(edges: Tensor, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return the scores (rows, c) of some subjects, in the head's precision.

    Parameters
    ----------
    edges : Tensor of shape (rows of the bank, q)
        Features of all rows of the bank.
    rows : Tensor of int64
        Bank rows of the subjects.
    weight, bias : Tensor of shape (q, c) and (c,)
        The head.
    """
    scores = [edges[chunk].to(weight) @ weight for chunk in rows.split(CHUNK)]
    return torch.cat(scores) + bias


def _looked_up(place: Tensor, score: Tensor, n_outputs: int, rows: Tensor) -> Output:
    """Return the output for bank rows whose scores are known, in place of a network's.

    Parameters
    ----------
    place : Tensor of shape (rows of the bank,), int64
        See `Problem`.
    score : Tensor of shape (N, c)
        Scores of the problem's subjects.
    n_outputs : int
    rows : Tensor of int64
        Bank rows asked for.
    """
    s = score[place[rows]]
    no_readout = s[:, :0]  # the sampler's geometry is known already
    return Output(logits_of(s, n_outputs), no_readout, {})


@limits(penalty=above(0), rounds=at_least(1), balance=within(0, 1))
@dataclass(frozen=True)
class ForgeRidge(SyntheticMemory):
    """FORGE on a linear model without a gradient step.

    At every site the sampler chooses K remembered subjects `rounds` times. Each time the
    objective is solved exactly. The head is the mean of the solutions so far, and its outputs for
    past sites are the next contexts of the sampler. Averaging lets all candidates contribute
    although only K are replayed at once. With ``l1 = l2 = 0`` nothing of the past is left and
    every site is a ridge regression of its own, whatever came before: the exact form of
    fine-tuning.

    Parameters
    ----------
    penalty : float
        Ridge penalty per feature: alpha = penalty * q, for features of about unit spread.
        Fixed, because choosing it by generalised cross-validation at every stage was worse on
        inner validation: a single site is too small for it.
    rounds : int
        Choices per site, 60 epochs at a refresh of 5 being 12.
    balance : float
        Degree to which the classes of a site are brought to equal weight, from 0 (subjects have
        equal weights) to 1 (classes have equal weights); see `balance_classes`.
    **settings
        Those of the memory and its sampler, see
        `fcforge.methods.shared.synthetic_memory`.
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
    State = ForgeRidgeState

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane with an empty memory, and with ridge on the public subjects as its head.

        In a run with a base model, this head is w_0 of the objective, towards which the heads of all
        sites are shrunk. Without one the model keeps its initial head until the first site, and w_0 is 0.

        Parameters
        ----------
        model : Model
        lane : Lane
        public : PublicView, optional
            Public subjects: people of the base model, whom everybody may see. None in a run without.
        """
        lane = super().start(model, lane, public)
        if public is None:
            return lane
        x = public.inputs(model)["edges"].double()
        t = coded(public.y, model.n_outputs)
        mass = torch.ones_like(t[:, 0])
        dual = dual_ridge(x @ x.T, t, mass, self.penalty * x.shape[1])
        head = torch.cat([x.T @ dual.coefficient, dual.bias[None]])
        params = linear_head(head[:-1], head[-1], model.n_outputs)
        return lane._replace(params=params).with_state(public_head=head)

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Solve the objective, then store the site's synthetic subjects."""
        return super().end_site(model, self._solve(model, lane, site), site)

    def _solve(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Return the lane whose head is the mean of the solutions for each choice.

        A solution is a combination of subjects. So the scores between two choices follow from inner
        products, and features are needed only for the head at the end.
        """
        problem = self._problem(model, lane, site)
        edges = site.bank.inputs(model)["edges"]
        keys = torch.randint(
            2**31 - 1, (self.rounds,), generator=site.rng, dtype=torch.int32
        )
        outputs = model.n_outputs
        # of the logits (-s, s) of two classes the last is the score; else every logit is one
        columns = slice(outputs - n_columns(outputs), None)
        weight = lane.params["head.0.weight"][columns].T
        bias = lane.params["head.0.bias"][columns]
        score = _scores(edges, problem.rows, weight, bias)
        # one solution is enough where there is nothing to choose
        rounds = self.rounds if n_learned(lane) and self.chooses else 1
        total = torch.zeros_like(problem.public)  # sum of coefficients so far
        total_bias = torch.zeros_like(problem.public[0])
        for done, key in enumerate(keys[:rounds].to(score.device), 1):
            if self.chooses:
                forward = partial(_looked_up, problem.place, score, outputs)
                lane = self.choose(forward, lane, key)
            places, dual = self._ridge(problem, lane, edges.shape[1])
            total = total.index_add(0, places, dual.coefficient)
            total_bias = total_bias + dual.bias
            score = problem.public + (problem.gram @ total + total_bias) / done
        parts = zip(problem.rows.split(CHUNK), total.split(CHUNK), strict=True)
        weight = sum(edges[rows].double().T @ part for rows, part in parts)
        head = torch.cat([weight, total_bias[None]]) / rounds
        if isinstance(lane.state.public_head, Tensor):
            head = lane.state.public_head + head
        params = linear_head(head[:-1], head[-1], outputs, bias.dtype)
        return lane._replace(params=params)

    def _problem(self, model: Model, lane: Lane, site: SiteView) -> Problem:
        """Return the open site's subjects with the candidates and held-out subjects of the past.

        Held-out subjects are not trained on, but the sampler needs their scores.
        """
        edges = site.bank.inputs(model)["edges"]
        # `rows_of` finds the bank rows of the memory and of the held-out subjects
        rows = torch.cat([site.rows, *rows_of(lane.state).values()]).unique()
        rows = rows[rows >= 0]  # -1 marks an empty slot
        # the inverse of `rows`; 0 for rows of the bank that have no part here
        place = torch.zeros(len(edges), dtype=torch.int64, device=rows.device)
        place[rows] = torch.arange(len(rows), device=rows.device)
        outputs = model.n_outputs
        t = coded(site.y, outputs)
        each = torch.ones_like(t[:, 0]) if site.weight is None else site.weight
        one_site = torch.zeros_like(site.y)  # all are of site 0 here
        mass = balance_classes(each, site.y, one_site, self.balance, outputs)
        public = t.new_zeros(len(rows), t.shape[1])
        head: Any = lane.state.public_head
        if isinstance(head, Tensor):
            public = _scores(edges, rows, head[:-1], head[-1])
        gram = site.bank.products(model, rows)
        current = place[site.rows]
        weight = site.bank.weight
        return Problem(rows, place, gram, public, current, t, mass, weight)

    def _ridge(
        self, problem: Problem, lane: Lane, n_features: int
    ) -> tuple[Tensor, Dual]:
        """Solve the objective for the present choice of remembered subjects.

        Parameters
        ----------
        problem : Problem
        lane : Lane
            Its memory holds the remembered subjects, its choice tells which are replayed.
        n_features : int
            Number of features q, by which the penalty is multiplied.

        Returns
        -------
        places : Tensor of shape (n + k,), int64
            Places in `problem` of the open site's subjects and of the chosen ones.
        dual : Dual
            The solution, as a combination of these subjects.
        """
        open_mass = (
            len(problem.t) if problem.weight is None else float(problem.mass.sum())
        )
        memory = lane.state.memory
        slots, target, mass = self.targets(memory, lane.state.choice, open_mass)
        if problem.weight is not None:
            weight = problem.weight[memory.rows[slots]]
            mass = weigh_subjects(mass, weight, memory.site[slots])
        replayed = problem.place[lane.state.memory.rows[slots]]
        places = torch.cat([problem.current, replayed])
        # what the base model's head leaves to explain
        residual = torch.cat([problem.t, target]) - problem.public[places]
        gram = problem.gram[places[:, None], places]
        weights = torch.cat([problem.mass, mass])
        penalty = self.penalty * n_features
        return places, dual_ridge(gram, residual, weights, penalty)

    def targets(
        self, memory: Memory, choice: Choice, n: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return memory slots, targets and weights of the chosen subjects.

        Past sites have equal weights, and together that of one site or of as many as they are
        (`sum_sites`).

        Parameters
        ----------
        memory : Memory
            All remembered subjects.
        choice : Choice
            Which of them are replayed.
        n : float
            Total weight of the open site's subjects.

        Returns
        -------
        slots : Tensor of shape (k,), int64
            None (k = 0) if neither labels nor scores are replayed.
        target : Tensor of shape (k, c)
        mass : Tensor of shape (k,)
        """
        l1, l2, _ = self.weights
        slots = choice.active
        quota = choice.quota
        if l1 + l2 == 0:
            slots = slots[:0]
        y = memory.y[slots]
        site = memory.site[slots]
        # the subjects of a site share 1 / T
        mass = 1.0 / (quota[site].double() * max(len(quota), 1))
        logits = memory.logits[slots].double()
        mass = balance_classes(mass, y, site, self.balance, logits.shape[1])
        sites = len(quota) if self.sum_sites else 1
        target = recalled_targets(y, logits, l1, l2)
        return slots, target, n * sites * (l1 + l2) * mass
