"""Inline SVG of the page. Text stays text, colours come from the style sheet, no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from fcforge.report.figures import span, ticks
from fcforge.serve.glass import colour_of
from fcforge.serve.lineage import Knot
from fcforge.serve.png import SEQUENTIAL, colours
from fcforge.text import number

WIDTH, HEIGHT = 520, 250
LEFT, RIGHT, TOP, BOTTOM = 40, 112, 12, 42
N_COLOURS = 8

Values = Sequence[float | None] | np.ndarray


def _join(parts: Sequence[Markup]) -> Markup:
    return Markup("").join(parts)


def _svg(kind: str, width: float, height: float, label: str, parts: Sequence[Markup]) -> Markup:
    frame = '<svg class="{}" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">{}</svg>'
    return Markup(frame).format(kind, width, height, label, _join(parts))


def _text(x: float, y: float, text: str, kind: str = "tick", anchor: str = "middle") -> Markup:
    frame = '<text class="{}" text-anchor="{}" x="{:.1f}" y="{:.1f}">{}</text>'
    return Markup(frame).format(kind, anchor, x, y, text)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    frame = '<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'
    return Markup(frame).format(kind, x1, y1, x2, y2)


def short(text: str, most: int) -> str:
    """Text cut to `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Label places near the wanted ones, at least `gap` apart, inside the panel if they fit."""
    order = np.argsort(wanted, kind="stable")
    placed = np.array(wanted, dtype=float)[order]
    for k in range(1, len(placed)):
        placed[k] = max(placed[k], placed[k - 1] + gap)
    placed -= max(0.0, placed[-1] - high) if len(placed) else 0.0
    for k in range(len(placed) - 2, -1, -1):
        placed[k] = min(placed[k], placed[k + 1] - gap)
    placed += max(0.0, low - placed[0]) if len(placed) else 0.0
    out = np.empty_like(placed)
    out[order] = placed
    return out.tolist()


def site_lines(
    series: Mapping[str, Values],
    stages: Sequence[str],
    label: str,
    x_title: str,
    learned_at: int | None = None,
    limits: tuple[float, float] | None = None,
) -> Markup:
    """One line per site over the stages, named at its right end.

    Parameters
    ----------
    series : mapping of site to values, one per stage (None or NaN: no value)
    stages : sequence of str
        Names under the x axis.
    label : str
        Alternative text.
    x_title : str
    learned_at : int, optional
        Stage at which every site has just been learned: a vertical line.
    limits : pair of float, optional
        y axis; the range of the values by default.
    """
    found = {k: np.array([np.nan if v is None else v for v in vs]) for k, vs in series.items()}
    low, high = limits or span(list(found.values()) or [np.array([])])
    n = max(len(stages), 1)

    def x(stage: float) -> float:
        return LEFT + 26 + (WIDTH - LEFT - RIGHT - 52) * (stage / (n - 1) if n > 1 else 0.5)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))

    parts = []
    for tick in ticks(low, high):
        parts.append(_line(LEFT, y(tick), WIDTH - RIGHT, y(tick), "grid"))
        parts.append(_text(LEFT - 6, y(tick) + 3.5, number(tick, 2), anchor="end"))
    if learned_at is not None:
        parts.append(_line(x(learned_at), TOP, x(learned_at), HEIGHT - BOTTOM, "now"))
    most = max(4, int((WIDTH - LEFT - RIGHT - 40) / n / 5.6))
    parts += [_text(x(t), HEIGHT - BOTTOM + 15, short(s, most)) for t, s in enumerate(stages)]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_title))
    shown = {k: v for k, v in found.items() if np.isfinite(v).any()}
    ends = {k: int(np.flatnonzero(np.isfinite(v))[-1]) for k, v in shown.items()}
    places = _spread([y(v[ends[k]]) for k, v in shown.items()], 13, TOP + 4, HEIGHT - BOTTOM)
    for k, (site, values) in enumerate(shown.items()):
        colour = f"s{list(found).index(site) % N_COLOURS}"
        at = [(x(t), y(v)) for t, v in enumerate(values) if np.isfinite(v)]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
        parts.append(Markup('<polyline class="{}" points="{}"/>').format(colour, points))
        for t in np.flatnonzero(np.isfinite(values)):
            dot = '<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="3.2"><title>{}</title></circle>'
            text = f"{site}, {stages[t]}: {number(values[t])}"
            parts.append(Markup(dot).format(colour, x(t), y(values[t]), text))
        parts.append(
            _text(WIDTH - RIGHT + 8, places[k] + 4, short(site, 15), f"end {colour}", "start")
        )
    return _svg("lines", WIDTH, HEIGHT, label, parts)


STEP, ROW, BOX, TALL = 158, 62, 132, 40


def lineage_graph(knots: Sequence[Knot], here: str = "") -> Markup:
    """Capsules as boxes from left to right, each joined to the one it was made from."""
    at = {k.id: k for k in knots}
    columns = max((k.column for k in knots), default=0) + 1
    rows = max((k.row for k in knots), default=0) + 1
    parts = []
    for k in knots:
        parent = at.get(k.parent)
        if parent is not None:
            x1, y1 = parent.column * STEP + BOX, parent.row * ROW + TALL / 2 + 4
            x2, y2 = k.column * STEP, k.row * ROW + TALL / 2 + 4
            path = '<path class="edge" d="M{0} {1}C{4} {1} {4} {3} {2} {3}"/>'
            parts.append(Markup(path).format(x1, y1, x2, y2, (x1 + x2) / 2))
    parts += [_knot(k, here) for k in knots]
    width, height = columns * STEP - STEP + BOX + 4, rows * ROW - ROW + TALL + 8
    text = f"lineage of {len(knots)} capsules"
    frame = (
        '<svg class="lineage" viewBox="-2 0 {0} {1}" width="{0}" height="{1}" role="img" '
        'aria-label="{2}">{3}</svg>'
    )
    return Markup(frame).format(width, height, text, _join(parts))


def _knot(k: Knot, here: str) -> Markup:
    x, y = k.column * STEP, k.row * ROW + 4
    kind = "here" if k.id == here else "file" if k.page else "gone"
    box = Markup('<rect class="box {}" x="{}" y="{}" width="{}" height="{}" rx="7"/>').format(
        kind, x, y, BOX, TALL
    )
    name = _text(x + 10, y + 17, short(k.label, 17), "name", "start")
    under = k.id[:12] if k.page else f"{k.id[:8]} not here"
    body = box + name + _text(x + 10, y + 32, under, "tick", "start")
    title = Markup("<title>{}</title>").format(f"{k.label}: capsule {k.id}")
    if not k.page or kind == "here":
        return Markup("<g>{}{}</g>").format(title, body)
    return Markup('<a href="/capsule/{}">{}{}</a>').format(k.page, title, body)


def matrix_figure(image: str, systems: Sequence[str], names: Sequence[str], label: str) -> Markup:
    """A picture of a matrix, ROIs grouped by brain system: coloured bars and names beside it.

    Parameters
    ----------
    image : str
        Address of the picture (one pixel per cell).
    systems : sequence of str
        System of every row, in the order drawn; empty when unknown.
    names : sequence of str
        All systems, in the order of their colours.
    """
    side, left, top = 420, 104 if len(systems) else 0, 12 if len(systems) else 0
    picture = Markup(
        '<image href="{}" x="{}" y="{}" width="{}" height="{}" preserveAspectRatio="none"/>'
    ).format(image, left, top, side, side)
    parts = [picture]
    start = 0
    for name in names if len(systems) else ():
        length = sum(s == name for s in systems)
        a, b = side * start / len(systems), side * length / len(systems)
        bar = '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="{}"/>'
        colour = colour_of(list(names).index(name))
        parts.append(Markup(bar).format(left - 9, top + a + 0.7, 6, max(b - 1.4, 1), colour))
        parts.append(Markup(bar).format(left + a + 0.7, top - 9, max(b - 1.4, 1), 6, colour))
        parts.append(_text(left - 14, top + a + b / 2 + 4, name, anchor="end"))
        if start:
            parts.append(_line(left, top + a, left + side, top + a, "cut"))
            parts.append(_line(left + a, top, left + a, top + side, "cut"))
        start += length
    return _svg("matrix", left + side + 2, top + side + 2, label, parts)


def systems_figure(values: np.ndarray, names: Sequence[str]) -> Markup:
    """Lower triangle of how much edges between systems count; 1 is the average edge."""
    cell, left, foot = 43, 104, 86
    high = float(np.nanmax(values))
    shade = colours(values, SEQUENTIAL[:5], 0.0, high)
    parts = []
    for i in range(len(names)):
        parts.append(_text(left - 8, i * cell + cell / 2 + 4, names[i], anchor="end"))
        x, y = left + i * cell + cell / 2 + 3, len(names) * cell + 10
        turned = (
            '<text class="tick" text-anchor="end" '
            'transform="translate({:.0f} {:.0f}) rotate(-50)">{}</text>'
        )
        parts.append(Markup(turned).format(x, y, names[i]))
        for j in range(i + 1):
            fill = "#{:02x}{:02x}{:02x}".format(*shade[i, j])
            linear = (shade[i, j] / 255) ** 2.2 @ [0.2126, 0.7152, 0.0722]
            box = (
                '<rect x="{}" y="{}" width="{}" height="{}" rx="3" fill="{}">'
                "<title>{}</title></rect>"
                '<text class="cell" text-anchor="middle" x="{}" y="{}" fill="{}">{}</text>'
            )
            parts.append(
                Markup(box).format(
                    left + j * cell + 1, i * cell + 1, cell - 2, cell - 2, fill,
                    f"{names[i]} - {names[j]}: {number(values[i, j], 2)} x the average edge",
                    left + j * cell + cell / 2, i * cell + cell / 2 + 4,
                    "#000000" if linear > 0.179 else "#ffffff", number(values[i, j], 1),
                )
            )  # fmt: skip
    side = len(names) * cell
    label = "strength of edges within and between brain systems, relative to the average edge"
    return _svg("systems", left + side + 2, side + foot, label, parts)
