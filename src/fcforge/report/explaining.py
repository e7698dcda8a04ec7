"""Page of an explanation: glass brain, chord plot, networks, and tables of edges."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from fcforge.core.files import write_text
from fcforge.core.formatting import counted, number
from fcforge.evaluation.explanation import NOBODY, Explanation, by_network, networks_of
from fcforge.report import brains, cells, figures
from fcforge.report.brains import Dot, Edge
from fcforge.report.figures import CONTROL, NETWORKS, PATIENT
from fcforge.report.html import Section, macro, picture, sections_page
from fcforge.report.tables import Heading, Table

EDGES = 30  # edges in a picture
LISTED = 12  # rows of a table
SHOWN = 10  # scans on a page
CSV_EDGES = 500  # edges of each scan in edges.csv
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
    """Return the indices of the `n` largest absolute values that are not zero, largest first."""
    order = np.argsort(-np.abs(values), kind="stable")[:n]
    return order[values[order] != 0]


def between_networks(explanation: Explanation) -> np.ndarray:
    """Return the relative strength of the edges within and between S networks, shape (S, S).

    It is the mean strength of the edges of a pair of networks over that of all edges, so that 1 is
    average; NaN where a network has no edge within it.
    """
    strength = by_network(
        explanation.atlas, explanation.matrix(values=explanation.strength)
    )
    n_edges = by_network(explanation.atlas, 1 - np.eye(explanation.atlas.n_rois))
    with np.errstate(invalid="ignore", divide="ignore"):
        return strength / n_edges / explanation.strength.mean()


def _pictures(
    explanation: Explanation,
    values: np.ndarray,
    meaning: str,
    roi_values: np.ndarray,
    roi_meaning: str,
) -> tuple[Markup | str, ...]:
    """Return the strongest edges on a glass brain and as chords, with a legend.

    Red edges speak for the positive class, blue ones against it. Without coordinates of the ROIs
    there is no glass brain.

    Parameters
    ----------
    explanation : Explanation
    values : ndarray of shape (n_edges,)
        Signed value of each edge.
    meaning : str
        Meaning of an edge's value, for the text at the pointer.
    roi_values : ndarray of shape (n_rois,)
        Value of each ROI.
    roi_meaning : str
        Meaning of an ROI's value, for the text at the pointer.
    """
    top = strongest(values, EDGES)
    if not len(top):
        return ()
    atlas = explanation.atlas
    pairs = list(zip(*np.triu_indices(atlas.n_rois, 1), strict=True))
    largest = float(np.abs(values).max())
    edges, chords = [], []
    for index in top[::-1]:  # the strongest on top
        first, second = (int(end) for end in pairs[index])
        value = float(values[index])
        share = abs(value) / largest
        colour = PATIENT if value > 0 else CONTROL
        text = (
            f"{atlas.roi_names[first]} \N{EN DASH} {atlas.roi_names[second]}: "
            f"{number(value, 3, sign=True)} {meaning}"
        )
        edges.append(Edge(first, second, colour, 0.5 + 2.0 * share, text))
        chords.append(Edge(first, second, colour, 0.5 + 1.5 * share, text))
    colours = network_colours(atlas.systems)
    pictures = []
    if len(atlas.places):
        pictures.append(
            brains.glass_brain(
                atlas.places,
                _dots(explanation, roi_values, roi_meaning, colours),
                edges,
                f"Glass brain with the {len(top)} strongest edges",
            )
        )
    systems, names = atlas.systems, atlas.roi_names
    label = f"Chord plot with the {len(top)} strongest edges"
    pictures.append(brains.chord_plot(systems, names, colours, chords, label))
    items = [
        ("bar", PATIENT, f"speaks for {explanation.positive}"),
        ("bar", CONTROL, "speaks against"),
    ]
    if networks_of(atlas):
        items += [("dot", colour, name) for name, colour in colours.items()]
    return (macro("brain", Markup("").join(pictures), items),)


def _dots(
    explanation: Explanation,
    roi_values: np.ndarray,
    meaning: str,
    colours: dict[str, str],
) -> list[Dot]:
    """Return a dot for each ROI, its size by the size of its value; small dots are drawn last.

    Parameters
    ----------
    explanation : Explanation
    roi_values : ndarray of shape (n_rois,)
        Value of each ROI.
    meaning : str
        Meaning of a value, for the text at the pointer.
    colours : dict of str to str
        Colour of each network.
    """
    atlas = explanation.atlas
    sizes = np.abs(roi_values)
    largest = max(float(sizes.max()), 1e-12)
    dots = []
    for roi in np.argsort(-sizes, kind="stable").tolist():
        system = atlas.systems[roi]
        name = f"{atlas.roi_names[roi]} ({system})" if system else atlas.roi_names[roi]
        value = float(roi_values[roi])
        text = f"{name}: {number(value, 3, sign=True)} {meaning}"
        size = 1.0 + 3.0 * abs(value) / largest
        dots.append(Dot(roi, colours[system], size, text))
    return dots


def _network_table(
    explanation: Explanation, sums: np.ndarray, head: str
) -> Table | str:
    """Return a table of the largest sums (S, S) within and between networks.

    It is empty if the networks are not known. `head` is the heading of the sums.
    """
    names = networks_of(explanation.atlas)
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
    first_head: str,
    names: Sequence[str],
    sums: np.ndarray,
    head: str,
    note: str = "",
) -> Table:
    """Return a table of the largest sums of contributions, at most `LISTED` of them.

    Parameters
    ----------
    title : str
    first_head : str
        Heading of the names.
    names : sequence of n str
        ROIs, or pairs of networks.
    sums : ndarray of shape (n,)
        Sum of the contributions of each.
    head : str
        Heading of the sums.
    note : str
    """
    signed = bool((sums < 0).any())
    rows = []
    for index in strongest(sums, LISTED):
        text = number(sums[index], 3, sign=signed)
        rows.append((names[index], text))
    return Table.of((first_head, head), rows, title=title, note=note)


def uses(explanation: Explanation) -> tuple[Any, ...]:
    """Return figures and tables of the edges that a model uses, over all scans of an explanation."""
    strength = explanation.strength / explanation.strength.mean()  # 1 is average
    matrix = explanation.matrix(values=strength)
    # a few edges are far stronger than the rest: the scale ends at the 99.5th percentile
    figure = figures.fc_figure(
        matrix,
        explanation.atlas.systems,
        TIMES,
        cmap=figures.SEQUENTIAL,
        vmin=0.0,
        vmax=np.quantile(matrix, 0.995),
    )
    signed = np.where(explanation.slope.mean(0) < 0, -strength, strength)
    roi_strength = explanation.matrix(values=strength).sum(1) / (
        explanation.atlas.n_rois - 1
    )
    order = figures.by_system(explanation.atlas.systems)[0]
    names = [explanation.atlas.roi_names[k] for k in order]
    values = cells.content(matrix[np.ix_(order, order)], names, names)
    area = cells.over_axes(figure.axes[0], values)
    return (
        *_pictures(
            explanation, signed, TIMES, roi_strength, f"{TIMES}, mean over its edges"
        ),
        picture(figure, "strength of every edge in the model's answer", cells=[area]),
        _network_table(explanation, between_networks(explanation), TIMES),
    )


def edge_names(names: Sequence[str]) -> list[str]:
    """Return a name of every edge, its two ROIs, from the names of the ROIs."""
    ends = zip(*np.triu_indices(len(names), 1), strict=True)
    return [f"{names[a]} – {names[b]}" for a, b in ends]


# -- the page of `predict --explain` --------------------------------------------------------------
def write_explanation(explanation: Explanation, folder: Path, model: str) -> None:
    """Write edges.csv, matrices.npz and index.html into a folder; `model` is the file's id.

    They hold edges of patients' scans: only their owner may read them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    explanation.to_csv(folder / "edges.csv", CSV_EDGES)
    explanation.to_npz(folder / "matrices.npz")
    page = explanation_page(explanation, model)
    write_text(folder / "index.html", page, private=True)


def explanation_page(explanation: Explanation, model: str) -> str:
    """Return the HTML page, with a section for each of the first `SHOWN` scans; `model` is the file's id."""
    n_scans = len(explanation.subjects)
    sections = [_scan_section(explanation, k) for k in range(min(SHOWN, n_scans))]
    notes = [("caution", CAUTION)]
    if explanation.reference == NOBODY:
        notes.append(("caution", IN_COMMON))
    if n_scans > SHOWN:
        further = counted(n_scans - SHOWN, "further scan")
        notes.append(("note", f"{further} in edges.csv and matrices.npz."))
    method = "exact: the terms of a linear model"
    if not explanation.exact:
        method = "integrated gradients"
    lead = (
        f"What moved the log odds of the class '{explanation.positive}', edge by edge, against "
        f"{explanation.reference} ({method})."
    )
    kind = f"explanation of consortium file {model[:12]}"
    return sections_page("Why it said so", kind, sections, lead, warnings=notes)


def _scan_section(explanation: Explanation, k: int) -> Section:
    """Return the section of scan `k`: sentences, pictures, deletion test and tables."""
    rois = explanation.atlas.roi_names
    networks = np.zeros((0, 0))
    if networks_of(explanation.atlas):
        networks = explanation.networks(k).to_numpy()
    pairs = edge_names(rois)
    contributions = explanation.contribution[k]
    deletion_test = explanation.deletion
    random = deletion_test.random[k]
    rois_added = explanation.rois(k)
    tables = (
        _edge_table(explanation, k, pairs),
        _sum_table("ROIs", "ROI", rois, rois_added, ADDS, HALVES),
        _network_table(explanation, networks, ADDS),
    )
    content = Section("", tables).html()
    parts = (
        _sum_words(explanation, k),
        *_pictures(
            explanation, contributions, ADDS, rois_added, f"{ADDS}, half of its edges"
        ),
        f"Deletion test: with its {counted(deletion_test.k, 'strongest edge')} set to the reference "
        f"the log odds move by {number(float(deletion_test.explained[k]), 2)} towards it; with as many "
        f"random edges by {number(random.mean(), 2)} (mean of {len(random)} draws).",
        macro("folded", "Edges, ROIs and networks as tables", content),
    )
    return Section(explanation.subjects[k], parts)


def _edge_table(explanation: Explanation, k: int, pairs: Sequence[str]) -> Table:
    """Return a table of scan k's strongest edges: FC, FC of the reference, contribution."""
    contributions = explanation.contribution[k]
    rows = []
    for index in strongest(contributions, EDGES):
        numbers = (explanation.fc[k][index], explanation.reference_fc[index])
        fc_texts = [number(float(value), 2, sign=True) for value in numbers]
        rows.append(
            (pairs[index], *fc_texts, number(contributions[index], 3, sign=True))
        )
    heads = ("edge", "FC", Heading("reference", "FC of the reference scan."), ADDS)
    return Table.of(heads, rows, title="Strongest edges", note=NOT_MEASURED)


def _sum_words(explanation: Explanation, k: int) -> str:
    """Return sentences on how scan k's edges add up to its log odds, and how few edges matter."""
    total = explanation.score[k]
    base = explanation.base[k]
    contributions = explanation.contribution[k]

    def signed(value: float) -> str:
        return number(value, 2, sign=True)

    words = (
        f"Log odds {signed(total)} = {signed(base)} (reference) "
        f"{signed(contributions.clip(0, None).sum())} (edges that speak for {explanation.positive}) "
        f"{signed(contributions.clip(None, 0).sum())} (edges against)"
    )
    gap = explanation.gap[k]
    if abs(gap) > 0.01 * max(abs(total - base), 1e-9):
        words += f" {signed(gap)} (not explained by edges)"
    size = -np.sort(-np.abs(contributions))
    movement = max(size.sum(), 1e-12)
    n_shown = min(EDGES, len(size))
    share = 100 * size[:n_shown].sum() / movement
    return (
        f"{words}. The {n_shown} strongest of {len(size)} edges, shown below, make up {share:.1f} % of "
        "all movement."
    )
