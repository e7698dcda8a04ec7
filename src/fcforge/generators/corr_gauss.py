"""corr_gauss: a class-conditional Gaussian whose every sample is a correlation matrix.

There are far more dimensions than subjects.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from fcforge.core.settings import SHARE_BELOW_ONE, at_least, limits
from fcforge.core.target import Kind
from fcforge.generators.base import RNG, FCBatch, Generator
from fcforge.generators.gaussian import class_means, residual_factors, residual_noise
from fcforge.generators.matching import (
    decode,
    matched_scale,
    matching_y,
    off_log,
    target_means,
)


class CorrGaussState(NamedTuple):
    """Fitted Gaussian.

    Attributes
    ----------
    mean : Tensor of shape (K, p)
        Class means of the coordinates.
    factors : Tensor of shape (k, p), float16
    diagonal : Tensor of shape (p,)
        Pooled covariance (`gaussian.residual_factors`).
    class_fc : Tensor of shape (K, R, R)
        Mean FC of every class, to which samples are moved.
    start : Tensor of shape (R,)
        Where decoding starts.
    scale : Tensor, scalar
        Factor of the noise.
    """

    mean: Tensor
    factors: Tensor
    diagonal: Tensor
    class_fc: Tensor
    start: Tensor
    scale: Tensor


@limits(shrink=SHARE_BELOW_ONE, class_keep=at_least(0))
@dataclass(frozen=True)
class CorrGauss(Generator):
    """Gaussian generator in off-log coordinates with class means and pooled shrunk covariance.

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
    state_type = CorrGaussState
    learns: ClassVar[tuple[Kind, ...]] = ("two classes", "more classes")
    shrink: float = 0.02
    class_keep: float = 1.0

    def learn(self, batch: FCBatch, rng: RNG) -> CorrGaussState:
        """Compute means and factors of the coordinates; seconds for 120 subjects."""
        x, start = off_log(batch.fc, self.shrink)
        factors, diagonal = residual_factors(x, batch.y)
        model = CorrGaussState(
            mean=class_means(x, batch.y, self.class_keep),
            factors=factors.half(),  # nearly all of the state
            diagonal=diagonal,
            class_fc=target_means(batch, self.shrink, self.class_keep),
            start=start,
            scale=x.new_ones(()),
        )
        y = matching_y(batch)

        def draw(scale: Tensor) -> Tensor:
            return self.draw(model._replace(scale=scale), y, rng)

        return model._replace(scale=matched_scale(draw, batch, self.shrink))

    def draw(self, model: CorrGaussState, y: Tensor, rng: RNG) -> Tensor:
        """Draw positive definite matrices with unit diagonal, one per diagnosis."""
        x = residual_noise(model.factors, model.diagonal, len(y), rng)
        x.mul_(model.scale).add_(model.mean[y])
        return decode(x, y, model.start, model.class_fc)
