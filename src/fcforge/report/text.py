"""Plain text and JSON for stdout."""

import json
from collections.abc import Sequence
from typing import Any

from fcforge.core.formatting import printable


# -- lines -----------------------------------------------------------------------------------------
def printable_lines(lines: Sequence[str]) -> str:
    """Return lines as one text, each without what cannot be seen."""
    return "\n".join(map(printable, lines))


def json_text(found: Any) -> str:
    """Return JSON of plain values; null where undefined."""
    known = json.loads(json.dumps(found), parse_constant=lambda constant: None)
    return json.dumps(known, indent=1)
