"""corr_gauss: a class-conditional Gaussian whose every sample is a correlation matrix.

Far more dimensions than subjects: fit, sample, and match. Matching makes a synthetic set agree with
the training subjects in class means and edge variance.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from fcforge.core.settings import SHARE_BELOW_ONE, at_least, limits
from fcforge.core.target import Kind
from fcforge.generators.base import (
    RNG,
    FCBatch,
    Generator,
    GeneratorState,
    classes_of,
    normal,
)
from fcforge.generators.coordinates import from_off_log, in_parts, shrink_to_identity
from fcforge.graphs import edges, fisher_z, from_edges, log_matrix

# Below this many subjects of a class a sample mean says too little to be corrected.
FEW = 8
# Newton stops here: the rescaling to unit diagonal takes care of the rest.
TOLERANCE = 1e-3
# Of more ROIs than this an eigendecomposition is dear: the last step is taken without one, from as
# far away as this, and from further where only the mean of what is decoded counts.
LARGE = 200
NEAR = 0.3
ROUGH = 1.0


def off_log(fc: Tensor, shrink: float) -> tuple[Tensor, Tensor]:
    """Off-log coordinates (n, p), and the mean diagonal (R,) of log C, where decoding starts."""
    log_fc = in_parts(partial(log_matrix, shrink=shrink), fc, fc.shape[-1])
    return edges(log_fc), log_fc.diagonal(dim1=-2, dim2=-1).mean(0)


def class_means(x: Tensor, y: Tensor, keep: float = 1.0) -> Tensor:
    """Mean of every class (K, p), differences from the grand mean multiplied by `keep`.

    A class without subjects gets the mean of the others.

    Parameters
    ----------
    x : Tensor of shape (n, p)
    y : Tensor of shape (n,)
    keep : float
        1 keeps the maximum-likelihood class difference; below 1 shrinks it. docs/generators.md
        lists what was tried on ABIDE: nothing was clearly better.
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
    r"""Pooled within-class covariance as low rank plus diagonal.

    .. math:: \Sigma = (1-\rho) F^\top F + \mathrm{diag}(d), \qquad
              d_e = s_e^2 - (1-\rho) (F^\top F)_{ee}

    with F the principal axes of the residuals and s_e^2 the pooled variance of coordinate e: every
    marginal variance is kept exactly while correlations are shrunk by rho towards independence
    (Schaefer & Strimmer 2005).

    Parameters
    ----------
    x : Tensor of shape (n, p)
    y : Tensor of shape (n,)
    shrink : float
        rho in [0, 1].

    Returns
    -------
    factors : Tensor of shape (k, p)
        sqrt(1 - rho) F.
    diagonal : Tensor of shape (p,)
        sqrt(d).
    """
    groups = [x[y == c] for c in y.unique()]
    residual = torch.cat([g - g.mean(0) for g in groups])
    freedom = max(residual.shape[0] - len(groups), 1)
    # Axes from the n x n Gram matrix: p is 6670, n about 100.
    vectors = torch.linalg.eigh((residual @ residual.T).double()).eigenvectors
    vectors = vectors[:, -freedom:].flip(-1).to(x.dtype)
    factors = vectors.T @ residual * ((1.0 - shrink) / freedom) ** 0.5
    variance = residual.square().sum(0) / freedom
    return factors, (variance - factors.square().sum(0)).clamp_min(0.0).sqrt()


def residual_noise(factors: Tensor, diagonal: Tensor, n: int, rng: RNG) -> Tensor:
    """F'e + sqrt(d) * e' (n, p) of `residual_factors`, without a p x p Cholesky factor."""
    there = diagonal.device
    low = normal(n, len(factors), rng=rng, to=there) @ factors.to(diagonal)
    # in place here and where it is used: several hundred subjects of 400 ROIs are 100 MB
    own = normal(n, len(diagonal), rng=rng, to=there).mul_(diagonal)
    return low.add_(own)


def within_class_variance(x: Tensor, y: Tensor) -> Tensor:
    """Pooled within-class variance of every column of (n, p)."""
    groups = [x[y == c] for c in y.unique()]
    residuals = [g - g.mean(0) for g in groups]
    squares = torch.stack([r.square().sum(0) for r in residuals]).sum(0)
    return squares / max(x.shape[0] - len(groups), 1)


def target_means(batch: FCBatch, shrink: float, keep: float = 1.0) -> Tensor:
    """Mean FC of every class (K, R, R), shrunk like the coordinates."""
    flat = class_means(batch.fc.flatten(1), batch.y, keep)
    return shrink_to_identity(flat.unflatten(1, batch.fc.shape[1:]), shrink)


def decode(coordinates: Tensor, y: Tensor, start: Tensor, means: Tensor) -> Tensor:
    """Off-log coordinates to FC, with the means of large enough classes moved to `means` (K, R, R).

    exp is not linear, and a small set misses its mean by s / sqrt(n): both errors are as large
    as the class difference itself (on ABIDE the difference of 60 + 60 sampled subjects
    correlates 0.65 with that of the model). So every class is shifted once by
    off_log(target mean) - off_log(sample mean), and decoded again. `coordinates` are shifted in
    place.
    """
    enough = [c for c in y.unique().tolist() if int((y == c).sum()) >= FEW]
    large = len(start) > LARGE
    near = NEAR if large else 0.0
    rough = ROUGH if large else 0.0
    if not enough:
        return from_off_log(coordinates, start=start, tol=TOLERANCE, near=near)[0]
    fc, diagonal = from_off_log(
        coordinates, start=start, tol=TOLERANCE, near=rough, flat=large
    )
    shifts = {}
    for c in enough:
        mean = fc[y == c].mean(0)
        both = torch.stack([means[c], from_edges(mean) if large else mean])
        target, found = log_matrix(both, 0.0)
        shifts[c] = target - found
    del fc  # as large as what follows
    for c, shift in shifts.items():
        coordinates[y == c] += edges(shift)
        if large:
            diagonal[y == c] += shift.diagonal()
    return from_off_log(coordinates, start=diagonal, tol=TOLERANCE, near=near)[0]


def matched(
    generator: Generator, state: GeneratorState, batch: FCBatch, shrink: float, rng: RNG
) -> GeneratorState:
    """State whose noise ``scale`` gives the mean within-class edge variance of the subjects.

    Two secant steps of 64 samples each.

    Parameters
    ----------
    generator : Generator
    state : dict
        All but the scale.
    batch : FCBatch
        Training subjects.
    shrink : float
        Identity shrinkage of the coordinates, which the samples share.
    """
    target = within_class_variance(edges(batch.fc), batch.y).mean() * (1 - shrink) ** 2
    y = batch.y[torch.arange(64, device=batch.y.device) % len(batch)]
    scale = torch.ones((), device=batch.fc.device)
    for _ in range(2):
        fc = generator.draw({**state, "scale": scale}, y, rng)
        variance = within_class_variance(edges(fc), y).mean()
        # Edge variance grows about with scale^2; bounds guard a site of near-copies.
        scale = (scale * (target / variance.clamp_min(1e-12)).sqrt()).clamp(0.25, 4.0)
    return {**state, "scale": scale}


@limits(shrink=SHARE_BELOW_ONE, class_keep=at_least(0))
@dataclass(frozen=True)
class CorrGauss(Generator):
    """Gaussian in off-log coordinates: class means, pooled shrunk covariance.

    Parameters
    ----------
    shrink : float
        C is replaced by (1 - a) C + a I before the logarithm (rank-deficient scans, flat ROIs).
        Samples carry the same 2 % shrinkage.
    class_keep : float
        Factor on the class difference; 1 is maximum likelihood.

    Notes
    -----
    The noise is rescaled so that the mean within-class variance of the *edges* equals the training
    subjects' (exp is not linear: without it the ratio is 0.85-0.95 on ABIDE), and every class of a
    synthetic set (of 8 or more) is shifted so that its mean FC is that of the training subjects.
    The state holds principal axes of n training subjects in n - 2 dimensions: treat it as
    identifiable data. Release samples, not states.
    """

    name = "corr_gauss"
    learns: ClassVar[tuple[Kind, ...]] = ("two classes", "more classes")
    shrink: float = 0.02
    class_keep: float = 1.0

    def learn(self, batch: FCBatch, rng: RNG) -> GeneratorState:
        """Means and factors of the coordinates; seconds for 120 subjects."""
        x, start = off_log(batch.fc, self.shrink)
        factors, diagonal = residual_factors(x, batch.y)
        state = {
            "mean": class_means(x, batch.y, self.class_keep),
            "factors": factors.half(),  # nearly all of the state
            "diagonal": diagonal,
            "class_fc": target_means(batch, self.shrink, self.class_keep),
            "start": start,
        }
        return matched(self, state, batch, self.shrink, rng)

    def draw(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """Positive definite matrices with unit diagonal, one per diagnosis."""
        x = residual_noise(state["factors"], state["diagonal"], len(y), rng)
        x.mul_(state["scale"]).add_(state["mean"][y])
        return decode(x, y, state["start"], state["class_fc"])


# -- references: they only mark the ends of a scale ------------------------------------------------
@dataclass(frozen=True)
class Bootstrap(Generator):
    """Draws training subjects of the asked class with replacement.

    The upper end of every fidelity scale and of every privacy risk: its state *is* the site.
    """

    name = "bootstrap"
    learns = ("two classes", "more classes")
    releases = "real subjects"
    min_subjects = 1

    def learn(self, batch: FCBatch, rng: RNG) -> GeneratorState:
        """Keep the subjects."""
        return {"fc": batch.fc.clone(), "y": batch.y.clone()}

    def draw(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """A random training subject of each asked class."""
        index = torch.zeros_like(y)
        for label in y.unique():
            pool = (state["y"] == label).nonzero().flatten()
            asked = y == label
            n = int(asked.sum())
            index[asked] = pool[
                torch.randint(len(pool), (n,), generator=rng).to(y.device)
            ]
        return state["fc"][index]


@dataclass(frozen=True)
class EdgeGauss(Generator):
    """Every Fisher-z edge is normal with its class mean and its pooled variance.

    Edges are independent, so samples are never positive semidefinite and have no network
    structure beyond the mean: what a metric must be able to tell from real FC.
    """

    name = "edge_gauss"
    learns = ("two classes", "more classes")

    def learn(self, batch: FCBatch, rng: RNG) -> GeneratorState:
        """Class means and pooled variances."""
        z = fisher_z(edges(batch.fc))
        return {
            "mean": class_means(z, batch.y),
            "sd": within_class_variance(z, batch.y).sqrt(),
        }

    def draw(self, state: GeneratorState, y: Tensor, rng: RNG) -> Tensor:
        """Independent draws, back through tanh."""
        mean = state["mean"][y]
        return from_edges(
            torch.tanh(mean + state["sd"] * normal(*mean.shape, rng=rng, to=y.device))
        )
