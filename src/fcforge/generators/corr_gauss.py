"""corr_gauss: a Gaussian for each class whose every sample is a correlation matrix.

It works in off-log coordinates (`fcforge.generators.coordinates`), of which there are far more than
subjects. Shapes: n subjects, R ROIs, E = R(R-1)/2 edges, K classes, k factors.
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
    mean : Tensor of shape (K, E)
        Class means of the coordinates.
    factors : Tensor of shape (k, E), float16
    diagonal : Tensor of shape (E,)
        Covariance within classes, from `gaussian.residual_factors`.
    class_fc : Tensor of shape (K, R, R)
        Mean FC of every class; samples are shifted so that they have these means.
    start : Tensor of shape (R,)
        First guess of the diagonal of log C in decoding.
    scale : Tensor, scalar
        Factor of the noise, from `matching.matched_scale`.
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
    """Gaussian generator in off-log coordinates: a mean per class, one covariance for all.

    Parameters
    ----------
    shrink : float
        FC C is replaced by (1 - shrink) C + shrink I before the logarithm, because C of a short scan
        or of a ROI without signal is singular. Samples are shrunk alike.
    class_keep : float
        Factor of the difference between classes; 1 is maximum likelihood.

    Notes
    -----
    exp is not linear, so samples of the plain Gaussian would miss the site's moments. Therefore the
    noise is scaled until the mean within-class variance of the *edges* equals the training subjects'
    (on ABIDE the ratio is 0.85 to 0.95 otherwise), and every class of a synthetic set with 8 or more
    members is shifted until its mean FC is that of the training subjects.

    The state holds the principal axes of n training subjects in n - 2 dimensions: treat it as
    identifiable data. Release samples, not states.
    """

    name = "corr_gauss"
    state_type = CorrGaussState
    learns: ClassVar[tuple[Kind, ...]] = ("two classes", "more classes")
    shrink: float = 0.02
    class_keep: float = 1.0

    def learn(self, batch: FCBatch, rng: RNG) -> CorrGaussState:
        """Compute means and covariance of the coordinates; this takes seconds for 120 subjects."""
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
            """Draw FC of the diagnoses `y` with this scale of the noise."""
            return self.draw(model._replace(scale=scale), y, rng)

        return model._replace(scale=matched_scale(draw, batch, self.shrink))

    def draw(self, model: CorrGaussState, y: Tensor, rng: RNG) -> Tensor:
        """Draw positive definite FC (n, R, R) with unit diagonal for diagnoses y (n,)."""
        x = residual_noise(model.factors, model.diagonal, len(y), rng)
        x.mul_(model.scale).add_(model.mean[y])
        return decode(x, y, model.start, model.class_fc)
