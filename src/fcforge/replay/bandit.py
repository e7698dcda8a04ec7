r"""Linear-Gaussian Thompson sampling with two features, and the split of a budget over sites.

Utility is modelled as :math:`r = \phi^\top w + \epsilon,\ \epsilon \sim N(0, \sigma^2)`. Each site
(arm) keeps the second moments :math:`S` (2, 2) of its contexts and :math:`b` (2,) of context times
reward, both fading by the factor :math:`\gamma`. Everything here is closed form and free of
data-dependent control flow, so that it runs inside ``torch.func.vmap``.

Source: FORGE, appendix "Details in Hierarchical Contextual Thompson Sampling".
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Bandit:
    r"""How an arm learns.

    Parameters
    ----------
    prior : float
        :math:`\lambda` of the prior precision :math:`\lambda I`.
    noise : float
        :math:`\sigma`, spread of a reward around its prediction.
    gamma : float
        Forgetting factor of the moments.
    form : {"ridge", "paper"}
        "paper": :math:`A \leftarrow \gamma A + (1 - \gamma)\phi\phi^\top`, :math:`A_0 = \lambda I`;
        the factor :math:`1 - \gamma` makes 16 updates weigh as much as 0.3, and the prior fades, so
        that uncertainty grows without bound in directions not seen. "ridge" (the repair):
        :math:`S \leftarrow \gamma S + \phi\phi^\top` and :math:`A = \lambda I + S` when read.
    belief : float
        Prior mean of the second weight (form "ridge"): what a point of forgetting is worth before
        any reward has been seen. While a new site is being learned every old site's
        cross-entropy moves for many reasons; a few dozen rewards are worth less than the belief
        that what is forgotten should be replayed.
    pooled : bool
        One weight vector for all arms (the paper's main text), learned from the contexts of all
        sites, instead of one per site (its appendix): a single site's context hardly moves, so
        alone it cannot tell what forgetting is worth.
    """

    prior: float = 0.1
    noise: float = 0.1
    gamma: float = 0.98
    form: Literal["ridge", "paper"] = "ridge"
    belief: float = 1.0
    pooled: bool = True

    def start(self, device: torch.device | str) -> tuple[Tensor, Tensor]:
        """Moments S (1, 2, 2) and b (1, 2) of an arm before any reward."""
        first = self.prior if self.form == "paper" else 0.0
        s = first * torch.eye(2, device=device)[None]
        return s, torch.zeros(1, 2, device=device)

    def update(
        self, s: Tensor, b: Tensor, outer: Tensor, gain: Tensor, seen: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Moments after one reward per arm.

        Parameters
        ----------
        s, b : Tensor of shape (arms, 2, 2) and (arms, 2)
        outer : Tensor of shape (arms, 2, 2)
            :math:`\phi\phi^\top`.
        gain : Tensor of shape (arms, 2)
            :math:`\phi r`.
        seen : Tensor of shape (arms,), bool
            Arms that earned a reward; the others stay as they are.
        """
        weight = 1.0 - self.gamma if self.form == "paper" else 1.0
        new_s = self.gamma * s + weight * outer
        new_b = self.gamma * b + weight * gain
        return (
            torch.where(seen[:, None, None], new_s, s),
            torch.where(seen[:, None], new_b, b),
        )

    def posterior(self, s: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        r"""Mean :math:`A^{-1} b` (arms, 2) and precision A (arms, 2, 2); covariance is
        :math:`\sigma^2 A^{-1}`.
        """  # noqa: D205
        a = s
        if self.pooled:
            a = s.sum(0, keepdim=True).expand_as(s)
            b = b.sum(0, keepdim=True).expand_as(b)
        if self.form == "ridge":
            a = a + self.prior * torch.eye(2, device=s.device)
            second = torch.arange(2, device=s.device)
            # prior precision times prior mean (0, belief)
            b = b + self.prior * self.belief * second
        return solve_2x2(a, b), a

    def draw(self, s: Tensor, b: Tensor, normal: Tensor) -> Tensor:
        """Thompson draw w (arms, 2) from standard normal numbers (arms, 2).

        Pooled arms share one draw, as they share one weight vector.
        """
        mean, a = self.posterior(s, b)
        if self.pooled:
            normal = normal[:1].expand_as(normal)
        return mean + self.noise * half_solve_2x2(a, normal)


def solve_2x2(a: Tensor, b: Tensor) -> Tensor:
    """``A^{-1} b`` for symmetric A (..., 2, 2) and b (..., 2), by Cramer's rule."""
    p = a[..., 0, 0]
    q = a[..., 0, 1]
    r = a[..., 1, 1]
    det = (p * r - q * q).clamp(min=1e-30)
    x = (r * b[..., 0] - q * b[..., 1]) / det
    y = (p * b[..., 1] - q * b[..., 0]) / det
    return torch.stack([x, y], -1)


def half_solve_2x2(a: Tensor, e: Tensor) -> Tensor:
    """``L^{-T} e`` with ``A = L L^T``: has covariance ``A^{-1}`` for standard normal e (..., 2)."""
    l11 = a[..., 0, 0].clamp(min=1e-20).sqrt()
    l21 = a[..., 0, 1] / l11
    l22 = (a[..., 1, 1] - l21 * l21).clamp(min=1e-20).sqrt()
    y = e[..., 1] / l22
    return torch.stack([(e[..., 0] - l21 * y) / l11, y], -1)


def reward(before: Tensor, after: Tensor, scale: float, *, centred: bool) -> Tensor:
    r"""Reward :math:`\sigma((CE^{before} - CE^{after}) / \tau)`, minus 1/2 when centred.

    Uncentred, "nothing changed" earns 1/2, and an arm without experience (prediction 0) is
    starved; centred, the prior says "no preference".
    """
    value = torch.sigmoid((before - after) / scale)
    return value - 0.5 if centred else value


def shares(utility: Tensor, temperature: float, zscore: bool, floor: float) -> Tensor:
    r"""Share of the budget of each site (sites,), summing to one.

    .. math:: w = f / T + (1 - f)\, \mathrm{softmax}(u / \theta)

    Parameters
    ----------
    utility : Tensor of shape (sites,)
    temperature : float
        :math:`\theta`.
    zscore : bool
        Standardise utilities first, as the paper says. However small they are, they then spread
        by one: of two sites one always gets 0.88, by noise if there is nothing else.
    floor : float
        Part :math:`f` of the budget that is split evenly, so that no site is dropped.
    """
    if zscore:
        spread = utility.std(unbiased=False).clamp(min=1e-12)
        utility = (utility - utility.mean()) / spread
    even = torch.full_like(utility, 1.0 / utility.shape[0])
    return floor * even + (1.0 - floor) * torch.softmax(utility / temperature, 0)


def quotas(share: Tensor, total: int, cap: Tensor) -> Tensor:
    """Whole numbers k (sites,) with ``k.sum() == min(total, cap.sum())`` and ``k <= cap``.

    Shares beyond the cap of a site flow to the others in proportion; rounding is by largest
    remainder.
    """
    dealt = torch.clamp(cap.sum(), max=total)
    share = share.double().clamp(min=0) + 1e-9
    full = torch.zeros_like(cap, dtype=torch.bool)
    ideal = share
    for _ in range(len(cap)):  # each round settles at least one more site at its cap
        room = dealt - (cap * full).sum()
        open_share = torch.where(full, 0.0, share)
        level = room * open_share / open_share.sum().clamp(min=1e-300)
        ideal = torch.where(full, cap.double(), level)
        full = full | (ideal >= cap)
    k = torch.minimum(ideal, cap).floor().long()
    remainder = torch.where(k < cap, ideal - k, -1.0)
    place = torch.argsort(torch.argsort(remainder, descending=True, stable=True))
    return k + (place < dealt - k.sum()).long()


def limited_quotas(share: Tensor, total: int, low: int, high: int) -> Tensor:
    """Whole numbers k (sites,) between two limits, as the authors' code deals them out.

    Every site gets ``floor(share * total)``, moved into its limits. What is then missing goes to
    the sites of the largest shares, as much as fits; what is too much is taken from the smallest.
    """
    k = (share.double() * total).floor().long().clamp(low, high)
    missing = total - k.sum()
    give = torch.argsort(share, descending=True, stable=True)
    take = torch.argsort(share, stable=True)
    k = k + _dealt(high - k, give, missing.clamp(min=0))
    return k - _dealt(k - low, take, (-missing).clamp(min=0))


def _dealt(room: Tensor, order: Tensor, amount: Tensor) -> Tensor:
    """`amount` dealt out along `order`, each site taking what it has room for."""
    sorted_room = room[order]
    before = sorted_room.cumsum(0) - sorted_room
    got = torch.minimum((amount - before).clamp(min=0), sorted_room)
    return torch.zeros_like(room).index_copy(0, order, got)
