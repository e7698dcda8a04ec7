"""Draw figures in the style of the pages.

Figures are matplotlib's, embedded as SVG whose colours follow the page from light to dark: they are
drawn with placeholder colours, each of which becomes a variable of the style sheet. Text stays text
of at least 12 px, also where a phone shrinks the figure: margins leave room for larger letters.

T is the number of stages (sites learned).
"""

import base64
import hashlib
import io
import re
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

import numpy as np
from markupsafe import Markup

from fcforge.core.formatting import number, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


P = ParamSpec("P")
SMALL = 9.2  # points: 12.3 px
NORMAL = 9.8  # points: 13 px
SEQUENTIAL = "Blues"
DIVERGING = "RdBu_r"
INK = "#010101"
MUTED = "#010102"
LINE = "#010103"
FAINT = "#010104"
ACCENT = "#010105"
PATIENT = "var(--patient)"  # the ends of DIVERGING
CONTROL = "var(--control)"
POINTS = "#2171b5"  # points and networks are drawn into PNG, which knows no variables
NETWORKS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#8c564b",
    "#7f7f7f",
    "#6a3d9a",
    "#b8a500",
    "#1b1b1b",
)
TISSUE_COLOURS = {"White matter": "#d9d9d9", "CSF": "#7fcdbb"}
SERIES = tuple(f"#02020{k}" for k in range(8))
INKS = {
    INK: "ink",
    MUTED: "muted",
    LINE: "line",
    FAINT: "faint",
    ACCENT: "accent",
    **{ink: f"s{k}" for k, ink in enumerate(SERIES)},
}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fcforge",
    "font.size": NORMAL,
    "font.family": "sans-serif",
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "axes.titlesize": SMALL,
    "axes.titlelocation": "left",
    "axes.titlecolor": MUTED,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": SMALL,
}


Drawn = Callable[P, "Figure"]


def in_page_style(make: Drawn[P]) -> Drawn[P]:
    """Decorate a function so that it draws in the style of the pages, not in the user's own style."""

    @wraps(make)
    def styled(*args: P.args, **kwargs: P.kwargs) -> "Figure":
        import matplotlib as mpl

        with mpl.rc_context(STYLE):
            return make(*args, **kwargs)

    return styled


def new_figure(width: float, height: float, **margins: float) -> "Figure":
    """Return an empty figure of `width` by `height` inches (96 px each); margins as in ``subplots_adjust``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=144)
    figure.subplots_adjust(**margins)
    return figure


def svg_markup(figure: "Figure", name: str = "") -> Markup:
    """Return a figure as inline SVG without references outside the page.

    Ids in the SVG are made from its content and `name`, so that two equal figures on a page need
    different names.
    """
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # the text stays text: the browser has fonts that matplotlib lacks
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    # HTML needs neither the XML header and metadata nor name spaces, whose addresses look like links
    svg = re.sub(
        r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL
    )
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg).replace("xlink:href", "href")
    # every id, and every reference to one, gets a prefix of this figure; embedded images have neither
    prefix = f"f{hashlib.sha256((name + svg).encode()).hexdigest()[:10]}-"
    svg = re.sub(r'((?:\sid|\shref)="#?|url\(#)(?!data:)', rf"\g<1>{prefix}", svg)
    for placeholder, variable in INKS.items():
        svg = svg.replace(placeholder, f"var(--{variable})")
    return Markup(printable(svg, keep="\n").replace("<svg", '<svg class="plot"', 1))


def png_markup(figure: "Figure", alt: str, dpi: int = 120) -> Markup:
    """Return a figure as an embedded PNG image, for figures that are made of pixels."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=dpi, facecolor="white")
    width, height = (round(96 * inch) for inch in figure.get_size_inches())
    data = base64.b64encode(out.getvalue()).decode()
    image = '<img class="plot" width="{}" height="{}" alt="{}" src="data:image/png;base64,{}">'
    return Markup(image).format(width, height, printable(alt), data)


def common_axis(
    values: Sequence[np.ndarray], step: float = 0.05
) -> tuple[float, float]:
    """Return the limits of a common axis: the range of all finite values, widened to whole steps.

    Without a finite value they are 0 and 1.

    Parameters
    ----------
    values : sequence of ndarray
        Arrays of any shape.
    step : float
        Both limits are multiples of it.
    """
    flat = np.concatenate([np.empty(0), *map(np.ravel, values)])
    flat = flat[np.isfinite(flat)]
    if not len(flat):
        return 0.0, 1.0
    low = np.floor(flat.min() / step) * step
    high = max(np.ceil(flat.max() / step) * step, low + step)
    return float(low), float(high)


def _with_margin(limits: tuple[float, float]) -> tuple[float, float]:
    """Return limits of an axis a little apart, so that a line at either of them is drawn whole."""
    low, high = limits
    margin = 0.03 * (high - low)
    return low - margin, high + margin


class HoverPoint(NamedTuple):
    """A point of a figure that shows `text` at the pointer; x and y are shares from the top left."""

    x: float
    y: float
    text: str


def hover_points(
    axes: "Axes", x: np.ndarray, y: np.ndarray, texts: Sequence[str]
) -> list[HoverPoint]:
    """Return the hover points of a line, without values that are not finite.

    Parameters
    ----------
    axes : matplotlib Axes
        Axes whose limits will not change any more.
    x, y : ndarray of shape (n,)
        Points in data coordinates.
    texts : sequence of n str
        Text of each point.
    """
    pixels = axes.transData.transform(np.column_stack([x, y]))
    shares = pixels / axes.figure.bbox.size
    return [
        HoverPoint(float(a), float(1 - b), text)
        for (a, b), text in zip(shares, texts, strict=True)
        if np.isfinite(a) and np.isfinite(b)
    ]


@in_page_style
def stage_figure(
    curve: Sequence[np.ndarray], baseline: np.ndarray, limits: tuple[float, float]
) -> "Figure":
    """Draw mean, low and high of a learner over the stages, and a baseline dashed.

    Parameters
    ----------
    curve : three ndarray of shape (T,)
        Mean, low and high.
    baseline : ndarray of shape (T,)
    limits : pair of float
        Limits of the vertical axis.
    """
    figure = new_figure(3.5, 2.3, left=0.135, right=0.97, top=0.97, bottom=0.215)
    axes = figure.subplots()
    axes.plot(np.arange(len(baseline)), baseline, "--", color=MUTED, lw=2)
    mean, low, high = curve
    stages = np.arange(len(mean))
    axes.plot(stages, mean, "o-", color=ACCENT, lw=2, ms=4)
    axes.fill_between(stages, low, high, color=ACCENT, alpha=0.17, lw=0)
    axes.set(ylim=_with_margin(limits), xlabel="sites learned")
    axes.set_xticks(stages, stages + 1)
    axes.grid(axis="y")
    axes.tick_params(length=0)
    return figure


@in_page_style
def site_figure(
    lines: Sequence[Sequence[np.ndarray]], limits: tuple[float, float]
) -> "Figure":
    """Draw one line with a band per site, before and after it was learned.

    Parameters
    ----------
    lines : sequence of three ndarray of shape (2 T - 1,)
        Mean, low and high of each site; the middle entry is the stage at which it was learned.
    limits : pair of float
        Limits of the vertical axis.
    """
    figure = new_figure(3.5, 2.3, left=0.135, right=0.97, top=0.97, bottom=0.215)
    axes = figure.subplots()
    axes.axvline(0, color=MUTED, lw=1, ls=(0, (4, 4)))
    for k, (mean, low, high) in enumerate(lines):
        half = len(mean) // 2
        distance = np.arange(-half, half + 1)
        colour = SERIES[k % len(SERIES)]
        style = "o-" if k < len(SERIES) else "s--"
        axes.plot(distance, mean, style, color=colour, lw=2, ms=3.5)
        axes.fill_between(distance, low, high, color=colour, alpha=0.12, lw=0)
        axes.set_xticks(distance, [number(d, 0, sign=True) for d in distance.tolist()])
    axes.set(ylim=_with_margin(limits), xlabel="sites learned since")
    axes.grid(axis="y")
    axes.tick_params(length=0)
    return figure


@in_page_style
def epochs_figure(
    lines: Sequence[tuple[np.ndarray, np.ndarray, str]],
    *,
    epochs: int,
    stages: int,
    marked: bool = False,
) -> "Figure":
    """Draw lines over the epochs of all sites, with a dashed line where a new site begins.

    Parameters
    ----------
    lines : sequence of (x, y, colour)
        x counts epochs from 1 on, through all sites. A line is broken where a new site begins.
    epochs : int
        Epochs per site.
    stages : int
        Number of sites.
    marked : bool
        Draw a point at every value, for values that are far apart.
    """
    figure = new_figure(3.5, 2.3, left=0.135, right=0.97, top=0.97, bottom=0.215)
    axes = figure.subplots()
    for k in range(1, stages):
        axes.axvline(k * epochs + 0.5, color=MUTED, lw=1, ls=(0, (4, 4)))
    for x, y, colour in lines:
        site = (x - 1) // epochs
        gaps = np.flatnonzero(np.diff(site)) + 1  # NaN at these places breaks the line
        style: dict[str, Any] = {
            "color": colour,
            "lw": 1.6,
            "marker": "o" if marked else "",
            "ms": 2.5,
        }
        axes.plot(
            np.insert(x.astype(float), gaps, np.nan),
            np.insert(y, gaps, np.nan),
            **style,
        )
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.set_xlim(0.5, stages * epochs + 0.5)
    axes.set_xlabel("epoch")
    if stages > 1:
        middles = (np.arange(stages) + 0.5) * epochs + 0.5
        axes.set_xticks(middles, np.arange(stages) + 1)
        axes.set_xlabel("site in the order, each with its epochs")
    axes.grid(axis="y")
    axes.tick_params(length=0)
    return figure


def matrix(
    axes: "Axes",
    values: np.ndarray,
    systems: Sequence[str],
    *,
    named: bool = True,
    **scale: Any,
) -> Any:
    """Draw a matrix with its ROIs grouped by brain system, thin lines between the systems.

    Parameters
    ----------
    axes : matplotlib Axes
    values : ndarray of shape (R, R)
    systems : sequence of R str
        Brain system of each ROI.
    named : bool
        Whether to name the systems at the vertical axis.
    **scale
        Options of ``imshow``: cmap, vmin, vmax.

    Returns
    -------
    matplotlib AxesImage
    """
    order, starts = by_system(systems)
    grouped = values[np.ix_(order, order)]
    image = axes.imshow(
        grouped, interpolation="nearest", **{"cmap": DIVERGING, **scale}
    )
    bounds = np.array([*starts.values(), len(order)])
    for bound in bounds[1:-1]:
        axes.axhline(bound - 0.5, color="black", lw=0.4)
        axes.axvline(bound - 0.5, color="black", lw=0.4)
    axes.set(xticks=[], yticks=[])
    if named and len(starts) > 1:
        middle = (bounds[1:] + bounds[:-1] - 1) / 2
        # narrower systems have no room for a name
        named_rows = np.diff(bounds) >= len(order) / 20
        names = np.array([printable(s) for s in starts])
        axes.set_yticks(middle[named_rows], names[named_rows])
    axes.tick_params(length=0)
    return image


def by_system(systems: Sequence[str]) -> tuple[np.ndarray, dict[str, int]]:
    """Return the ROIs in the order of their brain systems (by first ROI), and where each system starts."""
    rank = {name: k for k, name in enumerate(dict.fromkeys(systems))}
    ranks = np.array([rank[s] for s in systems])
    order = np.argsort(ranks, kind="stable")
    starts = {name: int(np.searchsorted(ranks[order], k)) for name, k in rank.items()}
    return order, starts


@in_page_style
def fc_figure(
    values: np.ndarray,
    systems: Sequence[str],
    label: str,
    width: float = 5.1,
    **scale: Any,
) -> "Figure":
    """Draw one matrix with a colour bar labelled `label`; parameters as in `matrix`."""
    left = 0.27 if any(systems) else 0.12  # room for the names of the systems
    height = 1.13 * (0.87 - left) * width  # the matrix is as high as its colour bar
    figure = new_figure(width, height, left=left, right=0.87, top=0.91, bottom=0.09)
    axes = figure.subplots()
    image = matrix(axes, values, systems, **scale)
    colour_bar(figure, image, label, ax=axes, fraction=0.05, pad=0.03)
    return figure


def colour_bar(figure: "Figure", image: Any, label: str, **place: Any) -> None:
    """Add the colour scale of an image, with its name above it."""
    bar = figure.colorbar(image, **place)
    bar.outline.set_visible(False)
    bar.ax.set_title(label, loc="right")


def describe(values: np.ndarray) -> str:
    """Return the values of a line as text, for readers who cannot see the figure."""
    return ", ".join(number(v) for v in values if np.isfinite(v))
