r"""Which remembered subjects of a site to replay: uncertain, typical, and far from each other.

Pure functions of one site's candidates; the sampler calls them for every site. Source: FORGE,
appendix "Sample-Level Contextual Thompson Sampling".
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fcforge.models.base import Output

Pair = tuple[Tensor, Tensor]  # mostly rows and diagnoses of some subjects
JITTER = 1e-4  # of the authors' code, added to a covariance that has no full rank


def margin(logits: Tensor) -> Tensor:
    r"""Difference :math:`p_{(1)} - p_{(2)}` (n,) of the two largest class probabilities."""
    p = torch.softmax(logits, -1)
    p = p if p.shape[-1] == 2 else p.topk(2, dim=-1).values
    return (p[..., 0] - p[..., 1]).abs()


def mahalanobis(z: Tensor, member: Tensor, ridge: float | None) -> Tensor:
    r"""Distance of each member to the centre of its class, in the class's own covariance.

    .. math:: d_u^2 = (z_u - \mu)^\top (\epsilon I + S)^{-1} (z_u - \mu)
                    = n\,\bigl(1 - n\epsilon\,[(n\epsilon I + G)^{-1}]_{uu}\bigr)

    with S the covariance and G the (n, n) Gram matrix of the centred members (push-through
    identity), so that a readout of thousands of numbers costs no more than the candidates do.

    Parameters
    ----------
    z : Tensor of shape (n, d)
        Readouts.
    member : Tensor of shape (n,), bool
        Subjects of the class.
    ridge : float or None
        :math:`\epsilon`; None takes the mean non-zero eigenvalue of S. With a small one and
        n <= d every distance is :math:`\sqrt{n - 1}`, which is the defect of the paper's
        definition.

    Returns
    -------
    Tensor of shape (n,)
        Zero for those who are not members.
    """
    dtype = z.dtype
    z = z.double()  # a small ridge is lost in float32's rounding of G
    w = member.to(z.dtype)
    n = w.sum().clamp(min=1.0)
    centred = (z - (w @ z) / n) * w[:, None]
    gram = centred @ centred.T
    if ridge is None:
        rank = n.clamp(max=float(z.shape[1]))
        trace = gram.diagonal(dim1=-2, dim2=-1).sum()
        load = (trace / rank).clamp(min=1e-12)
    else:
        load = n * ridge
    eye = torch.eye(z.shape[0], dtype=z.dtype, device=z.device)
    # by Cholesky, unchecked: what a CUDA graph can hold (a checked one waits for the device)
    factor, _ = torch.linalg.cholesky_ex(gram + load * eye)
    root = torch.linalg.solve_triangular(factor, eye, upper=False)
    left = 1.0 - load * root.square().sum(-2)
    return ((n * left).clamp(min=0.0).sqrt() * w).to(dtype)


def closeness(
    z: Tensor, y: Tensor, repaired: bool = True, n_classes: int = 2
) -> Tensor:
    r"""How typical a subject is of its class at its site, in (0, 1].

    .. math:: 1 - \tanh(d_u / s)

    with d the Mahalanobis distance to the class centre. In the paper s = 1 and a covariance is
    inverted with a jitter; in 256 dimensions d is about 10 and the value is 0 for everybody.
    Repaired, the covariance is shrunk by its mean eigenvalue and s is the mean distance of the
    class, so that typical subjects have more than 0.24, others less.
    """
    total = torch.zeros(z.shape[0], dtype=z.dtype, device=z.device)
    for label in range(n_classes):
        member = y == label
        d = mahalanobis(z, member, None if repaired else JITTER)
        if repaired:
            size = member.sum().clamp(min=1)
            d = d * size / d.sum().clamp(min=1e-12)
        total = total + torch.where(member, 1.0 - torch.tanh(d), 0.0)
    return total


def distances(z: Tensor) -> Tensor:
    """Euclidean distances (n, n) between readouts (n, d)."""
    centred = z - z.mean(
        0
    )  # keeps the squares small: the formula below cancels otherwise
    square = (centred * centred).sum(-1)
    return (
        (square[:, None] + square[None, :] - 2.0 * centred @ centred.T)
        .clamp(min=0.0)
        .sqrt()
    )


def farthest_first(
    distance: Tensor, allowed: Tensor, score: Tensor, steps: int
) -> Tensor:
    """Greedy farthest-first order of the allowed subjects, for many sites at once.

    Starts with the highest score; each next one has the largest distance to its nearest
    predecessor. The first k of the order are the greedy choice of k, for every k, so one order
    serves any quota.

    Parameters
    ----------
    distance : Tensor of shape (sites, n, n)
    allowed : Tensor of shape (sites, n), bool
    score : Tensor of shape (sites, n)
    steps : int
        Length of the order, at most n.

    Returns
    -------
    Tensor of shape (sites, steps), int64
        Places of subjects; arbitrary once the allowed ones are used up.
    """
    sites, n = allowed.shape
    itself = torch.eye(n, dtype=torch.bool, device=distance.device)
    blocked = torch.where(
        itself, -torch.inf, distance
    )  # who is chosen is at -inf from then on
    best = torch.argmax(torch.where(allowed, score, -torch.inf), dim=1)
    nearest = torch.where(allowed, torch.inf, -torch.inf)
    rows = torch.arange(sites, device=distance.device)
    order = [best]
    for _ in range(steps - 1):
        nearest = torch.minimum(nearest, blocked[rows, best])
        best = torch.argmax(nearest, dim=1)
        order.append(best)
    return torch.stack(order, dim=1)


class Look(NamedTuple):
    """What the current network makes of the memory.

    Attributes
    ----------
    accuracy, ce : Tensor of shape (T,)
        On each site's held-out subjects.
    psi : Tensor of shape (T, C, 2)
        Margin and closeness of each candidate.
    distance : Tensor of shape (T, C, C)
        Between candidates' readouts.
    """

    accuracy: Tensor
    ce: Tensor
    psi: Tensor
    distance: Tensor


def spread(z: Tensor, y: Tensor, repaired: bool, n_classes: int = 2) -> Pair:
    """What a site's readouts (C, d) say of its candidates: `closeness` (C,), `distances` (C, C)."""
    return closeness(z, y, repaired, n_classes), distances(z)


def look_at(
    forward: Callable[[Tensor], Output],
    candidates: Pair,
    dev: Pair,
    repaired: bool,
    proxies: int,
    known: Sequence[Tensor] = (),
) -> Look:
    """Contexts of all sites under the current network.

    Parameters
    ----------
    forward : callable
        Evaluation-mode output of some bank rows.
    candidates : pair of Tensor of shape (T, C)
        Rows and diagnoses.
    dev : pair of Tensor of shape (T, D)
        Those of held-out subjects; row -1 marks an empty place.
    repaired : bool
        See `closeness`.
    proxies : int
        How many of the held-out subjects are synthetic; see `held_out`.
    known : sequence of Tensor
        The `spread` (T, C) and (T, C, C) of all sites, where readouts never change; else empty.
    """
    seen = []
    # one site at a time: bounds the memory of many lanes
    for t, (rows, y, dev_rows, dev_y) in enumerate(zip(*candidates, *dev, strict=True)):
        n = len(rows)
        out = forward(torch.cat([rows, dev_rows.clamp(min=0)]))
        logits = out.logits.float()
        accuracy, ce = held_out(logits[n:], dev_y, dev_rows >= 0, proxies)
        if known:
            near, far = (part[t] for part in known)
        else:
            near, far = spread(out.embedding[:n].float(), y, repaired, logits.shape[-1])
        psi = torch.stack([margin(logits[:n]), near], -1)
        seen.append(Look(accuracy, ce, psi, far))
    return Look(*(torch.stack(part) for part in zip(*seen, strict=True)))


def held_out(
    logits: Tensor, y: Tensor, there: Tensor, proxies: int
) -> tuple[Tensor, Tensor]:
    """Accuracy and cross-entropy of one site over the places that are filled.

    The first `proxies` places are synthetic. Under the leak `context_on_test` the site's whole
    test part follows: accuracy is then of those, the cross-entropy (the reward) of the proxies,
    as in the authors' code.
    """
    right = (logits.argmax(-1) == y).float()
    context = slice(proxies, None) if y.shape[0] > proxies else slice(None)
    ce = F.cross_entropy(logits[:proxies], y[:proxies], reduction="none")
    return mean_over(right[context], there[context]), mean_over(ce, there[:proxies])


def mean_over(values: Tensor, there: Tensor) -> Tensor:
    """Mean of `values` (n,) over the places that are filled; 0 without any."""
    weight = there.float() / there.float().sum().clamp(min=1)
    return (values * weight).sum()


# -- once per site, plain Python -----------------------------------------------------------------
def even_split(y: Tensor, held: int) -> tuple[Tensor, Tensor]:
    """Places of the subjects to use and of `held` subjects to hold out, with equal class shares.

    Every (n / held)-th of the subjects sorted by label is held out, so that the classes' shares
    agree to within one subject, whatever the shares are.
    """
    order = torch.argsort(y, stable=True)
    n = len(order)
    place = (2 * torch.arange(held, device=y.device) + 1) * n // (2 * held)
    out = torch.zeros(n, dtype=torch.bool, device=y.device)
    out[place] = True
    return order[~out], order[out]


def reservoir(
    kept: Iterable[int], new: range, capacity: int, rng: torch.Generator
) -> list[int]:
    """Reservoir sampling (Vitter's algorithm R): every item seen so far is kept equally often.

    Parameters
    ----------
    kept : iterable of int
        Reservoir after ``new.start`` items.
    new : range
        The next items, by number.
    capacity : int
    rng : torch.Generator
    """
    out = list(kept)
    for item in new:
        if len(out) < capacity:
            out.append(item)
            continue
        place = int(torch.randint(item + 1, (), generator=rng))
        if place < capacity:
            out[place] = item
    return out
