r"""Linear-Gaussian Thompson sampling with two features, and the split of a budget over sites.

The reward r of replaying a site (an arm of the bandit) is modelled as
:math:`r = \phi^\top w + \epsilon,\ \epsilon \sim N(0, \sigma^2)`, where the context :math:`\phi` has
two numbers, such as the site's accuracy and forgetting. Each arm keeps the second moments
:math:`S` (2, 2) of its contexts and :math:`b` (2,) of context times reward, both fading by the factor
:math:`\gamma` per update. Everything here is closed form and does not branch on values of tensors,
so that it runs inside ``torch.func.vmap``.

Source: FORGE, appendix "Details in Hierarchical Contextual Thompson Sampling".
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.core.settings import Validated, above, at_least, limits, within


class Moments(NamedTuple):
    """What all arms have learned.

    Attributes
    ----------
    s : Tensor of shape (arms, 2, 2)
        Fading sums of the contexts' outer products.
    b : Tensor of shape (arms, 2)
        Fading sums of contexts times rewards.
    """

    s: Tensor
    b: Tensor


@limits(prior=above(0), noise=at_least(0), gamma=within(0, 1))
@dataclass(frozen=True)
class Bandit(Validated):
    r"""Bayesian ridge regression of the reward on the context, arm by arm.

    :math:`S \leftarrow \gamma S + \phi\phi^\top`; the precision is :math:`A = \lambda I + S`.

    Parameters
    ----------
    prior : float
        :math:`\lambda` of the prior precision :math:`\lambda I`.
    noise : float
        :math:`\sigma`, spread of a reward around its prediction.
    gamma : float
        Forgetting factor of the moments.
    belief : float
        Prior mean of the second weight: the expected gain per unit of forgetting before any reward
        has been seen. While a new site is learned, every old site's cross-entropy moves for many
        reasons. A few dozen rewards are weaker evidence than the belief that what is forgotten
        should be replayed.
    pooled : bool
        Whether all arms share one weight vector (the paper's main text), learned from the
        contexts of all sites, instead of one per site (its appendix). A single site's context
        hardly moves, so that alone it cannot tell the gain of forgetting.
    """

    prior: float = 0.1
    noise: float = 0.1
    gamma: float = 0.98
    belief: float = 1.0
    pooled: bool = True

    def start(self, device: torch.device | str) -> Moments:
        """Return the moments of one arm before any reward."""
        zero = torch.zeros(1, 2, device=device)
        return Moments(self.initial * torch.eye(2, device=device)[None], zero)

    @property
    def initial(self) -> float:
        """Factor of the identity that the second moments S of a new arm start with."""
        return 0.0

    @property
    def weight(self) -> float:
        """Weight of a new observation in the moments."""
        return 1.0

    def update(
        self, moments: Moments, outer: Tensor, rewarded: Tensor, earned: Tensor
    ) -> Moments:
        r"""Return the moments after one reward per arm.

        Parameters
        ----------
        moments : Moments
            Those before the rewards.
        outer : Tensor of shape (arms, 2, 2)
            Outer product of the context with itself, :math:`\phi\phi^\top`.
        rewarded : Tensor of shape (arms, 2)
            Context times reward, :math:`\phi r`.
        earned : Tensor of shape (arms,), bool
            Arms that earned a reward; the others stay as they are.
        """
        s = self.gamma * moments.s + self.weight * outer
        b = self.gamma * moments.b + self.weight * rewarded
        return Moments(
            torch.where(earned[:, None, None], s, moments.s),
            torch.where(earned[:, None], b, moments.b),
        )

    def posterior(self, moments: Moments) -> tuple[Tensor, Tensor]:
        r"""Return the posterior mean and precision of the weights w of every arm.

        Parameters
        ----------
        moments : Moments
            What the arms have learned so far, without the prior; pooled arms are added up here.

        Returns
        -------
        mean : Tensor of shape (arms, 2)
            :math:`A^{-1} b`.
        precision : Tensor of shape (arms, 2, 2)
            A; the covariance is :math:`\sigma^2 A^{-1}`.
        """
        s, b = moments
        if self.pooled:
            s = s.sum(0, keepdim=True).expand_as(s)
            b = b.sum(0, keepdim=True).expand_as(b)
        precision, right = self.with_prior(Moments(s, b))
        return solve_2x2(precision, right), precision

    def with_prior(self, moments: Moments) -> Moments:
        """Return the (pooled) moments with the prior added: precision A and right-hand side b.

        The prior acts like earlier rewards: without others the posterior mean is (0, `belief`).
        """
        s, b = moments
        second_feature = torch.arange(2, device=s.device)  # (0, 1)
        return Moments(
            s + self.prior * torch.eye(2, device=s.device),
            b + self.prior * self.belief * second_feature,
        )

    def draw(self, moments: Moments, normal: Tensor) -> Tensor:
        """Draw a weight vector (arms, 2) for every arm from standard normal numbers (arms, 2).

        The draw is from the posterior: its mean plus `noise` times a vector of covariance A^{-1}. Pooled
        arms share one draw, as they share one weight vector.
        """
        mean, precision = self.posterior(moments)
        if self.pooled:
            normal = normal[:1].expand_as(normal)
        return mean + self.noise * half_solve_2x2(precision, normal)


@dataclass(frozen=True)
class PaperBandit(Bandit):
    r"""The bandit of the paper's text.

    :math:`A \leftarrow \gamma A + (1 - \gamma)\phi\phi^\top` with :math:`A_0 = \lambda I`. The
    factor :math:`1 - \gamma` makes 16 updates weigh as much as 0.3, and the prior fades, so that
    uncertainty grows without bound in directions not seen. `belief` has no effect.
    """

    prior: float = 10.0
    pooled: bool = False

    @property
    def initial(self) -> float:
        """The prior, which is part of the moments."""
        return self.prior

    @property
    def weight(self) -> float:
        r"""Weight :math:`1 - \gamma` of a new observation."""
        return 1.0 - self.gamma

    def with_prior(self, moments: Moments) -> Moments:
        """Return the moments, which hold the prior already."""
        return moments


def solve_2x2(a: Tensor, b: Tensor) -> Tensor:
    """Return ``A^{-1} b`` for symmetric A (..., 2, 2) and b (..., 2), by Cramer's rule."""
    p = a[..., 0, 0]
    q = a[..., 0, 1]
    r = a[..., 1, 1]
    det = (p * r - q * q).clamp(min=1e-30)
    x = (r * b[..., 0] - q * b[..., 1]) / det
    y = (p * b[..., 1] - q * b[..., 0]) / det
    return torch.stack([x, y], -1)


def half_solve_2x2(a: Tensor, e: Tensor) -> Tensor:
    """Return ``L^{-T} e`` with ``A = L L^T``, of covariance A^{-1} for standard normal e.

    A is symmetric (..., 2, 2), e is (..., 2).
    """
    l11 = a[..., 0, 0].clamp(min=1e-20).sqrt()
    l21 = a[..., 0, 1] / l11
    l22 = (a[..., 1, 1] - l21 * l21).clamp(min=1e-20).sqrt()
    y = e[..., 1] / l22
    return torch.stack([(e[..., 0] - l21 * y) / l11, y], -1)


def reward(before: Tensor, after: Tensor, scale: float) -> Tensor:
    r"""Return the reward :math:`\sigma((CE^{before} - CE^{after}) / \tau)`; 1/2 for no change."""
    return torch.sigmoid((before - after) / scale)


def standardised(values: Tensor) -> Tensor:
    """Return z-scores of values (sites,), as the paper standardises expected gains.

    However close the values are, the result has a standard deviation of one. Of two sites one
    therefore always gets 0.88 of the budget at temperature 1, even if they differ by noise only.
    """
    spread = values.std(unbiased=False).clamp(min=1e-12)
    return (values - values.mean()) / spread


def shares(gain: Tensor, temperature: float, floor: float) -> Tensor:
    r"""Return the share of the budget of each site (sites,), summing to one.

    .. math:: f / T + (1 - f)\, \mathrm{softmax}(u / \theta)

    with T the number of sites.

    Parameters
    ----------
    gain : Tensor of shape (sites,)
        Expected gain u of replaying each site.
    temperature : float
        :math:`\theta`.
    floor : float
        Part :math:`f` of the budget that is split evenly, so that no site is dropped.
    """
    even = torch.full_like(gain, 1.0 / gain.shape[0])
    return floor * even + (1.0 - floor) * torch.softmax(gain / temperature, 0)


def quotas(share: Tensor, total: int, cap: Tensor) -> Tensor:
    """Split a number of subjects over sites in proportion to their shares, by largest remainder.

    What a site's share exceeds its cap by goes to the other sites, in proportion to their shares.

    Parameters
    ----------
    share : Tensor of shape (sites,)
        Shares of the sites, in any unit: only their proportions matter.
    total : int
        Number of subjects to split.
    cap : Tensor of shape (sites,), int64
        Largest quota of each site.

    Returns
    -------
    Tensor of shape (sites,), int64
        Quotas q with ``q.sum() == min(total, cap.sum())`` and ``q <= cap``.
    """
    available = torch.clamp(cap.sum(), max=total)
    share = share.double().clamp(min=0) + 1e-9
    full = torch.zeros_like(cap, dtype=torch.bool)
    ideal = share
    for _ in range(len(cap)):  # each round settles at least one more site at its cap
        left = available - (cap * full).sum()
        open_share = torch.where(full, 0.0, share)
        proportional = left * open_share / open_share.sum().clamp(min=1e-300)
        ideal = torch.where(full, cap.double(), proportional)
        full = full | (ideal >= cap)
    # Rounded down, the quotas sum to too little; what is missing goes, one each, to the sites that lost
    # most by rounding. The rank of a remainder is 0 for the largest.
    quota = torch.minimum(ideal, cap).floor().long()
    remainder = torch.where(quota < cap, ideal - quota, -1.0)
    rank = torch.argsort(torch.argsort(remainder, descending=True, stable=True))
    return quota + (rank < available - quota.sum()).long()


def limited_quotas(share: Tensor, total: int, low: int, high: int) -> Tensor:
    """Split a number of subjects over sites between two limits, as the authors' code does.

    Every site gets ``floor(share * total)``, moved into the limits. If the quotas then sum to less
    than `total`, the sites of the largest shares get more, up to the upper limit; if they sum to
    more, the sites of the smallest shares lose some, down to the lower limit.

    Parameters
    ----------
    share : Tensor of shape (sites,)
        Shares of the sites, which sum to one.
    total : int
        Number of subjects to split.
    low, high : int
        Smallest and largest quota of a site.

    Returns
    -------
    Tensor of shape (sites,), int64
    """
    quota = (share.double() * total).floor().long().clamp(low, high)
    missing = total - quota.sum()
    largest_first = torch.argsort(share, descending=True, stable=True)
    smallest_first = torch.argsort(share, stable=True)
    quota = quota + _fill(high - quota, largest_first, missing.clamp(min=0))
    return quota - _fill(quota - low, smallest_first, (-missing).clamp(min=0))


def _fill(space: Tensor, order: Tensor, amount: Tensor) -> Tensor:
    """Split `amount` over sites: each gets what fits into its `space`, in the given order.

    Parameters
    ----------
    space : Tensor of shape (sites,), int64
        Most that each site can get.
    order : Tensor of shape (sites,), int64
        Numbers of the sites, the first to fill first.
    amount : int64 scalar
        What is beyond the space of all sites is not used.

    Returns
    -------
    Tensor of shape (sites,), int64
    """
    sorted_space = space[order]
    before = sorted_space.cumsum(0) - sorted_space  # what the sites before can take
    filled = torch.minimum((amount - before).clamp(min=0), sorted_space)
    return torch.zeros_like(space).index_copy(0, order, filled)
