"""Show the values of a figure's cells at the pointer: matrices, carpets, lines over volumes.

`page.js` finds the row and column below the pointer and reads the value from a data attribute, so
that a matrix of thousands of values needs one element instead of thousands.
"""

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from markupsafe import Markup

from fcforge.core.formatting import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = 30_000  # of a value up to the largest
MISSING = -32_768


class Cells(NamedTuple):
    """Rectangle of a figure, as shares of its width and height from the top left, and its content.

    Attributes
    ----------
    left, top, width, height : float
    content : str
        JSON for `page.js`.
    """

    left: float
    top: float
    width: float
    height: float
    content: str

    def html(self) -> Markup:
        """Return the element that lies over the figure."""
        box = (
            '<div class="cells" style="left:{:.3f}%;top:{:.3f}%;width:{:.3f}%;height:{:.3f}%" '
            'data-cells="{}"></div>'
        )
        place = (100 * share for share in self[:4])
        return Markup(box).format(*place, self.content)


def over_axes(axes: "Axes", content: str) -> Cells:
    """Return cells that cover the axes of a figure, whatever its aspect makes of their place."""
    axes.apply_aspect()
    box = axes.get_position()
    return Cells(box.x0, 1 - box.y1, box.width, box.height, content)


def content(
    values: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str] | None = None,
    *,
    first_volume: int = 1,
    digits: int = 2,
    every_row: bool = False,
) -> str:
    """Return the values of cells and their names as JSON for `page.js`.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        NaN shows as n/a.
    rows : sequence of str
    columns : sequence of str, optional
        Volumes, counted from `first_volume`, without.
    first_volume : int
    digits : int
        Decimals that are shown.
    every_row : bool
        Whether all rows of a column show at once, as for lines over volumes.
    """
    shown = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(shown)
    largest = float(np.abs(shown[finite]).max(initial=0.0)) or 1.0
    steps = np.full(shown.shape, MISSING, dtype="<i2")
    steps[finite] = np.rint(shown[finite] / largest * STEPS).astype("<i2")
    made = {
        "rows": [printable(name) for name in rows],
        "columns": [printable(name) for name in columns or ()],
        "n": shown.shape[1],
        "first": first_volume,
        "unit": largest / STEPS,
        "digits": digits,
        "every": every_row,
        "values": base64.b64encode(steps.tobytes()).decode(),
    }
    return json.dumps(made, separators=(",", ":"))


def texts(shown: Sequence[Sequence[str]]) -> str:
    """Return texts of a grid of cells, row by row, as JSON for `page.js`."""
    made = {"texts": [[printable(text) for text in row] for row in shown]}
    return json.dumps(made, separators=(",", ":"))
