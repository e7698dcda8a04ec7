"""Make a synthetic set agree with the training subjects in class means and edge variance."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fcforge.generators.checks import N_CLASSES
from fcforge.generators.coordinates import from_off_log, shrink_to_identity
from fcforge.generators.gaussian import class_means, within_class_variance
from fcforge.graphs import edges, log_edges
from fcforge.types import FCBatch

# Below this many subjects of a class a sample mean says too little to be corrected.
FEW = 8
# Newton stops here: the rescaling to unit diagonal takes care of the rest.
TOLERANCE = 1e-3


def target_means(batch: FCBatch, shrink: float, keep: float = 1.0) -> Tensor:
    """Mean FC of every class (2, R, R), shrunk like the coordinates."""
    flat = class_means(batch.fc.flatten(1), batch.y, keep)
    return shrink_to_identity(flat.unflatten(1, batch.fc.shape[1:]), shrink)


def decode(coordinates: Tensor, y: Tensor, start: Tensor, means: Tensor | None = None) -> Tensor:
    """Off-log coordinates to FC, with class means moved to `means` (2, R, R) where given.

    exp is not linear, and a small set misses its mean by s / sqrt(n): both errors are as large
    as the class difference itself (on ABIDE the difference of 60 + 60 sampled subjects
    correlates 0.65 with that of the model). So every class is shifted once by
    off_log(target mean) - off_log(sample mean), and decoded again.
    """
    fc, diagonal = from_off_log(coordinates, start=start, tol=TOLERANCE)
    enough = [c for c in range(N_CLASSES) if int((y == c).sum()) >= FEW]
    if means is None or not enough:
        return fc
    shifted = coordinates.clone()
    for c in enough:
        target, found = log_edges(torch.stack([means[c], fc[y == c].mean(0)]), 0.0)
        shifted[y == c] += target - found
    return from_off_log(shifted, start=diagonal, tol=TOLERANCE)[0]


def matched_scale(
    draw: Callable[[Tensor, Tensor], Tensor], batch: FCBatch, shrink: float, n: int = 64
) -> Tensor:
    """Noise scale at which the mean within-class edge variance equals the training subjects'.

    Two secant steps of `n` samples each.

    Parameters
    ----------
    draw : callable
        (scale, y) to FC (n, R, R).
    batch : FCBatch
        Training subjects.
    shrink : float
        Identity shrinkage of the coordinates, which the samples share.
    """
    target = within_class_variance(edges(batch.fc), batch.y).mean() * (1 - shrink) ** 2
    y = batch.y[torch.arange(n, device=batch.y.device) % len(batch)]
    scale = torch.ones((), device=batch.fc.device)
    for _ in range(2):
        variance = within_class_variance(edges(draw(scale, y)), y).mean()
        # Edge variance grows about with scale^2; bounds guard a site of near-copies.
        scale = (scale * (target / variance.clamp_min(1e-12)).sqrt()).clamp(0.25, 4.0)
    return scale
