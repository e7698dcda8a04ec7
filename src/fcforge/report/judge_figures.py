"""Pictures of generators: FC side by side, edge means, spectra; inline in one HTML section."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fcforge.sites.made_up import atlas_of
from fcforge.studies.judge.portraits import Portrait

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Generated functional connectivity"


def system_order(n_rois: int) -> tuple[np.ndarray, list[tuple[str, int]]]:
    """ROIs ordered by brain system, and where each system starts."""
    systems = np.array(atlas_of(n_rois).systems)
    names = list(dict.fromkeys(systems.tolist()))
    rank = np.array([names.index(s) for s in systems])
    order = np.argsort(rank, kind="stable")
    starts = [(name, int(np.searchsorted(rank[order], i))) for i, name in enumerate(names)]
    return order, starts


def matrices(portraits: Mapping[str, Portrait], across: int = 5) -> Figure:
    """Typical control and, below, patient of every row, ROIs ordered by brain system."""
    from matplotlib.figure import Figure

    bands = -(-len(portraits) // across)
    figure = Figure(figsize=(2.25 * across + 1.6, 4.75 * bands), layout="constrained")
    axes = figure.subplots(2 * bands, across, squeeze=False)
    first = next(iter(portraits.values()))
    order, starts = system_order(first.control.shape[0])
    for ax in axes.flat:
        ax.set_axis_off()
    for i, (name, p) in enumerate(portraits.items()):
        band, column = divmod(i, across)
        for row, (title, fc) in enumerate((("control", p.control), ("patient", p.patient))):
            ax = axes[2 * band + row, column]
            ax.set_axis_on()
            image = ax.imshow(fc[np.ix_(order, order)], vmin=-1, vmax=1, cmap="RdBu_r")
            _rule_systems(ax, starts, len(order), labelled=column == 0)
            if column == 0:
                ax.set_ylabel(title, fontsize=10)
        axes[2 * band, column].set_title(name, fontsize=10, fontweight="bold" if i == 0 else None)
    figure.colorbar(image, ax=axes, shrink=0.4, aspect=30, label="correlation")
    return figure


def _rule_systems(ax: Axes, starts: list[tuple[str, int]], n: int, *, labelled: bool) -> None:
    """Thin lines between brain systems, their names in the middle of each."""
    ax.set_xticks([])
    ax.set_yticks([])
    edges_of = [place for _, place in starts] + [n]
    for place in edges_of[1:-1]:
        ax.axhline(place - 0.5, color="k", lw=0.3)
        ax.axvline(place - 0.5, color="k", lw=0.3)
    if labelled:
        middle = [(a + b - 1) / 2 for a, b in pairwise(edges_of)]
        ax.set_yticks(middle, [name for name, _ in starts], fontsize=6)
        ax.tick_params(axis="y", length=0)


def edge_scatter(portraits: Mapping[str, Portrait], across: int = 5) -> Figure:
    """Mean of every edge, generated against real; the first row is the reference."""
    from matplotlib.figure import Figure

    names = list(portraits)
    real = portraits[names[0]].edge_mean
    bands = max(-(-(len(names) - 1) // across), 1)
    figure = Figure(figsize=(2.25 * across + 1.6, 2.4 * bands), layout="constrained")
    axes = figure.subplots(bands, across, squeeze=False, sharex=True, sharey=True)
    for ax in axes.flat[len(names) - 1 :]:
        ax.set_axis_off()
    # a generator whose edges are all negative must not fall out of the picture
    lowest = min(-0.6, *(float(p.edge_mean.min()) - 0.05 for p in portraits.values()))
    for ax, name in zip(axes.flat, names[1:], strict=False):
        ax.plot([-1, 1], [-1, 1], color="0.6", lw=0.8)
        ax.scatter(real, portraits[name].edge_mean, s=0.6, alpha=0.3, rasterized=True)
        r = np.corrcoef(real, portraits[name].edge_mean)[0, 1]
        ax.set_title(f"{name}  (r = {r:.3f})", fontsize=9)
        ax.set_xlim(-0.6, 1)
        ax.set_ylim(lowest, 1)
        ax.tick_params(labelsize=7)
    figure.supxlabel("mean of an edge, real training subjects", fontsize=9)
    figure.supylabel("generated", fontsize=9)
    return figure


def spectra(portraits: Mapping[str, Portrait]) -> Figure:
    """Mean eigenvalue by rank on a symmetric log axis; below zero is invalid."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    ax = figure.subplots()
    styles = ("-", "--", ":")
    for i, (name, p) in enumerate(portraits.items()):
        colour, line = f"C{(i - 1) % 10}", styles[(i - 1) // 10 % 3]
        rank = np.arange(1, len(p.spectrum) + 1)
        if i == 0:
            ax.plot(rank, p.spectrum, label=name, color="k", lw=2.4)
        else:
            ax.plot(rank, p.spectrum, label=name, color=colour, ls=line, lw=1.3)
    ax.set_yscale("symlog", linthresh=0.01)
    ax.axhline(0, color="0.6", lw=0.6)
    ax.set_xlabel("rank")
    ax.set_ylabel("mean eigenvalue")
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def as_image(figure: Figure, alt: str) -> str:
    """``<img>`` with the figure inside as PNG."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    data = base64.b64encode(stream.getvalue()).decode()
    text = html.escape(alt, quote=True)
    return (
        f'<img style="max-width:100%;height:auto;background:#fff" alt="{text}" '
        f'src="data:image/png;base64,{data}">'
    )


def section(portraits: Mapping[str, Portrait], intro: str = "") -> tuple[str, str]:
    """Title and HTML of a report section (images inside); the first portrait is the real one.

    For ``fcforge.report.write_report`` wrap it:
    ``Section(title, markupsafe.Markup(body))``.
    """
    body = "".join(
        [
            f'<p class="note">{html.escape(intro)}</p>' if intro else "",
            '<p class="note">The most typical control and patient of every generator (nearest to '
            "its class mean), ROIs ordered by brain system. Real and bootstrap show single real "
            "subjects: share the page only where those may be seen.</p>",
            as_image(matrices(portraits), "FC matrices, real and generated"),
            '<p class="note">Mean of every edge, generated against real.</p>',
            as_image(edge_scatter(portraits), "edge means, generated against real"),
            '<p class="note">Mean eigenvalues; a correlation matrix has none below zero.</p>',
            as_image(spectra(portraits), "mean eigenvalues by rank"),
        ]
    )
    return TITLE, body
