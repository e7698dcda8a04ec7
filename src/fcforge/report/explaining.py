"""Why a model said so, in pictures: a glass brain, a chord plot, networks, tables of edges."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from fcforge.core.files import write_text
from fcforge.core.formatting import counted, number
from fcforge.evaluation import explanation
from fcforge.evaluation.explanation import Explanation, by_network, networks_of
from fcforge.report import brains, cells, figures
from fcforge.report.brains import Dot, Edge
from fcforge.report.figures import CONTROL, NETWORKS, PATIENT
from fcforge.report.html import Section, macro, picture, sections_page
from fcforge.report.tables import Heading, Table

EDGES = 30  # in a picture
LISTED = 12  # lines of a table
SHOWN = 10  # scans on a page
CSV_EDGES = 500  # of each scan
ADDS = "adds to the log odds"
TIMES = "times the average edge"

CAUTION = (
    "What is shown is what this model used, for this scan, against the reference. It does not "
    "say that an edge has to do with the illness, and no diagnosis should rest on it."
)
IN_COMMON = (
    "This file holds no people to compare with (no held-out subjects travel in it), so "
    "contributions include what every brain has in common."
)
HALVES = "Half of what an edge adds is counted at each of its two ROIs."
NOT_MEASURED = (
    "Whether another sample of people would give the same edges was not measured: "
    "edge_stability() does it in Python, where the people are."
)


# -- a model's edges -------------------------------------------------------------------------------
def network_colours(systems: Sequence[str]) -> dict[str, str]:
    """Return a colour for every network, in the order of their first ROI."""
    names = dict.fromkeys(systems)
    return {name: NETWORKS[k % len(NETWORKS)] for k, name in enumerate(names)}


def strongest(values: np.ndarray, n: int) -> np.ndarray:
    """Return places of the `n` largest values that are not zero, largest first."""
    order = np.argsort(-np.abs(values), kind="stable")[:n]
    return order[values[order] != 0]


def between_networks(found: Explanation) -> np.ndarray:
    """Return the mean strength of the edges within and between networks over the mean of all, (S, S).

    1 is an average edge; NaN where a network has no edge of its own.
    """
    strength = by_network(found.atlas, found.matrix(values=found.strength))
    n_edges = by_network(found.atlas, 1 - np.eye(found.atlas.n_rois))
    with np.errstate(invalid="ignore", divide="ignore"):
        return strength / n_edges / found.strength.mean()


def _pictures(
    found: Explanation, values: np.ndarray, what: str, rois: np.ndarray, of_rois: str
) -> tuple[Markup | str, ...]:
    """Return the strongest of some values on a glass brain and as chords, with a legend.

    Red edges speak for the positive class, blue ones against it. There is no glass brain where
    places are not known.

    Parameters
    ----------
    found : Explanation
    values : ndarray of shape (n_edges,)
        Signed.
    what : str
        Meaning of a value, for the text at the pointer.
    rois : ndarray of shape (n_rois,)
        Value of each ROI, and `of_rois` its meaning.
    of_rois : str
    """
    top = strongest(values, EDGES)
    if not len(top):
        return ()
    atlas = found.atlas
    pairs = list(zip(*np.triu_indices(atlas.n_rois, 1), strict=True))
    largest = float(np.abs(values).max())
    edges, chords = [], []
    for place in top[::-1]:  # the strongest on top
        first, second = (int(end) for end in pairs[place])
        value = float(values[place])
        share = abs(value) / largest
        colour = PATIENT if value > 0 else CONTROL
        text = (
            f"{atlas.roi_names[first]} \N{EN DASH} {atlas.roi_names[second]}: "
            f"{number(value, 3, sign=True)} {what}"
        )
        edges.append(Edge(first, second, colour, 0.5 + 2.0 * share, text))
        chords.append(Edge(first, second, colour, 0.5 + 1.5 * share, text))
    colours = network_colours(atlas.systems)
    shown = []
    if len(atlas.places):
        shown.append(
            brains.glass_brain(
                atlas.places,
                _dots(found, rois, of_rois, colours),
                edges,
                f"Glass brain with the {len(top)} strongest edges",
            )
        )
    systems, names = atlas.systems, atlas.roi_names
    label = f"Chord plot with the {len(top)} strongest edges"
    shown.append(brains.chord_plot(systems, names, colours, chords, label))
    items = [
        ("bar", PATIENT, f"speaks for {found.positive}"),
        ("bar", CONTROL, "speaks against"),
    ]
    if networks_of(atlas):
        items += [("dot", colour, name) for name, colour in colours.items()]
    return (macro("brain", Markup("").join(shown), items),)


def _dots(
    found: Explanation, rois: np.ndarray, meaning: str, colours: dict[str, str]
) -> list[Dot]:
    """Return all ROIs, large where their value is, small ones last."""
    atlas = found.atlas
    largest = max(float(np.abs(rois).max()), 1e-12)
    dots = []
    for roi in np.argsort(-np.abs(rois), kind="stable").tolist():
        system = atlas.systems[roi]
        name = f"{atlas.roi_names[roi]} ({system})" if system else atlas.roi_names[roi]
        value = float(rois[roi])
        text = f"{name}: {number(value, 3, sign=True)} {meaning}"
        size = 1.0 + 3.0 * abs(value) / largest
        dots.append(Dot(roi, colours[system], size, text))
    return dots


def _network_table(found: Explanation, sums: np.ndarray, head: str) -> Table | str:
    """Return the largest of sums (S, S) within and between networks; nothing where none are known."""
    names = networks_of(found.atlas)
    if not names:
        return ""
    i, j = np.triu_indices(len(names))
    pairs = []
    for a, b in zip(i, j, strict=True):
        pairs.append(names[a] if a == b else f"{names[a]} – {names[b]}")
    title = "Within and between networks"
    return _sum_table(title, "network", pairs, np.nan_to_num(sums[i, j]), head)


def _sum_table(
    title: str,
    what: str,
    names: Sequence[str],
    sums: np.ndarray,
    head: str,
    note: str = "",
) -> Table:
    signed = bool((sums < 0).any())
    rows = []
    for place in strongest(sums, LISTED):
        added = number(sums[place], 3, sign=signed)
        rows.append((names[place], added))
    return Table.of((what, head), rows, title=title, note=note)


def uses(found: Explanation) -> tuple[Any, ...]:
    """Return figures and tables of the edges that a model uses."""
    times = found.strength / found.strength.mean()
    matrix = found.matrix(values=times)
    # a few edges are far stronger than the rest: the scale ends at the 99.5th percentile
    figure = figures.fc_figure(
        matrix,
        found.atlas.systems,
        TIMES,
        cmap=figures.SEQUENTIAL,
        vmin=0.0,
        vmax=np.quantile(matrix, 0.995),
    )
    signed = np.where(found.slope.mean(0) < 0, -times, times)
    of_rois = found.matrix(values=times).sum(1) / (found.atlas.n_rois - 1)
    order = figures.by_system(found.atlas.systems)[0]
    names = [found.atlas.roi_names[k] for k in order]
    values = cells.content(matrix[np.ix_(order, order)], names, names)
    area = cells.over_axes(figure.axes[0], values)
    return (
        *_pictures(found, signed, TIMES, of_rois, f"{TIMES}, mean over its edges"),
        picture(figure, "strength of every edge in the model's answer", cells=[area]),
        _network_table(found, between_networks(found), TIMES),
    )


def edge_names(names: Sequence[str]) -> list[str]:
    """Return both ROIs of every edge."""
    ends = zip(*np.triu_indices(len(names), 1), strict=True)
    return [f"{names[a]} – {names[b]}" for a, b in ends]


# -- the page of `predict --explain` --------------------------------------------------------------
def write_explanation(found: Explanation, folder: Path, model: str) -> None:
    """Write edges.csv, matrices.npz and index.html into a folder; `model` is the file's id.

    They hold edges of patients' scans: only their owner may read them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found.to_csv(folder / "edges.csv", CSV_EDGES)
    found.to_npz(folder / "matrices.npz")
    page = explanation_page(found, model)
    write_text(folder / "index.html", page, private=True)


def explanation_page(found: Explanation, model: str) -> str:
    """Return the page: one section for each of the first `SHOWN` scans."""
    n_scans = len(found.subjects)
    sections = [_scan_section(found, k) for k in range(min(SHOWN, n_scans))]
    notes = [("caution", CAUTION)]
    if found.reference == explanation.NOBODY:
        notes.append(("caution", IN_COMMON))
    if n_scans > SHOWN:
        left = counted(n_scans - SHOWN, "further scan")
        notes.append(("note", f"{left} in edges.csv and matrices.npz."))
    how = "exact: the terms of a linear model"
    if not found.exact:
        how = "integrated gradients"
    lead = (
        f"What moved the log odds of the class '{found.positive}', edge by edge, against "
        f"{found.reference} ({how})."
    )
    kind = f"explanation of exchange file {model[:12]}"
    return sections_page("Why it said so", kind, sections, lead, warnings=notes)


def _scan_section(found: Explanation, k: int) -> Section:
    rois = found.atlas.roi_names
    networks = np.zeros((0, 0))
    if networks_of(found.atlas):
        networks = found.networks(k).to_numpy()
    pairs = edge_names(rois)
    each = found.contribution[k]
    tested = found.deletion
    random = tested.random[k]
    rois_added = found.rois(k)
    tables = (
        _edge_table(found, k, pairs),
        _sum_table("ROIs", "ROI", rois, rois_added, ADDS, HALVES),
        _network_table(found, networks, ADDS),
    )
    content = Section("", tables).html()
    parts = (
        _sum_words(found, k),
        *_pictures(found, each, ADDS, rois_added, f"{ADDS}, half of its edges"),
        f"Deletion test: with its {counted(tested.k, 'strongest edge')} set to the reference "
        f"the log odds move by {number(float(tested.explained[k]), 2)} towards it; with as many "
        f"random edges by {number(random.mean(), 2)} (mean of {len(random)} draws).",
        macro("folded", "Edges, ROIs and networks as tables", content),
    )
    return Section(found.subjects[k], parts)


def _edge_table(found: Explanation, k: int, pairs: Sequence[str]) -> Table:
    """Return the strongest edges of a scan with FC, that of the reference, and what they add."""
    each = found.contribution[k]
    rows = []
    for place in strongest(each, EDGES):
        numbers = (found.fc[k][place], found.reference_fc[place])
        cells_of = [number(float(value), 2, sign=True) for value in numbers]
        rows.append((pairs[place], *cells_of, number(each[place], 3, sign=True)))
    heads = ("edge", "FC", Heading("reference", "FC of the reference scan."), ADDS)
    return Table.of(heads, rows, title="Strongest edges", note=NOT_MEASURED)


def _sum_words(found: Explanation, k: int) -> str:
    """Return how the edges add up to the log odds, and how concentrated they are."""
    total = found.score[k]
    base = found.base[k]
    each = found.contribution[k]

    def signed(value: float) -> str:
        return number(value, 2, sign=True)

    words = (
        f"Log odds {signed(total)} = {signed(base)} (reference) "
        f"{signed(each.clip(0, None).sum())} (edges that speak for {found.positive}) "
        f"{signed(each.clip(None, 0).sum())} (edges against)"
    )
    gap = found.gap[k]
    if abs(gap) > 0.01 * max(abs(total - base), 1e-9):
        words += f" {signed(gap)} (not explained by edges)"
    size = -np.sort(-np.abs(each))
    movement = max(size.sum(), 1e-12)
    n_shown = min(EDGES, len(size))
    share = 100 * size[:n_shown].sum() / movement
    return (
        f"{words}. The {n_shown} strongest of {len(size)} edges, shown below, make up {share:.1f} % of "
        "all movement."
    )
