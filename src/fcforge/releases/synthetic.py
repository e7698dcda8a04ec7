r"""Synthetic subjects from a start and a head: what replay needs, drawn where it is used.

Standardised features are drawn as the public people have them,

.. math:: x = \sum_k z_k \frac{a_k}{\|a_k\|^2} + F^\top \epsilon, \qquad z \sim N(0, G_{1..q}), \;
          \epsilon \sim N(0, I),

and get a diagnosis :math:`t = \pm1` with :math:`P(t = 1 \mid x) = (1 + s(x)) / 2`, where s is the
head's score. Then :math:`E[t \mid x] = s(x)`: least squares on infinitely many of them gives the
head back (where no score leaves [-1, 1]), so that replay and the closed form agree. Nothing but
the start and the released numbers is used; none has to travel.
"""

import torch
from torch import Tensor

from fcforge.graphs import from_log_features
from fcforge.releases.start import FLAT, Start
from fcforge.releases.vector import Head

CERTAIN = 0.98  # scores are clipped there: every synthetic subject can have either diagnosis


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
            fits = x[(drawn < patient_probability(head, x)) == bool(label)][: len(open_)]
            found[open_[: len(fits)]] = fits
            open_ = open_[len(fits) :]
    return found


def to_fc(start: Start, x: Tensor) -> Tensor:
    """Correlation matrices (n, R, R) of standardised features."""
    scale = torch.where(start.scale == FLAT, 0.0, start.scale)
    return from_log_features(start.mean + x * scale, float(start.shrink)).float()
