"""Why a model said so, in pictures: a glass brain (nilearn), networks, tables of edges."""

import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from fcforge.capsule.prediction import Prediction
from fcforge.exchange import explanation
from fcforge.exchange.explanation import Explanation, by_network, networks_of
from fcforge.graphs import n_rois_of
from fcforge.report import figures
from fcforge.report.figures import CONTROL, DIVERGING, NETWORKS, PATIENT, png
from fcforge.report.frame import Section, macro, picture, sections_page, spoken
from fcforge.report.table import Cell, Heading, Table
from fcforge.runner.collect import Weights
from fcforge.text import counted, number, percent
from fcforge.writing import write_bytes, write_text

EDGES, LISTED, SHOWN = (
    30,
    12,
    20,
)  # edges in a picture, lines of a table, scans on a page
CSV_EDGES = 500  # of each scan
SPLITS = 10  # of a run, before it says that an edge is to be believed


def said(what: str, **facts: Any) -> str:
    """A paragraph of ``explaining.txt.j2``."""
    return spoken(what, "explaining.txt.j2", **facts)


def network_colours(systems: Sequence[str]) -> dict[str, str]:
    """A colour for every network, in the order of their first ROI."""
    return {
        s: NETWORKS[k % len(NETWORKS)] for k, s in enumerate(dict.fromkeys(systems))
    }


def glass_brain(
    found: Explanation, signed: np.ndarray, size: np.ndarray
) -> Markup | str:
    """The strongest edges (R, R) over four projections; nothing where places are not known.

    Red edges speak for the positive class, blue ones against it. A dot's size is what its ROI
    contributes, its colour the network.
    """
    places, most = found.atlas.places, float(np.abs(signed).max())
    if not len(places) or not most:
        return ""
    import matplotlib as mpl

    mpl.use("Agg", force=False)
    from matplotlib.figure import Figure
    from nilearn.plotting import plot_connectome

    colours = network_colours(found.atlas.systems)
    figure = Figure(figsize=(9.6, 3.3))
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # nilearn's and matplotlib's notices on their own API
        plot_connectome(
            signed,
            places,
            node_color=[colours[s] for s in found.atlas.systems],
            node_size=4 + 46 * (size / size.max()) ** 2,
            edge_cmap=DIVERGING,
            edge_vmin=-most,
            edge_vmax=most,
            edge_kwargs={"linewidth": 1.6, "alpha": 0.8},
            node_kwargs={"edgecolors": "white", "linewidths": 0.4},
            display_mode="lyrz",
            figure=figure,
            annotate=True,
            colorbar=False,
        )
        return png(figure, "Glass brain with the strongest edges")


def strongest(values: np.ndarray, n: int) -> np.ndarray:
    """Places of the `n` largest values that are not zero, largest first."""
    order = np.argsort(-np.abs(values), kind="stable")[:n]
    return order[values[order] != 0]


def average_parts(found: Explanation) -> dict[str, Any]:
    """What a model uses over several scans: pictures and numbers for a capsule's page."""
    atlas, average = found.atlas, found.strength.mean()
    times = found.strength / average
    way = np.sign(found.slope.mean(0))
    top = strongest(times, EDGES)
    matrix = found.matrix(values=times)
    signed = np.zeros_like(times)
    signed[top] = times[top] * np.where(way[top] == 0, 1, way[top])
    # a few edges are far stronger than the rest: the scale ends at the 99.5th percentile
    scale = {
        "cmap": figures.SEQUENTIAL,
        "vmin": 0.0,
        "vmax": np.quantile(matrix, 0.995),
    }
    drawn = figures.fc_figure(matrix, atlas.systems, "times the average edge", **scale)
    mean = found.matrix(values=found.fc.mean(0)) + np.eye(atlas.n_rois)
    fc = figures.fc_figure(mean, atlas.systems, "correlation", vmin=-1, vmax=1)
    n = len(found.subjects) if found.contribution.any() else 0
    i, j = found.ends
    return {
        "n": n,
        "exact": found.exact,
        "edges": picture(drawn, "strength of every edge in the model's answer"),
        "fc": picture(fc, "mean FC of the synthetic subjects") if n else "",
        "systems": between_networks(found) if networks_of(atlas) else None,
        "colours": network_colours(atlas.systems) if networks_of(atlas) else {},
        "glass": glass_brain(found, found.matrix(values=signed), matrix.sum(1)),
        "n_edges": EDGES,
        "top": [
            (atlas.roi_names[i[k]], atlas.roi_names[j[k]], times[k], way[k])
            for k in top[:12]
        ],
    }


def between_networks(found: Explanation) -> np.ndarray:
    """Mean strength of the edges within and between networks over the mean of all, (S, S).

    1 is an average edge; NaN where a network has no edge of its own.
    """
    strength = by_network(found.atlas, found.matrix(values=found.strength))
    n_edges = by_network(found.atlas, 1 - np.eye(found.atlas.n_rois))
    with np.errstate(invalid="ignore", divide="ignore"):
        return strength / n_edges / found.strength.mean()


# -- the page of `predict --explain` --------------------------------------------------------------
def write_explanation(
    found: Explanation, rows: Sequence[Prediction], folder: Path, capsule: str
) -> None:
    """Write edges.csv, matrices.npz and index.html into a folder."""
    out = io.BytesIO()
    np.savez_compressed(
        out,
        subject=np.array(found.subjects),
        contribution=np.stack([found.matrix(k) for k in range(len(found.subjects))]),
        roi_names=np.array(found.atlas.roi_names),
        coordinates=found.atlas.places,
    )
    folder.mkdir(parents=True, exist_ok=True)
    found.to_csv(folder / "edges.csv", CSV_EDGES)
    write_bytes(folder / "matrices.npz", out.getvalue())
    write_text(folder / "index.html", explanation_page(found, rows, capsule))


def explanation_page(
    found: Explanation, rows: Sequence[Prediction], capsule: str
) -> str:
    """The page: one section per scan, the first `SHOWN` of them."""
    how = (
        "exact: the terms of a linear model" if found.exact else "integrated gradients"
    )
    silent = [row for row in rows if row.status != "ok"]
    sections = [_scan_section(found, k) for k in range(min(SHOWN, len(found.subjects)))]
    if silent:
        words = [(row.subject, row.status, row.note) for row in silent]
        table = Table.of(
            ("scan", Heading("status", words=True), Heading("why", words=True)), words
        )
        sections.append(
            Section("Not explained", table, "No answer was given for these scans.")
        )
    left = len(found.subjects) - SHOWN
    notes = [("caution", said("caution"))]
    if found.reference == explanation.NOBODY:
        notes.append(("caution", said("shared")))
    if left > 0:
        notes.append(
            ("note", f"{counted(left, 'further scan')} in edges.csv and matrices.npz.")
        )
    lead = (
        f"What moved the log odds of being a patient (class {found.positive}), edge by edge, "
        f"against {found.reference} ({how})."
    )
    kind = f"explanation of capsule {capsule[:12]}"
    return sections_page("Why it said so", kind, sections, lead, warnings=notes)


def _scan_section(found: Explanation, k: int) -> Section:
    signed = np.zeros(found.contribution.shape[1])
    top = strongest(found.contribution[k], EDGES)
    signed[top] = found.contribution[k][top]
    size = np.abs(found.matrix(k)).sum(1)
    image = glass_brain(found, found.matrix(values=signed), size)
    body: list[Any] = [_sum_words(found, k)]
    if image:
        colours = (
            network_colours(found.atlas.systems) if networks_of(found.atlas) else {}
        )
        items = [
            ("bar", PATIENT, "speaks for patient"),
            ("bar", CONTROL, "for control"),
        ]
        items += [("dot", colour, name) for name, colour in colours.items()]
        body.append(macro("brain", image, items))
    tested = found.deletion
    deleted = {
        "k": tested.k,
        "top": float(tested.explained[k]),
        "random": tested.random[k],
    }
    body += [edge_table(found, k), *_sums(found, k), said("deleted", **deleted)]
    return Section(found.subjects[k], tuple(body))


def _sum_words(found: Explanation, k: int) -> str:
    """How the edges add up to the log odds, and over how many of them that is spread."""
    base, total, gap, each = (
        found.base[k],
        found.score[k],
        found.gap[k],
        found.contribution[k],
    )
    size = -np.sort(-np.abs(each))
    gap = gap if abs(gap) > 0.01 * max(abs(total - base), 1e-9) else 0
    ways = {
        "speaks": each.clip(0, None).sum(),
        "against": each.clip(None, 0).sum(),
        "gap": gap,
    }
    share = 100 * size[:LISTED].sum() / max(size.sum(), 1e-12)
    half = int(np.searchsorted(size.cumsum(), size.sum() / 2)) + 1
    spread = {"listed": LISTED, "share": share, "half": half, "n": len(size)}
    return said("summed", total=total, base=base, **ways, **spread)


def edge_table(found: Explanation, k: int = 0, n: int = LISTED) -> Table:
    """The edges that moved one scan's score most."""
    table = found.edges(k, n)
    heads = [
        Heading("edge", words=True),
        *map(Heading, ("adds to the log odds", "FC", "reference")),
    ]
    note, measured, rows = said("not_measured"), found.stability is not None, []
    if measured:
        heads.append(Heading("to be believed", words=True))
        note = said("believed", found=found.stability)
    for row in table.itertuples():
        adds = Cell(number(row.contribution, 3, sign=True), value=row.contribution)
        both = (number(x, 2, sign=True) for x in (row.fc, row.reference_fc))
        sure = [belief(row.believed, row.same_sign, row.in_top)] if measured else []
        rows.append((f"{row.roi_a} – {row.roi_b}", adds, *both, *sure))
    return Table.of(heads, rows, title="Strongest edges", note=note, sortable=True)


def belief(believed: bool, same_sign: float, in_top: float) -> Cell:
    """Whether an edge is to be believed, and why."""
    below = (
        f"same sign {percent(same_sign, 0)}, among the strongest {percent(in_top, 0)}"
    )
    return Cell("yes" if believed else "not to be believed", (below,))


def _sums(found: Explanation, k: int) -> list[Table]:
    """What ROIs add, and what edges within and between networks add, strongest first."""
    tables = [
        _sum_table(
            "ROIs (half of each of their edges)", found.atlas.roi_names, found.rois(k)
        )
    ]
    if names := networks_of(found.atlas):
        i, j = np.triu_indices(len(names))
        pairs = [
            names[a] if a == b else f"{names[a]} – {names[b]}"
            for a, b in zip(i, j, strict=True)
        ]
        sums = found.networks(k).to_numpy()[i, j]
        tables.append(_sum_table("Within and between networks", pairs, sums))
    return tables


def _sum_table(title: str, names: Sequence[str], sums: np.ndarray) -> Table:
    rows = [(names[x], number(sums[x], 3, sign=True)) for x in strongest(sums, LISTED)]
    return Table.of(("", Heading("adds to the log odds")), rows, title=title)


# -- the page of a run ----------------------------------------------------------------------------
def stability_section(
    learners: Mapping[str, Weights], roi_names: tuple[str, ...] = ()
) -> list[Section]:
    """Strongest edges of a run's linear learners, and which of them are to be believed."""
    if not learners:
        return []
    n_edges = next(iter(learners.values())).values.shape[1]
    names = explanation.atlas_for(n_rois_of(n_edges), roi_names).roi_names
    body = tuple(
        _stability_part(title, found, names) for title, found in learners.items()
    )
    return [Section("Edges that linear learners use", body, said("weights"))]


def _stability_part(title: str, found: Weights, names: Sequence[str]) -> Table | str:
    splits = f"{counted(found.n_seeds, 'split')} of the people"
    if found.n_seeds < 2:
        return f"{title}: {splits} cannot say which edges are to be believed. Use more seeds."
    stable = explanation.Stability.of(
        found.values, f"{splits}, in all orders", explanation.IN_RUNS
    )
    i, j = np.triu_indices(len(names), 1)
    rows = []
    for k in strongest(stable.weight, LISTED):
        weight = Cell(number(stable.weight[k], 2, sign=True), value=stable.weight[k])
        cell = belief(stable.believed[k], stable.same_sign[k], stable.in_top[k])
        if found.n_seeds < SPLITS and stable.believed[k]:
            cell = replace(cell, text="too few splits to say")
        rows.append((f"{names[i[k]]} – {names[j[k]]}", weight, cell))
    so = said("splits", n=int(stable.believed.sum()), of=len(i), least=SPLITS)
    return Table.of(
        (
            Heading("edge", words=True),
            "mean weight",
            Heading("to be believed", words=True),
        ),
        rows,
        title=title,
        note=f"{said('believed', found=stable)} {so}",
        sortable=True,
    )
