"""Results of `fcforge judge` as Markdown tables and as an HTML page."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from fcforge.core.estimate import Estimate
from fcforge.core.files import write_text
from fcforge.core.formatting import number
from fcforge.evaluation.generator_quality import summary as judged
from fcforge.evaluation.generator_quality.summary import (
    Judgement,
    Portraits,
    read_judgement,
)
from fcforge.report import figures
from fcforge.report.figures import in_page_style, new_figure
from fcforge.report.html import Section, dots_legend, macro, picture, sections_page
from fcforge.report.tables import Cell, Table, interval_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
SPECTRA_INKS = (figures.INK, *figures.SERIES)
LOWEST = -0.6  # lower end of the axes of edge means, unless a generator goes below

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
ACCURACY = {"acc": "ACC", "pre": "PRE", "rec": "REC", "f1": "F1"}


def write_judgement(folder: Path) -> str:
    """Write ``judge.html`` and ``tables.md`` into a judged folder, and return the text of the latter."""
    judgement = read_judgement(folder)
    warned = [f"**{text}**\n" for text in judged.collapse_list(judgement.records)]
    printed_tables = [f"### {table.markdown()}" for table in tables_of(judgement)]
    text = "\n".join(
        [f"## {judgement.title}", "", *warned, *printed_tables, READING, ""]
    )
    write_text(folder / "tables.md", text)
    write_text(folder / "judge.html", page_of(judgement))
    return text


def page_of(judgement: Judgement, home: str = "") -> str:
    """Return the HTML page of a judgement; `home` is the address of the overview, if there is one."""
    warnings = [("serious", text) for text in judged.collapse_list(judgement.records)]
    pictured = judgement.portraits  # the first is the real one
    low = min(LOWEST, float(pictured.edge_mean.min()) - 0.05)
    cards = []
    for k, name in enumerate(pictured.rows):
        r = np.corrcoef(pictured.edge_mean[0], pictured.edge_mean[k])[0, 1]
        alt = f"FC of a typical control and patient of {name}; edge means"
        title = f"{name}, edge means r = {number(r)}"
        cards.append((title, picture(portrait_figure(pictured, k, low), alt)))
    spectra = picture(spectra_figure(pictured), "mean eigenvalues by rank")
    figures_body = (macro("cards", cards), spectra, spectra_legend(pictured))
    sections = [
        Section(
            "Generated functional connectivity",
            figures_body,
            f"{pictured.where} {PICTURED}",
        ),
        Section("Fidelity and use", tuple(tables_of(judgement)), READING),
    ]
    return sections_page(
        judgement.title, "fcforge judge", sections, home=home, warnings=warnings
    )


def tables_of(judgement: Judgement) -> list[Table]:
    """Return one table per group of measured metrics, with one line per generator.

    The tables of 1:1 augmentation also have the paper's numbers.
    """
    summary = judged.summarise(judgement.records)
    measured = list(dict.fromkeys(m for values in summary.values() for m in values))
    out = []
    for title, metrics in FIDELITY.items():
        present = {m: head for m, head in metrics.items() if m in measured}
        if present:
            rows = [(row, *_cells(values, present)) for row, values in summary.items()]
            out.append(Table.of(("generator", *present.values()), rows, title=title))
    heads = ("generator", *ACCURACY.values(), "paper's ACC / PRE / REC / F1")
    for metric in measured:
        if metric.startswith("aug_") and metric.endswith("_acc"):
            model = metric.removeprefix("aug_").removesuffix("_acc")
            present = {f"aug_{model}_{end}": head for end, head in ACCURACY.items()}
            rows = []
            for row, values in summary.items():
                printed = judged.published(model, row)
                rows.append((row, *_cells(values, present), printed))
            out.append(Table.of(heads, rows, title=f"1:1 augmentation, {model}"))
    return out


def _cells(values: Mapping[str, Estimate], metrics: Iterable[str]) -> list[Cell]:
    """Return the cells of one generator; a dash where it has no such metric."""
    return [interval_cell(values.get(metric)) for metric in metrics]


@in_page_style
def portrait_figure(p: Portraits, k: int, lowest: float = LOWEST) -> "Figure":
    """Draw a generator's typical control and patient, and its edge means against the real ones.

    Parameters
    ----------
    p : Portraits
    k : int
        Number of the generator's row; row 0 is the real subjects.
    lowest : float
        Lower end of the axis of generated edge means.
    """
    figure = new_figure(3.5, 3.75, left=0.19, right=0.95, top=0.94, bottom=0.12)
    space = {"wspace": 0.12, "hspace": 0.18}
    axes = figure.subplot_mosaic("AB;CC", height_ratios=(1, 1.05), gridspec_kw=space)
    systems = p.systems.tolist() or [""] * p.control.shape[1]
    people = {"control": p.control[k], "patient": p.patient[k]}
    for panel, (title, fc) in zip("AB", people.items(), strict=True):
        figures.matrix(axes[panel], fc, systems, named=False, vmin=-1, vmax=1)
        axes[panel].set_title(title, loc="center", pad=3)
    means = axes["C"]
    means.plot([-1, 1], [-1, 1], color=figures.FAINT, lw=0.8)
    points: dict[str, Any] = {"s": 1.2, "alpha": 0.35, "color": figures.POINTS}
    means.scatter(p.edge_mean[0], p.edge_mean[k], rasterized=True, **points)
    means.set(xlim=(LOWEST, 1), ylim=(lowest, 1))
    means.set(xlabel="mean of an edge, real", ylabel="generated")
    return figure


@in_page_style
def spectra_figure(p: Portraits) -> "Figure":
    """Draw the mean eigenvalues of every generator by rank; those of valid FC are not below zero."""
    figure = new_figure(5.4, 3.2, left=0.14, right=0.97, top=0.91, bottom=0.11)
    axes = figure.subplots()
    inks = SPECTRA_INKS
    for k, values in enumerate(p.spectrum):
        rank = np.arange(1, len(values) + 1)
        style = "--" if k >= len(inks) else "-"
        axes.plot(rank, values, style, color=inks[k % len(inks)], lw=1.4)
    axes.set_yscale("symlog", linthresh=0.01)
    # exponents would be too small
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.axhline(0, color=figures.MUTED, lw=0.6)
    axes.set_title("mean eigenvalue by rank")
    return figure


def spectra_legend(p: Portraits) -> Markup:
    """Return a legend with the colours of the generators in `spectra_figure`."""
    names = []
    for k, name in enumerate(p.rows):
        dashed = " (dashed)" if k >= len(SPECTRA_INKS) else ""
        ink = SPECTRA_INKS[k % len(SPECTRA_INKS)]
        names.append((f"var(--{figures.INKS[ink]})", f"{name}{dashed}"))
    return dots_legend(names)
