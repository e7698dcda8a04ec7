"""Class means and covariances of high-dimensional coordinates, and noise with that covariance.

Shapes: n subjects, p coordinates (far more than subjects), K classes, k factors.
"""

import torch
from torch import Tensor

from fcforge.generators.base import RNG, classes_of, normal


def class_means(x: Tensor, y: Tensor, keep: float = 1.0) -> Tensor:
    """Return the mean of every class; a class without subjects gets the mean of all.

    Parameters
    ----------
    x : Tensor of shape (n, p)
    y : Tensor of shape (n,)
        Classes.
    keep : float
        Factor of the classes' differences from the mean over classes; 1 is maximum likelihood.
        docs/generators.md compares values on ABIDE: none is clearly better.

    Returns
    -------
    Tensor of shape (K, p)
    """
    means = [
        x[y == c].mean(0) if bool((y == c).any()) else x.mean(0)
        for c in range(classes_of(y))
    ]
    centre = torch.stack(means).mean(0)
    return torch.stack([centre + keep * (m - centre) for m in means])


def residual_factors(
    x: Tensor, y: Tensor, shrink: float = 0.1
) -> tuple[Tensor, Tensor]:
    r"""Estimate the pooled within-class covariance as low rank plus diagonal.

    .. math:: \Sigma = (1-\rho) F^\top F + \mathrm{diag}(d), \qquad
              d_e = s_e^2 - (1-\rho) (F^\top F)_{ee}

    where the k rows of F are the scaled principal axes of the residuals from class means, and s_e^2 is
    the pooled variance of coordinate e. Every variance is kept exactly, while correlations are shrunk
    by rho towards independence (Schaefer & Strimmer 2005).

    Parameters
    ----------
    x : Tensor of shape (n, p)
    y : Tensor of shape (n,)
        Classes.
    shrink : float
        rho in [0, 1].

    Returns
    -------
    factors : Tensor of shape (k, p)
        sqrt(1 - rho) F.
    diagonal : Tensor of shape (p,)
        sqrt(d), a standard deviation per coordinate.
    """
    groups = [x[y == c] for c in y.unique()]
    residual = torch.cat([g - g.mean(0) for g in groups])
    freedom = max(residual.shape[0] - len(groups), 1)
    # Axes from the n x n Gram matrix: p is 6670, n about 100.
    vectors = torch.linalg.eigh((residual @ residual.T).double()).eigenvectors
    # Largest eigenvalue first, without the K eigenvalues of 0.
    vectors = vectors[:, -freedom:].flip(-1).to(x.dtype)
    factors = vectors.T @ residual * ((1.0 - shrink) / freedom) ** 0.5
    variance = residual.square().sum(0) / freedom
    return factors, (variance - factors.square().sum(0)).clamp_min(0.0).sqrt()


def residual_noise(factors: Tensor, diagonal: Tensor, n: int, rng: RNG) -> Tensor:
    """Draw noise with the covariance of `residual_factors`, without a p x p Cholesky factor.

    Parameters
    ----------
    factors : Tensor of shape (k, p)
    diagonal : Tensor of shape (p,)
        Both from `residual_factors`.
    n : int
        Number of draws.
    rng : torch.Generator

    Returns
    -------
    Tensor of shape (n, p)
    """
    device = diagonal.device
    shared = normal(n, len(factors), rng=rng, to=device) @ factors.to(diagonal)
    # in place here and in the callers: several hundred subjects of 400 ROIs are 100 MB
    independent = normal(n, len(diagonal), rng=rng, to=device).mul_(diagonal)
    return shared.add_(independent)


def within_class_variance(x: Tensor, y: Tensor) -> Tensor:
    """Return the pooled within-class variance (p,) of every column of x (n, p), classes y (n,)."""
    groups = [x[y == c] for c in y.unique()]
    residuals = [g - g.mean(0) for g in groups]
    squares = torch.stack([r.square().sum(0) for r in residuals]).sum(0)
    return squares / max(x.shape[0] - len(groups), 1)
