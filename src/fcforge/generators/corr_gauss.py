"""corr_gauss: a class-conditional Gaussian whose every sample is a correlation matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fcforge.generators.base import Generator, GeneratorState
from fcforge.generators.checks import check_labels, check_site, device_rng
from fcforge.generators.coordinates import from_off_log, matrix_log, shrink_to_identity
from fcforge.generators.gaussian import (
    class_means,
    residual_factors,
    sample_gaussian,
    within_class_variance,
)
from fcforge.graphs import edges
from fcforge.types import FCBatch


def matched_scale(
    sample: Callable[[Tensor, Tensor], FCBatch], batch: FCBatch, shrink: float, n: int = 96
) -> Tensor:
    """Noise scale at which the mean within-class edge variance equals the training subjects'.

    Two secant steps of `n` samples each.

    Parameters
    ----------
    sample : callable
        (scale, labels) to samples.
    batch : FCBatch
        Training subjects.
    shrink : float
        Identity shrinkage of the coordinates, which the samples share.
    """
    target = within_class_variance(edges(batch.fc), batch.y).mean() * (1 - shrink) ** 2
    labels = batch.y[torch.arange(n, device=batch.y.device) % len(batch)]
    scale = torch.ones((), device=batch.fc.device)
    for _ in range(2):
        variance = within_class_variance(edges(sample(scale, labels).fc), labels).mean()
        # Edge variance grows about with scale^2; bounds guard a site of near-copies.
        scale = (scale * (target / variance.clamp_min(1e-12)).sqrt()).clamp(0.25, 4.0)
    return scale


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
    antithetic : bool
        Draw subjects of a class in mirrored pairs: the class means of even a small synthetic
        set are then those of the model. Turn off where independent draws are needed.

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
    antithetic: bool = True

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
        return FCBatch(from_off_log(x, start=state["start"]), labels)

    def diagnostics(self, state: GeneratorState) -> Mapping[str, Any]:
        """Rank of the covariance and the matched noise scale."""
        return {"rank": int(state["factors"].shape[0]), "noise_scale": float(state["scale"])}
