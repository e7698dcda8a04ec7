"""Draw the quality of a group: distributions by site with a link per subject, and QC-FC."""

import base64
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from fcforge.core.formatting import no_formula, number, printable
from fcforge.imaging.group_quality import MEASURES, QCFC, Measure, MotionLink
from fcforge.report import cells
from fcforge.report.cells import Cells, over_axes
from fcforge.report.figures import ACCENT, MUTED, in_page_style, new_figure
from fcforge.report.html import macro, picture
from fcforge.report.tables import Heading, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EVERYBODY = "all subjects"
HEIGHTS = (0.5, 0.28, 0.72, 0.4, 0.6)  # of successive dots, shares of a strip
BINS = 40  # bars of the histogram
DISTANCE_MM = 10  # width of a bin
LEAST_EDGES = 10  # bins with fewer edges are not drawn


# -- distributions ---------------------------------------------------------------------------------
def distributions(table: pd.DataFrame) -> tuple[Markup, list[str]]:
    """Return a strip of subjects per site for each measure, and the names of unknown measures.

    Parameters
    ----------
    table : DataFrame
        Result of `fcforge.imaging.group_quality.quality_table`, one row per subject.
    """
    cards, unknown = [], []
    for measure in MEASURES:
        values = table[measure.column].to_numpy(dtype=float)
        if np.isfinite(values).any():
            cards.append(_card(measure, values, table))
        else:
            unknown.append(measure.title)
    box = Markup('<div class="strips pair">{}</div>')
    return box.format(Markup("").join(cards)), unknown


def _card(measure: Measure, values: np.ndarray, table: pd.DataFrame) -> Markup:
    """Return one measure's card: title, meaning, and a strip of subjects for each site.

    Parameters
    ----------
    measure : Measure
    values : ndarray of shape (n,)
        The measure of each subject; NaN where unknown.
    table : DataFrame
        Ids, sites and flags of the n subjects.
    """
    low, high = np.nanmin(values), np.nanmax(values)
    # beside the outermost dots; where all values are equal the axis needs a length, too
    room = 0.03 * (high - low) or 0.02 * abs(high) or 1.0
    low = max(low - room, 0.0) if low >= 0 else low - room
    high = min(high + room, measure.largest)
    sites = table["site"].astype(str) if "site" in table else None
    names = [EVERYBODY] if sites is None else sorted(set(sites))
    strips = []
    for name in names:
        at_site = (
            np.ones(len(table), bool) if sites is None else (sites == name).to_numpy()
        )
        strips.append(_strip(name, at_site, values, (low, high), measure, table))
    ends = Markup(
        '<div class="strip"><b></b><div class="ends"><span>{}</span><span>{}</span></div></div>'
    ).format(*_ends(low, high, measure))
    n_missing = int((~np.isfinite(values)).sum())
    missing = f" Unknown for {n_missing} of {len(values)}." if n_missing else ""
    card = '<figure class="card"><h3>{}</h3><p class="note">{}{}</p>{}{}</figure>'
    return Markup(card).format(
        measure.title, measure.meaning, missing, Markup("").join(strips), ends
    )


def _strip(
    name: str,
    members: np.ndarray,
    values: np.ndarray,
    limits: tuple[float, float],
    measure: Measure,
    table: pd.DataFrame,
) -> Markup:
    """Return a strip with a dot per subject of a site and a line at their median.

    Parameters
    ----------
    name : str
        Name of the site.
    members : ndarray of shape (n,), bool
        Who of all subjects is of the site.
    values : ndarray of shape (n,)
        Values of the measure.
    limits : pair of float
        Ends of the axis.
    measure : Measure
    table : DataFrame
        Ids and flags of the n subjects.
    """
    low, high = limits
    rows = np.flatnonzero(members & np.isfinite(values))
    rows = rows[np.argsort(values[rows], kind="stable")]
    dots = []
    for k, row in enumerate(rows):
        subject = str(table["participant_id"].iloc[row])
        reason = str(table["flags"].iloc[row])
        text = f"{subject}: {_value(values[row], measure)}"
        if reason:
            text += f" \N{EM DASH} {reason}"
        look = "flagged" if reason else ""
        dot = Markup(
            '<a href="{}" class="{}" style="left:{:.1f}%;top:{:.0f}%" data-tip="{}" aria-label="{}"></a>'
        )
        position = 100 * (values[row] - low) / (high - low)
        label = printable(text)
        page = f"{subject}.html"
        height = 100 * HEIGHTS[k % len(HEIGHTS)]
        dots.append(dot.format(page, look, position, height, label, label))
    line = Markup("")
    if len(rows):
        middle = float(np.median(values[rows]))
        median_position = 100 * (middle - low) / (high - low)
        tip = f"{name}: median {_value(middle, measure)}, {len(rows)} subjects"
        line = Markup('<i style="left:{:.1f}%" data-tip="{}"></i>').format(
            median_position, printable(tip)
        )
    strip = '<div class="strip"><b>{}</b><div>{}{}</div></div>'
    return Markup(strip).format(printable(name), line, Markup("").join(dots))


def _ends(low: float, high: float, measure: Measure) -> tuple[str, str]:
    """Return the labels of both ends of an axis, with enough digits to differ."""
    for digits in range(measure.digits, measure.digits + 6):
        ends = [_value(end, measure._replace(digits=digits)) for end in (low, high)]
        if ends[0] != ends[1]:
            break
    return ends[0], ends[1]


def _value(value: float, measure: Measure) -> str:
    """Return a value of a measure with its unit."""
    text = number(float(value), measure.digits)
    return f"{text} {measure.unit}" if measure.unit else text


# -- QC-FC -----------------------------------------------------------------------------------------
def qc_fc_parts(qcfc: QCFC) -> tuple[Any, ...]:
    """Return table and pictures of QC-FC (correlation of edges with motion), or why there is none."""
    if qcfc.after is None:
        return (qcfc.problem,)
    stages = [("after denoising", qcfc.after)]
    if qcfc.before is not None:
        stages.insert(0, ("before denoising", qcfc.before))
    heads = (
        Heading("edges", words=True),
        Heading("median |r|", "Median size of the correlation of an edge with motion."),
        Heading("edges with p < 0.05", "Uncorrected; 5 % by chance."),
        Heading(
            "with distance",
            "Spearman's correlation of QC-FC with the distance between two ROIs; 0 is best.",
        ),
    )
    rows = [
        (
            name,
            number(link.median, 3),
            f"{number(100 * link.share_significant, 1)} %",
            number(link.with_distance, 2, sign=True),
        )
        for name, link in stages
    ]
    rows.append(("by chance", number(qcfc.expected_median, 3), "5.0 %", number(0.0, 2)))
    table = Table.of(heads, rows, quiet=frozenset({len(rows) - 1}))
    lines = [("", "after denoising")]
    if qcfc.before is not None:
        lines.append(("l-ref", "before denoising"))
    pictures = [("Correlation of edges with motion", _histogram(qcfc))]
    n_known = int(np.isfinite(qcfc.after.r).sum())
    left_out = ""
    if n_known < len(qcfc.after.r):
        left_out = (
            f"{len(qcfc.after.r) - n_known} of {len(qcfc.after.r)} edges are left out, because an "
            "ROI of theirs has no signal in some subject."
        )
    no_distances = "The distances between the ROIs are unknown."
    if len(qcfc.distance) and not _has_full_bin(qcfc):
        no_distances = (
            f"There is no plot against the distance between the ROIs: no {DISTANCE_MM} mm of distance have "
            f"{LEAST_EDGES} edges whose correlation with motion is known."
        )
    elif len(qcfc.distance):
        pictures.append(("Against the distance between the ROIs", _by_distance(qcfc)))
        no_distances = ""
    return (
        table,
        macro("pair", pictures),
        macro("legend", lines),
        no_distances,
        left_out,
    )


def _histogram(qcfc: QCFC) -> Markup:
    """Return the histogram of the edges' correlation with motion, with values at the pointer."""
    areas: list[Cells] = []
    figure = _draw_histogram(qcfc, areas)
    return picture(figure, "Histogram of the correlation with motion", cells=areas)


def _stages(qcfc: QCFC) -> list[tuple[str, MotionLink, dict[str, Any]]]:
    """Return name, QC-FC and line style after denoising and, if it is known, before."""
    solid = {"color": ACCENT, "lw": 1.8}
    dashed = {"color": MUTED, "lw": 1.6, "ls": "--"}
    stages = [("after", qcfc.after, solid), ("before", qcfc.before, dashed)]
    return [(name, link, look) for name, link, look in stages if link is not None]


@in_page_style
def _draw_histogram(qcfc: QCFC, areas: list[Cells]) -> "Figure":
    """Draw the histogram, and append the rectangle with its values to `areas`."""
    figure = new_figure(5.1, 2.6, left=0.12, right=0.97, top=0.88, bottom=0.24)
    axes = figure.subplots()
    stages = _stages(qcfc)
    largest = max(float(np.nanmax(np.abs(link.r))) for _, link, _ in stages)
    limit = min(1.0, np.ceil(10 * largest) / 10)
    bins = np.linspace(-limit, limit, BINS + 1)
    counts = []
    for _, link, look in stages:
        r = link.r[np.isfinite(link.r)]
        share = 100 * np.histogram(r, bins)[0] / len(r)
        axes.stairs(share, bins, **look)
        counts.append(share)
    axes.axvline(0, color=MUTED, lw=0.8)
    axes.set(xlim=(-limit, limit), xlabel="correlation with mean FD", ylim=(0, None))
    axes.set_title("% of edges")
    axes.locator_params(axis="x", nbins=4)
    names = [
        f"r {number(a, 2, sign=True)} to {number(b, 2, sign=True)}, % of edges"
        for a, b in pairwise(bins)
    ]
    content = cells.content(
        np.stack(counts), [name for name, *_ in stages], names, digits=1, every_row=True
    )
    areas.append(over_axes(axes, content))
    return figure


def _by_distance(qcfc: QCFC) -> Markup:
    """Return QC-FC against the distance between two ROIs, with values at the pointer."""
    areas: list[Cells] = []
    figure = _draw_by_distance(qcfc, areas)
    return picture(figure, "QC-FC against distance", cells=areas)


@in_page_style
def _draw_by_distance(qcfc: QCFC, areas: list[Cells]) -> "Figure":
    """Draw the mean of QC-FC in bins of distance, with the middle half of the edges shaded.

    The rectangle with the values is appended to `areas`.
    """
    figure = new_figure(5.1, 2.6, left=0.14, right=0.97, top=0.88, bottom=0.24)
    axes = figure.subplots()
    bins = _distance_bins(qcfc)
    middle = (bins[1:] + bins[:-1]) / 2
    lines = []
    stages = _stages(qcfc)
    for k, (_, link, look) in enumerate(stages):
        low, mean, high = _binned(link.r, qcfc.distance, bins)
        axes.plot(middle, mean, **look)
        if k == 0:
            axes.fill_between(middle, low, high, color=ACCENT, alpha=0.17, lw=0)
        lines.append(mean)
    axes.axhline(0, color=MUTED, lw=0.8)
    axes.set(xlim=(0, bins[-1]), xlabel="distance, mm")
    axes.set_title("mean r, middle half of edges shaded")
    axes.locator_params(axis="x", nbins=5)
    names = [f"{a:.0f} to {b:.0f} mm, mean r" for a, b in pairwise(bins)]
    content = cells.content(
        np.stack(lines), [name for name, *_ in stages], names, every_row=True
    )
    areas.append(over_axes(axes, content))
    return figure


def _distance_bins(qcfc: QCFC) -> np.ndarray:
    """Return the edges of the bins of distance, mm."""
    longest = DISTANCE_MM * np.ceil((qcfc.distance.max() + 1e-6) / DISTANCE_MM)
    return np.arange(0, longest + DISTANCE_MM, DISTANCE_MM)


def _has_full_bin(qcfc: QCFC) -> bool:
    """Return whether some bin of distance has enough edges to be drawn."""
    bins = _distance_bins(qcfc)
    return any(
        np.isfinite(_binned(link.r, qcfc.distance, bins)).any()
        for _, link, _ in _stages(qcfc)
    )


def _binned(
    r: np.ndarray, distance: np.ndarray, bins: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return lower quartile, mean and upper quartile of r in each bin of distance; NaN for few edges."""
    summary = np.full((3, len(bins) - 1), np.nan)
    bin_of = np.digitize(distance, bins) - 1
    for k in range(len(bins) - 1):
        members = r[(bin_of == k) & np.isfinite(r)]
        if len(members) >= LEAST_EDGES:
            low, high = np.quantile(members, [0.25, 0.75])
            summary[:, k] = low, members.mean(), high
    return summary[0], summary[1], summary[2]


# -- table -----------------------------------------------------------------------------------------
def download(table: pd.DataFrame, name: str) -> Markup:
    """Return a button that saves a table as CSV."""
    safe = table.copy()
    for column in safe.columns:
        if not pd.api.types.is_numeric_dtype(safe[column]):
            safe[column] = [no_formula(printable(str(cell))) for cell in safe[column]]
    text = safe.to_csv(index=False, float_format="%.6g", na_rep="n/a")
    data = base64.b64encode(text.encode()).decode()
    link = (
        '<p><a class="button" download="{}" '
        'href="data:text/csv;charset=utf-8;base64,{}">Download CSV</a></p>'
    )
    return Markup(link).format(name, data)
