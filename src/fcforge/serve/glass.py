"""Glass-brain picture of the edges a model uses most (nilearn)."""

from __future__ import annotations

import io
import threading
import warnings

import numpy as np

from fcforge.capsule.saliency import Uses, strongest, systems_of
from fcforge.errors import DataError

EDGES = 60
SYSTEM_COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#7f7f7f",
    "#6a3d9a", "#b8a500", "#1b1b1b",
)  # fmt: skip

_ONE_AT_A_TIME = threading.Lock()  # matplotlib's state is global


def colour_of(system_number: int) -> str:
    """Colour of a brain system."""
    return SYSTEM_COLOURS[system_number % len(SYSTEM_COLOURS)]


def glass_brain(uses: Uses) -> bytes:
    """PNG of the strongest edges over three projections.

    Red edges push towards the patient class when they get stronger, blue ones towards the
    control class. A dot's size is what its ROI contributes, its colour the brain system.
    """
    if uses.atlas is None or uses.silent:
        raise DataError("there is nothing to draw: no positions, or no edge that is used.")
    signed = np.zeros_like(uses.strength, dtype=float)
    for i, j, times, direction in strongest(uses, EDGES):
        signed[i, j] = signed[j, i] = times * (direction or 1)
    names = systems_of(uses.atlas)
    weight = uses.strength.sum(1)
    sizes = 4 + 46 * (weight / weight.max()) ** 2
    dots = [colour_of(names.index(s)) for s in uses.atlas.systems]
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nilearn's and matplotlib's notices on their own API
        return _draw(signed, uses.atlas.xyz, dots, sizes)


def _draw(signed: np.ndarray, xyz: np.ndarray, dots: list[str], sizes: np.ndarray) -> bytes:
    import matplotlib as mpl

    mpl.use("Agg", force=False)
    from matplotlib.figure import Figure
    from nilearn.plotting import plot_connectome

    figure = Figure(figsize=(9.6, 3.3), dpi=120)
    most = float(np.abs(signed).max())
    plot_connectome(
        signed,
        xyz,
        node_color=dots,
        node_size=sizes,
        edge_cmap="RdBu_r",
        edge_vmin=-most,
        edge_vmax=most,
        edge_kwargs={"linewidth": 1.6, "alpha": 0.8},
        node_kwargs={"edgecolors": "white", "linewidths": 0.4},
        display_mode="lyrz",
        figure=figure,
        annotate=True,
        colorbar=False,
    )
    out = io.BytesIO()
    figure.savefig(out, format="png", facecolor="white")
    return out.getvalue()
