"""Small figures as inline SVG and colours; everything else is HTML and CSS.

The page is read on phones, in dark rooms and on paper: text stays text, colours come from the
page's style sheet, and a figure never needs a library or a network.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from fcforge.text import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 260, 168
LEFT, RIGHT, TOP, BOTTOM = 38, 10, 10, 30

# ColorBrewer's sequential blues, light to dark.
BLUES = ("#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#084594")


@dataclass(frozen=True)
class Curve:
    """One learner's mean over stages with its band; each of shape (T,)."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def span(values: Sequence[np.ndarray], step: float = 0.05) -> tuple[float, float]:
    """Common axis: the range of all finite values, widened to whole steps."""
    flat = np.concatenate([np.ravel(v) for v in values])
    flat = flat[np.isfinite(flat)]
    if not len(flat):
        return 0.0, 1.0
    low, high = np.floor(flat.min() / step) * step, np.ceil(flat.max() / step) * step
    return float(low), float(high if high > low else low + step)


def ticks(low: float, high: float) -> np.ndarray:
    """Three to six round numbers inside [low, high]."""
    step = next((s for s in (0.01, 0.02, 0.05, 0.1, 0.2) if (high - low) / s <= 5.01), 0.5)
    return np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1) * step


class _Axes:
    """Maps stage and value to the panel's pixels."""

    def __init__(self, n_stages: int, low: float, high: float) -> None:
        self.n, self.low, self.high = n_stages, low, high

    def x(self, stage: int) -> float:
        inner = WIDTH - LEFT - RIGHT - 16
        return LEFT + 8 + inner * (stage / (self.n - 1) if self.n > 1 else 0.5)

    def y(self, value: float) -> float:
        inner = HEIGHT - TOP - BOTTOM
        return TOP + inner * (1 - (value - self.low) / (self.high - self.low))

    def points(self, values: np.ndarray) -> str:
        at = [(self.x(t), self.y(v)) for t, v in enumerate(values) if np.isfinite(v)]
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in at)


def _frame(axes: _Axes) -> Markup:
    parts = []
    for tick in ticks(axes.low, axes.high):
        y = f"{axes.y(tick):.1f}"
        line = '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>'
        parts.append(Markup(line).format(LEFT, WIDTH - RIGHT, y, y))
        label = '<text class="tick" text-anchor="end" x="{}" y="{}" dy="3.5">{}</text>'
        parts.append(Markup(label).format(LEFT - 5, y, number(tick, 2)))
    for t in range(axes.n):
        label = '<text class="tick" text-anchor="middle" x="{:.1f}" y="{}">{}</text>'
        parts.append(Markup(label).format(axes.x(t), HEIGHT - BOTTOM + 14, t + 1))
    middle = (LEFT + WIDTH - RIGHT) / 2
    label = '<text class="tick" text-anchor="middle" x="{}" y="{}">sites learned</text>'
    parts.append(Markup(label).format(middle, HEIGHT - 3))
    return Markup("").join(parts)


def _line(axes: _Axes, values: np.ndarray, kind: str) -> Markup:
    return Markup('<polyline class="{}" points="{}"/>').format(kind, axes.points(values))


def curve_panel(
    own: Curve,
    others: Sequence[Curve],
    reference: Curve | None,
    limits: tuple[float, float],
    label: str,
) -> Markup:
    """One panel of small multiples: a learner with its band, the others faint behind it.

    Parameters
    ----------
    own : Curve
    others : sequence of Curve
    reference : Curve or None
        The majority class, dashed.
    limits : pair of float
        Shared y axis.
    label : str
        Alternative text.
    """
    axes = _Axes(len(own.mean), *limits)
    band = np.isfinite(own.low) & np.isfinite(own.high)
    up = [f"{axes.x(t):.1f},{axes.y(own.high[t]):.1f}" for t in np.flatnonzero(band)]
    down = [f"{axes.x(t):.1f},{axes.y(own.low[t]):.1f}" for t in np.flatnonzero(band)[::-1]]
    parts = [_frame(axes)]
    parts += [_line(axes, o.mean, "other") for o in others if len(o.mean) == len(own.mean)]
    if reference is not None:
        parts.append(_line(axes, reference.mean, "reference"))
    parts.append(Markup('<polygon class="band" points="{}"/>').format(" ".join(up + down)))
    parts.append(_line(axes, own.mean, "own"))
    for t in np.flatnonzero(np.isfinite(own.mean)):
        dot = '<circle class="dot" cx="{:.1f}" cy="{:.1f}" r="3"><title>{}</title></circle>'
        text = f"after {t + 1}: {number(own.mean[t])}"
        parts.append(Markup(dot).format(axes.x(int(t)), axes.y(own.mean[t]), text))
    svg = '<svg class="curve" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    return Markup(svg).format(WIDTH, HEIGHT, label, Markup("").join(parts))


def heat(value: float, low: float, high: float) -> tuple[str, str]:
    """Background and text colour of a heatmap cell, readable on each other."""
    if not np.isfinite(value):
        return "transparent", "inherit"
    at = float(np.clip((value - low) / (high - low if high > low else 1), 0, 1)) * (len(BLUES) - 1)
    k = min(int(at), len(BLUES) - 2)
    left, right = (np.array([int(c[i : i + 2], 16) for i in (1, 3, 5)]) for c in BLUES[k : k + 2])
    rgb = left + (right - left) * (at - k)
    background = "#" + "".join(f"{round(c):02x}" for c in rgb)
    # Black above, white below the luminance at which both have a contrast of 4.6 : 1.
    scaled = rgb / 255
    linear = np.where(scaled <= 0.04045, scaled / 12.92, ((scaled + 0.055) / 1.055) ** 2.4)
    return background, "#000000" if linear @ [0.2126, 0.7152, 0.0722] > 0.179 else "#ffffff"


def share(value: float, low: float, high: float) -> float:
    """Position of `value` between `low` and `high` in per cent, kept inside the track."""
    return float(np.clip(100 * (value - low) / (high - low), 0, 100))


def inline(figure: Figure) -> Markup:
    """A matplotlib figure as inline SVG, without anything that points outside the page."""
    import matplotlib as mpl

    out = io.StringIO()
    settings: dict[Any, Any] = {"svg.hashsalt": "fcforge", "svg.fonttype": "path"}
    with mpl.rc_context(settings):
        figure.savefig(
            out, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight"
        )
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\s(xmlns(:\w+)?|width|height)="[^"]*"', "", text, count=4)
    return Markup(text.replace("xlink:href", "href").replace("<svg", '<svg class="plot"', 1))
