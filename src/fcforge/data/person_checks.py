"""Checks that compare each person's scan with those of other people.

The order of one person's ROIs is checked as `fcforge.data.scan_checks.unlike_learned` checks new
scans: the Fisher-z edges should correlate with the mean of other people (`ALIKE_SCAN`), and their
asymmetry should not have the opposite sign (`SWAPPED`). Everybody is compared twice: with the other
people of the site, and with all others. The second comparison finds a permuted scan at a small site,
and several people of one site with the same wrong order.

On ABIDE I (AAL-116, 871 people, and 1,098 with the global signal regressed) nobody is named. Everyone
of the 1,969 is named if their ROIs are permuted, and 1,963 if their hemispheres are swapped.

Letters of shapes: n people, R ROIs, E edges.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from fcforge.data.cohort import Cohort
from fcforge.data.faults import Fault
from fcforge.data.scan_checks import (
    MIN_ROIS,
    fisher_z,
    likeness,
    shares_pattern,
    side_distance,
    why_unlike,
)
from fcforge.data.site_checks import CHECK_ROIS, CHECK_SIDES, CONSISTENT, site_faults

FEWEST = 10  # people whose mean a scan is compared with
# Fewest ROIs with which the hemispheres of one scan are compared. In parts of ABIDE's AAL atlas with so
# many, none of 7,876 right scans looks swapped; with 60 two do, with 20 29.
SIDES_ROIS = 90
AT_ONCE = 256  # people whose comparisons are in memory at once
CHECK_PERSON = (
    "Check the order of the ROIs in the data of this subject; if it cannot be corrected, leave the "
    "subject out: leave_out = ['ID'] in [dataset], or without a config --leave-out ID."
)


class Group(NamedTuple):
    """Sum of the edges of some people.

    Attributes
    ----------
    total : ndarray of shape (E,)
        Sum of their Fisher-z edges.
    n : int
        Number of the people.
    """

    total: np.ndarray
    n: int

    def without_each(self, z: np.ndarray) -> np.ndarray:
        """Return the mean (n, E) of the group without each of its members z (n, E)."""
        return (self.total - z) / (self.n - 1)


def comparison_faults(cohort: Cohort) -> list[Fault]:
    """Return faults of sites that contradict the others, then of people who do; FC must be finite."""
    of_sites = [*site_faults(cohort)]
    return [*of_sites, *person_faults(cohort, unlike_sites(of_sites))]


def unlike_sites(faults: Collection[Fault]) -> frozenset[str]:
    """Return the sites whose ROIs or hemispheres are in another order, by their faults."""
    return frozenset(f.site for f in faults if f.do in (CHECK_ROIS, CHECK_SIDES))


def person_faults(
    cohort: Cohort, unlike: Collection[str] = (), known: Group | None = None
) -> Iterator[Fault]:
    """Yield a warning for each person whose scan looks unlike those of other people.

    Parameters
    ----------
    cohort : Cohort
        FC must be finite. With fewer than `MIN_ROIS` ROIs nothing is compared.
    unlike : collection of str
        Sites with a fault of their own. Their people are compared within the site only.
    known : Group, optional
        People beside those of the cohort.
    """
    if cohort.n_rois < MIN_ROIS or not len(cohort):
        return
    everybody = _everybody(cohort, unlike, known)
    for site in cohort.site_names:
        rows = np.flatnonzero(cohort.site == site)
        z = fisher_z(cohort.fc[rows])
        reasons = [""] * len(rows)
        if site not in unlike and everybody.n > FEWEST:
            words = f"the {everybody.n - 1} other people"
            reasons = _reasons(z, everybody, words, as_site=len(rows) > FEWEST)
        if len(rows) > FEWEST:
            words = f"the {len(rows) - 1} other people of the site"
            of_site = _reasons(z, Group(z.sum(0), len(rows)), words)
            reasons = [a or b for a, b in zip(of_site, reasons, strict=True)]
        for row, reason in zip(rows, reasons, strict=True):
            if reason:
                subject = str(cohort.subject_id[row])
                hint = CHECK_PERSON.replace("ID", subject)
                yield Fault("warning", reason, hint, subject, site)


def _everybody(cohort: Cohort, unlike: Collection[str], known: Group | None) -> Group:
    """Return all people but those of the sites `unlike`, and the known ones."""
    total = np.zeros(cohort.n_rois * (cohort.n_rois - 1) // 2)
    n = 0
    if known is not None:
        total, n = total + known.total, known.n
    for site in cohort.site_names:
        if site not in unlike:
            fc = cohort.fc[cohort.site == site]
            total, n = total + fisher_z(fc).sum(0), n + len(fc)
    return Group(total, n)


def _reasons(
    z: np.ndarray, group: Group, others: str, *, as_site: bool = False
) -> list[str]:
    """Return why each scan z (n, E) looks unlike the others of its group; "" if it does not.

    Parameters
    ----------
    z : ndarray of shape (n, E)
    group : Group
        People among whom those of z are.
    others : str
        Name of the others in the message.
    as_site : bool
        Whether nothing is compared if most scans of z are unlike the others, as at a site with
        another pattern.
    """
    if not shares_pattern(group.total / group.n, z):
        return [""] * len(z)
    correlations, sides = np.ones(len(z)), np.zeros(len(z))
    many_rois = z.shape[1] >= SIDES_ROIS * (SIDES_ROIS - 1) // 2
    for start in range(0, len(z), AT_ONCE):
        rows = slice(start, start + AT_ONCE)
        means = group.without_each(z[rows])
        correlations[rows] = likeness(z[rows], means)
        if many_rois:
            sides[rows] = side_distance(means, z[rows])
    if as_site and np.median(correlations) < CONSISTENT:
        return [""] * len(z)
    pairs = zip(correlations.tolist(), sides.tolist(), strict=True)
    return [why_unlike(r, side, others) for r, side in pairs]
