r"""Criteria for the subjects to replay: uncertain, typical, and far from each other.

These are pure functions of one site's candidates (the synthetic subjects to choose from), which the
sampler `fcforge.replay.hcts` calls for every site. Source: FORGE, appendix "Sample-Level Contextual
Thompson Sampling".

Shapes: T past sites, C candidates and D held-out subjects per site, n subjects of one site, d numbers
of a readout.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from fcforge.models.base import Output
from fcforge.replay.state import ABSENT, Absent

Closeness = Callable[[Tensor, Tensor, int], Tensor]
# added to the diagonal of a covariance that has no full rank; the number is the authors' code's
JITTER = 1e-4


def margin(logits: Tensor) -> Tensor:
    r"""Return the difference :math:`p_{(1)} - p_{(2)}` (n,) of the two largest class probabilities.

    It is small where the network is unsure.
    """
    p = torch.softmax(logits, -1)
    p = p if p.shape[-1] == 2 else p.topk(2, dim=-1).values
    return (p[..., 0] - p[..., 1]).abs()


def mahalanobis(
    z: Tensor, member: Tensor, ridge: float | None, *, unbiased: bool = False
) -> Tensor:
    r"""Return the Mahalanobis distance of each member of a class to its centre.

    .. math:: d_u^2 = (z_u - \mu)^\top (\epsilon I + S)^{-1} (z_u - \mu)
                    = n\,\bigl(1 - n\epsilon\,[(n\epsilon I + G)^{-1}]_{uu}\bigr)

    for subject u of a class of n members, with mean readout :math:`\mu`, S the covariance and G the (n, n)
    Gram matrix of the centred members (push-through identity), so that a readout of thousands of numbers
    costs no more than the candidates do.

    Parameters
    ----------
    z : Tensor of shape (subjects, d)
        Readouts of members and others.
    member : Tensor of shape (subjects,), bool
        Whether a subject is of the class.
    ridge : float or None
        :math:`\epsilon`; None takes the trace of S over the smaller of n and d, about the mean of
        its non-zero eigenvalues. With a small one and n <= d every distance is :math:`\sqrt{n - 1}`, which
        is the defect of the paper's definition.
    unbiased : bool
        Whether S divides by n - 1, which then stands for n in the formula as well.

    Returns
    -------
    Tensor of shape (subjects,)
        Zero for subjects of other classes.
    """
    dtype = z.dtype
    z = z.double()  # a small ridge is lost in float32's rounding of G
    w = member.to(z.dtype)  # 1 for members, 0 for others, whose rows become 0
    n = w.sum().clamp(min=1.0)
    centred = (z - (w @ z) / n) * w[:, None]
    if unbiased:
        n = (n - 1).clamp(min=1.0)
    gram = centred @ centred.T
    # n epsilon of the formula; the trace of G is n times that of S
    if ridge is None:
        rank = n.clamp(max=float(z.shape[1]))
        trace = gram.diagonal(dim1=-2, dim2=-1).sum()
        n_ridge = (trace / rank).clamp(min=1e-12)
    else:
        n_ridge = n * ridge
    eye = torch.eye(z.shape[0], dtype=z.dtype, device=z.device)
    # unchecked Cholesky: a checked one waits for the device, which a CUDA graph does not allow
    factor, _ = torch.linalg.cholesky_ex(gram + n_ridge * eye)
    inverse_factor = torch.linalg.solve_triangular(factor, eye, upper=False)
    # the diagonal of the inverse, since A^-1 = L^-T L^-1 for A = L L^T
    inverse_diagonal = inverse_factor.square().sum(-2)
    squared_over_n = 1.0 - n_ridge * inverse_diagonal
    return ((n * squared_over_n).clamp(min=0.0).sqrt() * w).to(dtype)


def closeness(z: Tensor, y: Tensor, n_classes: int = 2) -> Tensor:
    r"""Return how typical each subject is of its class at its site, in (0, 1].

    .. math:: 1 - \tanh(d_u / s)

    with d the Mahalanobis distance to the class centre, in a covariance shrunk by its mean
    eigenvalue, and s the mean distance of the class: typical subjects have more than 0.24, others
    less.

    Parameters
    ----------
    z : Tensor of shape (n, d)
        Readouts.
    y : Tensor of shape (n,), int64
        Labels.
    n_classes : int
    """
    total = torch.zeros(z.shape[0], dtype=z.dtype, device=z.device)
    for label in range(n_classes):
        member = y == label
        d = mahalanobis(z, member, None)
        size = member.sum().clamp(min=1)
        d = d * size / d.sum().clamp(min=1e-12)  # divided by the class's mean s
        total = total + torch.where(member, 1.0 - torch.tanh(d), 0.0)
    return total


def paper_closeness(z: Tensor, y: Tensor, n_classes: int = 2) -> Tensor:
    r"""Return :math:`1 - \tanh(d_u)` with a covariance inverted with a jitter, as in the paper.

    In 256 dimensions d is about 10 and the value is 0 for every subject. Arguments as for
    `closeness`. Where readouts change, `Prototypes` give their running averages in place of the
    present means and covariances.
    """
    total = torch.zeros(z.shape[0], dtype=z.dtype, device=z.device)
    for label in range(n_classes):
        member = y == label
        d = mahalanobis(z, member, JITTER, unbiased=True)
        total = total + torch.where(member, 1.0 - torch.tanh(d), 0.0)
    return total


class Prototypes(NamedTuple):
    """Running mean and covariance of the readouts of every class.

    Attributes
    ----------
    mean : Tensor of shape (..., n_classes, d), float64
    covariance : Tensor of shape (..., n_classes, d, d), float64
        A first dimension of both is that of sites.
    """

    mean: Tensor
    covariance: Tensor

    def closeness(self, z: Tensor, y: Tensor) -> Tensor:
        r"""Return :math:`1 - \tanh(d_u)` of one site's subjects.

        The Mahalanobis distance d is to the running mean of the subject's class, in its running
        covariance plus `JITTER`.

        Parameters
        ----------
        z : Tensor of shape (n, d)
            Readouts.
        y : Tensor of shape (n,), int64
            Labels.
        """
        eye = torch.eye(z.shape[1], dtype=torch.float64, device=z.device)
        # unchecked, as in `mahalanobis`
        factor, _ = torch.linalg.cholesky_ex(self.covariance + JITTER * eye)
        centred = z.double() - self.mean[:, None]  # (classes, n, d)
        # multiplied by the inverse factor, readouts have the identity as covariance: their length is d
        white = torch.linalg.solve_triangular(factor, centred.mT, upper=False)
        d = white.square().sum(-2).clamp(min=0.0).sqrt()  # to every class, (classes, n)
        of_class = y == torch.arange(len(self.mean), device=z.device)[:, None]
        return torch.where(of_class, 1.0 - torch.tanh(d), 0.0).sum(0).to(z.dtype)


def prototypes_of(z: Tensor, y: Tensor, n_classes: int) -> Prototypes:
    """Return mean and covariance (over n - 1) of every class of one site's subjects.

    A class of one subject has the covariance `JITTER` times the identity, as in the authors' code.

    Parameters
    ----------
    z : Tensor of shape (n, d)
        Readouts: the network's last features of n subjects, d numbers each.
    y : Tensor of shape (n,), int64
        Labels.
    n_classes : int

    Returns
    -------
    Prototypes
        A class without subjects has the mean 0.
    """
    z = z.double()
    labels = torch.arange(n_classes, device=z.device)[:, None]
    member = (y == labels).to(z.dtype)  # (classes, n)
    count = member.sum(1)[:, None]
    mean = member @ z / count.clamp(min=1.0)
    centred = (z - mean[:, None]) * member[:, :, None]
    covariance = centred.mT @ centred / (count[:, None] - 1).clamp(min=1.0)
    alone = JITTER * torch.eye(z.shape[1], dtype=z.dtype, device=z.device)
    several = count[:, None] >= 2
    return Prototypes(mean, torch.where(several, covariance, alone))


@dataclass(frozen=True)
class Averages:
    r"""Exponential moving averages of all sites' prototypes.

    .. math:: \mu \leftarrow (1 - \alpha)\,\mu + \alpha\,\hat\mu, \qquad
              \Sigma \leftarrow (1 - \alpha)\,\Sigma + \alpha\,\hat\Sigma + jI

    with the mean and covariance of the present readouts, at which the averages also start.

    Parameters
    ----------
    prototypes : Prototypes
        Averages so far, with T sites as first dimension.
    seen : Tensor of shape (T,), bool
        Whether a site has prototypes yet.
    alpha : float
        Weight of the present readouts.
    jitter : float
        The number j that every update adds to the diagonal, the first included: `JITTER` in the
        authors' code, 0 in the paper's text.
    """

    prototypes: Prototypes
    seen: Tensor
    alpha: float
    jitter: float = 0.0

    def updated(self, site: int, now: Prototypes) -> Prototypes:
        """Return the averages of one site after an update.

        Parameters
        ----------
        site : int
            Number of the site.
        now : Prototypes
            Mean and covariance of its present readouts.
        """
        one = torch.ones_like(now.mean[0, 0])
        # a site that was not seen starts at its present values
        alpha = torch.where(self.seen[site], self.alpha * one, one)
        mean, covariance = (
            (1 - alpha) * old[site] + alpha * new
            for old, new in zip(self.prototypes, now, strict=True)
        )
        eye = torch.eye(mean.shape[-1], dtype=mean.dtype, device=mean.device)
        return Prototypes(mean, covariance + self.jitter * eye)


def distances(z: Tensor) -> Tensor:
    """Return the Euclidean distances (n, n) between readouts z (n, d)."""
    # centring keeps the squares small: the formula below cancels otherwise
    centred = z - z.mean(0)
    square = (centred * centred).sum(-1)
    return (
        (square[:, None] + square[None, :] - 2.0 * centred @ centred.T)
        .clamp(min=0.0)
        .sqrt()
    )


def farthest_first(
    distance: Tensor, allowed: Tensor, score: Tensor, steps: int
) -> Tensor:
    """Order the allowed subjects of many sites so that neighbours in the order are far apart.

    The order starts with the highest score; each next subject is the one whose nearest predecessor
    is farthest away. The first k of the order are the greedy choice of k subjects, for every k, so
    one order serves any quota.

    Parameters
    ----------
    distance : Tensor of shape (sites, n, n)
        Distances between the subjects of each site.
    allowed : Tensor of shape (sites, n), bool
        Subjects on the shortlist.
    score : Tensor of shape (sites, n)
        Score of each subject, which decides on the first one.
    steps : int
        Length of the order, at most n.

    Returns
    -------
    Tensor of shape (sites, steps), int64
        Numbers of the subjects; arbitrary once the allowed ones are used up.
    """
    sites, n = allowed.shape
    itself = torch.eye(n, dtype=torch.bool, device=distance.device)
    # with a distance of -inf to itself, a subject is never chosen again
    blocked = torch.where(itself, -torch.inf, distance)
    best = torch.argmax(torch.where(allowed, score, -torch.inf), dim=1)
    # distance of each subject to the nearest one chosen so far
    nearest = torch.where(allowed, torch.inf, -torch.inf)
    every_site = torch.arange(sites, device=distance.device)
    order = [best]
    for _ in range(steps - 1):
        nearest = torch.minimum(nearest, blocked[every_site, best])
        best = torch.argmax(nearest, dim=1)
        order.append(best)
    return torch.stack(order, dim=1)


class Labelled(NamedTuple):
    """Bank rows and labels of some subjects, two tensors of one shape."""

    rows: Tensor
    y: Tensor


class Contexts(NamedTuple):
    """What the sampler's bandits know of all sites and candidates, given the current network.

    Attributes
    ----------
    accuracy, ce : Tensor of shape (T,)
        Accuracy and cross-entropy on each site's held-out subjects.
    psi : Tensor of shape (T, C, 2)
        Margin and closeness of each candidate.
    distance : Tensor of shape (T, C, C)
        Distances between the candidates' readouts.
    prototypes : Prototypes
        Running averages after the present readouts, for samplers that keep them.
    """

    accuracy: Tensor
    ce: Tensor
    psi: Tensor
    distance: Tensor
    prototypes: Prototypes | Absent = ABSENT


class Geometry(NamedTuple):
    """Closeness (T, C) of all candidates and distances (T, C, C) of their readouts.

    For one site the first dimension is missing.
    """

    closeness: Tensor
    distance: Tensor


def geometry(z: Tensor, y: Tensor, closeness: Closeness, n_classes: int) -> Geometry:
    """Return the geometry of one site's candidates, with readouts z (C, d) and labels y (C,)."""
    return Geometry(closeness(z, y, n_classes), distances(z))


def contexts(
    forward: Callable[[Tensor], Output],
    candidates: Labelled,
    held_out: Labelled,
    proxies: int,
    closeness: Closeness,
    known: Geometry | None = None,
    averages: Averages | None = None,
) -> Contexts:
    """Compute the contexts of all sites under the current network.

    Parameters
    ----------
    forward : callable
        Evaluation-mode output for some bank rows.
    candidates : Labelled
        Rows and labels (T, C) of the candidates.
    held_out : Labelled
        Rows and labels (T, D) of the held-out subjects; row -1 marks an empty slot.
    proxies : int
        How many of the held-out subjects are synthetic; see `held_out_quality`.
    closeness : callable
        `closeness` or `paper_closeness`.
    known : Geometry, optional
        Closeness and distances of all sites, where readouts never change; else they are computed.
    averages : Averages, optional
        Running averages from which closeness is measured, in place of `closeness`.

    Returns
    -------
    Contexts
    """
    by_site = []
    # one site at a time: bounds the memory of many lanes
    for t, (rows, y, held_rows, held_y) in enumerate(
        zip(*candidates, *held_out, strict=True)
    ):
        n = len(rows)  # candidates come first in the batch, then held-out subjects
        out = forward(torch.cat([rows, held_rows.clamp(min=0)]))
        logits = out.logits.float()
        quality = held_out_quality(logits[n:], held_y, held_rows >= 0, proxies)
        readouts = out.embedding[:n].float()
        prototypes: Prototypes | Absent = ABSENT
        if known is not None:
            typical, apart = (part[t] for part in known)
        elif averages is not None:
            now = prototypes_of(readouts, y, logits.shape[-1])
            prototypes = averages.updated(t, now)
            typical, apart = prototypes.closeness(readouts, y), distances(readouts)
        else:
            typical, apart = geometry(readouts, y, closeness, logits.shape[-1])
        psi = torch.stack([margin(logits[:n]), typical], -1)
        by_site.append(Contexts(*quality, psi, apart, prototypes))
    return pytree.tree_map(lambda *sites: torch.stack(sites), *by_site)


def held_out_quality(
    logits: Tensor, y: Tensor, filled: Tensor, proxies: int
) -> tuple[Tensor, Tensor]:
    """Return accuracy and cross-entropy (scalars) on one site's held-out subjects.

    The first `proxies` slots are synthetic subjects. Under the leak `context_on_test` the site's
    whole test part follows. The accuracy is then that of the test subjects, and the cross-entropy,
    which makes the reward, that of the synthetic ones, as in the authors' code.

    Parameters
    ----------
    logits : Tensor of shape (D, n_classes)
    y : Tensor of shape (D,)
        Labels; any in an empty slot.
    filled : Tensor of shape (D,), bool
        Slots that hold a subject.
    proxies : int
        Number of slots for synthetic subjects. More slots than these mean that test subjects follow.
    """
    correct = (logits.argmax(-1) == y).float()
    leaked = y.shape[0] > proxies
    for_accuracy = slice(proxies, None) if leaked else slice(None)
    ce = F.cross_entropy(logits[:proxies], y[:proxies], reduction="none")
    accuracy = mean_over(correct[for_accuracy], filled[for_accuracy])
    return accuracy, mean_over(ce, filled[:proxies])


def mean_over(values: Tensor, filled: Tensor) -> Tensor:
    """Return the mean of `values` (n,) over the filled slots; 0 without any."""
    weight = filled.float() / filled.float().sum().clamp(min=1)
    return (values * weight).sum()


# -- once per site, plain Python -----------------------------------------------------------------
def even_split(y: Tensor, held: int) -> tuple[Tensor, Tensor]:
    """Split subjects into two parts with the same shares of the classes.

    Every (n / held)-th of the subjects sorted by label is held out, so that the shares agree to
    within one subject, whatever they are.

    Parameters
    ----------
    y : Tensor of shape (n,)
        Labels.
    held : int
        Number of subjects to hold out.

    Returns
    -------
    used, held_out : Tensor, int64
        Places of the subjects of each part in `y`.
    """
    order = torch.argsort(y, stable=True)
    n = len(order)
    # `held` evenly spaced places below n
    place = (2 * torch.arange(held, device=y.device) + 1) * n // (2 * held)
    is_held_out = torch.zeros(n, dtype=torch.bool, device=y.device)
    is_held_out[place] = True
    return order[~is_held_out], order[is_held_out]


def reservoir(
    kept: Iterable[int], new: range, capacity: int, rng: torch.Generator
) -> list[int]:
    """Sample with a reservoir (Vitter's algorithm R): every item so far is kept equally often.

    Parameters
    ----------
    kept : iterable of int
        Reservoir after ``new.start`` items.
    new : range
        The next items, by number.
    capacity : int
        Largest number of items in the reservoir.
    rng : torch.Generator

    Returns
    -------
    list of int
        The reservoir after the new items.
    """
    sample = list(kept)
    for item in new:
        if len(sample) < capacity:
            sample.append(item)
            continue
        place = int(torch.randint(item + 1, (), generator=rng))
        if place < capacity:
            sample[place] = item
    return sample
