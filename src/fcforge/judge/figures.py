"""Pictures of generators: FC side by side, edge means, spectra; inline in one HTML section."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from torch import Tensor

from fcforge.generators.gaussian import class_means
from fcforge.graphs import edges
from fcforge.judge.fidelity import spectrum
from fcforge.sites.atlas import atlas_of
from fcforge.types import FCBatch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Generated functional connectivity"


class Portrait(NamedTuple):
    """What the figures need of one row: an example of each class, means and spectrum."""

    control: np.ndarray
    patient: np.ndarray
    edge_mean: np.ndarray
    spectrum: np.ndarray


def portrait(batch: FCBatch) -> Portrait:
    """The most typical subject of each class (nearest to its class mean), means and spectrum."""
    e = edges(batch.fc)
    means = class_means(e, batch.y)
    typical = []
    for label in (0, 1):
        members = (batch.y == label).nonzero().flatten()
        members = members if members.numel() else (batch.y >= 0).nonzero().flatten()
        nearest = members[(e[members] - means[label]).norm(dim=1).argmin()]
        typical.append(_array(batch.fc[nearest]))
    return Portrait(typical[0], typical[1], _array(e.mean(0)), _array(spectrum(batch.fc)))


def _array(x: Tensor) -> np.ndarray:
    return x.detach().cpu().numpy()


def system_order(n_rois: int) -> tuple[np.ndarray, list[tuple[str, int]]]:
    """ROIs ordered by brain system, and where each system starts."""
    systems = np.array(atlas_of(n_rois).systems)
    names = list(dict.fromkeys(systems.tolist()))
    rank = np.array([names.index(s) for s in systems])
    order = np.argsort(rank, kind="stable")
    starts = [(name, int(np.searchsorted(rank[order], i))) for i, name in enumerate(names)]
    return order, starts


def matrices(portraits: Mapping[str, Portrait]) -> Figure:
    """Typical control (top) and patient (bottom) of every row, ROIs ordered by brain system."""
    from matplotlib.figure import Figure

    n = len(portraits)
    figure = Figure(figsize=(1.9 * n + 0.6, 4.4), layout="constrained")
    axes = figure.subplots(2, n, squeeze=False)
    first = next(iter(portraits.values()))
    order, starts = system_order(first.control.shape[0])
    for column, (name, p) in enumerate(portraits.items()):
        for row, fc in enumerate((p.control, p.patient)):
            ax = axes[row, column]
            image = ax.imshow(fc[np.ix_(order, order)], vmin=-1, vmax=1, cmap="RdBu_r")
            for _, place in starts[1:]:
                ax.axhline(place - 0.5, color="k", lw=0.3)
                ax.axvline(place - 0.5, color="k", lw=0.3)
            ax.set_xticks([])
            ax.set_yticks([])
        axes[0, column].set_title(name, fontsize=8)
    places = [place for _, place in starts]
    for row, title in enumerate(("control", "patient")):
        axes[row, 0].set_ylabel(title, fontsize=8)
        axes[row, 0].set_yticks(places, [name for name, _ in starts], fontsize=4)
    figure.colorbar(image, ax=axes, shrink=0.7, label="correlation")
    return figure


def edge_scatter(portraits: Mapping[str, Portrait]) -> Figure:
    """Mean of every edge, generated against real; the first row is the reference."""
    from matplotlib.figure import Figure

    names = list(portraits)
    real = portraits[names[0]].edge_mean
    n = max(len(names) - 1, 1)
    figure = Figure(figsize=(1.9 * n + 0.6, 2.3), layout="constrained")
    axes = figure.subplots(1, n, squeeze=False, sharey=True)[0]
    for ax, name in zip(axes, names[1:], strict=False):
        ax.plot([-1, 1], [-1, 1], color="0.6", lw=0.8)
        ax.scatter(real, portraits[name].edge_mean, s=0.5, alpha=0.3, rasterized=True)
        ax.set_xlim(-0.6, 1)
        ax.set_ylim(-0.6, 1)
        ax.set_title(name, fontsize=8)
        ax.set_xlabel("real edge mean", fontsize=7)
        ax.tick_params(labelsize=6)
    axes[0].set_ylabel("generated", fontsize=7)
    return figure


def spectra(portraits: Mapping[str, Portrait]) -> Figure:
    """Mean eigenvalue by rank on a symmetric log axis; below zero is invalid."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    ax = figure.subplots()
    for i, (name, p) in enumerate(portraits.items()):
        style = {"color": "k", "lw": 2.0} if i == 0 else {"lw": 1.0}
        ax.plot(np.arange(1, len(p.spectrum) + 1), p.spectrum, label=name, **style)
    ax.set_yscale("symlog", linthresh=0.01)
    ax.axhline(0, color="0.6", lw=0.6)
    ax.set_xlabel("rank")
    ax.set_ylabel("mean eigenvalue")
    ax.legend(fontsize=6, ncols=2)
    return figure


def as_image(figure: Figure, alt: str) -> str:
    """``<img>`` with the figure inside as PNG."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=130)
    data = base64.b64encode(stream.getvalue()).decode()
    text = html.escape(alt, quote=True)
    return f'<img style="max-width:100%" alt="{text}" src="data:image/png;base64,{data}">'


def section(portraits: Mapping[str, Portrait], intro: str = "") -> tuple[str, str]:
    """Title and HTML of a report section (images inside); the first portrait is the real one.

    For ``fcforge.report.write_report`` wrap it:
    ``Section(title, markupsafe.Markup(body))``.
    """
    body = "".join(
        [
            f"<p>{html.escape(intro)}</p>" if intro else "",
            "<p>The most typical control and patient of every generator, ROIs ordered by brain "
            "system.</p>",
            as_image(matrices(portraits), "FC matrices, real and generated"),
            "<p>Mean of every edge, generated against real.</p>",
            as_image(edge_scatter(portraits), "edge means, generated against real"),
            "<p>Mean eigenvalues; a correlation matrix has none below zero.</p>",
            as_image(spectra(portraits), "mean eigenvalues by rank"),
        ]
    )
    return TITLE, body
