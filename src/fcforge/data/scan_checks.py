r"""Plausibility of scans without access to another person's real scan.

*Strangeness.* A new scan is compared with every learned site by distances between Fisher-z edges:
``inside``, the Mahalanobis distance within the k leading principal axes of the site's synthetic
held-out subjects; ``outside``, the distance from the span of these axes; ``pattern``, one minus the
correlation with the site's mean edges. Each is divided by its limit, mean + 2.576 standard
deviations among the site's real training subjects, widened for small sites (see `limits`). A fourth
distance, ``sides``, measures whether left and right are swapped. If at every site one of the
distances is beyond its limit, the scan is unlike all sites and its probability should not be used.

*Left and right.* ROIs of most atlases come in pairs, one in each hemisphere, whose connection is
among the strongest. So the pairs can be recognised in a mean FC :math:`m` alone. With the
permutation :math:`P` that swaps the ROIs of each pair, the asymmetry :math:`m - P m P^\top` is much
the same in all groups of people, and changes its sign if the hemispheres are swapped. In ABIDE
(AAL-116) it correlates 0.65 to 0.92 between a site and all others, and 0.47 and more between any two
sites. Of 871 single scans one correlates negatively with the others (-0.01).

The check needs an atlas whose ROIs are paired in one of two orders (left, right, left, right, ...; or
all left, then all right). It does not distinguish a swapped scan from a mirrored image.

Letters of shapes: n scans, R ROIs, E = R (R - 1) / 2 edges, k axes.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy import ndarray as Array

from fcforge.core.errors import DataError
from fcforge.data.edges import fc_from_upper, upper_from_fc

DISTANCES = ("inside", "outside", "pattern")  # distances with a limit of their own
SIDES = "sides"  # distance whose limit is always 1
AXES = 8  # most axes per site
QUANTILE = 2.576  # standard normal: 99 % two-sided, 99.5 % one-sided
# Correlation of a site's median subject with the nearest site's mean. With NYU the other
# 19 sites of ABIDE have 0.54 to 0.70, USM with its ROIs shuffled 0.01.
ALIKE = 0.25
# Correlation of a scan (the median, of several) with the mean of the people a model learned from. All
# scans of ABIDE have 0.29 or more with the other sites, at most 0.12 with their ROIs shuffled.
ALIKE_SCAN = 0.15
COMMON = (
    0.4  # length of mean edges, beside one scan's, from which people share a pattern
)
MIN_ROIS = 20  # with fewer, ROIs look paired by chance
PAIRED = (
    0.9  # share of a ROI's edges that are weaker than the one to its partner (median)
)
SWAPPED = -0.1  # correlation of asymmetries below which left and right are swapped
LIMIT = 0.9999  # largest correlation whose Fisher z is taken; larger ones are cut to it
TINY = 1e-12  # in place of lengths of zero


def wrong_rois(names: Sequence[str], ours: Sequence[str]) -> str:
    """Return the first difference between two lists of ROI names, in words; "" if there is none.

    An empty list means unknown names, which do not differ.

    Parameters
    ----------
    names : sequence of str
        ROI names of a hospital's scans.
    ours : sequence of str
        ROI names of the exchange, the set of files that the hospitals share.
    """
    if not names or not ours:
        return ""
    if len(names) != len(ours):
        return f"it has {len(names)} ROI names, the exchange {len(ours)}."
    for k, (mine, our) in enumerate(zip(names, ours, strict=True)):
        if mine != our:
            return f"ROI {k + 1} is '{mine}', the exchange has '{our}' there."
    return ""


def fisher_z(fc: Array) -> Array:
    """Return the Fisher-z edges (n, E), float64, of FC (n, R, R)."""
    upper = upper_from_fc(np.asarray(fc, dtype=np.float64))
    return np.arctanh(np.clip(upper, -LIMIT, LIMIT))


class Reference(NamedTuple):
    """Principal axes of the Fisher-z edges of a site's synthetic subjects.

    Attributes
    ----------
    mean : ndarray of shape (E,)
    axes : ndarray of shape (k, E)
        Orthonormal rows.
    spread : ndarray of shape (k,)
        Standard deviation along each axis.
    """

    mean: Array
    axes: Array
    spread: Array

    @classmethod
    def of(cls, fc: Array) -> Self:
        """Return the reference fitted to FC of shape (n, R, R), n of 3 or more."""
        z = fisher_z(fc)
        mean = z.mean(0)
        _, values, axes = np.linalg.svd(z - mean, full_matrices=False)
        k = max(1, min(AXES, len(z) // 4, len(values)))
        spread = values[:k] / max(len(z) - 1, 1) ** 0.5
        return cls(mean, axes[:k], spread.clip(min=1e-9))

    def distances(self, fc: Array) -> dict[str, Array]:
        """Return the four distances of FC (n, R, R) from the site by name, each of shape (n,).

        They are described in the head of this module.
        """
        z = fisher_z(fc)
        difference = z - self.mean
        along_axes = difference @ self.axes.T
        mahalanobis = np.linalg.norm(along_axes / self.spread, axis=1)
        return {
            "inside": mahalanobis / len(self.spread) ** 0.5,
            "outside": np.linalg.norm(difference - along_axes @ self.axes, axis=1),
            "pattern": 1.0 - likeness(z, self.mean),
            SIDES: side_distance(self.mean, z),
        }


def likeness(rows: Array, mean: Array) -> Array:
    """Return the correlation (n,) of each row of edges (n, E) with mean edges (E,) or its row of (n, E)."""
    centred = rows - rows.mean(1, keepdims=True)
    return _cosine(centred, mean - mean.mean(-1, keepdims=True))


def unit_rows(rows: Array) -> Array:
    """Return rows (n, d) scaled to length 1; rows of zeros stay zero."""
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(norm, TINY)


def _cosine(rows: Array, vector: Array) -> Array:
    """Return the cosine (n,) of the angle between each row (n, d) and a vector (d,) or its row of (n, d)."""
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector, axis=-1)
    if vector.ndim == 1:
        return rows @ vector / lengths.clip(min=TINY)
    return np.einsum("nd,nd->n", rows, vector) / lengths.clip(min=TINY)


def limits(reference: Reference, fc: Array) -> dict[str, float]:
    """Return the distance, by name, above which a scan is not an ordinary one of the site.

    The axes were fitted to synthetic subjects, hence to a model of the training subjects. These are
    therefore nearer to the axes than new people, by the factor sqrt((n + 1) / (n - k - 2)) in a
    Gaussian of k dimensions. The limits are widened by it.

    Parameters
    ----------
    reference : Reference
        Axes of the site's synthetic subjects.
    fc : ndarray of shape (n, R, R)
        The site's real training subjects.
    """
    n = len(fc)
    k = len(reference.spread)
    wider = math.sqrt((n + 1) / max(n - k - 2, 1))
    distances = reference.distances(fc)
    bounds = {}
    for name in DISTANCES:
        spread = float(distances[name].std(ddof=1)) if n > 1 else 0.0
        bound = wider * (float(distances[name].mean()) + QUANTILE * spread)
        bounds[name] = float(f"{max(bound, 1e-6):.4g}")
    return bounds


class Known(NamedTuple):
    """A learned site that new scans are compared with.

    Attributes
    ----------
    site : str
    reference : Reference
    limits : dict of str to float
        As `limits` returns them.
    """

    site: str
    reference: Reference
    limits: dict[str, float]

    def ratios(self, fc: Array) -> list[Array]:
        """Return the distances of FC (n, R, R) from the site over their limits, each of shape (n,)."""
        distances = self.reference.distances(fc)
        return [distances[name] / self.limits.get(name, 1.0) for name in distances]


# In words, in the order of `Reference.distances`.
_REASONS = (*(f"{name} distance" for name in DISTANCES), "left and right look swapped")


def strangeness(known: list[Known], fc: Array) -> tuple[Array, list[str]]:
    """Return how far each scan is from the most similar site; above 1 it is unlike all sites.

    Parameters
    ----------
    known : list of Known
        All learned sites.
    fc : ndarray of shape (n, R, R)
        Scans.

    Returns
    -------
    strangeness : ndarray of shape (n,)
        The largest of the four distances over their limits, at the site where it is smallest.
    reasons : list of str
        For each scan above 1, the nearest site and the largest distance in words; else "".
    """
    ratios = np.array([site.ratios(fc) for site in known])  # (sites, distances, n)
    largest = ratios.max(1)
    nearest = largest.argmin(0)
    reasons = [""] * len(fc)
    for scan in np.flatnonzero(largest.min(0) > 1):
        site = nearest[scan]
        reason = _REASONS[int(ratios[site, :, scan].argmax())]
        reasons[scan] = f"nearest site {known[site].site}, {reason}"
    return largest.min(0), reasons


def require_alike(known: list[Known], fc: Array, accept: bool) -> bool:
    """Refuse a site's scans if they are unlike those of all known sites, or return that they are.

    Parameters
    ----------
    known : list of Known
        All learned sites.
    fc : ndarray of shape (n, R, R)
        Scans of the new site.
    accept : bool
        Whether unlike scans are accepted instead of raising `DataError`.

    Returns
    -------
    bool
        Whether the scans are unlike the others and were accepted.
    """
    message = _unlike_message(known, fc)
    if message and not accept:
        hint = "Check the atlas and the order of the ROIs; if they are right, add --accept-scans."
        raise DataError(message, do=hint)
    return bool(message)


def _unlike_message(known: list[Known], fc: Array) -> str:
    """Return a message if the scans (n, R, R) of a site are unlike those of the known sites; else ""."""
    z = fisher_z(fc)
    means = [site.reference.mean for site in known]
    correlations = [float(np.median(likeness(z, mean))) for mean in means]
    largest = max(correlations, default=1.0)
    if largest < ALIKE:
        names = ", ".join(site.site for site in known)
        return unlike(names, largest)
    site_mean = z.mean(0)[None]
    if any(side_distance(mean, site_mean)[0] > 1 for mean in means):
        return sides_swapped("the sites before it")
    return ""


def unlike(others: str, correlation: float) -> str:
    """Return the message that a site's mean FC does not resemble that of `others`."""
    return f"its FC does not resemble that of {others} (correlation {correlation:.2f})."


def sides_swapped(others: str) -> str:
    """Return the message that a site's hemispheres look swapped in comparison with `others`."""
    return f"its left and right hemispheres look swapped beside {others}."


def unlike_learned(learned: Array, fc: Array) -> str:
    """Return why scans look unlike the people that a model learned from; "" if they do not.

    Nothing is compared with fewer than `MIN_ROIS` ROIs, or if the learned people share no pattern.

    Parameters
    ----------
    learned : ndarray of shape (R, R)
        Mean FC of the people.
    fc : ndarray of shape (n, R, R)
        New scans, one or more.
    """
    if len(learned) < MIN_ROIS or not len(fc):
        return ""
    mean = fisher_z(learned[None])[0]
    z = fisher_z(fc)
    if not shares_pattern(mean, z):
        return ""
    correlation = float(np.median(likeness(z, mean)))
    sides = float(side_distance(mean, z.mean(0)[None])[0])
    return why_unlike(correlation, sides, "the people it learned from")


def shares_pattern(mean: Array, z: Array) -> bool:
    """Return whether mean edges (E,) of people are a pattern that a scan of z (n, E) should show."""
    return bool(mean.std() >= COMMON * float(np.median(z.std(1))))


def why_unlike(correlation: float, sides: float, others: str) -> str:
    """Return why a scan, or the mean of several, looks unlike other people; "" if it does not.

    Parameters
    ----------
    correlation : float
        Correlation of the scan's edges with the people's mean edges.
    sides : float
        Its `side_distance` from the mean edges.
    others : str
        Name of the people in the message.
    """
    if correlation < ALIKE_SCAN:
        return unlike(others, correlation)
    return sides_swapped(others) if sides > 1 else ""


def partners(mean: Array) -> Array | None:
    """Return the index of each ROI's partner in the other hemisphere, told from mean edges.

    Two orders are tried: left, right, left, right, ...; and all left, then all right. An order fits
    if the edge between partners is among the strongest of an ROI (`PAIRED`).

    Parameters
    ----------
    mean : ndarray of shape (E,)
        Mean edges of some people.

    Returns
    -------
    ndarray of shape (R,), or None if neither order fits
    """
    matrix = fc_from_upper(mean[None], 0.0)[0]
    n = len(matrix)
    if n < MIN_ROIS:
        return None
    roi = np.arange(n)
    alternating = np.where(roi < n - n % 2, roi ^ 1, roi)  # 0 with 1, 2 with 3, ...
    # With 90 ROIs: 0 with 45, 1 with 46, ...
    halves = (roi + n // 2) % n if n % 2 == 0 else roi
    for partner in (alternating, halves):
        share_weaker = (matrix < matrix[roi, partner][:, None]).mean(1)
        if np.median(share_weaker) >= PAIRED:
            return partner
    return None


def asymmetry(upper: Array, partner: Array) -> Array:
    """Return edges minus the same edges with the ROIs of each pair swapped, shape (n, E).

    Parameters
    ----------
    upper : ndarray of shape (n, E)
        Edges.
    partner : ndarray of shape (R,)
        As `partners` returns it.
    """
    rows, columns = np.triu_indices(len(partner), 1)
    edge_number = np.zeros((len(partner), len(partner)), dtype=np.int64)
    edge_number[rows, columns] = np.arange(len(rows))
    edge_number[columns, rows] = np.arange(len(rows))
    swapped = edge_number[partner[rows], partner[columns]]
    return upper - upper[:, swapped]


def side_distance(mean: Array, upper: Array) -> Array:
    """Return how much the asymmetry of scans differs from a mean's; above 1 the sides are swapped.

    Parameters
    ----------
    mean : ndarray of shape (E,) or (n, E)
        Mean edges of people whose ROIs are in the right order, or one such mean for each scan. If they
        show no pairs of ROIs, all distances are 0.
    upper : ndarray of shape (n, E)
        Edges of scans, or of a site's mean scan.

    Returns
    -------
    ndarray of shape (n,)
        One minus the correlation of the asymmetries, in units of that at the limit `SWAPPED`.
    """
    means = np.atleast_2d(mean)
    partner = partners(means.mean(0))
    if partner is None:
        return np.zeros(len(upper))
    of_mean = asymmetry(means, partner)
    of_mean = of_mean[0] if mean.ndim == 1 else of_mean
    correlation = _cosine(asymmetry(upper, partner), of_mean)
    return (1 - correlation) / (1 - SWAPPED)
