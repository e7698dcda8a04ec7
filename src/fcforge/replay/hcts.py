r"""Hierarchical contextual Thompson sampling (HCTS): which remembered subjects to replay next.

At a refresh, every few epochs, the sampler chooses `capacity` (K in the paper) of the synthetic
subjects of past sites, the candidates. It works on two levels.

- Sites: the context is [accuracy, forgetting] on held-out synthetic subjects of each site. A
  Thompson draw estimates the gain of replaying the site, and the budget is split accordingly into
  one quota per site.
- Subjects of a site: the context is [margin, closeness]: how sure the network is, and how typical
  the subject is of its class. After a Thompson draw the best go on a shortlist, of which those that
  lie far apart in readout space are taken.

The reward of a choice is the fall of the site's cross-entropy on its held-out subjects until the next
refresh.

In the words of bandits every past site is an arm. A site's quota is the number of its subjects that are
replayed, its share the part of the budget from which the quota is rounded.

All tensors are those of one training run: T past sites, C candidates and D held-out subjects per site.
In the code phi is a site's context and psi a subject's.

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
from fcforge.replay import bandit, selection
from fcforge.replay.bandit import Bandit, Moments, PaperBandit
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
    active : Tensor of shape (min(capacity, T C),), int64
        Memory slots of the chosen subjects, grouped by site. Slot ``t C + i`` holds candidate i of
        site t.
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
        What the bandits of the two levels have learned.
    best : Tensor of shape (T,)
        Each site's best accuracy so far, measured when a site ends; forgetting is the loss from it.
    ce : Tensor of shape (T,)
        Each site's cross-entropy at the last refresh.
    seen : Tensor of shape (T,), bool
        Whether the site took part in a refresh.
    phi : Tensor of shape (T, 2)
        Contexts of the sites at the last refresh.
    psi_outer, psi_mean : Tensor of shape (T, 2, 2) and (T, 2)
        Means of outer products and of contexts of the subjects chosen at the last refresh.
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

    In this variant rewards are centred at zero, expected gains are not standardised, closeness is
    measured in units of the class (`fcforge.replay.selection.closeness`), and the bandits are ridge
    regressions that keep their prior. docs/forge.md lists all differences.

    Parameters
    ----------
    reward_scale : float
        Fall of the cross-entropy at which the uncentred reward is 0.73.
    temperature, floor : float
        How sharply the budget follows the expected gains, and which part of it is split evenly
        (`fcforge.replay.bandit.shares`).
    shortlist : int
        Length of a site's shortlist, in multiples of its quota.
    sites, subjects : Bandit
        The bandits of the two levels.
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
        """Return the state before the first site, with no arm (T = 0).

        Parameters
        ----------
        device : torch.device or str
        n_classes : int
        readout : int
            Length of the readouts that a model learns; 0 where readouts never change, or where
            `Contexts` are given without prototypes.
        """
        # the state of one site gives types and shapes; in the end it is cut to no site
        arm = self._arm(torch.zeros((), device=device))
        if self.keeps_prototypes and readout:
            shape = (1, n_classes, readout)
            mean = torch.zeros(shape, dtype=torch.float64, device=device)
            covariance = mean.new_zeros(*shape, readout)
            arm = arm._replace(prototypes=Prototypes(mean, covariance))
        return pytree.tree_map(lambda value: value[:0], arm)

    def add_site(self, state: HCTSState, accuracy: Tensor) -> HCTSState:
        """Return the state with one more site, whose best accuracy so far is `accuracy` (scalar)."""
        arm = self._arm(accuracy)
        if state.prototypes:
            empty = (part.new_zeros(1, *part.shape[1:]) for part in state.prototypes)
            arm = arm._replace(prototypes=Prototypes(*empty))
        return pytree.tree_map(lambda old, new: torch.cat([old, new]), state, arm)

    def averages(self, state: HCTSState) -> Averages | None:
        """Return the running averages of class means and covariances that closeness refers to.

        None where closeness refers to the present readouts, as in this variant.
        """
        return None

    def _arm(self, accuracy: Tensor) -> HCTSState:
        """Return the state of one new site (T = 1) whose best accuracy is `accuracy` (scalar)."""
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
            Of all sites and candidates, computed with the current network.
        key : Tensor, int32 scalar
            Random key.
        capacity : int
            Number of subjects to choose.

        Returns
        -------
        state : HCTSState
        choice : Choice
        """
        rewards = self.reward(state, contexts.ce)
        state = self.credit(state, rewards, state.seen)
        state, choice = self.choose(state, contexts, key, capacity)
        return self.noted(state, contexts), choice

    def noted(self, state: HCTSState, contexts: Contexts) -> HCTSState:
        """Return the state with what the next refresh needs of this one.

        These are the cross-entropies, from which it computes its reward, and the running averages, if any.
        """
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
        return bandit.reward(state.ce, ce, self.reward_scale) - 0.5

    def credit(self, state: HCTSState, rewards: Tensor, earned: Tensor) -> HCTSState:
        """Update the bandits of both levels with the rewards of the last choice.

        Parameters
        ----------
        state : HCTSState
        rewards : Tensor of shape (T,)
            Reward of each site.
        earned : Tensor of shape (T,), bool
            Sites that earned a reward; the others stay as they are.
        """
        phi = state.phi
        phi_outer = phi[:, :, None] * phi[:, None, :]
        by_site = rewards[:, None]
        sites = self.sites.update(state.sites, phi_outer, phi * by_site, earned)
        # the subjects of a site have no rewards of their own: all get that of the site
        subjects = self.subjects.update(
            state.subjects, state.psi_outer, state.psi_mean * by_site, earned
        )
        return state._replace(sites=sites, subjects=subjects)

    def choose(
        self, state: HCTSState, contexts: Contexts, key: Tensor, capacity: int
    ) -> tuple[HCTSState, Choice]:
        """Choose `capacity` subjects and note their contexts in the state.

        Arguments and results are those of `refresh`.
        """
        forgetting = (state.best - contexts.accuracy).clamp(min=0)
        phi = torch.stack([contexts.accuracy, forgetting], -1)
        sites, candidates = contexts.psi.shape[:2]
        # site level: a Thompson draw of the weights predicts the gain of every site
        w = self.sites.draw(state.sites, normal(fold(key, 1), (sites, 2)))
        share = self.shares((phi * w).sum(-1))
        quota, total = self.deal(share, capacity, candidates)
        # subject level: the best by a second draw are shortlisted, the farthest of them taken
        v = self.subjects.draw(state.subjects, normal(fold(key, 2), (sites, 2)))
        score = (contexts.psi * v[:, None, :]).sum(-1)
        best_first = torch.argsort(score, dim=-1, descending=True, stable=True)
        rank = torch.argsort(best_first, dim=-1)  # inverse permutation: 0 is the best
        shortlisted = rank < self.shortlist * quota[:, None]
        steps = min(capacity, candidates)
        order = farthest_first(contexts.distance, shortlisted, score, steps)
        active, chosen = take_first(order, quota, total, candidates)
        outer, mean = self.moments(contexts.psi, chosen, quota)
        state = state._replace(phi=phi, psi_outer=outer, psi_mean=mean)
        return state, Choice(active, quota, share)

    def shares(self, gain: Tensor) -> Tensor:
        """Return the share (T,) of the budget of each site from its expected gain (T,)."""
        return bandit.shares(gain, self.temperature, self.floor)

    def deal(self, share: Tensor, capacity: int, candidates: int) -> tuple[Tensor, int]:
        """Turn shares of the budget into numbers of subjects.

        Parameters
        ----------
        share : Tensor of shape (T,)
            Share of each site; they sum to one.
        capacity : int
            Number of subjects to choose from all sites.
        candidates : int
            Number of candidates of every site.

        Returns
        -------
        quota : Tensor of shape (T,), int64
        total : int
            Sum of the quotas, known without reading a tensor. It is below `capacity` if there are fewer
            candidates.
        """
        cap = torch.full_like(share, candidates, dtype=torch.int64)
        total = min(capacity, share.shape[0] * candidates)
        return bandit.quotas(share, capacity, cap), total

    def moments(
        self, psi: Tensor, chosen: Tensor, quota: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Return the moments of the chosen subjects' contexts, from which the bandit learns.

        Parameters
        ----------
        psi : Tensor of shape (T, C, 2)
            Contexts of all candidates.
        chosen : Tensor of shape (T, C), bool
            Whether each candidate is chosen.
        quota : Tensor of shape (T,), int64
            Number of chosen candidates of each site.

        Returns
        -------
        outer : Tensor of shape (T, 2, 2)
            Mean of :math:`\psi\psi^\top` over the chosen subjects.
        mean : Tensor of shape (T, 2)
            Mean of :math:`\psi` over them.
        """
        outer, mean = self.summed_moments(psi, chosen, quota)
        return outer / quota.clamp(min=1)[:, None, None].float(), mean

    @staticmethod
    def summed_moments(
        psi: Tensor, chosen: Tensor, quota: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Return the sum of :math:`\psi\psi^\top` and the mean of psi over the chosen subjects.

        Arguments as of `moments`.
        """
        chosen_psi = psi * chosen[:, :, None]
        count = quota.clamp(min=1)[:, None].float()
        return chosen_psi.transpose(1, 2) @ chosen_psi, chosen_psi.sum(1) / count

    def closeness(self, z: Tensor, y: Tensor, n_classes: int) -> Tensor:
        """Return how typical each subject (n,) of a site is of its class, from readouts z (n, d)."""
        return selection.closeness(z, y, n_classes)

    # -- one training step -----------------------------------------------------------------------
    def draw_slots(
        self, choice: Choice, key: Tensor, size: int
    ) -> tuple[Tensor, Tensor]:
        """Draw about `size` of the chosen subjects with replacement, equally many of every site.

        Parameters
        ----------
        choice : Choice
            The subjects to draw from.
        key : Tensor, int32 scalar
            Random key.
        size : int
            Size of a replay batch; it is rounded up to a multiple of the number of sites.

        Returns
        -------
        slots : Tensor of shape (b,), int64
        weight : Tensor of shape (b,)
            Each site weighs 1 / T in total, as in the paper's equation. A site without quota has
            no part.
        """
        active, quota, _ = choice
        # place of each site's first subject in `active`
        first = quota.cumsum(0) - quota
        sites = quota.shape[0]
        per_site = -(-size // sites)  # rounded up
        u = uniform(key, (sites, per_site))
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
        return bandit.reward(state.ce, ce, self.reward_scale)

    def shares(self, gain: Tensor) -> Tensor:
        """Return the share of the budget of each site from its standardised expected gain."""
        standardised = bandit.standardised(gain)
        return bandit.shares(standardised, self.temperature, self.floor)

    def moments(
        self, psi: Tensor, chosen: Tensor, quota: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the sum of outer products, but the mean of contexts, over the chosen subjects.

        So does the paper. The bandit's estimate therefore shrinks as the quota grows.
        """
        return self.summed_moments(psi, chosen, quota)

    def closeness(self, z: Tensor, y: Tensor, n_classes: int) -> Tensor:
        """Return how typical each subject is, in the unit of the paper: 0 for almost all."""
        return selection.paper_closeness(z, y, n_classes)

    def averages(self, state: HCTSState) -> Averages | None:
        """Return the running averages that closeness refers to.

        None where readouts never change, because the averages then equal the present values.
        """
        if not state.prototypes:
            return None
        weight = self.prototype_weight
        return Averages(state.prototypes, state.seen, weight, self.UPDATE_JITTER)


@dataclass(frozen=True)
class AuthorsHCTS(PaperHCTS):
    """The sampler of the authors' code.

    Its differences from the paper's text:

    - A reward is credited to the choice just made, before any training on it; the first choice earns
      1/2.
    - Subjects are also chosen when a site ends.
    - Every site gets `LEAST_SHARE` of the budget, and quotas stay within `LIMITS`.
    - Batches draw sites in proportion to their shares, not equally.
    - Every update of the running averages adds `UPDATE_JITTER` to the covariances' diagonals, which
      accumulates to five times that.
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
        """Choose `capacity` subjects, then credit this choice with the last one's reward.

        A site without an earlier choice earns 1/2, the reward of no change.
        """
        rewards = torch.where(state.seen, self.reward(state, contexts.ce), 0.5)
        state, choice = self.choose(state, contexts, key, capacity)
        state = self.credit(state, rewards, torch.ones_like(state.seen))
        return self.noted(state, contexts), choice

    def shares(self, gain: Tensor) -> Tensor:
        """Return the share of the budget of each site, at least `LEAST_SHARE`."""
        # the part that is split evenly: every site's least share, times the number of sites
        floor = min(self.floor + self.LEAST_SHARE * gain.shape[0], 1.0)
        return bandit.shares(bandit.standardised(gain), self.temperature, floor)

    def deal(self, share: Tensor, capacity: int, candidates: int) -> tuple[Tensor, int]:
        """Turn shares of the budget into quotas within `LIMITS`; see `HCTS.deal`."""
        sites = share.shape[0]
        low, high = (min(limit, candidates) for limit in self.LIMITS)
        low = min(low, capacity // sites)  # no more than every site can have
        total = min(capacity, sites * high)
        return bandit.limited_quotas(share, total, low, high), total

    def draw_slots(
        self, choice: Choice, key: Tensor, size: int
    ) -> tuple[Tensor, Tensor]:
        """Draw `size` of the chosen subjects with replacement, sites in proportion to their shares.

        Returns
        -------
        slots : Tensor of shape (size,), int64
        weight : Tensor of shape (size,)
            1 / size each.
        """
        active, quota, share = choice
        assert isinstance(share, Tensor)  # this variant's states keep it
        first = quota.cumsum(0) - quota  # as in `HCTS.draw_slots`
        u = uniform(key, (size,))
        # a site for every draw: the shares are stretches of a line on which a random point lies
        upper = share.cumsum(0)
        point = uniform(fold(key, 1), (size, 1)) * upper[-1]
        site = (point >= upper).sum(1).clamp(max=share.shape[0] - 1)
        place = first[site] + _below(u, quota[site])
        slots = active[place.clamp(0, active.shape[0] - 1)]
        return slots, torch.full_like(u, 1.0 / size)


SAMPLERS: Mapping[str, HCTS] = {word: cls() for word, cls in HCTS.variants.items()}


def even_choice(noise: Tensor, capacity: int, sampler: HCTS) -> Choice:
    """Choose subjects at random with equal shares of all sites, as a comparison for HCTS.

    Parameters
    ----------
    noise : Tensor of shape (T, C)
        Uniform random numbers, one per candidate.
    capacity : int
        Number of subjects to choose.
    sampler : HCTS
        Its `deal` turns shares into quotas.

    Returns
    -------
    Choice
    """
    sites, n = noise.shape
    even = torch.full((sites,), 1.0 / sites, device=noise.device)
    order = torch.argsort(noise, dim=1)[:, : min(capacity, n)]
    quota, total = sampler.deal(even, capacity, n)
    return Choice(take_first(order, quota, total, n)[0], quota, even)


def take_first(
    order: Tensor, quota: Tensor, total: int, n: int
) -> tuple[Tensor, Tensor]:
    """Take as many subjects as its quota from the beginning of each site's order.

    It is written without a loop over sites, because quotas are tensors under ``vmap``.

    Parameters
    ----------
    order : Tensor of shape (T, steps), int64
        Numbers of a site's candidates, the first to take first.
    quota : Tensor of shape (T,), int64
        Number of subjects to take of each site.
    total : int
        Sum of the quotas.
    n : int
        Number of candidates of every site.

    Returns
    -------
    active : Tensor of shape (total,), int64
        Memory slots of the subjects taken, grouped by site.
    chosen : Tensor of shape (T, n), bool
        Whether each candidate is taken.
    """
    sites, steps = order.shape
    # of every place in `active`: which site it belongs to, and which step of that site's order
    place = torch.arange(total, device=order.device)
    ends = quota.cumsum(0)
    sites_before = (place[:, None] >= ends[None, :]).sum(1)
    site = sites_before.clamp(max=sites - 1)
    step = (place - (ends - quota)[site]).clamp(0, steps - 1)
    active = site * n + order[site, step]
    in_quota = torch.arange(steps, device=order.device)[None, :] < quota[:, None]
    candidates = torch.arange(n, device=order.device)
    is_candidate = order[:, :, None] == candidates  # (T, steps, n)
    return active, (is_candidate & in_quota[:, :, None]).any(1)


def _below(u: Tensor, n: Tensor) -> Tensor:
    """Turn uniform numbers u in [0, 1] (which may round to 1) into whole numbers below n."""
    return torch.minimum((u * n).long(), n - 1)
