"""Quality of a group of subjects: the table of measures, flagged subjects, and QC-FC.

QC-FC is the correlation, over subjects, of each edge with head motion (Power et al. 2012; Ciric et al. 2017).
Good denoising reduces it to the size expected by chance. It is computed within sites: the means of each site
are subtracted from FC and from motion first, because scanners differ in both. FD is framewise displacement.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fcforge.core.formatting import counted
from fcforge.imaging.atlas import Atlas
from fcforge.imaging.matrix_files import column_of
from fcforge.imaging.people import SITE_COLUMNS

LEAST_SUBJECTS = 10  # subjects that QC-FC needs
LEAST_DOF = 8  # degrees of freedom that QC-FC needs
LEAST_AT_SITE = 8  # subjects of a site needed to call one of them unusual
EDGES_AT_ONCE = 20_000
HIGH_FD_MM = 0.5  # above it FD is high
HIGH_FD_SHARE = 0.2  # share of volumes with high FD above which a subject is flagged
ROBUST_SDS = 3.5  # distance from the median above which a value is unusual
MAD_TO_SD = 1.4826  # median absolute deviation to standard deviation, for normal values


class Measure(NamedTuple):
    """A measure of the quality table.

    Attributes
    ----------
    column : str
        Column of quality.tsv.
    title, meaning : str
        Name and explanation on the page.
    unit : str
        "" for none.
    digits : int
        Decimals to show.
    tail : {"low", "high", "both", ""}
        Side on which an unusual value is flagged; "" for neither.
    largest : float
        Largest possible value.
    """

    column: str
    title: str
    meaning: str
    unit: str
    digits: int
    tail: str
    largest: float = np.inf


MEASURES = (
    Measure(
        "mean_fd",
        "Framewise displacement",
        "Mean over volumes of the head's movement since the volume before, mm.",
        "mm",
        2,
        "high",
    ),
    Measure(
        "dvars",
        "DVARS",
        "Mean change of voxels since the volume before, in per cent of their mean.",
        "%",
        2,
        "high",
    ),
    Measure(
        "tsnr",
        "tSNR",
        "Mean over standard deviation of voxels in time, averaged over ROIs.",
        "",
        0,
        "low",
    ),
    Measure("mean_fc", "Mean FC", "Mean correlation over all edges.", "", 3, "both"),
    Measure(
        "coverage",
        "Coverage",
        "Share of an ROI that has good voxels, averaged over ROIs.",
        "",
        2,
        "low",
        1.0,
    ),
    Measure(
        "dof",
        "Degrees of freedom",
        "Those that denoising leaves to each series.",
        "",
        0,
        "low",
    ),
)
# Measures in quality.tsv, in order: those above, and those that flags are computed from.
COLUMNS = (
    "mean_fd",
    "high_fd_share",
    "dvars",
    "tsnr",
    "coverage",
    "n_empty_rois",
    "mean_fc",
    "mean_fc_before",
    "dof",
    "n_volumes",
    "minutes",
)


MEANINGS = {
    "participant_id": "Label of the subject, with sub-.",
    "site": "Site, from the table of participants.",
    **{measure.column: measure.meaning for measure in MEASURES},
    "high_fd_share": f"Share of volumes with framewise displacement above {HIGH_FD_MM:g} mm.",
    "n_empty_rois": "Number of ROIs without signal.",
    "mean_fc_before": "Mean correlation over all edges before denoising.",
    "n_volumes": "Number of volumes that FC rests on.",
    "minutes": "Their duration.",
    "flags": "Reasons to look at the subject, separated by semicolons; flags exclude nobody.",
}


class Matrices(NamedTuple):
    """FC of one subject, for QC-FC.

    Attributes
    ----------
    fc : ndarray of shape (n_edges,)
        Upper triangle, row by row; NaN for edges of ROIs without signal.
    before : ndarray of shape (n_edges,), or of shape (0,)
        The same before denoising; empty where fcforge does not denoise.
    """

    fc: np.ndarray
    before: np.ndarray


class MotionLink(NamedTuple):
    """Correlation of edges with motion, at one stage of the processing.

    Attributes
    ----------
    r : ndarray of shape (n_edges,)
        Correlation over subjects within sites; NaN where it cannot be computed.
    median : float
        Median of its absolute value over edges.
    share_significant : float
        Share of edges with p < 0.05, uncorrected; 0.05 is expected by chance.
    with_distance : float
        Spearman's correlation of r with the distance between the ROIs; NaN where their centres are unknown.
    """

    r: np.ndarray
    median: float
    share_significant: float
    with_distance: float


class QCFC(NamedTuple):
    """QC-FC of a group.

    Attributes
    ----------
    n_subjects, n_sites : int
        Numbers of subjects with FC and known motion, and of their sites.
    expected_median : float
        Median absolute correlation expected by chance, with as many degrees of freedom.
    distance : ndarray of shape (n_edges,), or of shape (0,)
        Distances between the centres of the ROIs in mm; empty where these are unknown.
    after : MotionLink or None
        Correlations after denoising.
    before : MotionLink or None
        Correlations before denoising; None where fcforge did not denoise.
    problem : str
        Reason why QC-FC cannot be computed, as a sentence; `after` is None then. "" for none.
    """

    n_subjects: int
    n_sites: int
    expected_median: float
    distance: np.ndarray
    after: MotionLink | None
    before: MotionLink | None
    problem: str


class GroupQuality(NamedTuple):
    """Quality of all subjects with FC.

    Attributes
    ----------
    table : DataFrame
        ``participant_id``, ``site`` where known, `COLUMNS` (NaN where unknown) and ``flags``, reasons
        separated by semicolons.
    qcfc : QCFC
    """

    table: pd.DataFrame
    qcfc: QCFC


def matrices_path(out: Path, label: str, atlas: str) -> Path:
    """Return the path of the stored `Matrices` of a subject, in the folder of logs.

    Parameters
    ----------
    out : Path
        Output folder.
    label : str
        BIDS label of the subject.
    atlas : str
        Name of the atlas.
    """
    return out / "logs" / "quality" / f"sub-{label}_atlas-{atlas}.npz"


def quality_table(
    people: pd.DataFrame, measures: Mapping[str, Mapping[str, float | None]]
) -> pd.DataFrame:
    """Return measures and flags of every subject (`GroupQuality.table`).

    Parameters
    ----------
    people : DataFrame
        Rows of participants.tsv.
    measures : mapping of participant_id to mapping of column to value
        Measures of each subject; None where a value is unknown.
    """
    columns = list(people.columns)
    site = column_of(columns, SITE_COLUMNS) if len(people) else None
    rows = {
        subject: {name: measures.get(subject, {}).get(name) for name in COLUMNS}
        for subject in (people["participant_id"] if len(people) else ())
    }
    table = pd.DataFrame.from_dict(rows, orient="index", columns=COLUMNS, dtype=float)
    table.insert(0, "participant_id", list(rows))
    if site:
        table.insert(1, "site", list(people[site]))
    table = table.reset_index(drop=True)
    table["flags"] = ["; ".join(reasons) for reasons in flags(table)]
    return table


def flags(table: pd.DataFrame) -> list[list[str]]:
    """Return the reasons why each subject should be inspected.

    A value is unusual if it lies more than `ROBUST_SDS` robust standard deviations (1.4826 times the median
    absolute deviation) from the median of its site. In a site of fewer than `LEAST_AT_SITE` subjects no value
    is called unusual.

    Parameters
    ----------
    table : DataFrame
        Measures of every subject, and its site where known.

    Returns
    -------
    list of list of str
        Reasons for each row; an empty list for none.
    """
    reasons: list[list[str]] = [[] for _ in range(len(table))]

    def add(mask: np.ndarray, text: str) -> None:
        """Add a reason to the rows where `mask` is true."""
        for row in np.flatnonzero(mask):
            reasons[row].append(text)

    fd, share = table["mean_fd"].to_numpy(), table["high_fd_share"].to_numpy()
    add(fd > HIGH_FD_MM, f"mean FD above {HIGH_FD_MM:g} mm")
    add(
        share > HIGH_FD_SHARE,
        f"FD above {HIGH_FD_MM:g} mm in more than {100 * HIGH_FD_SHARE:.0f} % of the volumes",
    )
    empty = np.nan_to_num(table["n_empty_rois"].to_numpy())
    for row in np.flatnonzero(empty):
        reasons[row].append(f"{counted(int(empty[row]), 'ROI')} without signal")
    sites = _site_codes(table)
    for measure in MEASURES:
        values = table[measure.column].to_numpy()
        low, high = _unusual(values, sites)
        where = "its site" if "site" in table else "the group"
        if measure.tail in ("low", "both"):
            add(low, f"{measure.title} unusually low for {where}")
        if measure.tail in ("high", "both"):
            add(high, f"{measure.title} unusually high for {where}")
    return reasons


def _unusual(values: np.ndarray, sites: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which values are unusually low and which are unusually high for their site.

    Parameters
    ----------
    values : ndarray of shape (n,)
        NaN where unknown.
    sites : ndarray of shape (n,)
        Site of each value as a number.

    Returns
    -------
    low, high : ndarray of bool, shape (n,)
    """
    low, high = np.zeros((2, len(values)), dtype=bool)
    for site in np.unique(sites):
        here = (sites == site) & np.isfinite(values)
        if here.sum() < LEAST_AT_SITE:
            continue
        centre = np.median(values[here])
        spread = MAD_TO_SD * np.median(np.abs(values[here] - centre))
        if spread > 0:
            low |= here & (values < centre - ROBUST_SDS * spread)
            high |= here & (values > centre + ROBUST_SDS * spread)
    return low, high


def _site_codes(table: pd.DataFrame) -> np.ndarray:
    """Return the site of every row as a number; 0 for all where the table has no sites."""
    if "site" not in table:
        return np.zeros(len(table), dtype=int)
    return np.unique(table["site"].astype(str), return_inverse=True)[1]


# -- QC-FC -----------------------------------------------------------------------------------------
def qc_fc(table: pd.DataFrame, stored: Sequence[Matrices | None], atlas: Atlas) -> QCFC:
    """Correlate every edge with mean FD over subjects, after and before denoising.

    Parameters
    ----------
    table : DataFrame
        From `quality_table`.
    stored : sequence of Matrices or None
        FC of each row; None where it is not stored.
    atlas : Atlas
    """
    fd = table["mean_fd"].to_numpy(dtype=float)
    codes = _site_codes(table)
    usable = np.isfinite(fd) & np.array([m is not None for m in stored], dtype=bool)
    # A site with a single subject has nothing to compare within.
    for code in np.unique(codes[usable]):
        if (usable & (codes == code)).sum() < 2:
            usable &= codes != code
    rows = np.flatnonzero(usable)
    n_sites = len(np.unique(codes[rows]))
    dof = len(rows) - n_sites - 1
    empty = np.zeros(0)
    problem = _problem(fd, codes, usable, dof, "site" in table)
    if problem:
        return QCFC(len(rows), n_sites, np.nan, empty, None, None, problem)
    motion = _within_sites(fd[rows][:, None], codes[rows])[:, 0]
    distance = _distances(atlas)
    matrices = [m for k in rows if (m := stored[k]) is not None]
    after = _link([m.fc for m in matrices], motion, codes[rows], dof, distance)
    before = None
    if all(len(m.before) for m in matrices):
        before = _link([m.before for m in matrices], motion, codes[rows], dof, distance)
    expected = _chance_median(dof)
    return QCFC(len(rows), n_sites, expected, distance, after, before, "")


def _problem(
    fd: np.ndarray, codes: np.ndarray, usable: np.ndarray, dof: int, with_sites: bool
) -> str:
    """Return the reason why QC-FC cannot be computed, as a sentence; "" for none.

    Parameters
    ----------
    fd : ndarray of shape (n,)
        Mean framewise displacement of each subject; NaN where unknown.
    codes : ndarray of shape (n,)
        Site of each subject as a number.
    usable : ndarray of bool, shape (n,)
        Subjects with FC, known motion and another such subject at their site.
    dof : int
        Degrees of freedom of the correlations.
    with_sites : bool
        Whether sites are known.
    """
    n = int(usable.sum())
    if not np.isfinite(fd).any():
        return (
            "QC-FC cannot be computed: no subject has a known framewise displacement."
        )
    if n < LEAST_SUBJECTS or dof < LEAST_DOF:
        at_sites = " at sites with at least two of them" if with_sites else ""
        return (
            f"QC-FC cannot be computed: it needs at least {LEAST_SUBJECTS} subjects with FC and "
            f"known motion{at_sites}, and {LEAST_DOF} degrees of freedom; there are {n}, and "
            f"{max(dof, 0)} degrees of freedom are left."
        )
    motion = _within_sites(fd[usable][:, None], codes[usable])
    if np.sqrt((motion**2).mean()) < 1e-9:
        return (
            "QC-FC cannot be computed: all subjects (of a site) have the same framewise "
            "displacement, so that nothing can be correlated with it."
        )
    return ""


def _within_sites(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Subtract from values (n, k) of n subjects the mean of their site; `codes` (n,) are the sites."""
    out = np.array(values, dtype=np.float64)
    for code in np.unique(codes):
        out[codes == code] -= out[codes == code].mean(axis=0)
    return out


def _link(
    matrices: Sequence[np.ndarray],
    motion: np.ndarray,
    codes: np.ndarray,
    dof: int,
    distance: np.ndarray,
) -> MotionLink:
    """Correlate edges with motion; an edge that is missing in any subject is left out.

    Parameters
    ----------
    matrices : sequence of ndarray of shape (n_edges,)
        Edges of each subject.
    motion : ndarray of shape (n_subjects,)
        Mean framewise displacement less the mean of the site.
    codes : ndarray of shape (n_subjects,)
        Site of each subject as a number.
    dof : int
        Degrees of freedom of the correlations.
    distance : ndarray of shape (n_edges,), or of shape (0,)
        Distances between the ROIs of each edge; empty where unknown.
    """
    from scipy.stats import spearmanr
    from scipy.stats import t as student

    n_edges = len(matrices[0])
    r = np.full(n_edges, np.nan)
    for start in range(0, n_edges, EDGES_AT_ONCE):
        part = slice(start, start + EDGES_AT_ONCE)
        edges = np.stack([m[part] for m in matrices]).astype(np.float64)
        z = _within_sites(np.arctanh(np.clip(edges, -0.999999, 0.999999)), codes)
        norms = np.sqrt((z**2).sum(axis=0) * (motion**2).sum())
        with np.errstate(invalid="ignore", divide="ignore"):
            r[part] = np.where(norms > 1e-9, motion @ z / norms, np.nan)
    known = np.isfinite(r)
    if not known.any():
        return MotionLink(r, np.nan, np.nan, np.nan)
    # t = r sqrt(dof / (1 - r^2)), solved for the r that p = 0.05 has (two-sided).
    limit = student.ppf(0.975, dof)
    critical = limit / np.sqrt(dof + limit**2)
    with_distance = np.nan
    if len(distance):
        with_distance = float(spearmanr(r[known], distance[known]).statistic)
    share = float((np.abs(r[known]) > critical).mean())
    return MotionLink(r, float(np.median(np.abs(r[known]))), share, with_distance)


def _chance_median(dof: int) -> float:
    """Return the median absolute correlation of unrelated values with `dof` degrees of freedom.

    Half of them lie within the quartiles of Student's t, which is r sqrt(dof / (1 - r^2)).
    """
    from scipy.stats import t as student

    middle = student.ppf(0.75, dof)
    return float(middle / np.sqrt(dof + middle**2))


def _distances(atlas: Atlas) -> np.ndarray:
    """Return the distance between the ROIs of each edge in mm (n_edges,); empty where unknown."""
    places = atlas.places
    if not len(places):
        return np.zeros(0)
    first, second = np.triu_indices(atlas.n_rois, 1)
    return np.linalg.norm(places[first] - places[second], axis=1)
