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

STEPS = 30_000  # integer that stands for the largest absolute value
MISSING = -32_768  # integer that stands for NaN


class Cells(NamedTuple):
    """A rectangle of a figure whose cells show their values at the pointer.

    Attributes
    ----------
    left, top, width, height : float
        Shares of the figure's width and height, from its top left corner.
    content : str
        Names and values of the cells, as JSON for `page.js`.
    """

    left: float
    top: float
    width: float
    height: float
    content: str

    def html(self) -> Markup:
        """Return the transparent HTML element that covers the rectangle."""
        box = (
            '<div class="cells" style="left:{:.3f}%;top:{:.3f}%;width:{:.3f}%;height:{:.3f}%" '
            'data-cells="{}"></div>'
        )
        percentages = (100 * share for share in self[:4])
        return Markup(box).format(*percentages, self.content)


def over_axes(axes: "Axes", content: str) -> Cells:
    """Return cells that cover the axes of a figure; their position follows a fixed aspect ratio."""
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
        Names of the rows.
    columns : sequence of str, optional
        Names of the columns. By default columns are volumes of a scan.
    first_volume : int
        Number of the first volume.
    digits : int
        Decimals that are shown.
    every_row : bool
        Whether all rows of a column show at once, as for lines over volumes.
    """
    numbers = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(numbers)
    largest = float(np.abs(numbers[finite]).max(initial=0.0)) or 1.0
    steps = np.full(numbers.shape, MISSING, dtype="<i2")
    steps[finite] = np.rint(numbers[finite] / largest * STEPS).astype("<i2")
    encoded = {
        "rows": [printable(name) for name in rows],
        "columns": [printable(name) for name in columns or ()],
        "n": numbers.shape[1],
        "first": first_volume,
        "unit": largest / STEPS,
        "digits": digits,
        "every": every_row,
        "values": base64.b64encode(steps.tobytes()).decode(),
    }
    return json.dumps(encoded, separators=(",", ":"))


def texts(grid: Sequence[Sequence[str]]) -> str:
    """Return a grid of texts, one for each cell, as JSON for `page.js`."""
    encoded = {"texts": [[printable(text) for text in row] for row in grid]}
    return json.dumps(encoded, separators=(",", ":"))
