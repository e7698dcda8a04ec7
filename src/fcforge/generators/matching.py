"""Off-log coordinates of a site's subjects, and synthetic subjects that match the site's moments.

Matching makes a synthetic set agree with the training subjects in the mean FC of each class and in the
variance of the edges. `corr_gauss` and the stable FCM-VAE use it; both work in off-log coordinates
(`fcforge.generators.coordinates`).

Shapes: n subjects, R ROIs, E = R(R-1)/2 edges, K classes.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fcforge.core.subjects import FCBatch
from fcforge.generators.coordinates import from_off_log, in_parts, shrink_to_identity
from fcforge.generators.gaussian import class_means, within_class_variance
from fcforge.graphs import edges, from_edges, log_matrix

# A class of fewer synthetic subjects is not shifted: its mean is too noisy.
FEW = 8
# `tol` of `from_off_log`: the scaling to unit diagonal takes care of the rest.
TOLERANCE = 1e-3
# Above LARGE ROIs an eigendecomposition is expensive. `from_off_log` then takes its last step without
# one: its `near` is NEAR, or ROUGH where only the mean of the decoded subjects matters.
LARGE = 200
NEAR = 0.3
ROUGH = 1.0


def off_log(fc: Tensor, shrink: float) -> tuple[Tensor, Tensor]:
    """Return the off-log coordinates of FC matrices.

    Parameters
    ----------
    fc : Tensor of shape (n, R, R)
    shrink : float
        Shrinkage of FC towards the identity before the logarithm.

    Returns
    -------
    coordinates : Tensor of shape (n, E)
    start : Tensor of shape (R,)
        Mean diagonal of the logarithms, from which decoding (`decode`) starts.
    """
    log_fc = in_parts(partial(log_matrix, shrink=shrink), fc, fc.shape[-1])
    return edges(log_fc), log_fc.diagonal(dim1=-2, dim2=-1).mean(0)


def target_means(batch: FCBatch, shrink: float, keep: float = 1.0) -> Tensor:
    """Return the mean FC of every class, which synthetic subjects shall have.

    Parameters
    ----------
    batch : FCBatch
        Training subjects.
    shrink : float
        Shrinkage towards the identity, that of `off_log`.
    keep : float
        Factor of the differences between classes (`class_means`).

    Returns
    -------
    Tensor of shape (K, R, R)
    """
    flat = class_means(batch.fc.flatten(1), batch.y, keep)
    return shrink_to_identity(flat.unflatten(1, batch.fc.shape[1:]), shrink)


def decode(coordinates: Tensor, y: Tensor, start: Tensor, means: Tensor) -> Tensor:
    """Map off-log coordinates to FC and shift every class so that its mean FC is that of `means`.

    Without the shift the mean of a synthetic class is wrong, because exp is not linear and because a
    small set misses its mean by chance. Both errors are as large as the difference between the classes
    (on ABIDE the difference of 60 + 60 synthetic subjects correlates 0.65 with the model's). So
    every class is decoded, shifted once by off_log(target mean) - off_log(sample mean), and decoded
    again. Classes of fewer than `FEW` subjects are left as they are.

    Parameters
    ----------
    coordinates : Tensor of shape (n, E)
        Shifted in place.
    y : Tensor of shape (n,)
        Class of each row.
    start : Tensor of shape (R,)
        First guess of the diagonal, from `off_log`.
    means : Tensor of shape (K, R, R)
        From `target_means`.

    Returns
    -------
    Tensor of shape (n, R, R)
    """
    enough = [c for c in y.unique().tolist() if int((y == c).sum()) >= FEW]
    # Many ROIs: of the first decoding only class means are used, so it may be rough and needs no more
    # than the edges. The second one then starts from diagonals that are shifted, too.
    large = len(start) > LARGE
    near = NEAR if large else 0.0
    rough = ROUGH if large else 0.0
    if not enough:
        return from_off_log(coordinates, start=start, tol=TOLERANCE, near=near)[0]
    # (n, E) edges if large, else (n, R, R)
    fc, diagonal = from_off_log(
        coordinates, start=start, tol=TOLERANCE, near=rough, flat=large
    )
    shifts = {}
    for c in enough:
        mean = fc[y == c].mean(0)
        both = torch.stack([means[c], from_edges(mean) if large else mean])
        target_log, sample_log = log_matrix(both, 0.0)
        shifts[c] = target_log - sample_log
    del fc  # frees as much memory as the next decoding needs
    for c, shift in shifts.items():
        coordinates[y == c] += edges(shift)
        if large:
            diagonal[y == c] += shift.diagonal()
    return from_off_log(coordinates, start=diagonal, tol=TOLERANCE, near=near)[0]


def matched_scale(
    draw: Callable[[Tensor], Tensor], batch: FCBatch, shrink: float
) -> Tensor:
    """Return the scale of the noise with which samples vary as much as the training subjects.

    The variance compared is that of edges within classes, mean over edges. The scale is corrected
    twice, each time from 64 samples.

    Parameters
    ----------
    draw : callable
        Takes a scale of the noise and returns FC (64, R, R) with the diagnoses of `matching_y`.
    batch : FCBatch
        Training subjects.
    shrink : float
        Shrinkage of the samples towards the identity, that of `off_log`.

    Returns
    -------
    Tensor, scalar
    """
    # Samples are shrunk, which makes edges smaller by 1 - shrink; the training subjects are not.
    target = within_class_variance(edges(batch.fc), batch.y).mean() * (1 - shrink) ** 2
    y = matching_y(batch)
    scale = torch.ones((), device=batch.fc.device)
    for _ in range(2):
        variance = within_class_variance(edges(draw(scale)), y).mean()
        # Edge variance grows about with scale^2; the bounds are for a site of nearly equal subjects.
        scale = (scale * (target / variance.clamp_min(1e-12)).sqrt()).clamp(0.25, 4.0)
    return scale


def matching_y(batch: FCBatch) -> Tensor:
    """Return the diagnoses (64,) of the samples that `matched_scale` draws, in the site's shares."""
    return batch.y[torch.arange(64, device=batch.y.device) % len(batch)]
