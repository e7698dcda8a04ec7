"""corr_gauss: a class-conditional Gaussian whose every sample is a correlation matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fcforge.generators.base import Generator, GeneratorState
from fcforge.generators.checks import check_labels, check_site, device_rng
from fcforge.generators.coordinates import matrix_log, shrink_to_identity
from fcforge.generators.gaussian import (
    class_means,
    residual_factors,
    sample_gaussian,
)
from fcforge.generators.matching import decode, matched_scale, target_means
from fcforge.graphs import edges
from fcforge.types import FCBatch


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

    name: ClassVar[str] = "corr_gauss"
    shrink: float = 0.02
    covariance_shrink: float = 0.1
    rank: int | None = None
    class_keep: float = 1.0
    variance_match: bool = True
    mean_match: bool = True
    antithetic: bool = False

    def fit(self, batch: FCBatch, rng: torch.Generator) -> GeneratorState:
        """Means and factors of the coordinates; seconds for 120 subjects."""
        counts = check_site(batch, self.name)
        log_fc = matrix_log(shrink_to_identity(batch.fc, self.shrink))
        x = edges(log_fc)
        factors, diagonal = residual_factors(x, batch.y, self.covariance_shrink, self.rank)
        state = {
            "mean": class_means(x, batch.y, self.class_keep),
            "factors": factors,
            "diagonal": diagonal,
            "class_fc": target_means(batch, self.shrink, self.class_keep),
            "start": log_fc.diagonal(dim1=-2, dim2=-1).mean(0),
            "scale": torch.ones((), device=x.device),
            "counts": counts,
        }
        if self.variance_match:
            state["scale"] = matched_scale(
                lambda scale, labels: self.sample({**state, "scale": scale}, labels, rng),
                batch,
                self.shrink,
            )
        return state

    def sample(self, state: GeneratorState, labels: Tensor, rng: torch.Generator) -> FCBatch:
        """Positive definite matrices with unit diagonal, one per label."""
        labels = check_labels(labels, state["counts"], self.name)
        x = sample_gaussian(
            state["mean"],
            state["factors"],
            state["diagonal"],
            labels,
            device_rng(rng, labels.device),
            scale=state["scale"],
            antithetic=self.antithetic,
        )
        means = state["class_fc"] if self.mean_match else None
        return FCBatch(decode(x, labels, state["start"], means), labels)

    def diagnostics(self, state: GeneratorState) -> Mapping[str, Any]:
        """Rank of the covariance and the matched noise scale."""
        return {"rank": int(state["factors"].shape[0]), "noise_scale": float(state["scale"])}
