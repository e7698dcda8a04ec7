r"""FORGE: replay of synthetic subjects with two levels of distillation and Thompson sampling.

At the end of a site its generator makes C candidates. Each is stored once as (G, y, u, r): the
subject, its label, and the logits u and readout r of the network as it then was. At later sites

.. math::

    L = CE_{current} + \frac{1}{T}\sum_{t} E_{R_t}\Bigl[\lambda_1\, CE(y, f(G))
        + \tfrac{\lambda_2}{2}\, \|h(G) - u\|^2 + \tfrac{\lambda_3}{d}\, \|\rho(G) - r\|^2\Bigr]

with :math:`R_t` the part of site t among the K subjects that `fcforge.replay.hcts` chooses from
the candidates of the T past sites. No real subject is kept. ``preset = "paper"`` gives the
paper's sums instead of means and its sampler as published; every difference is a field.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from fcforge.methods._forge_presets import LAMBDAS, resolve
from fcforge.methods._rehearsal import both_batches
from fcforge.methods.base import Batch, Keeps, Lane, Method, Replay, State, cross_entropy
from fcforge.models.base import Inputs, Model, Output, Params, gather
from fcforge.randomness import uniform
from fcforge.replay.bandit import Bandit, Form
from fcforge.replay.bank import SiteView
from fcforge.replay.hcts import HCTS, Choice, draw_slots, even_choice, held_out, look_at
from fcforge.replay.memory import ROWS, empty_memory, readout_width, teach
from fcforge.replay.selection import Scaling, even_split, even_subset, reservoir
from fcforge.settings import NotNegative, Positive, Share, Size, at_least


@dataclass(frozen=True)
class Forge(Method):
    """FORGE: synthetic subjects chosen by HCTS, replayed with labels, logits and readouts.

    A setting left at None is what `preset` says (see `PRESETS`).

    Parameters
    ----------
    preset : {"default", "paper"}
        What works, or the paper to the letter.
    lambdas : {"asd", "bsnip", "mdd"}
        Which of the paper's weights to use.
    l1, l2, l3 : float, optional
        Weights of replay cross-entropy, logits and readout distillation, in place of `lambdas`.
        ``l2=0`` is the ablation without LKD, ``l3=0`` without GKD; all zero is fine-tuning.
    memory : int
        K, subjects that are replayed between two refreshes, over all sites.
    candidates : int
        C, synthetic subjects stored per site, of which K are chosen. With the authors' sizes
        K is more than 85 % of all candidates and there is nothing to choose.
    dev : int
        D, further synthetic subjects per site on which the sampler measures forgetting. The
        paper measures it on past sites' real test subjects; that leak is a switch of the run
        (`context_on_test`).
    sampling : {"hcts", "uniform", "reservoir"}
        "uniform": equal quotas, random subjects, on the same schedule (the ablation without
        HCTS). "reservoir": K subjects in all, the other candidates are thrown away, as a
        memory of real subjects would.
    site_weight : {"equal", "quota"}
        Sites count equally in the replay loss, as in the paper's equation, or by their share of
        the K subjects, as in the authors' code.
    replay : int
        Remembered subjects per training step (rounded up to equal parts per site): 32, as the
        methods that replay real subjects; 64 in the authors' code.
    loss_form : {"mean", "paper"}
        Squared norms divided by their length, or the paper's sums. The readout has 256 numbers:
        as a sum it outweighs the diagnosis.
    sum_sites : bool
        Add up past sites (paper) instead of averaging, so that replay grows with every site.
    forward : {"joint", "separate"}
        Current and replayed subjects through the network together, so that batch norm sees both
        at every step, or one after the other (authors' code).
    refresh : int
        Epochs between two choices. The authors' 80 give one or two per site: too few to learn.
    credit_previous, centre_reward, reward_scale, zscore, temperature, floor, closeness
        Of the sampler, see `fcforge.replay.hcts.HCTS`.
    posterior, arms, prior, belief
        Of its bandits, see `fcforge.replay.bandit.Bandit`.
    """

    preset: Literal["default", "paper"] = "default"
    lambdas: Literal["asd", "bsnip", "mdd"] = "asd"
    l1: NotNegative | None = None
    l2: NotNegative | None = None
    l3: NotNegative | None = None
    memory: Size = 256
    candidates: Annotated[int, at_least(2)] = 256
    dev: Annotated[int, at_least(2)] = 64
    sampling: Literal["hcts", "uniform", "reservoir"] = "hcts"
    site_weight: Literal["equal", "quota"] = "equal"
    replay: Size | None = None
    loss_form: Literal["mean", "paper"] | None = None
    sum_sites: bool | None = None
    forward: Literal["joint", "separate"] | None = None
    refresh: Size | None = None
    credit_previous: bool | None = None
    centre_reward: bool | None = None
    posterior: Form | None = None
    arms: Literal["pooled", "site"] | None = None
    prior: Positive | None = None
    belief: float | None = None
    reward_scale: Positive | None = None
    zscore: bool | None = None
    temperature: Positive | None = None
    floor: Share | None = None
    closeness: Scaling | None = None

    name: ClassVar[str] = "forge"
    title: ClassVar[str] = "FORGE"
    source: ClassVar[str] = "the FORGE paper"
    keeps: ClassVar[Keeps] = "synthetic subjects"
    captures: ClassVar[bool] = True
    needs_generator: ClassVar[bool] = True
    row_keys: ClassVar[tuple[str, ...]] = (ROWS, "dev.row")

    # -- settings --------------------------------------------------------------------------------
    @cached_property
    def settings(self) -> dict[str, Any]:
        """The preset with what was set by hand."""
        return resolve(self)

    @property
    def weights(self) -> tuple[float, float, float]:
        """(l1, l2, l3)."""
        own, table = (self.l1, self.l2, self.l3), LAMBDAS[self.lambdas]
        l1, l2, l3 = (b if a is None else a for a, b in zip(own, table, strict=True))
        return l1, l2, l3

    @cached_property
    def sampler(self) -> HCTS:
        """The sampler these settings describe."""
        s = self.settings
        bandit = Bandit(
            prior=s["prior"],
            form=s["posterior"],
            belief=s["belief"],
            pooled=s["arms"] == "pooled",
        )
        return HCTS(
            capacity=self.memory,
            credit_previous=s["credit_previous"],
            centre_reward=s["centre_reward"],
            reward_scale=s["reward_scale"],
            temperature=s["temperature"],
            zscore=s["zscore"],
            floor=s["floor"],
            scaling=s["closeness"],
            bandit=bandit,
        )

    @property
    def replay_size(self) -> int:
        """Nothing is replayed when nothing is asked of it."""
        return int(self.settings["replay"]) if any(self.weights) else 0

    def wakes(self, epoch: int, epochs: int) -> bool:
        """Choose anew every `refresh` epochs, first before the first step at a site."""
        chooses = self.sampling != "reservoir" and self.replay_size > 0
        return chooses and epoch % self.settings["refresh"] == 0

    # -- once per site -----------------------------------------------------------------------------
    def start(self, model: Model, lane: Lane, rng: torch.Generator) -> Lane:
        """Empty memory, no arm."""
        device = next(iter(lane.params.values())).device
        none = torch.empty(0, dtype=torch.int64, device=device)
        state = empty_memory(0, readout_width(model, lane.params, lane.stats), device)
        state |= {"dev.row": none, "dev.y": none, "replay.active": none, "replay.quota": none}
        if self.sampling == "hcts":
            state |= self.sampler.start(device)
        return lane._replace(state=state)

    def end_site(self, model: Model, lane: Lane, site: SiteView, rng: torch.Generator) -> Lane:
        """Store the site's synthetic subjects with what the network now says of them."""
        rows = site.synthetic(self.candidates + self.dev)
        kept, held = even_split(site.bank.y[rows], self.dev)
        state, n_sites = dict(lane.state), len(lane.state["replay.quota"])
        inputs, y = site.bank.inputs(model), site.bank.y
        kept, held = rows[kept], rows[held]
        logits, embedding = teach(model, lane.params, lane.stats, gather(inputs, kept))
        entry = {
            ROWS: kept,
            "memory.y": y[kept],
            "memory.logits": logits,
            "memory.embedding": embedding,
            "memory.site": torch.full_like(kept, n_sites),
        }
        if self.sampling == "hcts":
            dev = held if site.leaked is None else even_subset(site.leaked, y, self.dev)
            entry |= {"dev.row": dev, "dev.y": torch.where(dev >= 0, y[dev], 0)}
        state |= {k: torch.cat([state[k], v]) for k, v in entry.items()}
        if self.sampling == "hcts":
            state |= self._open_arm(model, lane, state, inputs)
        if self.sampling == "reservoir":
            state |= self._thin(state, rng)
        else:
            noise = torch.rand(n_sites + 1, self.candidates, generator=rng)
            state |= _chosen(even_choice(noise.to(kept.device), self.memory))
        return lane._replace(state=state)

    def _open_arm(self, model: Model, lane: Lane, state: State, inputs: Inputs) -> State:
        """One more arm; the best accuracies so far are those at the ends of sites."""
        accuracy = []
        for rows, y in zip(*self._by_site(state, "dev", self.dev), strict=True):
            logits, _ = teach(model, lane.params, lane.stats, gather(inputs, rows.clamp(min=0)))
            accuracy.append(held_out(logits, y, rows >= 0)[0])
        now = torch.stack(accuracy)
        best = torch.maximum(state["hcts.best"], now[:-1])
        return self.sampler.add_site({**state, "hcts.best": best}, now[-1])

    def _thin(self, state: State, rng: torch.Generator) -> State:
        """Reservoir of K subjects over all candidates so far; the others are wiped."""
        n = len(state[ROWS])
        old = state["replay.active"].tolist()
        slots = reservoir(old, range(n - self.candidates, n), self.memory, rng)
        active = torch.tensor(sorted(slots), device=state[ROWS].device)
        blank = empty_memory(n, state["memory.embedding"].shape[1], state[ROWS].device)
        for key, value in blank.items():
            blank[key] = value.to(state[key]).index_copy(0, active, state[key][active])
        quota = torch.bincount(active // self.candidates, minlength=n // self.candidates)
        return blank | _chosen(Choice(active, quota))

    # -- lifted ---------------------------------------------------------------------------------
    def begin_epoch(
        self, model: Model, lane: Lane, bank: Inputs, epoch: Tensor, key: Tensor
    ) -> Lane:
        """Choose the subjects to replay until the next refresh."""
        state = lane.state
        n_sites = state["replay.quota"].shape[0]
        if n_sites == 0:
            return lane
        if self.sampling == "uniform":
            choice = even_choice(uniform(key, (n_sites, self.candidates)), self.memory)
            return lane._replace(state={**state, **_chosen(choice)})

        def forward(rows: Tensor) -> Output:
            return model.apply(lane.params, lane.stats, gather(bank, rows))

        rows, y = self._by_site(state, "memory", self.candidates)
        dev_rows, dev_y = self._by_site(state, "dev", self.dev)
        look = look_at(forward, rows, y, dev_rows, dev_y, self.sampler.scaling)
        state, choice = self.sampler.refresh(state, look, key)
        return lane._replace(state={**state, **_chosen(choice)})

    @staticmethod
    def _by_site(state: State, what: str, n: int) -> tuple[Tensor, Tensor]:
        return state[f"{what}.row"].reshape(-1, n), state[f"{what}.y"].reshape(-1, n)

    def draw(self, lane: Lane, key: Tensor) -> tuple[Tensor, Tensor]:
        """Slots of one step from the active subjects, with replacement."""
        choice = Choice(lane.state["replay.active"], lane.state["replay.quota"])
        return draw_slots(choice, key, self.replay_size, equal=self.site_weight == "equal")

    def loss(
        self,
        model: Model,
        params: Params,
        lane: Lane,
        batch: Batch,
        replay: Replay | None,
        key: Tensor,
    ) -> tuple[Tensor, Params]:
        """Current cross-entropy, replay cross-entropy, logits and readout distillation."""
        if replay is None:
            return super().loss(model, params, lane, batch, None, key)
        how = self.settings["forward"]
        now, then = both_batches(model, params, lane.stats, batch.inputs, replay.inputs, key, how)
        remembered = self._remember(then.logits, then.embedding, replay)
        if self.settings["sum_sites"]:
            remembered = remembered * lane.state["replay.quota"].shape[0]
        return cross_entropy(now.logits, batch.y) + remembered + now.penalty, then.stats

    def _remember(self, logits: Tensor, embedding: Tensor, replay: Replay) -> Tensor:
        l1, l2, l3 = self.weights
        total = l1 * cross_entropy(logits, replay.y, replay.weight)
        for weight, student, teacher in (
            (l2, logits, replay.logits),
            (l3, embedding, replay.embedding),
        ):
            square = (student - teacher).square()
            mean = self.settings["loss_form"] == "mean"
            norm = square.mean(-1) if mean else square.sum(-1)
            total = total + weight * (replay.weight * norm).sum()
        return total


def _chosen(choice: Choice) -> State:
    return {"replay.active": choice.active, "replay.quota": choice.quota}
