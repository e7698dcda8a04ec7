r"""A memory of synthetic subjects and the choice of those that are replayed.

It is shared by FORGE (`fcforge.methods.forge`) and its closed form (`fcforge.methods.forge_ridge`).

At the end of a site its generator makes C synthetic candidates and D synthetic held-out subjects. A
candidate is stored as (G, y, u, r): the subject, its label, and the logits u and readout r of the
network at that time. K of the candidates of all T past sites are active at a time, which means that
batches are drawn from them. They are chosen by the sampler `fcforge.replay.hcts`, at random, or by a
reservoir. The held-out subjects measure forgetting. No real subject is kept.

The synthetic held-out subjects are called proxies, because they stand in for the site's test subjects.
A slot is a place for one subject in the memory or among the held-out subjects. An arm is a past site as
the sampler, a bandit, sees it. A row is a subject's place in the bank (`fcforge.replay.bank`), which
holds all subjects that the training may use.

A lane is one training run: one learner, order of sites and seed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fcforge.core.errors import ConfigError
from fcforge.core.randomness import uniform
from fcforge.core.settings import at_least, limits
from fcforge.methods.base import (
    Inputs,
    Lane,
    Method,
    Model,
    Output,
    PublicView,
    SiteView,
    eval_output,
    is_used,
)
from fcforge.replay import selection
from fcforge.replay.bank import gather
from fcforge.replay.hcts import HCTS, SAMPLERS, Choice, HCTSState, Variant, even_choice
from fcforge.replay.memory import Memory, empty_memory, joined_memories, wiped
from fcforge.replay.selection import Geometry, Labelled
from fcforge.replay.state import ABSENT, Absent, Rows

# loss weights of replay, logits and readout: the paper's of each dataset, the authors' code's
LAMBDAS = {
    "asd": (0.20, 0.35, 0.15),
    "bsnip": (0.25, 0.30, 0.15),
    "mdd": (0.30, 0.30, 0.20),
    "authors": (0.10, 0.40, 0.30),  # for ASD
}

LONGEST_PROTOTYPE = 2048  # length of a readout whose covariance matrix takes 32 MB
# slots for leaked test subjects are a multiple of this, so that lanes of different sites stack
LEAKED = 64


class HeldOut(NamedTuple):
    """Held-out subjects of all T past sites, site by site, in D slots each.

    Attributes
    ----------
    rows : Tensor of shape (T D,), int64
        Bank rows; -1 marks an empty slot.
    y : Tensor of shape (T D,), int64
        Labels.
    """

    rows: Rows
    y: Tensor


class SyntheticState(NamedTuple):
    """State of a method with a memory of synthetic subjects.

    Attributes
    ----------
    memory : Memory
        C candidates of each past site, site by site.
    held_out : HeldOut
        Held-out subjects of each past site, on which forgetting is measured.
    choice : Choice
        The active candidates, which are replayed now.
    hcts : HCTSState
        State of the sampler, with ``sampling = "hcts"``.
    geometry : Geometry
        Closeness and distances of all candidates, while a site is learned, for models whose readouts
        never change.
    """

    memory: Memory
    held_out: HeldOut
    choice: Choice
    hcts: HCTSState | Absent = ABSENT
    geometry: Geometry | Absent = ABSENT


@limits(
    l1=at_least(0),
    l2=at_least(0),
    l3=at_least(0),
    memory=at_least(1),
    candidates=at_least(2),
    dev=at_least(2),
    max_candidates=at_least(2),
)
@dataclass(frozen=True)
class SyntheticMemory(Method):
    """A method with a memory of synthetic subjects, filled when a site ends.

    Parameters
    ----------
    lambdas : {"asd", "bsnip", "mdd", "authors"}
        Loss weights: the paper's for a dataset, or those of the authors' code.
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
    max_candidates : int
        Most candidates stored over all sites. Beyond it every site keeps an equal part of its
        candidates and of its held-out subjects, with their class shares, so that a site costs as
        much after a hundred sites as after twenty.
    sampling : {"hcts", "uniform", "reservoir"}
        "uniform": equal quotas, random subjects, on the same schedule (the ablation without
        HCTS). "reservoir": K subjects in all; the other candidates are thrown away, as a
        memory of real subjects would.
    sum_sites : bool
        Add up past sites (paper) instead of averaging, so that replay grows with every site.
    sampler : {"stable", "paper", "authors"} or HCTS
        Variant of HCTS, for ``sampling = "hcts"``: see `fcforge.replay.hcts`. With settings of its
        own: ``HCTS(variant="paper", temperature=0.5)``, in a config a table of them.
    """

    lambdas: Literal["asd", "bsnip", "mdd", "authors"] = "asd"
    l1: float | None = None
    l2: float | None = None
    l3: float | None = None
    memory: int = 256
    candidates: int = 256
    dev: int = 64
    max_candidates: int = 5120
    sampling: Literal["hcts", "uniform", "reservoir"] = "hcts"
    sum_sites: bool = False
    sampler: Variant | HCTS = "stable"

    State: ClassVar[type] = SyntheticState
    keeps = "synthetic subjects"
    needs_generator = True

    @property
    def weights(self) -> tuple[float, float, float]:
        """Loss weights (l1, l2, l3) of replay, logits and readout."""
        stated = (self.l1, self.l2, self.l3)
        table = LAMBDAS[self.lambdas]
        l1, l2, l3 = (b if a is None else a for a, b in zip(stated, table, strict=True))
        return l1, l2, l3

    @property
    def replays(self) -> bool:
        """Whether some loss weight is not zero; else the method is fine-tuning."""
        return any(map(is_used, self.weights))

    @property
    def hcts(self) -> HCTS:
        """The sampler."""
        sampler = self.sampler
        return SAMPLERS[sampler] if isinstance(sampler, str) else sampler

    @property
    def n_synthetic(self) -> int:
        """Number of candidates and held-out subjects of a site together."""
        return self.candidates + self.dev

    def candidates_per_site(self, n_sites: int) -> int:
        """Return the number of candidates that each of `n_sites` sites keeps."""
        # a reservoir wipes slots but removes none (`_keep_reservoir`)
        if self.sampling == "reservoir":
            return self.candidates
        return max(2, min(self.candidates, self.max_candidates // max(n_sites, 1)))

    def proxies_per_site(self, n_sites: int) -> int:
        """Return the number of synthetic held-out subjects that each of `n_sites` sites keeps.

        It shrinks in proportion to the number of candidates (`candidates_per_site`).
        """
        return max(2, self.dev * self.candidates_per_site(n_sites) // self.candidates)

    @property
    def chooses(self) -> bool:
        """Whether the active subjects are chosen anew while a site is learned."""
        return self.sampling != "reservoir" and self.replays

    def start(self, model: Model, lane: Lane, public: PublicView | None = None) -> Lane:
        """Return the lane with an empty memory, and a sampler that knows no site."""
        device = lane.device
        none = torch.empty(0, dtype=torch.int64, device=device)
        state: Any = self.State
        return lane._replace(
            state=state(
                memory=empty_memory(0, model.readout_size, device, model.n_outputs),
                held_out=HeldOut(none, none),
                choice=self._as_stored(Choice(none, none, none.float())),
                hcts=self._no_arms(model, device),
            )
        )

    def _no_arms(self, model: Model, device: torch.device) -> HCTSState | Absent:
        """Return the sampler's state before the first site; absent if `sampling` is not "hcts"."""
        if self.sampling != "hcts":
            return ABSENT
        width = model.readout_size
        if self.hcts.keeps_prototypes and width > LONGEST_PROTOTYPE:
            raise ConfigError(
                f"the sampler '{self.hcts.variant}' keeps a covariance matrix of the readout for every "
                f"class of every site, and this model's readout has {width} numbers.",
                where=f"method '{self.name}', model '{model.name}'",
                do=f"Choose a model with a readout of at most {LONGEST_PROTOTYPE} numbers, "
                'or sampler = "stable".',
            )
        return self.hcts.start(device, model.n_outputs, width)

    def begin_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Compute closeness and distances of all candidates once, if readouts never change."""
        return lane.with_state(geometry=self._geometry(model, lane, site))

    def _geometry(self, model: Model, lane: Lane, site: SiteView) -> Geometry | Absent:
        """Return closeness and distances of the candidates of all past sites.

        They are absent if the model learns its readouts, because they change at every step then, or
        if no sampler uses them. The bank caches those of each site, so that lanes share them.
        """
        readouts_change = model.readout_size > 0
        used = self.chooses and self.sampling == "hcts" and n_learned(lane) > 0
        if readouts_change or not used:
            return ABSENT
        bank = site.bank

        def compute(rows: Tensor, y: Tensor) -> Geometry:
            """Return the geometry of one site's candidates."""
            out = eval_output(model, lane, gather(bank.inputs(model), rows))
            closeness = self.hcts.closeness
            return selection.geometry(out.embedding, y, closeness, model.n_outputs)

        of_sites = []
        for rows, y in zip(*candidates_by_site(lane), strict=True):
            cache_key = (model, self.sampler, rows.cpu().numpy().tobytes())
            of_sites.append(bank.once(cache_key, partial(compute, rows, y)))
        return Geometry(
            closeness=torch.stack([one.closeness for one in of_sites]),
            distance=torch.stack([one.distance for one in of_sites]),
        )

    def end_site(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Store the site's synthetic subjects with the network's present outputs.

        Then make a first choice of active subjects for the next site: at random with equal quotas, or
        by a reservoir, or by the sampler if its variant chooses at the end of a site.
        """
        n_sites = n_learned(lane) + 1
        lane = self._store(model, lane.with_state(geometry=ABSENT), site)
        inputs = site.bank.inputs(model)  # now with the site's synthetic subjects
        if self.sampling == "hcts":
            lane = lane.with_state(hcts=self._open_arm(model, lane, inputs))
        if self.sampling == "reservoir":
            return self._keep_reservoir(lane, site.rng)
        shape = (n_sites, self.candidates_per_site(n_sites))
        noise = torch.rand(shape, generator=site.rng)
        even = even_choice(noise.to(lane.device), self.memory, self.hcts)
        lane = lane.with_state(choice=self._as_stored(even))
        if self.sampling == "hcts" and self.hcts.chooses_at_end:
            key = torch.randint(2**31 - 1, (), generator=site.rng, dtype=torch.int32)
            known = lane.with_state(geometry=self._geometry(model, lane, site))
            forward = eval_by_row(model, lane, inputs)
            chosen = self.choose(forward, known, key.to(lane.device))
            lane = chosen.with_state(geometry=ABSENT)
        return lane

    def _store(self, model: Model, lane: Lane, site: SiteView) -> Lane:
        """Return the lane with candidates and held-out subjects of the site added to its state.

        The site's generator makes both; `selection.even_split` tells which are held out. Under the
        leak `context_on_test` the site's test subjects follow its synthetic held-out subjects.
        """
        rows = site.synthetic(self.n_synthetic)
        y = site.bank.y
        places = selection.even_split(y[rows], self.dev)
        candidates, held_out = (rows[place] for place in places)
        inputs = gather(site.bank.inputs(model), candidates)
        out = eval_output(model, lane, inputs)
        new = Memory(
            rows=candidates,
            y=y[candidates],
            logits=out.logits,
            # no column where readouts never change: nothing is distilled then
            embedding=out.embedding[:, : model.readout_size],
            site=torch.full_like(candidates, n_learned(lane)),
        )
        lane = lane.with_state(memory=self._with_candidates(lane, new))
        if self.sampling != "hcts":
            return lane
        kept = self.proxies_per_site(n_learned(lane) + 1)
        held_out = held_out[spaced(len(held_out), kept, held_out.device)]
        if site.leaked is not None:
            free = -len(site.leaked) % LEAKED  # fills up to the next multiple
            held_out = torch.cat([held_out, F.pad(site.leaked, (0, free), value=-1)])
        labels = torch.where(held_out >= 0, y[held_out], 0)
        return lane.with_state(held_out=self._with_held_out(lane, held_out, labels))

    def _with_candidates(self, lane: Lane, new: Memory) -> Memory:
        """Return the memory with one more site's candidates, thinned to `max_candidates`.

        `new` are all candidates of the site that ends. Every site keeps the same number.
        """
        n_sites = n_learned(lane)
        whole = joined_memories(lane.state.memory, new)
        old_size = self.candidates_per_site(n_sites)
        new_size = self.candidates_per_site(n_sites + 1)
        if new_size == self.candidates:
            return whole
        sizes = [old_size] * n_sites + [self.candidates]
        places = []
        for i, size in enumerate(sizes):
            first = i * old_size  # slots lie site by site, the new site's last
            places.append(first + spaced(size, new_size, lane.device))
        return Memory(*(value[torch.cat(places)] for value in whole))

    def _with_held_out(self, lane: Lane, rows: Tensor, y: Tensor) -> HeldOut:
        """Return the held-out subjects of all sites with those of one more site.

        Earlier sites are thinned to the new number of synthetic held-out subjects, which lie first in
        a site's slots; leaked test subjects, if any, follow and all stay. All sites are padded to the
        same number of slots.

        Parameters
        ----------
        lane : Lane
        rows, y : Tensor of shape (D,), int64
            Bank rows and labels of the new site's held-out subjects.
        """
        n_sites = n_learned(lane)
        if not n_sites:
            return HeldOut(rows, y)
        n_synthetic = self.proxies_per_site(n_sites)
        kept = spaced(n_synthetic, self.proxies_per_site(n_sites + 1), rows.device)
        parts = []
        for values, new, empty in zip(
            lane.state.held_out, (rows, y), (-1, 0), strict=True
        ):
            sites = [
                torch.cat([of_site[:n_synthetic][kept], of_site[n_synthetic:]])
                for of_site in values.chunk(n_sites)
            ]
            parts.append(pad_sequence([*sites, new], True, empty).flatten())
        return HeldOut(*parts)

    def _open_arm(self, model: Model, lane: Lane, inputs: Inputs) -> HCTSState:
        """Return the sampler's state with the new site as an arm, and with updated best accuracies.

        Whenever a site ends, the accuracy on every site's held-out subjects is measured. The best one
        that a site ever had is kept; forgetting is the loss from it. `inputs` are the prepared inputs
        of all rows of the bank.
        """
        hcts = lane.state.hcts
        accuracies = []
        n_sites = len(hcts.best) + 1
        proxies = self.proxies_per_site(n_sites)
        sites = by_site(lane.state.held_out, n_sites)
        for rows, y in zip(*sites, strict=True):
            logits = eval_output(model, lane, gather(inputs, rows.clamp(min=0))).logits
            filled = rows >= 0
            accuracy, _ = selection.held_out_quality(logits, y, filled, proxies)
            accuracies.append(accuracy)
        now = torch.stack(accuracies)
        best = torch.maximum(hcts.best, now[:-1])
        return self.hcts.add_site(hcts._replace(best=best), now[-1])

    def _keep_reservoir(self, lane: Lane, rng: torch.Generator) -> Lane:
        """Keep a reservoir of K subjects over all candidates so far, and wipe all others.

        The subjects in the reservoir are the active ones. `rng` decides which enter and which leave.
        """
        memory = lane.state.memory
        n = len(memory.rows)
        new = range(n - self.candidates, n)  # slots of the site that ends
        in_reservoir = lane.state.choice.active.tolist()
        slots = selection.reservoir(in_reservoir, new, self.memory, rng)
        active = torch.tensor(sorted(slots), device=memory.rows.device)
        others = torch.ones_like(memory.rows, dtype=torch.bool)
        others = others.index_fill(0, active, 0)
        n_sites = n // self.candidates
        quota = torch.bincount(active // self.candidates, minlength=n_sites)
        choice = self._as_stored(Choice(active, quota, quota / len(active)))
        return lane.with_state(memory=wiped(memory, others), choice=choice)

    def choose(
        self, forward: Callable[[Tensor], Output], lane: Lane, key: Tensor
    ) -> Lane:
        """Choose the K active subjects anew; a pure function that works inside ``torch.func.vmap``.

        Parameters
        ----------
        forward : callable
            Evaluation-mode output for some bank rows.
        lane : Lane
        key : Tensor, int32 scalar
            Random key.

        Returns
        -------
        Lane
            The lane with the new choice and sampler state.
        """
        n_sites = n_learned(lane)
        if n_sites == 0:
            return lane
        # with a reservoir this function is not called: its choice lasts (`chooses`)
        if self.sampling == "uniform":
            noise = uniform(key, (n_sites, self.candidates_per_site(n_sites)))
            choice = even_choice(noise, self.memory, self.hcts)
            return lane.with_state(choice=self._as_stored(choice))
        contexts = selection.contexts(
            forward,
            candidates_by_site(lane),
            by_site(lane.state.held_out, n_sites),
            self.proxies_per_site(n_sites),
            self.hcts.closeness,
            lane.state.geometry or None,  # an absent field is an empty tuple
            self.hcts.averages(lane.state.hcts),
        )
        hcts, choice = self.hcts.refresh(lane.state.hcts, contexts, key, self.memory)
        return lane.with_state(hcts=hcts, choice=self._as_stored(choice))

    def observations(self, before: Lane, lane: Lane) -> dict[str, Tensor]:
        """Return numbers to log after a choice: each past site's quota and, of HCTS, its reasons.

        The reward is that of the choice before; it is NaN for a site that took part in none yet.
        """
        quota = {"quota": lane.state.choice.quota}
        if self.sampling != "hcts":
            return quota
        old, new = before.state.hcts, lane.state.hcts
        reward = self.hcts.reward(old, new.ce)
        accuracy, forgetting = new.phi.unbind(-1)  # the context of every site
        return {
            **quota,
            "reward": torch.where(old.seen, reward, torch.nan),
            "proxy accuracy": accuracy,
            "proxy forgetting": forgetting,
        }

    def _as_stored(self, choice: Choice) -> Choice:
        """Return the choice as a state keeps it: without shares unless the sampler draws by them."""
        return choice if self.hcts.draws_by_share else choice._replace(share=ABSENT)


def spaced(n: int, kept: int, device: torch.device) -> Tensor:
    """Return `kept` evenly spaced whole numbers below `n`, in ascending order.

    They are the places of the subjects to keep. Of subjects that are sorted by class, they keep the
    classes' shares.
    """
    steps = torch.arange(kept, device=device)
    return (2 * steps + 1) * n // (2 * kept)


def n_learned(lane: Lane) -> int:
    """Return the number of sites whose synthetic subjects are in the lane's memory."""
    return len(lane.state.choice.quota)


def by_site(subjects: HeldOut | Memory, n_sites: int) -> Labelled:
    """Return bank rows and labels (n_sites, n) of the subjects of each site."""
    return Labelled(subjects.rows.reshape(n_sites, -1), subjects.y.reshape(n_sites, -1))


def candidates_by_site(lane: Lane) -> Labelled:
    """Return bank rows and labels (T, C) of the candidates of each past site."""
    return by_site(lane.state.memory, n_learned(lane))


def eval_by_row(model: Model, lane: Lane, bank: Inputs) -> Callable[[Tensor], Output]:
    """Return the function that maps bank rows to the lane's evaluation-mode output.

    `bank` has the prepared inputs of all rows.
    """
    return lambda rows: eval_output(model, lane, gather(bank, rows))
