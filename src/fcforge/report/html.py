"""Build pages from templates: one file per page, all text escaped, nothing loaded."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
from markupsafe import Markup

from fcforge.core.formatting import bracket, number, p_value, percent, printable
from fcforge.core.version import __version__
from fcforge.report.cells import Cells
from fcforge.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
from fcforge.report.figures import SMALL, HoverPoint, svg_markup

PHONE = 340  # width in px of a picture on a phone 400 px wide


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes
    ----------
    title : str
    body : Markup, str, Table, matplotlib Figure or mapping, or a tuple of these
        Markup is inserted unchanged and must be safe. A plain string becomes a paragraph, a
        mapping a list of names and values.
    note : str
        Small print under the title.
    """

    title: str
    body: Any
    note: str = ""

    def html(self) -> Markup:
        """Return the body as safe HTML, without parts that are empty."""
        parts = self.body if isinstance(self.body, tuple) else (self.body,)
        return Markup("\n").join(self._part(part) for part in parts if part)

    def _part(self, part: Any) -> Markup:
        """Return one part of the body as safe HTML."""
        if isinstance(part, Markup):
            return part
        if isinstance(part, Table | Mapping):
            return macro("table" if isinstance(part, Table) else "pairs", part)
        if isinstance(part, str):
            return Markup('<p class="said">{}</p>').format(with_code(part))
        return picture(part, self.title)


def macro(name: str, *values: Any) -> Markup:
    """Return HTML of the macro of this name in macros.html.j2."""
    return Markup(
        getattr(templates().get_template("macros.html.j2").module, name)(*values)
    )


def picture(
    figure: "Figure",
    alt: str,
    points: Sequence[HoverPoint] = (),
    cells: Sequence[Cells] = (),
) -> Markup:
    """Return a figure as HTML that fills its column, at most a fifth wider than it was drawn.

    On a phone it shrinks, and its text is set larger (`style.css`): it stays readable.

    Parameters
    ----------
    figure : matplotlib Figure
    alt : str
        Description for those who cannot see it.
    points : sequence of HoverPoint
        Points of the figure that show a text at the pointer.
    cells : sequence of Cells
        Rectangles that show the value of the cell below the pointer.
    """
    width = 72 * figure.get_figwidth()  # in points, 3 / 4 of the width in px
    text = max(SMALL, 12.2 * width / PHONE)  # shrunk to a phone's width it has 12.2 px
    look = f"--text:{text:.1f}px;--wide:{1.6 * width:.0f}px"  # 1.2 * 4 / 3
    hits = Markup("").join(
        Markup(
            '<i class="hit" style="left:{:.2f}%;top:{:.2f}%" data-tip="{}"></i>'
        ).format(100 * point.x, 100 * point.y, printable_value(point.text))
        for point in points
    ) + Markup("").join(area.html() for area in cells)
    box = (
        '<div class="scroll plain fit" tabindex="0" role="img" style="{}" '
        'aria-label="{}"><div class="hover">{}{}</div></div>'
    )
    label = printable_value(alt)
    return Markup(box).format(look, label, svg_markup(figure, label), hits)


def dots_legend(items: Sequence[tuple[str, str]]) -> Markup:
    """Return a legend with a coloured dot for each (CSS colour, name)."""
    item = Markup('<li><i class="dot" style="background:{}"></i>{}</li>')
    entries = (item.format(colour, printable_value(name)) for colour, name in items)
    return Markup('<ul class="legend gap">{}</ul>').format(Markup("").join(entries))


def printable_value(value: Any) -> Any:
    """Return a text without invisible characters; Markup and values of other types unchanged."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value, keep="\n")
    return value


def with_code(value: str) -> Markup:
    """Return text as HTML in which parts between backticks are set as code."""
    parts = printable_value(value).split("`")
    code = Markup("<code>{}</code>")
    html_parts = []
    for k, part in enumerate(parts):
        html_parts.append(code.format(part) if k % 2 else part)
    return Markup("").join(html_parts)


def flattened(settings: Mapping[Any, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return nested settings as pairs of dotted name and readable text."""
    pairs: list[tuple[str, str]] = []
    for key, value in settings.items():
        inner = value
        if isinstance(value, list | tuple):
            # a list of tables; one of plain values is a text
            inner = {k: v for k, v in enumerate(value, 1) if isinstance(v, Mapping)}
        if isinstance(inner, Mapping) and inner:
            pairs += flattened(inner, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", _in_words(value)))
    return pairs


def _in_words(value: Any) -> str:
    """Return the value of a setting as readable text: "yes", "not set", "1, 2"."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        value = ", ".join(map(_in_words, value))
    return "not set" if value in (None, "", {}) else str(value)


def comma_list(items: Sequence[str]) -> str:
    """Return a comma-separated list with a final 'and'."""
    *head, last = items
    return f"{', '.join(head)} and {last}" if head else last


def ticks(low: float, high: float, sign: bool = False) -> list[tuple[float, str]]:
    """Return both ends of an axis and its middle with labels, in as few decimals as show all three.

    Examples
    --------
    >>> [label for _, label in ticks(0.0, 0.15)], [label for _, label in ticks(0.0, 1.0)]
    (['0.000', '0.075', '0.150'], ['0.0', '0.5', '1.0'])
    """
    values = (low, (low + high) / 2, high)
    digits = next(
        (n for n in (1, 2) if all(abs(round(v, n) - v) < 1e-6 for v in values)), 3
    )
    return [(value, number(value, digits, sign=sign)) for value in values]


def position_percent(value: float, low: float = 0.0, high: float = 1.0) -> str:
    """Return the position of `value` between `low` and `high` in per cent, between 0 and 100."""
    return f"{np.clip(100 * (value - low) / (high - low), 0, 100):.2f}"


@lru_cache(maxsize=1)
def templates() -> jinja2.Environment:
    """Return the Jinja environment, which escapes all text: names may come from others' files."""
    env = jinja2.Environment(
        loader=jinja2.PackageLoader("fcforge.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printable_value,
    )
    style, script = (
        files("fcforge.report").joinpath("templates", name).read_text("utf-8")
        for name in ("style.css", "page.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    env.globals.update(
        style=Markup(style),
        script=Markup(script),
        # the page's policy allows this script alone
        script_hash=Markup(f"sha256-{digest}"),
        version=__version__,
    )
    for function in (bracket, np.isfinite, position_percent, ticks):
        env.globals[function.__name__] = function
    for word in (with_code, flattened, shortened, number, percent, p_value):
        env.filters[word.__name__] = word
    return env


def render(template: str, **values: Any) -> str:
    """Render a template with values and return the HTML of the page."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return templates().get_template(template).render(now=now, **values)


def sections_page(
    title: str,
    kind: str,
    sections: Sequence[Section],
    lead: str = "",
    home: str = "",
    **more: Any,
) -> str:
    """Return the HTML of a page of sections.

    Parameters
    ----------
    title : str
        Heading of the page.
    kind : str
        Small line above the title, for example "privacy audit".
    sections : sequence of Section
    lead : str
        Paragraph below the title.
    home : str
        Address of the overview that the page belongs to; empty without one.
    **more
        Further values for the template.
    """
    return render(
        "sections.html.j2",
        title=title,
        kind=kind,
        lead=lead,
        home=home,
        sections=sections,
        **more,
    )


def shortened(value: str, most: int) -> str:
    """Return text cut to `most` characters, the last of which is then an ellipsis."""
    return value if len(value) <= most else value[: most - 1] + "…"
