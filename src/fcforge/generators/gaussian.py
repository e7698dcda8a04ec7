"""Class-conditional Gaussian with far more dimensions than subjects: fit and sample."""

from __future__ import annotations

import torch
from torch import Tensor

from fcforge.generators.checks import N_CLASSES
from fcforge.generators.layers import normal


def class_means(x: Tensor, y: Tensor, keep: float = 1.0) -> Tensor:
    """Mean of every class (2, p), differences from the grand mean multiplied by `keep`.

    A class without subjects gets the mean of the others.

    Parameters
    ----------
    x : Tensor of shape (n, p)
    y : Tensor of shape (n,)
    keep : float
        1 keeps the maximum-likelihood class difference; below 1 shrinks it. docs/generators.md
        lists what was tried on ABIDE: nothing was clearly better.
    """
    means = [x[y == c].mean(0) if bool((y == c).any()) else x.mean(0) for c in range(N_CLASSES)]
    centre = 0.5 * (means[0] + means[1])
    return torch.stack([centre + keep * (m - centre) for m in means])


def residual_factors(
    x: Tensor, y: Tensor, shrink: float = 0.1, rank: int | None = None
) -> tuple[Tensor, Tensor]:
    r"""Pooled within-class covariance as low rank plus diagonal.

    .. math:: \Sigma = (1-\rho) F_k^\top F_k + \mathrm{diag}(d), \qquad
              d_e = s_e^2 - (1-\rho) (F_k^\top F_k)_{ee}

    with F_k the first k principal axes of the residuals (all of them when `rank` is None) and
    s_e^2 the pooled variance of coordinate e: every marginal variance is kept exactly while
    correlations are shrunk by rho towards independence (Schaefer & Strimmer 2005).

    Parameters
    ----------
    x : Tensor of shape (n, p)
    y : Tensor of shape (n,)
    shrink : float
        rho in [0, 1].
    rank : int, optional

    Returns
    -------
    factors : Tensor of shape (k, p)
        sqrt(1 - rho) F_k.
    diagonal : Tensor of shape (p,)
        sqrt(d).
    """
    groups = [x[y == c] for c in range(N_CLASSES) if bool((y == c).any())]
    residual = torch.cat([g - g.mean(0) for g in groups])
    freedom = max(residual.shape[0] - len(groups), 1)
    # Axes from the n x n Gram matrix: p is 6670, n about 100.
    vectors = torch.linalg.eigh((residual @ residual.T).double()).eigenvectors
    k = min(freedom, rank if rank is not None else freedom)
    vectors = vectors[:, -k:].flip(-1).to(x.dtype)
    factors = vectors.T @ residual * ((1.0 - shrink) / freedom) ** 0.5
    variance = residual.square().sum(0) / freedom
    return factors, (variance - factors.square().sum(0)).clamp_min(0.0).sqrt()


def mirrored_normal(n: int, size: int, rng: torch.Generator, groups: Tensor | None) -> Tensor:
    """Standard normal (n, size); with `groups` (n,), subjects 2i and 2i+1 of a group mirror.

    The mirrored (antithetic) draw makes the mean of a group exact to first order instead of
    off by s / sqrt(n); the last of an odd group stands alone.
    """
    noise = normal(n, size, rng=rng)
    if groups is None:
        return noise
    for group in range(N_CLASSES):
        members = (groups == group).nonzero().flatten()
        half = len(members) // 2
        noise[members[1 : 2 * half : 2]] = -noise[members[0 : 2 * half : 2]]
    return noise


def residual_noise(
    factors: Tensor, diagonal: Tensor, n: int, rng: torch.Generator, groups: Tensor | None = None
) -> Tensor:
    """F'e + sqrt(d) * e' (n, p) of `residual_factors`, without a p x p Cholesky factor."""
    low = mirrored_normal(n, len(factors), rng, groups) @ factors
    return low + mirrored_normal(n, len(diagonal), rng, groups) * diagonal


def within_class_variance(x: Tensor, y: Tensor) -> Tensor:
    """Pooled within-class variance of every column of (n, p)."""
    groups = [x[y == c] for c in range(N_CLASSES) if bool((y == c).any())]
    squares = torch.stack([(g - g.mean(0)).square().sum(0) for g in groups]).sum(0)
    return squares / max(x.shape[0] - len(groups), 1)
