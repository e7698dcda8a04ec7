"""Off-log coordinates of a site's subjects, and synthetic subjects that match the site's moments.

Matching makes a synthetic set agree with the training subjects in class means and edge variance.
Both `corr_gauss` and the stable FCM-VAE work in these coordinates.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fcforge.core.subjects import FCBatch
from fcforge.generators.coordinates import from_off_log, in_parts, shrink_to_identity
from fcforge.generators.gaussian import class_means, within_class_variance
from fcforge.graphs import edges, from_edges, log_matrix

# A sample mean of fewer subjects is too noisy to be corrected.
FEW = 8
# Newton stops here: the rescaling to unit diagonal takes care of the rest.
TOLERANCE = 1e-3
# Above this number of ROIs an eigendecomposition is expensive: the last step is taken without one,
# from a deviation of NEAR, or of ROUGH where only the mean of the decoded subjects counts.
LARGE = 200
NEAR = 0.3
ROUGH = 1.0


def off_log(fc: Tensor, shrink: float) -> tuple[Tensor, Tensor]:
    """Return off-log coordinates (n, p) and the mean diagonal (R,) of log C, where decoding starts."""
    log_fc = in_parts(partial(log_matrix, shrink=shrink), fc, fc.shape[-1])
    return edges(log_fc), log_fc.diagonal(dim1=-2, dim2=-1).mean(0)


def target_means(batch: FCBatch, shrink: float, keep: float = 1.0) -> Tensor:
    """Return the mean FC of every class (K, R, R), shrunk like the coordinates."""
    flat = class_means(batch.fc.flatten(1), batch.y, keep)
    return shrink_to_identity(flat.unflatten(1, batch.fc.shape[1:]), shrink)


def decode(coordinates: Tensor, y: Tensor, start: Tensor, means: Tensor) -> Tensor:
    """Map off-log coordinates to FC and move the means of large enough classes to `means`.

    exp is not linear, and a small set misses its mean by s / sqrt(n): both errors are as large
    as the class difference itself (on ABIDE the difference of 60 + 60 sampled subjects
    correlates 0.65 with that of the model). So every class is shifted once by
    off_log(target mean) - off_log(sample mean), and decoded again.

    Parameters
    ----------
    coordinates : Tensor of shape (n, p)
        Shifted in place.
    y : Tensor of shape (n,)
    start : Tensor of shape (R,)
        First guess of the diagonal, from `off_log`.
    means : Tensor of shape (K, R, R)

    Returns
    -------
    Tensor of shape (n, R, R)
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


def matched_scale(
    draw: Callable[[Tensor], Tensor], batch: FCBatch, shrink: float
) -> Tensor:
    """Return the noise scale that gives the mean within-class edge variance of the subjects.

    Two secant steps of 64 samples each.

    Parameters
    ----------
    draw : callable
        Draw FC with the noise scale given, one subject for each of the diagnoses of `matching_y`.
    batch : FCBatch
        Training subjects.
    shrink : float
        Identity shrinkage of the coordinates, which the samples share.

    Returns
    -------
    Tensor, scalar
    """
    target = within_class_variance(edges(batch.fc), batch.y).mean() * (1 - shrink) ** 2
    y = matching_y(batch)
    scale = torch.ones((), device=batch.fc.device)
    for _ in range(2):
        variance = within_class_variance(edges(draw(scale)), y).mean()
        # Edge variance grows about with scale^2; bounds guard a site of near-copies.
        scale = (scale * (target / variance.clamp_min(1e-12)).sqrt()).clamp(0.25, 4.0)
    return scale


def matching_y(batch: FCBatch) -> Tensor:
    """Return the diagnoses (64,) of the samples of `matched_scale`."""
    return batch.y[torch.arange(64, device=batch.y.device) % len(batch)]
