r"""Checks that compare sites: order of the ROIs, hemispheres, and the meaning of the diagnoses.

*Order of the ROIs.* The mean Fisher-z edges of a site correlate with those of every other site. The
median of these correlations is at least 0.82 for each of the 20 sites of ABIDE I (two
preprocessings) and at most 0.13 for a site whose ROIs are permuted. A site below `ALIKE` is
reported. Sites whose own scans do not share a pattern (`CONSISTENT`) are not compared.

*Hemispheres.* See `fcforge.data.scan_checks`: the asymmetry of a site's mean changes its sign if
left and right are swapped.

*Diagnoses.* A ridge classifier of Fisher-z edges is trained on the other sites and tested on the
site. Diagnoses look swapped if patients score lower than controls, one-sided Mann-Whitney test,
p < `SWAPPED`. On ABIDE I (20 sites, two preprocessings) no correct site fails, and 22 of 40 sites
with swapped diagnoses do: 11 of the 13 that have 50 people or more. All sites are tested at the cost of
one inverse of an (n, n) matrix, by the formula for leave-one-group-out residuals of ridge regression:
with the linear kernel K of all scans and :math:`G = (K + \lambda I)^{-1}`, the prediction for the rows
B of a site by the model of the others is :math:`y_B - G_{BB}^{-1} (G y)_B`.

*Public and tested people* of a run are compared in the same ways, first as two groups. In 50 random
divisions of ABIDE's sites (two preprocessings) the correlation of the groups is 0.88 or more, and p
of correct diagnoses 0.97 or more; 48 of the 50 with swapped public diagnoses have p < `SWAPPED`.

Letters of shapes: n people, R ROIs, E edges.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fcforge.core.target import Target
from fcforge.data.cohort import Cohort
from fcforge.data.faults import Fault, Severity
from fcforge.data.scan_checks import (
    MIN_ROIS,
    fisher_z,
    likeness,
    side_distance,
    sides_swapped,
    unlike,
)

ALIKE = 0.5  # correlation of two sites' mean edges below which they are unlike
CONSISTENT = 0.3  # median correlation of a scan with the mean of its site's other scans
SWAPPED = 0.01  # p below which diagnoses look swapped
MIN_OTHERS = 20  # fewest people of other sites that a classifier is trained on
MOST = 5_000  # people of a cohort beyond which diagnoses are not compared, to save time
PENALTY = 3.0  # ridge penalty in units of the mean diagonal of the kernel
CHECK_ROIS = (
    "Check the atlas and the order of the ROIs. If they are right: allow_unlike_sites = true in "
    "[dataset]."
)
CHECK_SIDES = (
    "Check the order of the ROIs and the orientation of the images. If they are right: "
    "allow_unlike_sites = true in [dataset]."
)
CHECK_BOTH_LABELS = (
    "Check which diagnosis means patient in the two data sets (positive), or the order of "
    "the classes, or the sign of the number."
)


class Contrast(NamedTuple):
    """Result of testing whether scores rank two groups in the expected direction.

    Attributes
    ----------
    auroc : float
        Probability that a member of the higher group scores above one of the lower group.
    p : float
        One-sided p of so low an AUROC under chance; NaN if all scores are equal.
    """

    auroc: float
    p: float


def contrast(scores: np.ndarray, higher: np.ndarray) -> Contrast:
    """Test whether a group that should have the higher scores has the lower ones.

    The test is the one-sided Mann-Whitney test. With an empty group p is NaN.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Output of a classifier for each person.
    higher : ndarray of shape (n,), bool
        Members of the group that should score higher.
    """
    from scipy.stats import mannwhitneyu  # slow to import

    above, below = scores[higher], scores[~higher]
    if not len(above) or not len(below):
        return Contrast(np.nan, np.nan)
    wins, p = mannwhitneyu(above, below, alternative="less", method="asymptotic")
    return Contrast(float(wins) / len(above) / len(below), float(p))


def scan_fault(
    known: np.ndarray, fc: np.ndarray, site: str, others: str, severity: Severity
) -> Fault | None:
    """Return the fault of a site whose ROIs or hemispheres are in another order; None if there is none.

    Parameters
    ----------
    known : ndarray of shape (E,)
        Mean Fisher-z edges of the sites that this one is compared with.
    fc : ndarray of shape (n, R, R)
        Scans of the site.
    site : str
        Name of the site, for the message.
    others : str
        Name of the sites behind `known` in the message, e.g. "the sites before it".
    severity : {"error", "warning"}
        Severity of the fault.
    """
    z = fisher_z(fc)
    if fc.shape[-1] < MIN_ROIS or _consistency(z) < CONSISTENT:
        return None
    mean = z.mean(0)
    return _pattern_fault(
        [_correlation(mean, known)], known, mean, site, others, severity
    )


def _pattern_fault(
    correlations: list[float],
    known: np.ndarray,
    mean: np.ndarray,
    site: str,
    others: str,
    severity: Severity,
) -> Fault | None:
    """Return the fault of a site that is unlike others, or whose hemispheres look swapped.

    Parameters
    ----------
    correlations : list of float
        Correlation of the site's mean edges with those of each other site.
    known : ndarray of shape (E,)
        Mean edges over the other sites.
    mean : ndarray of shape (E,)
        Mean edges of the site.
    site, others, severity
        As in `scan_fault`.
    """
    median = float(np.median(correlations))
    if median < ALIKE:
        return Fault(severity, unlike(others, median), CHECK_ROIS, site=site)
    if side_distance(known, mean[None])[0] > 1:
        return Fault(severity, sides_swapped(others), CHECK_SIDES, site=site)
    return None


def site_faults(cohort: Cohort) -> Iterator[Fault]:
    """Yield faults of sites that contradict the other sites of a cohort.

    Parameters
    ----------
    cohort : Cohort
        FC must be finite. With fewer than two sites or `MIN_ROIS` ROIs there is nothing to
        compare.

    Yields
    ------
    Fault
        An error for the order of the ROIs and for swapped hemispheres, which a cohort with
        ``allow_unlike_sites`` turns into a warning; a warning for swapped diagnoses.
    """
    names = cohort.site_names
    if len(names) < 2 or cohort.n_rois < MIN_ROIS:
        return
    means = _site_means(cohort)
    severity: Severity = "warning" if cohort.allow_unlike_sites else "error"
    faults: dict[str, Fault] = {}
    compared = len(means)
    while found := _pattern_faults(means, severity, compared):
        # One wrong site spoils the comparison of the others: the worst leaves first. Of two sites
        # it cannot be known which is wrong.
        worst = (
            list(found) if len(means) == 2 else [min(found, key=lambda n: found[n][0])]
        )
        faults |= {name: found[name][1] for name in worst}
        means = {name: mean for name, mean in means.items() if name not in worst}
    faulty = [name for name in names if name in faults]
    yield from (faults[name] for name in faulty)
    # Scans in another order would spoil the classifiers of diagnoses.
    yield from _label_faults(cohort.select(~np.isin(cohort.site, faulty)))


def _site_means(cohort: Cohort) -> dict[str, np.ndarray]:
    """Return the mean Fisher-z edges (E,) of each site whose scans share a pattern."""
    means: dict[str, np.ndarray] = {}
    for name in cohort.site_names:
        z = fisher_z(cohort.fc[cohort.site == name])
        if _consistency(z) >= CONSISTENT:
            means[name] = z.mean(0)
    return means


def _pattern_faults(
    means: Mapping[str, np.ndarray], severity: Severity, compared: int
) -> dict[str, tuple[float, Fault]]:
    """Return the fault of each site that is unlike the others, with a number: the lower, the worse.

    Parameters
    ----------
    means : mapping of site to ndarray of shape (E,)
        Mean Fisher-z edges of the sites that are compared.
    severity : {"error", "warning"}
    compared : int
        Number of sites before any was left out; with two it is clear which is "the other site".
    """
    found = {}
    for name, mean in means.items():
        names = [other for other in means if other != name]
        others = [means[other] for other in names]
        if not others:
            continue
        correlations = [_correlation(mean, of_other) for of_other in others]
        known = np.mean(others, axis=0)
        words = "the other sites" if len(others) > 1 else "the other site"
        if len(others) == 1 and compared > 2:
            words = f"site '{names[0]}'"
        if fault := _pattern_fault(correlations, known, mean, name, words, severity):
            # unlike sites, by their correlation, before sites whose hemispheres are swapped
            median = float(np.median(correlations))
            sides = 2 - float(side_distance(known, mean[None])[0])
            found[name] = (median if median < ALIKE else 1 + sides, fault)
    return found


def _consistency(z: np.ndarray) -> float:
    """Return the median, over a site's scans, of the correlation with the mean of its other scans.

    Parameters
    ----------
    z : ndarray of shape (n, E)
        Fisher-z edges of the site's scans. With fewer than three scans the result is 0.
    """
    if len(z) < 3:
        return 0.0
    x = z - z.mean(1, keepdims=True)
    total = x.sum(0)
    squared_norm = np.einsum("ne,ne->n", x, x)
    with_total = x @ total
    # The sum of the other scans is total - x: its norm and its product with x.
    others_norm = np.sqrt(
        np.maximum(total @ total - 2 * with_total + squared_norm, 1e-12)
    )
    norm = np.sqrt(np.maximum(squared_norm, 1e-12))
    return float(np.median((with_total - squared_norm) / (norm * others_norm)))


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return the correlation of two vectors of edges (E,)."""
    return float(likeness(a[None], b)[0])


# -- diagnoses -------------------------------------------------------------------------------------
def _label_faults(cohort: Cohort) -> Iterator[Fault]:
    """Yield a warning for each site whose diagnoses (or numbers) look swapped."""
    if len(cohort.site_names) < 2:
        return
    target = cohort.target
    for swapped in _swapped_labels(cohort, cohort.site, SWAPPED):
        message = labels_swapped(target, *swapped[1:])
        yield Fault("warning", message, check_labels(target), site=swapped.part)


class _Swapped(NamedTuple):
    """Two groups of a part of the people whose scores are in the wrong order.

    Attributes
    ----------
    part : str
        Name of the part.
    low, high : int
        Places of the two classes; 0 and 1 for the lower and the higher half of a number.
    result : Contrast
        Scores of a model of all other parts.
    n : int
        People of the part who are compared.
    """

    part: str
    low: int
    high: int
    result: Contrast
    n: int


def _swapped_labels(
    cohort: Cohort, part: np.ndarray, limit: float
) -> Iterator[_Swapped]:
    """Yield each part of the people, and pair of groups, whose diagnoses look swapped.

    Parameters
    ----------
    cohort : Cohort
        With few or very many people nothing is compared.
    part : ndarray of shape (n,), str
        Each person's part: the site, or a group of sites. A part is scored by a model of the others.
    limit : float
        p below which diagnoses look swapped.
    """
    target = cohort.target
    if not MIN_OTHERS < len(cohort) <= MOST:
        return
    groups = cohort.y if target.classes else _halves(cohort)
    pairs = list(combinations(range(target.outputs if target.classes else 2), 2))
    for low, high in pairs:
        members = np.isin(groups, (low, high))
        higher = groups[members] == high
        parts = part[members]
        scores = held_out_scores(
            cohort.fc[members], higher, cohort.site[members], parts
        )
        for name in dict.fromkeys(part.tolist()):
            of_part = parts == name
            if (~of_part).sum() < MIN_OTHERS:
                continue
            result = contrast(scores[of_part], higher[of_part])
            if result.p < limit / len(pairs):  # false for NaN
                yield _Swapped(name, low, high, result, int(of_part.sum()))


def labels_swapped(
    target: Target,
    low: int,
    high: int,
    result: Contrast,
    n: int,
    others: str = "the other sites",
    people: str = "",
) -> str:
    """Return the message that the groups `low` and `high` of a site look swapped.

    Parameters
    ----------
    target : Target
    low, high : int
        Places of two classes; 0 and 1 for the lower and the higher half of a number.
    result : Contrast
        Scores of a model that was not trained on the site.
    n : int
        People compared.
    others, people : str
        Words for the people that the model was trained on, and for those it scored; by default the
        people of a site.
    """
    words = target.classes or (f"lower {target.name}", f"higher {target.name}")
    return (
        f"'{words[high]}' and '{words[low]}' look swapped: a classifier of {others} has AUROC "
        f"{result.auroc:.2f} for {people or f'its {n} people'} (p = {result.p:.2g})."
    )


def check_labels(target: Target) -> str:
    """Return the advice about a site whose diagnoses or numbers look swapped."""
    if target.kind == "two classes":
        return "Check which diagnosis means patient in the data of this site."
    if target.kind == "more classes":
        return "Check the order of the classes in the data of this site."
    return f"Check the sign of {target.name} in the data of this site."


def _halves(cohort: Cohort) -> np.ndarray:
    """Return 1 for people above the median number of their site, 0 for the others, shape (n,)."""
    halves = np.zeros(len(cohort), dtype=np.int64)
    for name in cohort.site_names:
        of_site = cohort.site == name
        halves[of_site] = cohort.y[of_site] > np.median(cohort.y[of_site])
    return halves


def held_out_scores(
    fc: np.ndarray, higher: np.ndarray, site: np.ndarray, part: np.ndarray | None = None
) -> np.ndarray:
    """Return the ridge score of each person by the model of all other parts, shape (n,).

    The formula is in the head of this module: `kernel` is K, `inverse` G, and `block` G_BB.

    Parameters
    ----------
    fc : ndarray of shape (n, R, R)
    higher : ndarray of shape (n,), bool
        Members of the group that is trained to score higher.
    site : ndarray of shape (n,), str
        Each person's site.
    part : ndarray of shape (n,), str, optional
        Each person's part, such as a group of sites; by default the site.
    """
    x = fisher_z(fc).astype(np.float32)
    y = np.where(higher, 1.0, -1.0)
    for rows in _rows_by(
        site
    ):  # differences between sites tell nothing about diagnoses
        x[rows] -= x[rows].mean(0)
        y[rows] -= y[rows].mean()
    kernel = (x @ x.T).astype(np.float64)
    scale = float(np.trace(kernel)) / len(kernel) or 1.0
    inverse = np.linalg.inv(kernel + PENALTY * scale * np.eye(len(kernel)))
    dual = inverse @ y  # G y
    scores = np.empty(len(y))
    for rows in _rows_by(site if part is None else part):
        block = inverse[np.ix_(rows, rows)]
        scores[rows] = y[rows] - np.linalg.solve(block, dual[rows])
    return scores


def _rows_by(names: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each name among `names`, shape (n,)."""
    return [np.flatnonzero(names == name) for name in np.unique(names)]


# -- public and tested people ----------------------------------------------------------------------
def public_site_faults(both: Cohort, is_public: np.ndarray) -> Iterator[Fault]:
    """Yield faults of public and tested people that contradict each other.

    First the two groups are compared as if they were two sites. If they agree, every site is compared with
    all others, as `site_faults` does.

    Parameters
    ----------
    both : Cohort
        Public and tested people, with different names of sites. FC must be finite.
    is_public : ndarray of shape (n,), bool

    Yields
    ------
    Fault
        Of the severity that the same fault has between sites. A fault that the tested sites have
        without the public ones is left out.
    """
    if both.n_rois < MIN_ROIS:
        return
    severity: Severity = "warning" if both.allow_unlike_sites else "error"
    faults = [*_group_pattern_faults(both, is_public, severity)]
    faults = faults or [*_group_label_faults(both, is_public)]
    if not faults:
        known = {(f.site, f.do) for f in site_faults(both.select(~is_public))}
        faults = [f for f in site_faults(both) if (f.site, f.do) not in known]
    yield from faults


def _group_pattern_faults(
    both: Cohort, is_public: np.ndarray, severity: Severity
) -> Iterator[Fault]:
    """Yield the fault of public people whose ROIs or hemispheres are in another order than the tested ones'.

    Parameters
    ----------
    both, is_public
        As in `public_site_faults`.
    severity : {"error", "warning"}
    """
    means = [
        [*_site_means(both.select(rows)).values()] for rows in (is_public, ~is_public)
    ]
    if not all(means):
        return
    public, tested = (np.mean(of_sites, axis=0) for of_sites in means)
    correlation = _correlation(public, tested)
    if correlation < ALIKE:
        message = (
            "the FC of the public people does not resemble that of the tested ones "
            f"(correlation {correlation:.2f})."
        )
        yield Fault(severity, message, CHECK_ROIS)
    elif side_distance(tested, public[None])[0] > 1:
        message = "left and right hemispheres of the public people look swapped beside the tested ones."
        yield Fault(severity, message, CHECK_SIDES)


def _group_label_faults(both: Cohort, is_public: np.ndarray) -> Iterator[Fault]:
    """Yield a warning if the diagnoses (or numbers) of public and tested people contradict each other.

    A classifier of the public people is tested on the others, and the other way round. The lower p counts.

    Parameters
    ----------
    both, is_public
        As in `public_site_faults`.
    """
    part = np.where(is_public, "public", "tested")
    found: dict[tuple[int, int], _Swapped] = {}
    for swapped in _swapped_labels(both, part, SWAPPED / 2):
        pair = (swapped.low, swapped.high)
        if pair not in found or swapped.result.p < found[pair].result.p:
            found[pair] = swapped
    for swapped in found.values():
        other = "tested" if swapped.part == "public" else "public"
        message = labels_swapped(
            both.target,
            *swapped[1:],
            others=f"the {other} people",
            people=f"the {swapped.n} {swapped.part} people",
        )
        yield Fault("warning", message, CHECK_BOTH_LABELS)
