"""Pictures of generators: typical subjects, edge means, spectra."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from fcforge.report import figures
from fcforge.report.figures import canvas, drawn
from fcforge.report.frame import picture
from fcforge.sites.made_up import atlas_of
from fcforge.studies.judge.portraits import Portrait

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOWEST = -0.6  # of the axes of edge means, unless a generator goes below


@drawn
def portrait_figure(found: Portrait, real: Portrait, lowest: float = LOWEST) -> Figure:
    """Typical control and patient, ROIs ordered by brain system; edge means against the real."""
    figure = canvas(3.5, 3.75, left=0.19, right=0.98, top=0.94, bottom=0.12, wspace=0.12)
    grid = figure.add_gridspec(2, 2, height_ratios=(1, 1.05), hspace=0.18)
    systems = atlas_of(len(found.control)).systems
    for k, (title, fc) in enumerate((("control", found.control), ("patient", found.patient))):
        axes = figure.add_subplot(grid[0, k])
        figures.matrix(axes, fc, systems, named=False, vmin=-1, vmax=1)
        axes.set_title(title, fontsize=figures.SMALL, color=figures.MUTED, pad=3)
    axes = figure.add_subplot(grid[1, :])
    axes.plot([-1, 1], [-1, 1], color=figures.FAINT, lw=0.8)
    axes.scatter(
        real.edge_mean, found.edge_mean, s=1.2, alpha=0.35, color="#2171b5", rasterized=True
    )
    axes.set(xlim=(LOWEST, 1), ylim=(lowest, 1), xlabel="mean of an edge, real", ylabel="generated")
    return figure


def lowest_edge(portraits: Mapping[str, Portrait]) -> float:
    """Lower end of the axis: a generator whose edges are all negative stays in the picture."""
    return min(LOWEST, *(float(p.edge_mean.min()) - 0.05 for p in portraits.values()))


@drawn
def spectra_figure(portraits: Mapping[str, Portrait]) -> Figure:
    """Mean eigenvalue by rank on a symmetric log axis; below zero is invalid."""
    figure = canvas(7.2, 3.6, left=0.12, right=0.72, top=0.97, bottom=0.14)
    axes = figure.subplots()
    styles = ("-", "--", ":")
    for i, (name, p) in enumerate(portraits.items()):
        rank = np.arange(1, len(p.spectrum) + 1)
        k, again = i % len(figures.SERIES), i // len(figures.SERIES)
        look: dict[str, Any] = {"color": figures.INK, "lw": 2.4}
        if i:
            look = {"color": figures.SERIES[k], "ls": styles[again % 3], "lw": 1.4}
        axes.plot(rank, p.spectrum, label=name, **look)
    axes.set_yscale("symlog", linthresh=0.01)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # exponents would be too small
    axes.axhline(0, color=figures.MUTED, lw=0.6)
    axes.set(xlabel="rank", ylabel="mean eigenvalue")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def portrait_cards(portraits: Mapping[str, Portrait]) -> Markup:
    """One card per generator; the first portrait is the real one."""
    real = next(iter(portraits.values()))
    low, cards = lowest_edge(portraits), []
    for name, found in portraits.items():
        r = np.corrcoef(real.edge_mean, found.edge_mean)[0, 1]
        alt = f"FC of a typical control and patient of {name}; edge means"
        shown = picture(portrait_figure(found, real, low), alt)
        head = Markup('<h3>{}</h3><p class="note">edge means: r = {:.3f}</p>').format(name, r)
        cards.append(Markup('<figure class="card">{}{}</figure>').format(head, shown))
    return Markup('<div class="grid">{}</div>').format(Markup("").join(cards))
