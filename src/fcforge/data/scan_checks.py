r"""Plausibility of scans without access to another person's real scan.

*Strangeness.* A scan is compared with every learned site by three distances between Fisher-z
edges: ``inside``, the Mahalanobis distance within the k leading principal axes of the site's
synthetic held-out subjects; ``outside``, the distance from their span; ``pattern``, one minus the
correlation with the site's mean pattern. Each is divided by its limit, mean + 2.576 standard
deviations among the site's real training subjects, widened for small sites (see `limits`).
``sides`` measures whether left and right are swapped. A scan beyond a limit at every site is unlike
all sites, and its probability should not be used.

*Left and right.* ROIs of most atlases come in pairs, one in each hemisphere, whose connection is
among the strongest; so the order of the ROIs can be told from a mean FC :math:`m`. With :math:`P`
swapping the pairs, the asymmetry :math:`m - P m P^\top` is much the same in all groups of people,
and turns its sign with the hemispheres. In ABIDE (AAL-116) it correlates 0.65 to 0.92 between a
site and all others and 0.47 and more between any two sites; of 871 single scans one is below 0
(-0.01).

The check needs an atlas whose ROIs are paired in one of two orders (left, right, left, right, ...; or
all left, then all right). It does not distinguish a swapped scan from a mirrored image.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy import ndarray as Array

from fcforge.core.errors import DataError
from fcforge.data.edges import fc_from_upper, upper_from_fc

DISTANCES = ("inside", "outside", "pattern")  # a chain's step records their limits
SIDES = "sides"  # its limit is always 1
AXES = 8
QUANTILE = 2.576  # standard normal: 99 % two-sided, 99.5 % one-sided
# Correlation of a site's median subject with the nearest site's mean. With NYU the other
# 19 sites of ABIDE have 0.54 to 0.70, USM with its ROIs shuffled 0.01.
ALIKE = 0.25
MIN_ROIS = 20  # fewer make pairs by chance
PAIRED = 0.9  # of a ROI's edges, how many the one to its partner exceeds (median)
SWAPPED = -0.1  # correlation of asymmetries below which left and right are swapped
LIMIT = 0.9999  # of correlations whose Fisher z is taken
TINY = 1e-12


def wrong_rois(names: Sequence[str], ours: Sequence[str]) -> str:
    """Return the first difference of two lists of ROI names; "" if either is empty."""
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
    """Principal axes of the Fisher-z edges of a site's synthetic subjects."""

    mean: Array  # (E,)
    axes: Array  # (k, E), orthonormal
    spread: Array  # (k,)

    @classmethod
    def of(cls, fc: Array) -> Self:
        """Fit the axes to FC (n, R, R), n of 3 or more."""
        z = fisher_z(fc)
        mean = z.mean(0)
        _, values, axes = np.linalg.svd(z - mean, full_matrices=False)
        k = max(1, min(AXES, len(z) // 4, len(values)))
        spread = values[:k] / max(len(z) - 1, 1) ** 0.5
        return cls(mean, axes[:k], spread.clip(min=1e-9))

    def distances(self, fc: Array) -> dict[str, Array]:
        """Return the distances of FC (n, R, R) from the site, (n,) each; see `DISTANCES`."""
        z = fisher_z(fc)
        away = z - self.mean
        along = away @ self.axes.T
        scaled = np.linalg.norm(along / self.spread, axis=1)
        return {
            "inside": scaled / len(self.spread) ** 0.5,
            "outside": np.linalg.norm(away - along @ self.axes, axis=1),
            "pattern": 1.0 - likeness(z, self.mean),
            SIDES: side_distance(self.mean, z),
        }


def likeness(rows: Array, mean: Array) -> Array:
    """Return the correlation (n,) of each row (n, E) with a mean (E,)."""
    shape = rows - rows.mean(1, keepdims=True)
    return _cosine(shape, mean - mean.mean())


def unit_rows(rows: Array) -> Array:
    """Return rows (n, d) scaled to length 1; rows of zeros stay."""
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(norm, TINY)


def _cosine(rows: Array, known: Array) -> Array:
    sizes = np.linalg.norm(rows, axis=1) * np.linalg.norm(known)
    return rows @ known / sizes.clip(min=TINY)


def limits(reference: Reference, fc: Array) -> dict[str, float]:
    """Return the largest ordinary distances, of the site's n real training subjects.

    The axes were fitted to a model of these subjects, so that they are nearer to the axes than new
    ones: by sqrt((n + 1) / (n - k - 2)) in a Gaussian of k dimensions.
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
    """A site that scans are compared with."""

    site: str
    reference: Reference
    limits: dict[str, float]

    def ratios(self, fc: Array) -> list[Array]:
        """Return the distances (n,) of FC from the site, each divided by its limit."""
        distances = self.reference.distances(fc)
        return [distances[name] / self.limits.get(name, 1.0) for name in distances]


_SAID = (*(f"{name} distance" for name in DISTANCES), "left and right look swapped")


def strangeness(known: list[Known], fc: Array) -> tuple[Array, list[str]]:
    """Return the distance of scans from the most similar site, where 1 is its limit.

    Parameters
    ----------
    known : list of Known
    fc : ndarray of shape (n, R, R)

    Returns
    -------
    ndarray of shape (n,)
    list of str
        For each scan beyond the limit, the nearest site and the largest distance.
    """
    ratios = np.array([site.ratios(fc) for site in known])  # (sites, distances, n)
    worst = ratios.max(1)
    nearest = worst.argmin(0)
    why = [""] * len(fc)
    for scan in np.flatnonzero(worst.min(0) > 1):
        place = nearest[scan]
        reason = _SAID[int(ratios[place, :, scan].argmax())]
        why[scan] = f"nearest site {known[place].site}, {reason}"
    return worst.min(0), why


def require_alike(known: list[Known], fc: Array, accept: bool) -> bool:
    """Return whether a site's scans are unlike those of all known sites.

    Parameters
    ----------
    known : list of Known
    fc : ndarray of shape (n, R, R)
    accept : bool
        Whether unlike scans are accepted instead of raising `DataError`.
    """
    odd = _odd_scans(known, fc)
    if odd and not accept:
        do = "Check the atlas and the order of the ROIs; if they are right, add --accept-scans."
        raise DataError(odd, do=do)
    return bool(odd)


def _odd_scans(known: list[Known], fc: Array) -> str:
    """Return a message if the scans (n, R, R) of a site are unlike the known sites; else ""."""
    z = fisher_z(fc)
    means = [site.reference.mean for site in known]
    typical = [float(np.median(likeness(z, mean))) for mean in means]
    alike = max(typical, default=1.0)
    if alike < ALIKE:
        names = ", ".join(site.site for site in known)
        return unlike(names, alike)
    own = z.mean(0)[None]
    if any(side_distance(mean, own)[0] > 1 for mean in means):
        return sides_swapped("the sites before it")
    return ""


def unlike(others: str, correlation: float) -> str:
    """Return the message that a site's mean FC does not resemble that of `others`."""
    return f"its FC does not resemble that of {others} (correlation {correlation:.2f})."


def sides_swapped(others: str) -> str:
    """Return the message that a site's hemispheres look swapped beside those of `others`."""
    return f"its left and right hemispheres look swapped beside {others}."


def partners(mean: Array) -> Array | None:
    """Return the place of each ROI's partner (R,) in mean edges (E,); None if there are no pairs."""
    matrix = fc_from_upper(mean[None], 0.0)[0]
    n = len(matrix)
    if n < MIN_ROIS:
        return None
    here = np.arange(n)
    alternating = np.where(here < n - n % 2, here ^ 1, here)
    halves = (here + n // 2) % n if n % 2 == 0 else here
    for places in (alternating, halves):
        beaten = (matrix < matrix[here, places][:, None]).mean(1)
        if np.median(beaten) >= PAIRED:
            return places
    return None


def asymmetry(upper: Array, places: Array) -> Array:
    """Return edges (n, E) minus the same edges with partners swapped."""
    rows, columns = np.triu_indices(len(places), 1)
    number = np.zeros((len(places), len(places)), dtype=np.int64)
    number[rows, columns] = np.arange(len(rows))
    number[columns, rows] = np.arange(len(rows))
    swapped = number[places[rows], places[columns]]
    return upper - upper[:, swapped]


def side_distance(mean: Array, upper: Array) -> Array:
    """Return the distance (n,) of scans' asymmetry from the mean's; above 1 if swapped.

    Parameters
    ----------
    mean : ndarray of shape (E,)
        Edges of people whose ROIs are in the right order. Without pairs all distances are 0.
    upper : ndarray of shape (n, E)
        Edges of scans, or of a site's mean scan.
    """
    places = partners(mean)
    if places is None:
        return np.zeros(len(upper))
    fit = _cosine(asymmetry(upper, places), asymmetry(mean[None], places)[0])
    return (1 - fit) / (1 - SWAPPED)
