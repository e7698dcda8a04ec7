r"""Hierarchical contextual Thompson sampling: which K remembered subjects to replay next.

Two levels. Sites: context [accuracy, forgetting] on a held-out set of each site, Thompson draw of
what replaying the site is worth, budget split accordingly. Subjects of a site: context [margin,
closeness], Thompson draw, the best 2k go on a shortlist, of which k that lie far apart in readout
space are taken. The reward is the fall of the site's cross-entropy on its held-out set.

All tensors are those of one lane: T past sites, C candidates and D held-out subjects per site.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fcforge.core.randomness import fold, normal, uniform
from fcforge.replay.bandit import Bandit, limited_quotas, quotas, reward, shares
from fcforge.replay.selection import Look, farthest_first

State = dict[str, Tensor]
Form = Literal["repaired", "paper", "official"]
# of the authors' code: share of the budget, least and most subjects that every site has
LEAST_SHARE = 0.05
LIMITS = (32, 128)
# how arms learn; the paper's text, its numbers as far as it gives none those of the authors' code
SITES = Bandit()
SUBJECTS = Bandit(belief=0.0, pooled=False)
LITERAL = Bandit(10.0, form="paper", pooled=False)


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
class HCTS:
    """The sampler's settings; see `Bandit`, `shares`, `closeness` for what each repairs.

    Parameters
    ----------
    form : {"repaired", "paper", "official"}
        The paper's text; or the authors' code, which credits the choice just made, before any
        training on it (the first earns 1/2), also chooses when a site ends, gives every site
        `LEAST_SHARE` of the budget and keeps to `LIMITS`; or what was repaired.
    reward_scale : float
        Cross-entropy change at which the reward is 0.73.
    temperature, floor
        See `fcforge.replay.bandit.shares`.
    shortlist : int
        Length of the shortlist, in quotas.
    sites, subjects : Bandit
        How the two levels learn.
    """

    form: Form = "repaired"
    reward_scale: float = 0.1
    temperature: float = 0.1
    floor: float = 0.25
    shortlist: int = 2
    sites: Bandit = SITES
    subjects: Bandit = SUBJECTS

    @property
    def repaired(self) -> bool:
        """Whether rewards are centred, utilities not standardised, closeness scaled."""
        return self.form == "repaired"

    @property
    def official(self) -> bool:
        """Whether the authors' code is followed where it differs from the paper."""
        return self.form == "official"

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
            found[f"{level}.s"], found[f"{level}.b"] = arms.start(device)
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
            state["hcts.ce"], look.ce, self.reward_scale, centred=self.repaired
        )
        state = dict(state)
        if self.official:
            gain = torch.where(state["hcts.seen"], gain, 0.5)
        else:
            state.update(self._credit(state, gain))
        choice, chosen = self._choose(state, look, phi, key, capacity)
        outer, mean = self._describe(look.psi, chosen, choice.quota)
        state.update({"hcts.phi": phi, "hcts.psi.outer": outer, "hcts.psi.mean": mean})
        if self.official:
            state.update(self._credit(state, gain))
        state.update(
            {"hcts.ce": look.ce, "hcts.seen": torch.ones_like(state["hcts.seen"])}
        )
        return state, choice

    def _credit(self, state: State, gain: Tensor) -> State:
        phi = state["hcts.phi"]
        seen = state["hcts.seen"] | self.official
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
        floor = self.floor
        if self.official:
            floor = min(floor + LEAST_SHARE * sites, 1.0)
        utility = (phi * w).sum(-1)
        share = shares(utility, self.temperature, not self.repaired, floor)
        quota, total = self.deal(share, capacity, candidates)
        score = (look.psi * v[:, None, :]).sum(-1)
        ranked = torch.argsort(score, dim=-1, descending=True, stable=True)
        listed = torch.argsort(ranked, dim=-1) < self.shortlist * quota[:, None]
        steps = min(capacity, candidates)
        order = farthest_first(look.distance, listed, score, steps)
        active, chosen = take_first(order, quota, total, candidates)
        return Choice(active, quota, share), chosen

    def deal(self, share: Tensor, capacity: int, candidates: int) -> tuple[Tensor, int]:
        """Quotas (T,) of shares (T,), and their sum."""
        sites = share.shape[0]
        if not self.official:
            cap = torch.full_like(share, candidates, dtype=torch.int64)
            return quotas(share, capacity, cap), min(capacity, sites * candidates)
        low, high = (min(limit, candidates) for limit in LIMITS)
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
    choice: Choice, key: Tensor, size: int, by_share: bool = False
) -> tuple[Tensor, Tensor]:
    """About `size` of the chosen slots, drawn with replacement, and their weights.

    Equally many of every site, each site weighing 1 / T (a site without quota has no part), as in
    the paper's equation; or sites appear in proportion to their share, as in the authors' code.
    """
    active, quota, share = choice
    first = quota.cumsum(0) - quota
    if not by_share:
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


SAMPLERS: dict[Form, HCTS] = {
    "repaired": HCTS(),
    "paper": HCTS("paper", 0.05, 1.0, 0.0, sites=LITERAL, subjects=LITERAL),
    "official": HCTS(
        "official",
        reward_scale=0.05,
        temperature=0.3,
        floor=0.0,
        shortlist=3,
        sites=LITERAL,
        subjects=Bandit(5.0, 0.15, form="paper", pooled=False),
    ),
}
