"""What a model uses, in pictures: strength of edges, brain systems, a glass brain (nilearn)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from fcforge.capsule.saliency import Saliency, between_systems, strongest
from fcforge.report import figures
from fcforge.report.figures import png
from fcforge.report.frame import picture

EDGES = 60
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#7f7f7f",
    "#6a3d9a", "#b8a500", "#1b1b1b",
)  # fmt: skip


def system_colours(systems: Sequence[str]) -> dict[str, str]:
    """A colour for every brain system, in the order of their first ROI."""
    return {s: COLOURS[k % len(COLOURS)] for k, s in enumerate(dict.fromkeys(systems))}


def glass_brain(found: Saliency) -> Markup | str:
    """The strongest edges over three projections; nothing without positions.

    Red edges push towards the patient class when they get stronger, blue ones towards the
    control class. A dot's size is what its ROI contributes, its colour the brain system.
    """
    if found.atlas is None or found.constant:
        return ""
    import matplotlib as mpl

    mpl.use("Agg", force=False)
    from matplotlib.figure import Figure
    from nilearn.plotting import plot_connectome

    signed = np.zeros_like(found.strength, dtype=float)
    for i, j, times, direction in strongest(found, EDGES):
        signed[i, j] = signed[j, i] = times * (direction or 1)
    weight = found.strength.sum(1)
    colours = system_colours(found.atlas.systems)
    most = float(np.abs(signed).max())
    figure = Figure(figsize=(9.6, 3.3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nilearn's and matplotlib's notices on their own API
        plot_connectome(
            signed, found.atlas.xyz, node_color=[colours[s] for s in found.atlas.systems],
            node_size=4 + 46 * (weight / weight.max()) ** 2, edge_cmap="RdBu_r", edge_vmin=-most,
            edge_vmax=most, edge_kwargs={"linewidth": 1.6, "alpha": 0.8},
            node_kwargs={"edgecolors": "white", "linewidths": 0.4}, display_mode="lyrz",
            figure=figure, annotate=True, colorbar=False,
        )  # fmt: skip
        return png(figure, f"Glass brain with the {EDGES} strongest edges")


def saliency_parts(found: Saliency) -> dict[str, Any]:
    """Pictures and numbers of what a model uses."""
    n_rois, atlas = len(found.fc), found.atlas
    systems = atlas.systems if atlas else ("",) * n_rois
    rois = atlas.roi_names if atlas else [f"ROI {k + 1}" for k in range(n_rois)]
    strength = found.strength / (found.strength.sum() / (n_rois * (n_rois - 1)))
    # a few edges are far stronger than the rest: the scale ends at the 99.5th percentile
    scale = {"cmap": figures.SEQUENTIAL, "vmin": 0.0, "vmax": np.quantile(strength, 0.995)}
    edges = figures.fc_figure(strength, systems, "times the average edge", **scale)
    fc = figures.fc_figure(found.fc, systems, "correlation", vmin=-1, vmax=1)
    return {
        "n": found.n_subjects,
        "edges": picture(edges, "strength of every edge in the model's answer"),
        "fc": picture(fc, "mean FC of the synthetic subjects") if found.n_subjects else "",
        "systems": between_systems(found.strength, atlas) if atlas else None,
        "colours": system_colours(systems) if atlas else {},
        "glass": glass_brain(found) if atlas else "",
        "n_edges": EDGES,
        "top": [(rois[i], rois[j], times, way) for i, j, times, way in strongest(found, 12)],
    }
