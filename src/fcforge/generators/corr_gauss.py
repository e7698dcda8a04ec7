"""corr_gauss: a class-conditional Gaussian whose every sample is a correlation matrix."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fcforge.generators.base import FCBatch, Generator, GeneratorState
from fcforge.generators.gaussian import (
    class_means,
    decode,
    matched_scale,
    residual_factors,
    residual_noise,
    target_means,
)
from fcforge.graphs import edges, log_matrix
from fcforge.settings import NotNegative, Share, ShareBelowOne, Size


@dataclass(frozen=True)
class CorrGauss(Generator):
    """Gaussian in off-log coordinates: class means, pooled shrunk covariance.

    Parameters
    ----------
    shrink : float
        C is replaced by (1 - a) C + a I before the logarithm (rank-deficient scans, flat ROIs).
        Samples carry the same 2 % shrinkage.
    covariance_shrink : float
        Correlations between coordinates are shrunk by this share; variances are kept.
    rank : int or None
        Keep only so many principal axes of the residuals; the rest becomes independent noise.
        Fewer axes reveal less of single subjects and make the state smaller.
    class_keep : float
        Factor on the class difference; 1 is maximum likelihood.
    variance_match : bool
        Rescale the noise so that the mean within-class variance of the *edges* equals the
        training subjects' (exp is not linear: without it the ratio is 0.85-0.95 on ABIDE).
    mean_match : bool
        Shift every class of a synthetic set (of 8 or more) so that its mean FC is that of the
        training subjects. Turn off where independent draws are needed.
    antithetic : bool
        Draw subjects of a class in mirrored pairs, which halves the error of small class means
        without looking at them.

    Notes
    -----
    The state holds principal axes of n training subjects in n - 2 dimensions: treat it as
    identifiable data. Release samples, not states.
    """

    name = "corr_gauss"
    shrink: ShareBelowOne = 0.02
    covariance_shrink: Share = 0.1
    rank: Size | None = None
    class_keep: NotNegative = 1.0
    variance_match: bool = True
    mean_match: bool = True
    antithetic: bool = False

    def learn(self, batch: FCBatch, rng: torch.Generator) -> GeneratorState:
        """Means and factors of the coordinates; seconds for 120 subjects."""
        state = self.gaussian(batch)
        state["factors"] = state["factors"].half()  # nearly all of the state
        return self.matched(state, batch, rng)

    def gaussian(self, batch: FCBatch) -> GeneratorState:
        """The class-conditional Gaussian, its noise not yet matched."""
        log_fc = log_matrix(batch.fc, self.shrink)
        x = edges(log_fc)
        factors, diagonal = residual_factors(x, batch.y, self.covariance_shrink, self.rank)
        return {
            "mean": class_means(x, batch.y, self.class_keep),
            "factors": factors,
            "diagonal": diagonal,
            "class_fc": target_means(batch, self.shrink, self.class_keep),
            "start": log_fc.diagonal(dim1=-2, dim2=-1).mean(0),
            "scale": torch.ones((), device=x.device),
        }

    def matched(
        self, state: GeneratorState, batch: FCBatch, rng: torch.Generator
    ) -> GeneratorState:
        """The state with the noise scale that `variance_match` asks for."""
        if not self.variance_match:
            return state

        def draw(scale: Tensor, y: Tensor) -> Tensor:
            return self.draw({**state, "scale": scale}, y, rng)

        return {**state, "scale": matched_scale(draw, batch, self.shrink)}

    def noise(self, state: GeneratorState, y: Tensor, rng: torch.Generator) -> Tensor:
        """Deviations from the class means in off-log coordinates, (n, p)."""
        return residual_noise(state["factors"], state["diagonal"], y, rng, self.antithetic)

    def draw(self, state: GeneratorState, y: Tensor, rng: torch.Generator) -> Tensor:
        """Positive definite matrices with unit diagonal, one per diagnosis."""
        x = state["mean"][y] + state["scale"] * self.noise(state, y, rng)
        return decode(x, y, state["start"], state["class_fc"] if self.mean_match else None)

    def diagnostics(self, state: GeneratorState) -> Mapping[str, Any]:
        """Rank of the covariance and the matched noise scale."""
        axes = state["axes" if "axes" in state else "factors"]
        return {"rank": len(axes), "noise_scale": float(state["scale"])}
