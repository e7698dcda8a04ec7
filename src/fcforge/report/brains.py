"""Draw brains as SVG with values on hover: a glass brain of ROIs and edges, and a chord plot.

Colours are CSS: variables of the style sheet or fixed ones. There is no text inside the drawings; names
and values show at the pointer, and captions stand below. Pointing at an ROI fades all edges that
do not end there (`page.js`).
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from fcforge.core.formatting import printable

# Axes of MNI space that each view shows, and its caption.
VIEWS = {
    "sagittal": (1, 2, "from the side; front is right"),
    "coronal": (0, 2, "from behind; left is left"),
    "axial": (0, 1, "from above; left is left"),
}
MARGIN_MM = 6
RADIUS = 100.0  # of the chord plot's circle
GAP = 0.025  # gap between networks, share of the circle


class Dot(NamedTuple):
    """An ROI in a drawing.

    Attributes
    ----------
    roi : int
        Number of the ROI in the atlas.
    colour : str
        CSS colour.
    size : float
        Radius in mm.
    text : str
        Shown at the pointer.
    """

    roi: int
    colour: str
    size: float
    text: str


class Edge(NamedTuple):
    """An edge in a drawing.

    Attributes
    ----------
    first, second : int
        Numbers of its ROIs in the atlas.
    colour : str
        CSS colour.
    width : float
        Width in mm, or in per cent of the radius of a chord plot.
    text : str
        Shown at the pointer.
    """

    first: int
    second: int
    colour: str
    width: float
    text: str


@lru_cache(maxsize=1)
def outlines() -> dict[str, np.ndarray]:
    """Return the outline of nilearn's MNI152 brain mask seen along each axis, in mm, (n, 2)."""
    text = files("fcforge.report").joinpath("brain_outline.json").read_text("utf-8")
    return {view: np.array(points, float) for view, points in json.loads(text).items()}


def glass_brain(
    places: np.ndarray, dots: Sequence[Dot], edges: Sequence[Edge], label: str
) -> Markup:
    """Draw ROIs and edges over three projections of the brain.

    Parameters
    ----------
    places : ndarray of shape (n_rois, 3)
        Centres of the ROIs in mm, MNI space.
    dots : sequence of Dot
        Drawn in this order, above the edges.
    edges : sequence of Edge
        Drawn in this order.
    label : str
        Description for those who cannot see it.
    """
    views = Markup("").join(
        _view(outlines()[name], places[:, [across, up]], dots, edges, caption)
        for name, (across, up, caption) in VIEWS.items()
    )
    texts = {dot.roi: printable(dot.text) for dot in dots}
    # once for all views, and without the spaces of JSON: a page has thousands of dots
    rois = json.dumps(texts, separators=(",", ":"), ensure_ascii=False)
    box = (
        '<div class="brains linked" role="img" aria-label="{}" data-rois="{}">{}</div>'
    )
    return Markup(box).format(printable(label), rois, views)


def _view(
    outline: np.ndarray,
    places: np.ndarray,
    dots: Sequence[Dot],
    edges: Sequence[Edge],
    caption: str,
) -> Markup:
    """Return one projection: outline, edges and dots.

    Parameters
    ----------
    outline : ndarray of shape (m, 2)
        Corners of the brain's outline in this plane, in mm.
    places : ndarray of shape (n_rois, 2)
        Centres of the ROIs in this plane, in mm.
    dots, edges
        As in `glass_brain`.
    caption : str
    """
    lower = np.minimum(outline.min(axis=0), places.min(axis=0, initial=0)) - MARGIN_MM
    upper = np.maximum(outline.max(axis=0), places.max(axis=0, initial=0)) + MARGIN_MM
    width, height = upper - lower
    # SVG counts downwards
    centres = np.column_stack([places[:, 0] - lower[0], upper[1] - places[:, 1]])
    rim = np.column_stack([outline[:, 0] - lower[0], upper[1] - outline[:, 1]])
    parts = [Markup('<path class="rim" d="M{}Z"/>').format(_path(rim))]
    for edge in edges:
        line = f"M{_path(centres[[edge.first, edge.second]])}"
        parts.append(_edge(edge, line))
    for dot in dots:
        x, y = centres[dot.roi]
        parts.append(_dot(dot, x, y))
    svg = '<figure><svg viewBox="0 0 {:.0f} {:.0f}">{}</svg><figcaption class="small">{}</figcaption></figure>'
    return Markup(svg).format(width, height, Markup("").join(parts), caption)


def chord_plot(
    systems: Sequence[str],
    names: Sequence[str],
    colours: dict[str, str],
    edges: Sequence[Edge],
    label: str,
) -> Markup:
    """Draw edges as chords of a circle on which the ROIs lie, network by network.

    Parameters
    ----------
    systems : sequence of str
        Network of each ROI.
    names : sequence of str
        Names of the ROIs.
    colours : dict of str to str
        Colour of each network.
    edges : sequence of Edge
        Drawn in this order; `width` is in per cent of the radius.
    label : str
        Description for those who cannot see it.
    """
    angles, half = _around(systems)
    points = RADIUS * np.column_stack([np.sin(angles), -np.cos(angles)])
    parts = []
    for edge in edges:
        first, second = points[edge.first], points[edge.second]
        line = f"M{_point(first)}Q0 0 {_point(second)}"
        parts.append(_edge(edge, line))
    arc = '<path class="arc" d="M{}A{r:.1f} {r:.1f} 0 0 1 {}" stroke="{}" data-roi="{}" data-tip="{}"/>'
    outer = RADIUS + 5
    for roi, (angle, system, name) in enumerate(
        zip(angles, systems, names, strict=True)
    ):
        ends = np.array([angle - half, angle + half])
        start, stop = outer * np.column_stack([np.sin(ends), -np.cos(ends)])
        text = f"{name} ({system})" if system else name
        parts.append(
            Markup(arc).format(
                _point(start),
                _point(stop),
                colours.get(system, "var(--muted)"),
                roi,
                printable(text),
                r=outer,
            )
        )
    svg = '<svg class="chords linked" viewBox="-110 -110 220 220" role="img" aria-label="{}">{}</svg>'
    return Markup(svg).format(printable(label), Markup("").join(parts))


def _around(systems: Sequence[str]) -> tuple[np.ndarray, float]:
    """Return the angle (n_rois,) of every ROI on a circle, and half the angle that an ROI occupies."""
    rank = {name: k for k, name in enumerate(dict.fromkeys(systems))}
    group = np.array([rank[system] for system in systems])
    order = np.argsort(group, kind="stable")
    gap = GAP * 2 * np.pi if len(rank) > 1 else 0.0
    step = (2 * np.pi - gap * len(rank)) / len(group)
    angles = np.empty(len(group))
    angles[order] = (np.arange(len(group)) + 0.5) * step + gap * group[order]
    return angles, 0.46 * step  # less than half a step: thin gaps between ROIs


def _edge(edge: Edge, line: str) -> Markup:
    """Return an edge as an SVG path along `line`, the path's commands."""
    path = '<path class="edge" d="{}" stroke="{}" stroke-width="{:.2f}" data-ends="{} {}" data-tip="{}"/>'
    text = printable(edge.text)
    return Markup(path).format(
        line, edge.colour, edge.width, edge.first, edge.second, text
    )


def _dot(dot: Dot, x: float, y: float) -> Markup:
    """Return an ROI as an SVG circle at (x, y)."""
    circle = '<circle cx="{:.0f}" cy="{:.0f}" r="{:.1f}" fill="{}" data-roi="{}"/>'
    return Markup(circle).format(x, y, dot.size, dot.colour, dot.roi)


def _path(points: np.ndarray) -> str:
    """Return points (n, 2) as the commands of an SVG path, joined by straight lines."""
    return "L".join(_point(point) for point in points)


def _point(point: np.ndarray) -> str:
    """Return the coordinates of a point as SVG writes them."""
    return f"{point[0]:.1f} {point[1]:.1f}"
