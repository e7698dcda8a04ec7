r"""Left and right: whether scans without ROI names have their hemispheres swapped.

ROIs of most atlases come in pairs, one in each hemisphere, whose connection is among the
strongest; so the order of the ROIs can be told from a mean FC :math:`m`. With :math:`P` swapping
the pairs, the asymmetry :math:`m - P m P^\top` is much the same in all groups of people, and
turns its sign with the hemispheres. In ABIDE (AAL-116) it correlates 0.65 to 0.92 between a site
and all others and 0.46 and more between any two sites; of 871 single scans one is below 0 (-0.01).

It says nothing of an atlas whose ROIs are not paired in one of two orders (left, right, left,
right, ...; or all left, then all right), and sees a swapped scan and a mirrored image alike.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fcforge.graphs import edges, from_edges, n_rois_of

MIN_ROIS = 20  # fewer make pairs by chance
PAIRED = 0.9  # of a ROI's edges, how many the one to its partner exceeds (median)
SWAPPED = -0.1  # correlation of the asymmetries below which left and right are swapped


def partners(mean: Tensor) -> Tensor | None:
    """Place of each ROI's partner (R,) in a mean of edges (E,); None where there are no pairs."""
    n = n_rois_of(len(mean))
    if n < MIN_ROIS:
        return None
    matrix, here = from_edges(mean[None], diagonal=0.0)[0], torch.arange(n)
    alternating = torch.where(here < n - n % 2, here ^ 1, here)
    halves = (here + n // 2) % n if n % 2 == 0 else here
    for places in (alternating, halves):
        beaten = (matrix < matrix[here, places][:, None]).double().mean(1)
        if float(beaten.median()) >= PAIRED:
            return places
    return None


def asymmetry(upper: Tensor, places: Tensor) -> Tensor:
    """Edges (n, E) minus the same with partners swapped."""
    matrix = from_edges(upper, diagonal=0.0)
    return upper - edges(matrix[:, places][:, :, places])


def side_fit(mean: Tensor, upper: Tensor) -> Tensor | None:
    """Correlation (n,) of each scan's asymmetry with that of a mean; None where it has no pairs.

    Parameters
    ----------
    mean : Tensor of shape (E,)
        Edges of people whose ROIs are in the right order.
    upper : Tensor of shape (n, E)
        Edges of scans, or of a site's mean scan.
    """
    places = partners(mean)
    if places is None:
        return None
    known, found = (asymmetry(u.double(), places) for u in (mean[None], upper))
    norms = (found.norm(dim=1) * known.norm()).clamp(min=1e-12)
    return (found @ known[0]) / norms


def side_distance(mean: Tensor, upper: Tensor) -> Tensor:
    """(n,): 0 where a scan's asymmetry is that of the mean, beyond 1 where it is swapped."""
    fit = side_fit(mean, upper)
    return torch.zeros(len(upper)).double() if fit is None else (1 - fit) / (1 - SWAPPED)
