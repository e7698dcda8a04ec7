r"""A release: what one hospital gives, and the head that follows from the sum of all.

For each training subject, :math:`u = (z, \tfrac12)` are its coordinates on the public axes and
:math:`r = \mathrm{clip}(t - w_0^\top x - b_0)` what the public head does not explain of its
diagnosis :math:`t = \pm1`. Released is

.. math:: \Bigl(\sum_i \mathrm{clip}_C(u_i r_i),\; \tfrac{C}{4}\, n\Bigr) + N(0, \sigma^2 S^2 I),
          \qquad S = C \sqrt{1 + 1/16}.

**Sensitivity.** Adding or removing one person adds or removes one term of each sum: a vector
:math:`(v, C/4)` with :math:`\|v\| \le C` by clipping. Its norm is at most
:math:`\sqrt{C^2 + C^2 / 16} = S`, whatever the person's scan and diagnosis, because clip, axes and
public head are fixed in advance. With the multiplier :math:`\sigma` of
`fcforge.privacy.mechanisms.gaussian_sigma` the release is (epsilon, delta)-private under
add/remove of one person; the number of people is part of it, so nothing that leaves is outside
the budget.

**Head.** With :math:`c` the sum over hospitals of the first q + 1 numbers and n that of the last,

.. math:: \beta = \Bigl(n G + \lambda I + \tfrac{\lambda V}{n} G^{-1}\Bigr)^{-1} c, \qquad
          w = w_0 + A \beta_{1..q}, \qquad b = b_0 + \tfrac12 \beta_{q+1}

with V the summed variance of the noise: the posterior mean of a step :math:`\beta` from the public
head, given :math:`c = n G \beta + e` with :math:`e \sim N(0, n G + V I)` and the prior
:math:`\beta \sim N(0, I / \lambda)`. Exact releases (V = 0) give one ridge step with public second
moments; noisy ones of few people leave the public head as it is, those of many take over.

**Synthetic subjects** from a start and a head are what replay needs, drawn where it is used.
Standardised features are drawn as the public people have them,

.. math:: x = \sum_k z_k \frac{a_k}{\|a_k\|^2} + F^\top \epsilon, \qquad z \sim N(0, G_{1..q}), \;
          \epsilon \sim N(0, I),

and get a diagnosis :math:`t = \pm1` with :math:`P(t = 1 \mid x) = (1 + s(x)) / 2`, where s is the
head's score. Then :math:`E[t \mid x] = s(x)`: least squares on infinitely many of them gives the
head back (where no score leaves [-1, 1]), so that replay and the closed form agree. Nothing but
the start and the released numbers is used; none has to travel.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fcforge.graphs import from_log_features
from fcforge.privacy.mechanisms import clip_rows, gaussian_sigma
from fcforge.releases.start import FLAT, Start, coordinates

COUNT = 0.25  # how much of the clip one more person adds to the last number
CERTAIN = (
    0.98  # scores are clipped there: every synthetic subject can have either diagnosis
)
RESIDUAL = 2.0  # residuals of labels at -1 and +1 are clipped there


class Head(NamedTuple):
    """A linear head on standardised features: score = x @ weight + bias."""

    weight: Tensor
    bias: Tensor


def contributions(start: Start, features: Tensor, y: Tensor) -> Tensor:
    """What each person adds to a release, (n, q + 2); norm at most `sensitivity`."""
    x = start.standardise(features)
    t = 2.0 * y.to(x) - 1.0
    return contributions_on_axes(start, coordinates(start, x), t - start.score(x))


def contributions_on_axes(start: Start, u: Tensor, residual: Tensor) -> Tensor:
    """The same from coordinates (n, q + 1) and residuals (n,) of the public head."""
    clip = float(start.clip)
    moved = clip_rows(u * residual.clamp(-RESIDUAL, RESIDUAL)[:, None], clip)
    count = torch.full((len(u), 1), COUNT * clip, dtype=u.dtype, device=u.device)
    return torch.cat([moved, count], 1)


def sensitivity(start: Start) -> float:
    """S: the most that adding or removing one person can change a release (L2)."""
    return float(start.clip) * math.sqrt(1.0 + COUNT**2)


def noise_sd(start: Start, epsilon: float | None, delta: float) -> float:
    """Standard deviation of the noise on each number; 0 where epsilon is None."""
    return (
        0.0 if epsilon is None else gaussian_sigma(epsilon, delta) * sensitivity(start)
    )


def people(start: Start, last: float) -> float:
    """How many people the last number of a release stands for; noise and all."""
    return last / (COUNT * float(start.clip))


def release_vector(
    start: Start,
    features: Tensor,
    y: Tensor,
    epsilon: float | None,
    delta: float,
    rng: torch.Generator,
) -> Tensor:
    """The q + 2 numbers of a release, float64.

    Parameters
    ----------
    start : Start
    features : Tensor of shape (n, p)
        `graphs.log_features` of the training subjects, confounds removed as the start says.
    y : Tensor of shape (n,)
    epsilon : float or None
        None releases the exact sums.
    delta : float
    rng : torch.Generator
        Of the noise (CPU). Secret where the release is real.
    """
    total = contributions(start, features, y).sum(0)
    noise = torch.randn(len(total), generator=rng, dtype=torch.float64).to(total)
    return total + noise_sd(start, epsilon, delta) * noise


def solve(
    start: Start, total: Tensor, variance: float | Tensor, releases: int | Tensor
) -> Tensor:
    """Beta (q + 1,) from the sum (q + 2,) of so many releases and the variance of its noise.

    Noise can make the number of people small or negative: it counts as at least one for each
    release. Zero where there is no release.
    """
    total = total.double()
    second, pull = start.second.to(total), start.pull.to(total)
    people = torch.clamp(
        total[-1] / (COUNT * start.clip.to(total)), min=releases
    ).clamp(min=1.0)
    eye = torch.eye(start.n_axes + 1, dtype=torch.float64, device=total.device)
    system = (
        people * second
        + pull * eye
        + pull * variance / people * torch.linalg.inv(second)
    )
    return torch.linalg.solve(system, total[:-1])


def head(start: Start, beta: Tensor) -> Head:
    """The consortium's head from the public one and the correction."""
    weight = start.weight + start.axes @ beta[:-1].to(start.axes)
    return Head(weight, start.bias + 0.5 * beta[-1].cpu())


def on_features(start: Start, solution: Head) -> Head:
    """The same head on raw features (n, p): the standardisation folded in."""
    weight = solution.weight / start.scale
    return Head(weight, solution.bias - start.mean @ weight)


# -- synthetic subjects -------------------------------------------------------------------------
def draw_features(start: Start, n: int, rng: torch.Generator) -> Tensor:
    """Standardised features (n, p) as the public people have them."""
    q = start.n_axes
    root = torch.linalg.cholesky(start.second[:q, :q] + 1e-12 * torch.eye(q).double())
    z = torch.randn(n, q, generator=rng, dtype=torch.float64) @ root.T
    off = torch.randn(n, len(start.factors), generator=rng, dtype=torch.float64)
    return z @ (start.axes / (start.axes**2).sum(0)).T + off @ start.factors


def patient_probability(head: Head, x: Tensor) -> Tensor:
    """P(patient) (n,) of standardised features under a head on labels -1 and +1."""
    return 0.5 * (1.0 + (x @ head.weight + head.bias).clamp(-CERTAIN, CERTAIN))


def draw_subjects(start: Start, head: Head, y: Tensor, rng: torch.Generator) -> Tensor:
    """Standardised features (n, p) of subjects with the diagnoses y (n,).

    Candidates are drawn and given a diagnosis each; those with the diagnoses asked for are taken
    in turn. Either diagnosis has a probability of at least one in a hundred, so it ends.
    """
    found = torch.empty(len(y), len(start.mean), dtype=torch.float64)
    for label in (0, 1):
        open_ = torch.nonzero(y.cpu() == label)[:, 0]
        while len(open_):
            x = draw_features(start, 2 * len(open_) + 8, rng)
            drawn = torch.rand(len(x), generator=rng, dtype=torch.float64)
            fits = x[(drawn < patient_probability(head, x)) == bool(label)][
                : len(open_)
            ]
            found[open_[: len(fits)]] = fits
            open_ = open_[len(fits) :]
    return found


def to_fc(start: Start, x: Tensor) -> Tensor:
    """Correlation matrices (n, R, R) of standardised features."""
    scale = torch.where(start.scale == FLAT, 0.0, start.scale)
    return from_log_features(start.mean + x * scale, float(start.shrink)).float()
