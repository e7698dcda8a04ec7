"""Judged generators: Markdown tables, one self-contained page, a section of a run's page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.errors import DataError
from fcforge.files import write_text
from fcforge.report import figures
from fcforge.report.figures import canvas, drawn
from fcforge.report.rendering import Section, macro, picture, sections_page
from fcforge.report.table import Table, interval_cell
from fcforge.studies.judge import summary as judged
from fcforge.studies.judge.summary import Portrait, read_portraits
from fcforge.text import number
from fcforge.types import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fcforge.studies.judge.experiment import Judgement
    from fcforge.studies.judge.panel import Panel

READING = (
    "Mean over sites, then over seeds; brackets: 95 % t interval over five or more seeds. What "
    "each measure is stands in docs/generators.md."
)
PICTURED = (
    "The most typical control and patient of every generator (nearest to its class mean), ROIs "
    "ordered by brain system with lines between the systems; blue −1, red +1. Below, the mean of "
    "every edge against the real one. Real and bootstrap show single real subjects: share the "
    "page only where those may be seen. Last, the mean eigenvalues: a correlation matrix has "
    "none below zero."
)
FIGURES = "Generated functional connectivity"
LOWEST = -0.6  # of the axes of edge means, unless a generator goes below

Summary = Mapping[str, Mapping[str, Estimate]]

# Groups of metrics; every group is one table with a line per generator.
FIDELITY = {
    "Validity, moments, class effect": {
        "active_units": "active units",
        "psd_share": "PSD share",
        "min_eigenvalue": "min eig.",
        "edge_mean_r": "edge-mean r",
        "variance_ratio": "variance ratio",
        "sd_ratio": "SD ratio",
        "class_difference_r": "class-diff. r",
        "class_difference_norm": "class-diff. norm",
    },
    "Spectrum and topology (distance from held-out subjects; 0 is best)": {
        "spectrum_distance": "spectrum",
        "topology_strength": "strength KS",
        "topology_clustering": "clustering KS",
        "topology_efficiency": "efficiency KS",
        "topology_modularity": "modularity KS",
    },
    "Two-sample tests and coverage (against held-out subjects)": {
        "mmd2": "MMD²",
        "c2st_auc": "C2ST AUC",
        "precision": "precision",
        "recall": "recall",
        "density": "density",
        "coverage": "coverage",
    },
    "Train on synthetic, test on real": {
        "tstr_linear_acc": "TSTR linear",
        "tstr_linear_auc": "its AUC",
        "tstr_gcn_acc": "TSTR GCN",
        "tstr_gcn_auc": "its AUC",
    },
}
DIGITS = {"active_units": 1}
ACCURACY = ("acc", "pre", "rec", "f1")
TITLES = {
    "linear": "ridge on edges",
    "gae": "GAE",
    "gat": "GAT",
    "gcn": "GCN",
    "sage": "GraphSAGE",
    "graph_transformer": "GraphTransformer",
}


def groups_of(panel: Panel, summary: Summary) -> list[tuple[str, list[Table]]]:
    """Headings and their tables, empty ones left out."""
    # the paper's five options, then ours; its ablation where anything was ablated
    printed = {*judged.OPTIONS, *judged.ABLATIONS}
    ours = {row: row for row in summary if row not in printed}
    options: Mapping[str, str] = {**judged.OPTIONS, **ours}
    ablated = judged.ABLATIONS if any(row in summary for row in judged.WITHOUT) else {}
    groups = [
        ("Fidelity and use", fidelity_tables(summary)),
        ("1:1 augmentation", _by_classifier(summary, panel.augment, options)),
        ("Ablation of FCM-VAE", _by_classifier(summary, panel.augment, ablated)),
    ]
    return [(heading, found) for heading, found in groups if found]


def write_judgement(found: Judgement, folder: Path) -> str:
    """``judge.html`` and ``tables.md`` in `folder`; the latter is returned."""
    text = markdown(found)
    write_text(folder / "tables.md", text)
    write_text(folder / "judge.html", page_of(found))
    return text


def markdown(found: Judgement) -> str:
    """All tables of a judgement as Markdown."""
    parts = [f"## {found.title}", "", *(f"**{w.text}**\n" for w in found.warnings)]
    for heading, group in groups_of(found.panel, found.summary):
        parts += [
            f"### {heading}",
            "",
            *(f"#### {table.markdown()}" for table in group),
        ]
    return "\n".join([*parts, READING + "\n"])


def page_of(found: Judgement) -> str:
    """The page as text."""
    sections = [figure_section(found.portraits or {}, found.where)]
    for heading, group in groups_of(found.panel, found.summary):
        sections.append(Section(heading, tuple(group), READING))
    said = [("serious", warning.text) for warning in found.warnings]
    lead = headline(found)
    return sections_page(found.title, "fcforge judge", sections, lead, warnings=said)


def headline(found: Judgement) -> str:
    """How many generators collapsed."""
    collapsed = {warning.row for warning in found.warnings}
    if not collapsed:
        return "No generator collapsed."
    return f"{len(collapsed)} of the generators collapsed."


def figure_section(
    portraits: Mapping[str, Portrait], where: str, *before: Table
) -> Section:
    """The pictures, after the given tables; the first portrait is the real one."""
    if not portraits:
        return Section(FIGURES, "No pictures were kept.")
    real = next(iter(portraits.values()))
    low = lowest_edge(portraits)
    cards = []
    for name, found in portraits.items():
        r = np.corrcoef(real.edge_mean, found.edge_mean)[0, 1]
        alt = f"FC of a typical control and patient of {name}; edge means"
        title = f"{name}, edge means r = {number(r)}"
        cards.append((title, picture(portrait_figure(found, real, low), alt)))
    spectra = picture(spectra_figure(portraits), "mean eigenvalues by rank")
    return Section(
        FIGURES,
        (*before, macro("cards", cards), spectra),
        f"{where} {PICTURED}".strip(),
    )


def folder_section(folder: Path) -> Section:
    """Figures and first table of a judged folder, for ``fcforge report --judge FOLDER``."""
    store = folder / "records.json"
    pictures = folder / "portraits.npz"
    if not (store.exists() and pictures.exists()):
        raise DataError(
            "holds no finished judgement (records.json and portraits.npz).",
            where=folder,
            do="Run `fcforge judge CONFIG --out FOLDER` first.",
        )
    stored = json.loads(store.read_text(encoding="utf-8"))["sites"]
    records = [record for site in stored.values() for record in site]
    first = fidelity_tables(judged.summarise(records))[0]
    judged_on = f"'{folder.name}', judged on {', '.join(stored)}."
    where = f"{judged_on} {READING} Pictures are of the first site and seed."
    return figure_section(read_portraits(pictures), where, first)


def fidelity_tables(summary: Summary) -> list[Table]:
    """One table per group of metrics, one line per generator."""
    out = []
    known = {metric for values in summary.values() for metric in values}
    for title, metrics in FIDELITY.items():
        used = [metric for metric in metrics if metric in known]
        rows = []
        for row, values in summary.items():
            cells = [
                interval_cell(values.get(m), digits=DIGITS.get(m, 3)) for m in used
            ]
            rows.append((row, *cells))
        heads = ("generator", *(metrics[m] for m in used))
        if used:
            out.append(Table.of(heads, rows, title=title))
    return out


def _by_classifier(
    summary: Summary, classifiers: Sequence[str], rows: Mapping[str, str]
) -> list[Table]:
    """A table per classifier, with the paper's numbers."""
    heads = ("training set", "ACC", "PRE", "REC", "F1", "paper's ACC / PRE / REC / F1")
    out = []
    for model in classifiers:
        body = []
        for row, title in rows.items():
            values = summary.get(row, {})
            if f"aug_{model}_acc" in values:
                four = (interval_cell(values.get(f"aug_{model}_{m}")) for m in ACCURACY)
                body.append((title, *four, judged.published(model, row)))
        if body:
            out.append(Table.of(heads, body, title=TITLES.get(model, model)))
    return out


@drawn
def portrait_figure(found: Portrait, real: Portrait, lowest: float = LOWEST) -> Figure:
    """Typical control and patient, ROIs ordered by brain system; edge means against the real."""
    figure = canvas(
        3.5, 3.75, left=0.19, right=0.95, top=0.94, bottom=0.12, wspace=0.12
    )
    grid = figure.add_gridspec(2, 2, height_ratios=(1, 1.05), hspace=0.18)
    systems = found.systems.tolist() or [""] * len(found.control)
    people = {"control": found.control, "patient": found.patient}
    for k, (title, fc) in enumerate(people.items()):
        axes = figure.add_subplot(grid[0, k])
        figures.matrix(axes, fc, systems, named=False, vmin=-1, vmax=1)
        axes.set_title(title, loc="center", pad=3)
    axes = figure.add_subplot(grid[1, :])
    axes.plot([-1, 1], [-1, 1], color=figures.FAINT, lw=0.8)
    points: dict[str, Any] = {"s": 1.2, "alpha": 0.35, "color": figures.POINTS}
    axes.scatter(real.edge_mean, found.edge_mean, rasterized=True, **points)
    axes.set(xlim=(LOWEST, 1), ylim=(lowest, 1))
    axes.set(xlabel="mean of an edge, real", ylabel="generated")
    return figure


def lowest_edge(portraits: Mapping[str, Portrait]) -> float:
    """Lower end of the axis: a generator whose edges are all negative stays in the picture."""
    ends = [float(p.edge_mean.min()) - 0.05 for p in portraits.values()]
    return min(LOWEST, *ends)


@drawn
def spectra_figure(portraits: Mapping[str, Portrait]) -> Figure:
    """Mean eigenvalue by rank on a symmetric log axis; below zero is invalid."""
    figure = canvas(5.4, 3.2, left=0.14, right=0.68, top=0.91, bottom=0.11)
    axes = figure.subplots()
    styles = ("-", "--", ":")
    for i, (name, p) in enumerate(portraits.items()):
        rank = np.arange(1, len(p.spectrum) + 1)
        again, k = divmod(i, len(figures.SERIES))
        look: dict[str, Any] = {"color": figures.INK, "lw": 2.4}
        if i:
            look = {"color": figures.SERIES[k], "ls": styles[again % 3], "lw": 1.4}
        axes.plot(rank, p.spectrum, label=name, **look)
    axes.set_yscale("symlog", linthresh=0.01)
    # exponents would be too small
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.axhline(0, color=figures.MUTED, lw=0.6)
    axes.set_title("mean eigenvalue by rank")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
