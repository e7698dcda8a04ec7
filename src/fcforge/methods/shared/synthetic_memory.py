r"""What FORGE and its closed form share: a memory of synthetic subjects and who of it is replayed.

At the end of a site its generator makes C candidates and D held-out subjects. A candidate is stored
once as (G, y, u, r): the subject, its diagnosis, and the logits u and readout r of the network as
it then was. K of the candidates of all past sites are active at a time: those that
`fcforge.replay.hcts` chooses, a random choice, or a reservoir. No real subject is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fcforge.core.randomness import uniform
from fcforge.core.settings import at_least, limits
from fcforge.methods.base import (
    Declared,
    Inputs,
    Lane,
    Method,
    Model,
    Output,
    SiteView,
    State,
    alike,
    seen,
)
from fcforge.replay import selection
from fcforge.replay.bank import gather
from fcforge.replay.hcts import HCTS, SAMPLERS, Choice, Form, even_choice
from fcforge.replay.memory import ROWS, bounded, empty_memory, free_slot

LAMBDAS = {  # of the paper, chosen per dataset: replay, logits, readout
    "asd": (0.20, 0.35, 0.15),
    "bsnip": (0.25, 0.30, 0.15),
    "mdd": (0.30, 0.30, 0.20),
    "official": (0.10, 0.40, 0.30),  # of the authors' code, for ASD
}

LEAKED = 64  # places for test subjects of a site are a multiple of this: lanes stack
SPREAD = ("spread.closeness", "spread.distance")  # in a state while a site is learned


@limits(
    l1=at_least(0),
    l2=at_least(0),
    l3=at_least(0),
    memory=at_least(1),
    candidates=at_least(2),
    dev=at_least(2),
)
@dataclass(frozen=True)
class SyntheticMemory(Method):
    """Memory of synthetic subjects, filled when a site ends.

    Parameters
    ----------
    lambdas : {"asd", "bsnip", "mdd", "official"}
        Which of the paper's weights to use, or those of the authors' code.
    l1, l2, l3 : float, optional
        Weights of replay cross-entropy, logits and readout distillation, in place of `lambdas`.
        ``l2=0`` is the ablation without LKD, ``l3=0`` without GKD; all zero is fine-tuning.
    memory : int
        K, subjects that are replayed between two refreshes, over all sites.
    candidates : int
        C, synthetic subjects stored per site, of which K are chosen. With the authors' sizes
        K is more than 85 % of all candidates and there is nothing to choose.
    dev : int
        D, further synthetic subjects per site on which the sampler measures forgetting and
        rewards. The paper measures forgetting on past sites' real test subjects; that leak is a
        switch of the run (`context_on_test`), the reward stays on the synthetic ones.
    sampling : {"hcts", "uniform", "reservoir"}
        "uniform": equal quotas, random subjects, on the same schedule (the ablation without
        HCTS). "reservoir": K subjects in all, the other candidates are thrown away, as a
        memory of real subjects would.
    sum_sites : bool
        Add up past sites (paper) instead of averaging, so that replay grows with every site.
    sampler : {"repaired", "paper", "official"}
        How ``sampling = "hcts"`` chooses: see `fcforge.replay.hcts.HCTS`.
    """

    lambdas: Literal["asd", "bsnip", "mdd", "official"] = "asd"
    l1: float | None = None
    l2: float | None = None
    l3: float | None = None
    memory: int = 256
    candidates: int = 256
    dev: int = 64
    sampling: Literal["hcts", "uniform", "reservoir"] = "hcts"
    sum_sites: bool = False
    sampler: Form = "repaired"

    keeps = "synthetic subjects"
    needs_generator = True
    row_keys = (ROWS, "dev.row")

    @property
    def weights(self) -> tuple[float, float, float]:
        """(l1, l2, l3)."""
        own = (self.l1, self.l2, self.l3)
        table = LAMBDAS[self.lambdas]
        l1, l2, l3 = (b if a is None else a for a, b in zip(own, table, strict=True))
        return l1, l2, l3

    @property
    def hcts(self) -> HCTS:
        """The sampler."""
        return SAMPLERS[self.sampler]

    @property
    def asks_for(self) -> int:
        """Candidates and held-out subjects."""
        return self.candidates + self.dev

    @property
    def chooses(self) -> bool:
        """Whether there is anything to choose anew while a site is learned."""
        return self.sampling != "reservoir" and any(self.weights)

    def start(self, model: Model, lane: Lane) -> Lane:
        """Empty memory, no arm."""
        device = lane.device
        none = torch.empty(0, dtype=torch.int64, device=device)
        state = empty_memory(0, model.readout, device, model.n_outputs)
        state |= {"dev.row": none, "dev.y": none}
        state |= self._active(Choice(none, none, none.float()))
        if self.sampling == "hcts":
            state |= self.hcts.start(device)
        return lane.holding(state)

    def declares(self, model: Model, lane: Lane, sites: int) -> dict[str, Declared]:
        """Candidates and held-out subjects of every site, the choice among them, the arms."""
        n = sites * self.candidates
        dev = sites * self.dev if self.sampling == "hcts" else 0
        outputs = model.n_outputs
        found = alike(empty_memory(n, model.readout, "meta", outputs))
        found["dev.row"] = Declared((dev,), torch.int64)
        found["dev.y"] = Declared((dev,), torch.int64)
        found["replay.active"] = Declared((None,), torch.int64, low=0, high=n - 1)
        found["replay.quota"] = Declared((sites,), torch.int64, low=0, high=self.memory)
        if self.hcts.official:
            found["replay.share"] = Declared((sites,), low=0)
        if self.sampling == "hcts":
            arms = alike(self.hcts.start("meta"))
            found |= {
                k: d._replace(shape=(sites, *d.shape[1:])) for k, d in arms.items()
            }
        return bounded(found, sites, outputs)

    def begin_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Where readouts never change, what they say of past sites is computed once."""
        return lane.holding(self._spread(model, lane, site))

    def _spread(self, model: Model, lane: Lane, site: SiteView) -> State:
        """The `selection.spread` of all sites; shared by all lanes, dropped when a site ends."""
        state = lane.state
        n_sites = len(state["replay.quota"])
        chosen = self.chooses and self.sampling == "hcts" and n_sites
        if model.readout or not chosen:
            return {}
        bank = site.bank
        repaired = self.hcts.repaired

        def look(rows: Tensor, y: Tensor) -> selection.Pair:
            out = seen(model, lane, gather(bank.inputs(model), rows))
            return selection.spread(out.embedding, y, repaired, model.n_outputs)

        found = []
        for rows, y in zip(*by_site(state, "memory", n_sites), strict=True):
            name = (model, repaired, rows.cpu().numpy().tobytes())
            found.append(bank.once(name, partial(look, rows, y)))
        stacked = map(torch.stack, zip(*found, strict=True))
        return dict(zip(SPREAD, stacked, strict=True))

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Store the site's synthetic subjects with what the network now says of them."""
        n_sites = len(lane.state["replay.quota"])
        state = {k: v for k, v in lane.state.items() if k not in SPREAD}
        state = self._joined(state, self._entry(model, lane, site))
        inputs = site.bank.inputs(model)  # the bank has the synthetic subjects only now
        if self.sampling == "hcts":
            state |= self._open_arm(model, lane, state, inputs)
        if self.sampling == "reservoir":
            return lane._replace(state=state | self._thin(state, site.rng))
        device = state[ROWS].device
        noise = torch.rand(n_sites + 1, self.candidates, generator=site.rng).to(device)
        even = even_choice(noise, self.memory, self.hcts)
        lane = lane._replace(state=state | self._active(even))
        if self.sampling == "hcts" and self.hcts.official:
            key = torch.randint(
                2**31 - 1, (), generator=site.rng, dtype=torch.int32
            ).to(device)
            known = lane.holding(self._spread(model, lane, site))
            chosen = self.choose(seen_by(model, lane, inputs), known, key).state
            lane = lane._replace(state={k: chosen[k] for k in lane.state})
        return lane

    def _entry(self, model: Model, lane: Lane, site: SiteView) -> State:
        """What the memory gains: candidates with their teacher's words, held-out subjects."""
        rows = site.synthetic(self.asks_for)
        y = site.bank.y
        kept, held = (
            rows[places] for places in selection.even_split(y[rows], self.dev)
        )
        inputs = gather(site.bank.inputs(model), kept)
        said = seen(model, lane, inputs)
        entry = {
            ROWS: kept,
            "memory.y": y[kept],
            "memory.logits": said.logits,
            "memory.embedding": said.embedding[:, : model.readout],
            "memory.site": torch.full_like(kept, len(lane.state["replay.quota"])),
        }
        if self.sampling == "hcts":
            if site.leaked is not None:
                free = -len(site.leaked) % LEAKED
                held = torch.cat([held, F.pad(site.leaked, (0, free), value=-1)])
            entry |= {"dev.row": held, "dev.y": torch.where(held >= 0, y[held], 0)}
        return entry

    def _joined(self, state: State, entry: State) -> State:
        """State with one more site's entry; held-out places are filled up to one number."""
        n_sites = len(state["replay.quota"])
        found = {k: torch.cat([state[k], v]) for k, v in entry.items()}
        for key, empty in (("dev.row", -1), ("dev.y", 0)):
            if n_sites and key in entry:
                sites = [*state[key].chunk(n_sites), entry[key]]
                found[key] = pad_sequence(sites, True, empty).flatten()
        return state | found

    def _open_arm(
        self, model: Model, lane: Lane, state: State, inputs: Inputs
    ) -> State:
        """One more arm; the best accuracies so far are those at the ends of sites."""
        accuracy = []
        dev = by_site(state, "dev", len(state["hcts.best"]) + 1)
        for rows, y in zip(*dev, strict=True):
            said = seen(model, lane, gather(inputs, rows.clamp(min=0)))
            accuracy.append(selection.held_out(said.logits, y, rows >= 0, self.dev)[0])
        now = torch.stack(accuracy)
        best = torch.maximum(state["hcts.best"], now[:-1])
        return self.hcts.add_site({**state, "hcts.best": best}, now[-1])

    def _thin(self, state: State, rng: torch.Generator) -> State:
        """Reservoir of K subjects over all candidates so far; the others are wiped."""
        n = len(state[ROWS])
        old = state["replay.active"].tolist()
        slots = selection.reservoir(
            old, range(n - self.candidates, n), self.memory, rng
        )
        active = torch.tensor(sorted(slots), device=state[ROWS].device)
        wiped = torch.ones_like(state[ROWS], dtype=torch.bool).index_fill(0, active, 0)
        thinned = {k: v.clone() for k, v in state.items() if k.startswith("memory.")}
        for key, value in thinned.items():
            value[wiped] = free_slot(key)
        quota = torch.bincount(
            active // self.candidates, minlength=n // self.candidates
        )
        return thinned | self._active(Choice(active, quota, quota / len(active)))

    def choose(
        self, forward: Callable[[Tensor], Output], lane: Lane, key: Tensor
    ) -> Lane:
        """Choose the K subjects to replay next; pure, works inside ``torch.func.vmap``.

        Parameters
        ----------
        forward : callable
            Evaluation-mode output of some bank rows.
        lane : Lane
        key : Tensor, int32 scalar
        """
        state = lane.state
        n_sites = state["replay.quota"].shape[0]
        if n_sites == 0:
            return lane
        if self.sampling == "uniform":
            choice = even_choice(
                uniform(key, (n_sites, self.candidates)), self.memory, self.hcts
            )
            return lane.holding(self._active(choice))
        known = [state[key] for key in SPREAD if key in state]
        look = selection.look_at(
            forward,
            by_site(state, "memory", n_sites),
            by_site(state, "dev", n_sites),
            self.hcts.repaired,
            self.dev,
            known,
        )
        state, choice = self.hcts.refresh(state, look, key, self.memory)
        return lane.holding(state | self._active(choice))

    def _active(self, choice: Choice) -> State:
        state = {"replay.active": choice.active, "replay.quota": choice.quota}
        return state | {"replay.share": choice.share} if self.hcts.official else state

    def active(self, state: State) -> Choice:
        """The choice that is replayed now."""
        quota = state["replay.quota"]
        return Choice(state["replay.active"], quota, state.get("replay.share", quota))


def seen_by(model: Model, lane: Lane, bank: Inputs) -> Callable[[Tensor], Output]:
    """Evaluation-mode output of some bank rows under the lane's network."""
    return lambda rows: seen(model, lane, gather(bank, rows))


def by_site(state: State, what: str, sites: int) -> tuple[Tensor, Tensor]:
    """Rows and diagnoses (T, n) of the subjects that each site has in a part of the state."""
    rows = state[f"{what}.row"]
    y = state[f"{what}.y"]
    return rows.reshape(sites, -1), y.reshape(sites, -1)
