r"""Hierarchical contextual Thompson sampling: which K remembered subjects to replay next.

Two levels. Sites: the context is [accuracy, forgetting] on held-out subjects of each site; a
Thompson draw estimates the gain of replaying the site, and the budget is split accordingly.
Subjects of a site: the context is [margin, closeness]; after a Thompson draw the best go on a
shortlist, of which those that lie far apart in readout space are taken. The reward is the fall of
the site's cross-entropy on its held-out subjects.

All tensors are those of one lane: T past sites, C candidates and D held-out subjects per site.

Examples
--------
The sampler alone, fed with accuracies: the quota moves to the site that forgets.

>>> import torch
>>> from fcforge import HCTS
>>> from fcforge.replay.selection import Contexts
>>> sampler = HCTS(variant="stable")
>>> state = sampler.start("cpu")
>>> for _ in range(3):  # three past sites, each learned to an accuracy of .9
...     state = sampler.add_site(state, torch.tensor(0.9))
>>> rng = torch.Generator().manual_seed(0)
>>> readouts = torch.rand(3, 20, 2, generator=rng)
>>> accuracy = torch.tensor([0.9, 0.6, 0.9])  # the second site forgets
>>> contexts = Contexts(
...     accuracy=accuracy,
...     ce=torch.full((3,), 0.5),
...     psi=torch.rand(3, 20, 2, generator=rng),
...     distance=torch.cdist(readouts, readouts),
... )
>>> key = torch.tensor(1, dtype=torch.int32)
>>> state, choice = sampler.refresh(state, contexts, key, capacity=30)
>>> choice.quota.tolist()
[5, 20, 5]
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.core.randomness import fold, normal, uniform
from fcforge.core.settings import Checked, above, at_least, limits, within
from fcforge.core.variants import Variants
from fcforge.replay import selection
from fcforge.replay.bandit import (
    Bandit,
    Moments,
    PaperBandit,
    limited_quotas,
    quotas,
    reward,
    shares,
    standardised,
)
from fcforge.replay.selection import Averages, Contexts, Prototypes, farthest_first
from fcforge.replay.state import ABSENT, Absent

Variant = Literal["stable", "paper", "authors"]
SITES = Bandit()
SUBJECTS = Bandit(belief=0.0, pooled=False)
PAPER_SITES = PaperBandit()
PAPER_SUBJECTS = PaperBandit(prior=5.0, noise=0.15)


class Choice(NamedTuple):
    """The subjects to replay until the next refresh.

    Attributes
    ----------
    active : Tensor of shape (min(K, T C),), int64
        Memory slots, grouped by site.
    quota : Tensor of shape (T,), int64
        Number of active slots of each site.
    share : Tensor of shape (T,)
        Share of the budget of each site, before rounding and limits. A state keeps it only where
        `HCTS.draws_by_share`.
    """

    active: Tensor
    quota: Tensor
    share: Tensor | Absent = ABSENT


class HCTSState(NamedTuple):
    """The sampler's state after T past sites.

    Attributes
    ----------
    sites, subjects : Moments
        Of the two levels' bandits.
    best : Tensor of shape (T,)
        Best accuracy so far, at the ends of sites.
    ce : Tensor of shape (T,)
        Cross-entropy at the last refresh.
    seen : Tensor of shape (T,), bool
        Whether the site took part in a refresh.
    phi : Tensor of shape (T, 2)
        Contexts of the sites at the last refresh.
    psi_outer, psi_mean : Tensor of shape (T, 2, 2) and (T, 2)
        Moments of the contexts of the subjects chosen then.
    prototypes : Prototypes
        Running means (T, n_classes, d) and covariances (T, n_classes, d, d) of the candidates'
        readouts, for variants that keep them and models that learn their readouts.
    """

    sites: Moments
    subjects: Moments
    best: Tensor
    ce: Tensor
    seen: Tensor
    phi: Tensor
    psi_outer: Tensor
    psi_mean: Tensor
    prototypes: Prototypes | Absent = ABSENT


@limits(
    reward_scale=above(0),
    temperature=above(0),
    floor=within(0, 1),
    shortlist=at_least(1),
)
@dataclass(frozen=True)
class HCTS(Checked, metaclass=Variants):
    """The sampler; this class is the variant ``"stable"``, from which the others derive.

    Rewards are centred at zero, expected gains are not standardised, closeness is measured in
    units of the class (`fcforge.replay.selection.closeness`), and the bandits are ridge
    regressions that keep their prior. docs/forge.md lists all differences.

    Parameters
    ----------
    reward_scale : float
        Fall of the cross-entropy at which the uncentred reward is 0.73.
    temperature, floor : float
        See `fcforge.replay.bandit.shares`.
    shortlist : int
        Length of the shortlist, in quotas.
    sites, subjects : Bandit
        How the two levels learn.
    variant : {"stable", "paper", "authors"}
        Class to use: this one, `PaperHCTS` or `AuthorsHCTS`.
    """

    reward_scale: float = 0.1
    temperature: float = 0.1
    floor: float = 0.25
    shortlist: int = 2
    sites: Bandit = SITES
    subjects: Bandit = SUBJECTS

    kind = "sampler"
    name = "hcts"
    variants: ClassVar[dict[str, type]] = {}
    variant: ClassVar[Variant] = "stable"
    draws_by_share: ClassVar[bool] = False
    chooses_at_end: ClassVar[bool] = False
    keeps_prototypes: ClassVar[bool] = False

    # -- state -----------------------------------------------------------------------------------
    def start(
        self, device: torch.device | str, n_classes: int = 2, readout: int = 0
    ) -> HCTSState:
        """Return the state before the first site: no arm.

        Parameters
        ----------
        device : torch.device or str
        n_classes : int
        readout : int
            Length of the readouts that a model learns; 0 where readouts never change, or where
            `Contexts` are given without prototypes.
        """
        arm = self._arm(torch.zeros((), device=device))
        if self.keeps_prototypes and readout:
            shape = (1, n_classes, readout)
            mean = torch.zeros(shape, dtype=torch.float64, device=device)
            covariance = mean.new_zeros(*shape, readout)
            arm = arm._replace(prototypes=Prototypes(mean, covariance))
        return pytree.tree_map(lambda value: value[:0], arm)

    def add_site(self, state: HCTSState, accuracy: Tensor) -> HCTSState:
        """Return the state with one more arm, whose best accuracy so far is `accuracy` ()."""
        arm = self._arm(accuracy)
        if state.prototypes:
            empty = (part.new_zeros(1, *part.shape[1:]) for part in state.prototypes)
            arm = arm._replace(prototypes=Prototypes(*empty))
        return pytree.tree_map(lambda old, new: torch.cat([old, new]), state, arm)

    def averages(self, state: HCTSState) -> Averages | None:
        """Return the running averages that measure closeness; None for the present readouts."""
        return None

    def _arm(self, accuracy: Tensor) -> HCTSState:
        device = accuracy.device
        return HCTSState(
            sites=self.sites.start(device),
            subjects=self.subjects.start(device),
            best=accuracy.float().reshape(1),
            ce=torch.zeros(1, device=device),
            seen=torch.zeros(1, dtype=torch.bool, device=device),
            phi=torch.zeros(1, 2, device=device),
            psi_outer=torch.zeros(1, 2, 2, device=device),
            psi_mean=torch.zeros(1, 2, device=device),
        )

    # -- one refresh -----------------------------------------------------------------------------
    def refresh(
        self, state: HCTSState, contexts: Contexts, key: Tensor, capacity: int
    ) -> tuple[HCTSState, Choice]:
        """Learn from the effect of the last choice, then choose `capacity` subjects anew.

        Parameters
        ----------
        state : HCTSState
        contexts : Contexts
            Under the current network.
        key : Tensor, int32 scalar
            Random key.
        capacity : int
            K, the number of subjects to choose.

        Returns
        -------
        state : HCTSState
        choice : Choice
        """
        gain = self.reward(state, contexts.ce)
        state = self.credit(state, gain, state.seen)
        state, choice = self.choose(state, contexts, key, capacity)
        return self.looked(state, contexts), choice

    def looked(self, state: HCTSState, contexts: Contexts) -> HCTSState:
        """Return the state with what the next refresh compares with."""
        seen = torch.ones_like(state.seen)
        state = state._replace(ce=contexts.ce, seen=seen)
        if contexts.prototypes:
            state = state._replace(prototypes=contexts.prototypes)
        return state

    def reward(self, state: HCTSState, ce: Tensor) -> Tensor:
        """Return the reward (T,) of the last choice: 0 where nothing changed.

        Parameters
        ----------
        state : HCTSState
        ce : Tensor of shape (T,)
            Cross-entropy of each site now.
        """
        return reward(state.ce, ce, self.reward_scale) - 0.5

    def credit(self, state: HCTSState, gain: Tensor, seen: Tensor) -> HCTSState:
        """Update both levels with the rewards `gain` (T,) of the sites where `seen` (T,)."""
        phi = state.phi
        outer = phi[:, :, None] * phi[:, None, :]
        by_site = gain[:, None]
        sites = self.sites.update(state.sites, outer, phi * by_site, seen)
        subjects = self.subjects.update(
            state.subjects, state.psi_outer, state.psi_mean * by_site, seen
        )
        return state._replace(sites=sites, subjects=subjects)

    def choose(
        self, state: HCTSState, contexts: Contexts, key: Tensor, capacity: int
    ) -> tuple[HCTSState, Choice]:
        """Choose `capacity` subjects and note their contexts in the state."""
        forgetting = (state.best - contexts.accuracy).clamp(min=0)
        phi = torch.stack([contexts.accuracy, forgetting], -1)
        sites, candidates = contexts.psi.shape[:2]
        w = self.sites.draw(state.sites, normal(fold(key, 1), (sites, 2)))
        v = self.subjects.draw(state.subjects, normal(fold(key, 2), (sites, 2)))
        share = self.shares((phi * w).sum(-1))
        quota, total = self.deal(share, capacity, candidates)
        score = (contexts.psi * v[:, None, :]).sum(-1)
        ranked = torch.argsort(score, dim=-1, descending=True, stable=True)
        listed = torch.argsort(ranked, dim=-1) < self.shortlist * quota[:, None]
        steps = min(capacity, candidates)
        order = farthest_first(contexts.distance, listed, score, steps)
        active, chosen = take_first(order, quota, total, candidates)
        outer, mean = self.moments(contexts.psi, chosen, quota)
        state = state._replace(phi=phi, psi_outer=outer, psi_mean=mean)
        return state, Choice(active, quota, share)

    def shares(self, gain: Tensor) -> Tensor:
        """Return the share of the budget of each site from its expected gain (T,)."""
        return shares(gain, self.temperature, self.floor)

    def deal(self, share: Tensor, capacity: int, candidates: int) -> tuple[Tensor, int]:
        """Return the quotas (T,) of shares (T,), and their sum."""
        cap = torch.full_like(share, candidates, dtype=torch.int64)
        total = min(capacity, share.shape[0] * candidates)
        return quotas(share, capacity, cap), total

    def moments(
        self, psi: Tensor, chosen: Tensor, quota: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Return means (T, 2, 2) of :math:`\psi\psi^\top` and (T, 2) of psi over the chosen."""
        outer, mean = self.summed_moments(psi, chosen, quota)
        return outer / quota.clamp(min=1)[:, None, None].float(), mean

    @staticmethod
    def summed_moments(
        psi: Tensor, chosen: Tensor, quota: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Return the sum of :math:`\psi\psi^\top` and the mean of psi over the chosen subjects."""
        picked = psi * chosen[:, :, None]
        count = quota.clamp(min=1)[:, None].float()
        return picked.transpose(1, 2) @ picked, picked.sum(1) / count

    def closeness(self, z: Tensor, y: Tensor, n_classes: int) -> Tensor:
        """Return how typical each subject of a site is of its class."""
        return selection.closeness(z, y, n_classes)

    # -- one training step -----------------------------------------------------------------------
    def draw_slots(
        self, choice: Choice, key: Tensor, size: int
    ) -> tuple[Tensor, Tensor]:
        """Draw about `size` of the chosen slots with replacement, equally many of every site.

        Returns
        -------
        slots : Tensor of shape (b,), int64
        weight : Tensor of shape (b,)
            Each site weighs 1 / T in total, as in the paper's equation. A site without quota has
            no part.
        """
        active, quota, _ = choice
        first = quota.cumsum(0) - quota
        sites = quota.shape[0]
        u = uniform(key, (sites, -(-size // sites)))
        place = first[:, None] + _below(u, quota[:, None])
        weight = (quota > 0)[:, None] * torch.full_like(u, 1.0 / u.numel())
        place = place.clamp(0, active.shape[0] - 1)
        return active[place.flatten()], weight.flatten()


@limits(prototype_weight=within(0, 1))
@dataclass(frozen=True)
class PaperHCTS(HCTS):
    """The sampler of the paper's text, with the authors' numbers where the text has none.

    Closeness is measured from running averages of the class means and covariances.

    Parameters
    ----------
    prototype_weight : float
        Weight alpha of the present readouts in the running averages.
    **settings
        Those of `HCTS`.
    """

    reward_scale: float = 0.05
    temperature: float = 1.0
    floor: float = 0.0
    sites: Bandit = PAPER_SITES
    subjects: Bandit = PAPER_SUBJECTS
    prototype_weight: float = 0.2

    variant: ClassVar[Variant] = "paper"
    keeps_prototypes: ClassVar[bool] = True
    UPDATE_JITTER: ClassVar[float] = 0.0

    def reward(self, state: HCTSState, ce: Tensor) -> Tensor:
        """Return the reward (T,) of the last choice: 1/2 where nothing changed."""
        return reward(state.ce, ce, self.reward_scale)

    def shares(self, gain: Tensor) -> Tensor:
        """Return the share of the budget of each site from its standardised expected gain."""
        return shares(standardised(gain), self.temperature, self.floor)

    def moments(
        self, psi: Tensor, chosen: Tensor, quota: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Sum the outer products over the choice, but spread the reward evenly over it.

        The estimate therefore shrinks with the quota.
        """
        return self.summed_moments(psi, chosen, quota)

    def closeness(self, z: Tensor, y: Tensor, n_classes: int) -> Tensor:
        """Return how typical each subject is, in the unit of the paper: 0 for almost all."""
        return selection.paper_closeness(z, y, n_classes)

    def averages(self, state: HCTSState) -> Averages | None:
        """Return the running averages; None where readouts never change: they are their own."""
        if not state.prototypes:
            return None
        weight = self.prototype_weight
        return Averages(state.prototypes, state.seen, weight, self.UPDATE_JITTER)


@dataclass(frozen=True)
class AuthorsHCTS(PaperHCTS):
    """The sampler of the authors' code.

    It credits the choice just made, before any training on it (the first earns 1/2), also chooses
    when a site ends, gives every site `LEAST_SHARE` of the budget, keeps quotas within `LIMITS`,
    and replays sites in proportion to their shares. Every update of the running averages adds
    `UPDATE_JITTER` to the covariances, so that it accumulates to five times that.
    """

    temperature: float = 0.3
    shortlist: int = 3

    variant: ClassVar[Variant] = "authors"
    draws_by_share: ClassVar[bool] = True
    chooses_at_end: ClassVar[bool] = True
    LEAST_SHARE: ClassVar[float] = 0.05
    LIMITS: ClassVar[tuple[int, int]] = (32, 128)
    UPDATE_JITTER: ClassVar[float] = selection.JITTER

    def refresh(
        self, state: HCTSState, contexts: Contexts, key: Tensor, capacity: int
    ) -> tuple[HCTSState, Choice]:
        """Choose `capacity` subjects, then credit this choice with the last one's reward."""
        gain = torch.where(state.seen, self.reward(state, contexts.ce), 0.5)
        state, choice = self.choose(state, contexts, key, capacity)
        state = self.credit(state, gain, torch.ones_like(state.seen))
        return self.looked(state, contexts), choice

    def shares(self, gain: Tensor) -> Tensor:
        """Return the share of the budget of each site, at least `LEAST_SHARE`."""
        floor = min(self.floor + self.LEAST_SHARE * gain.shape[0], 1.0)
        return shares(standardised(gain), self.temperature, floor)

    def deal(self, share: Tensor, capacity: int, candidates: int) -> tuple[Tensor, int]:
        """Return the quotas (T,) of shares (T,) within `LIMITS`, and their sum."""
        sites = share.shape[0]
        low, high = (min(limit, candidates) for limit in self.LIMITS)
        low = min(low, capacity // sites)
        total = min(capacity, sites * high)
        return limited_quotas(share, total, low, high), total

    def draw_slots(
        self, choice: Choice, key: Tensor, size: int
    ) -> tuple[Tensor, Tensor]:
        """Draw `size` of the chosen slots with replacement, sites in proportion to their shares."""
        active, quota, share = choice
        assert isinstance(share, Tensor)  # this variant's states keep it
        first = quota.cumsum(0) - quota
        u = uniform(key, (size,))
        upper = share.cumsum(0)
        drawn = uniform(fold(key, 1), (size, 1)) * upper[-1]
        site = (drawn >= upper).sum(1).clamp(max=share.shape[0] - 1)
        place = first[site] + _below(u, quota[site])
        slots = active[place.clamp(0, active.shape[0] - 1)]
        return slots, torch.full_like(u, 1.0 / size)


SAMPLERS: Mapping[str, HCTS] = {word: cls() for word, cls in HCTS.variants.items()}


def even_choice(noise: Tensor, capacity: int, sampler: HCTS) -> Choice:
    """Choose with equal shares and at random: the comparison that HCTS is to beat.

    Parameters
    ----------
    noise : Tensor of shape (T, C)
        Uniform random numbers.
    capacity : int
    sampler : HCTS
        Its `deal` turns shares into quotas.
    """
    sites, n = noise.shape
    even = torch.full((sites,), 1.0 / sites, device=noise.device)
    order = torch.argsort(noise, dim=1)[:, : min(capacity, n)]
    quota, total = sampler.deal(even, capacity, n)
    return Choice(take_first(order, quota, total, n)[0], quota, even)


def take_first(
    order: Tensor, quota: Tensor, total: int, n: int
) -> tuple[Tensor, Tensor]:
    """Take the first `quota` subjects of each site's order.

    Parameters
    ----------
    order : Tensor of shape (T, steps), int64
        Places among a site's n candidates.
    quota : Tensor of shape (T,), int64
    total : int
        Their sum.
    n : int

    Returns
    -------
    active : Tensor of shape (total,), int64
        Memory slots.
    chosen : Tensor of shape (T, n), bool
    """
    sites, steps = order.shape
    place = torch.arange(total, device=order.device)
    ends = quota.cumsum(0)
    past = (place[:, None] >= ends[None, :]).sum(1)
    site = past.clamp(max=sites - 1)
    within = (place - (ends - quota)[site]).clamp(0, steps - 1)
    active = site * n + order[site, within]
    wanted = torch.arange(steps, device=order.device)[None, :] < quota[:, None]
    hit = order[:, :, None] == torch.arange(n, device=order.device)  # (T, steps, n)
    return active, (hit & wanted[:, :, None]).any(1)


def _below(u: Tensor, n: Tensor) -> Tensor:
    """Turn uniform numbers (which may round to 1) into whole numbers below n."""
    return torch.minimum((u * n).long(), n - 1)
