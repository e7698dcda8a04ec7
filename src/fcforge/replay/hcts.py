r"""Hierarchical contextual Thompson sampling: which K remembered subjects to replay next.

Two levels. Sites: context [accuracy, forgetting] on a held-out set of each site, Thompson draw of
what replaying the site is worth, budget split accordingly. Subjects of a site: context [margin,
closeness], Thompson draw, the best 2k go on a shortlist, of which k that lie far apart in readout
space are taken. The reward is the fall of the site's cross-entropy on its held-out set.

All tensors are those of one lane: T past sites, C candidates and D held-out subjects per site.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from fcforge.randomness import fold, normal, uniform
from fcforge.replay.bandit import Bandit, limited_quotas, quotas, reward, shares
from fcforge.replay.selection import Look, Scaling, farthest_first, shortlist
from fcforge.settings import Checked, Count, Positive, Share, Size

State = dict[str, Tensor]
SiteWeight = Literal["equal", "share"]
# The paper's text; the numbers it does not give are those of the authors' code. The appendix
# credits the context of round t with the reward of round t, which is measured after training on
# its choice, and knows neither floor nor limits.
PAPER: dict[str, Any] = {
    "centre_reward": False,
    "reward_scale": 0.05,
    "temperature": 1.0,
    "zscore": True,
    "floor": 0.0,
    "closeness": "none",
    "sites": Bandit(prior=10.0, form="paper", belief=0.0, pooled=False),
    "subjects": Bandit(prior=10.0, form="paper", belief=0.0, pooled=False),
}
# The authors' code; its moving averages of class moments are exact ones here.
OFFICIAL: dict[str, Any] = {
    **PAPER,
    "credit_previous": False,
    "credit_first": True,
    "refresh_at_end": True,
    "temperature": 0.3,
    "least_share": 0.05,
    "limits": (32, 128),
    "shortlist": 3,
    "subjects": Bandit(prior=5.0, noise=0.15, form="paper", belief=0.0, pooled=False),
}


class Choice(NamedTuple):
    """The subjects to replay until the next refresh.

    Attributes
    ----------
    active : Tensor of shape (min(K, T C),), int64
        Memory slots, those of one site after those of another.
    quota : Tensor of shape (T,), int64
        How many of them belong to each site.
    share : Tensor of shape (T,)
        Share of the budget that each site was to have, before rounding and limits.
    """

    active: Tensor
    quota: Tensor
    share: Tensor


@dataclass(frozen=True)
class HCTS(Checked):
    """The sampler's settings; see `Bandit`, `shares`, `closeness` for what each repairs.

    Parameters
    ----------
    credit_previous : bool
        Credit a reward to the choice that was trained on. The authors' code credits the choice
        just made, before any training on it.
    credit_first : bool
        A site's first refresh, which has nothing to compare with, earns 1/2.
    refresh_at_end : bool
        Choose, and credit, also when a site ends.
    centre_reward : bool
        See `fcforge.replay.bandit.reward`.
    reward_scale : float
        Cross-entropy change at which the reward is 0.73.
    temperature, zscore, floor
        See `fcforge.replay.bandit.shares`.
    least_share : float
        Share of the budget that every site has at least, on top of `floor`.
    limits : (int, int), optional
        Least and most subjects of a site, dealt out by `fcforge.replay.bandit.limited_quotas`.
    closeness : {"mean", "none"}
        See `fcforge.replay.selection.closeness`.
    shortlist : int
        Length of the shortlist, in quotas.
    sites, subjects : Bandit
        How the two levels learn.
    """

    kind: ClassVar[str] = "sampler"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": PAPER,
        "official": OFFICIAL,
    }
    credit_previous: bool = True
    credit_first: bool = False
    refresh_at_end: bool = False
    centre_reward: bool = True
    reward_scale: Positive = 0.1
    temperature: Positive = 0.1
    zscore: bool = False
    floor: Share = 0.25
    least_share: Share = 0.0
    limits: tuple[Count, Size] | None = None
    closeness: Scaling = "mean"
    shortlist: Size = 2
    sites: Bandit = field(default_factory=Bandit)
    subjects: Bandit = field(default_factory=lambda: Bandit(belief=0.0, pooled=False))

    @property
    def levels(self) -> tuple[tuple[str, Bandit], ...]:
        """Both levels: beginning of the names of their moments in a state, and how they learn."""
        return ("hcts.site", self.sites), ("hcts.sample", self.subjects)

    # -- state -----------------------------------------------------------------------------------
    def start(self, device: torch.device | str) -> State:
        """State before the first site: no arm."""
        arm = self._arm(torch.zeros((), device=device))
        return {k: v[:0] for k, v in arm.items()}

    def add_site(self, state: State, accuracy: Tensor) -> State:
        """State with one more arm, whose best accuracy so far is `accuracy` ()."""
        arm = self._arm(accuracy)
        joined = {k: torch.cat([state[k], v]) for k, v in arm.items()}
        return {**state, **joined}

    def _arm(self, accuracy: Tensor) -> State:
        device = accuracy.device
        found = State()
        for level, arms in self.levels:
            found[f"{level}.s"], found[f"{level}.b"] = arms.start(1, device)
        return found | {
            "hcts.best": accuracy.float().reshape(1),
            "hcts.ce": torch.zeros(1, device=device),
            "hcts.seen": torch.zeros(1, dtype=torch.bool, device=device),
            "hcts.phi": torch.zeros(1, 2, device=device),
            "hcts.psi.outer": torch.zeros(1, 2, 2, device=device),
            "hcts.psi.mean": torch.zeros(1, 2, device=device),
        }

    # -- one refresh -----------------------------------------------------------------------------
    def refresh(
        self, state: State, look: Look, key: Tensor, capacity: int
    ) -> tuple[State, Choice]:
        """Learn from what the last choice brought about, then choose `capacity` anew."""
        forget = (state["hcts.best"] - look.accuracy).clamp(min=0)
        phi = torch.stack([look.accuracy, forget], -1)
        gain = reward(
            state["hcts.ce"], look.ce, self.reward_scale, centred=self.centre_reward
        )
        state = dict(state)
        if self.credit_first:
            gain = torch.where(
                state["hcts.seen"], gain, 0.0 if self.centre_reward else 0.5
            )
        if self.credit_previous:
            state.update(self._credit(state, gain))
        choice, chosen = self._choose(state, look, phi, key, capacity)
        outer, mean = self._describe(look.psi, chosen, choice.quota)
        state.update({"hcts.phi": phi, "hcts.psi.outer": outer, "hcts.psi.mean": mean})
        if not self.credit_previous:
            state.update(self._credit(state, gain))
        state.update(
            {"hcts.ce": look.ce, "hcts.seen": torch.ones_like(state["hcts.seen"])}
        )
        return state, choice

    def _credit(self, state: State, gain: Tensor) -> State:
        phi = state["hcts.phi"]
        seen = state["hcts.seen"] | self.credit_first
        seen_by_level = (
            (phi[:, :, None] * phi[:, None, :], phi),
            (state["hcts.psi.outer"], state["hcts.psi.mean"]),
        )
        found = State()
        for (level, arms), (outer, context) in zip(
            self.levels, seen_by_level, strict=True
        ):
            moments = state[f"{level}.s"], state[f"{level}.b"]
            s, b = arms.update(*moments, outer, context * gain[:, None], seen)
            found |= {f"{level}.s": s, f"{level}.b": b}
        return found

    def _choose(
        self, state: State, look: Look, phi: Tensor, key: Tensor, capacity: int
    ) -> tuple[Choice, Tensor]:
        sites, candidates = look.psi.shape[:2]
        drawn = []
        for i, (level, arms) in enumerate(self.levels, 1):
            noise = normal(fold(key, i), (sites, 2))
            drawn.append(arms.draw(state[f"{level}.s"], state[f"{level}.b"], noise))
        w, v = drawn
        floor = min(self.floor + self.least_share * sites, 1.0)
        share = shares((phi * w).sum(-1), self.temperature, self.zscore, floor)
        quota, total = self.deal(share, capacity, candidates)
        score = (look.psi * v[:, None, :]).sum(-1)
        listed = shortlist(score, quota[:, None], self.shortlist)
        steps = min(capacity, candidates)
        order = farthest_first(look.distance, listed, score, steps)
        active, chosen = take_first(order, quota, total, candidates)
        return Choice(active, quota, share), chosen

    def deal(self, share: Tensor, capacity: int, candidates: int) -> tuple[Tensor, int]:
        """Quotas (T,) of shares (T,), and their sum."""
        sites = share.shape[0]
        if self.limits is None:
            cap = torch.full_like(share, candidates, dtype=torch.int64)
            return quotas(share, capacity, cap), min(capacity, sites * candidates)
        low, high = (min(limit, candidates) for limit in self.limits)
        low = min(low, capacity // sites)
        total = min(capacity, sites * high)
        return limited_quotas(share, total, low, high), total

    def _describe(
        self, psi: Tensor, chosen: Tensor, quota: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Moments of the contexts of those chosen: :math:`\sum\psi\psi^\top` and mean of psi.

        The paper adds up outer products over the choice but spreads the reward evenly over it, so
        that the estimate shrinks with the quota; the repaired form takes the mean of both.
        """
        count = quota.clamp(min=1)[:, None].float()
        picked = psi * chosen[:, :, None]
        outer = picked.transpose(1, 2) @ picked
        if self.subjects.form == "ridge":
            outer = outer / count[:, :, None]
        return outer, picked.sum(1) / count


def take_first(
    order: Tensor, quota: Tensor, total: int, n: int
) -> tuple[Tensor, Tensor]:
    """The first `quota` subjects of each site's order, as memory slots and as a mask.

    Parameters
    ----------
    order : Tensor of shape (T, steps), int64
        Places among a site's n candidates.
    quota : Tensor of shape (T,), int64
    total : int
        Their sum.
    n : int
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


def even_choice(noise: Tensor, capacity: int, sampler: HCTS) -> Choice:
    """Equal shares, subjects at random: what HCTS is to be compared with. `noise` is (T, C)."""
    sites, n = noise.shape
    even = torch.full((sites,), 1.0 / sites, device=noise.device)
    order = torch.argsort(noise, dim=1)[:, : min(capacity, n)]
    quota, total = sampler.deal(even, capacity, n)
    return Choice(take_first(order, quota, total, n)[0], quota, even)


def draw_slots(
    choice: Choice, key: Tensor, size: int, by: SiteWeight
) -> tuple[Tensor, Tensor]:
    """About `size` of the chosen slots, drawn with replacement, and their weights.

    "equal" draws equally many of every site, each site weighing 1 / T (a site without quota has
    no part); with "share" sites appear in proportion to their share.
    """
    active, quota, share = choice
    first = quota.cumsum(0) - quota
    if by == "equal":
        sites = quota.shape[0]
        u = uniform(key, (sites, -(-size // sites)))
        place = first[:, None] + _within(u, quota[:, None])
        each = torch.full_like(u, 1.0 / u.numel())
        weight = (quota > 0)[:, None] * each
        place = place.clamp(0, active.shape[0] - 1)
        return active[place.flatten()], weight.flatten()
    u = uniform(key, (size,))
    shares = share.cumsum(0)
    drawn = uniform(fold(key, 1), (size, 1)) * shares[-1]
    site = (drawn >= shares).sum(1)
    site = site.clamp(max=share.shape[0] - 1)
    place = first[site] + _within(u, quota[site])
    slots = active[place.clamp(0, active.shape[0] - 1)]
    return slots, torch.full_like(u, 1.0 / size)


def _within(u: Tensor, n: Tensor) -> Tensor:
    """Whole numbers below n from uniform ones (u may round to 1)."""
    return torch.minimum((u * n).long(), n - 1)
