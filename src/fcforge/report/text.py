"""Plain text and JSON for stdout."""

import json
from collections.abc import Sequence
from typing import Any

from fcforge.core.formatting import printable


def printable_lines(lines: Sequence[str]) -> str:
    """Return lines as one text, without invisible and control characters."""
    return "\n".join(map(printable, lines))


def json_text(value: Any) -> str:
    """Return plain nested data as JSON; NaN and infinity become null, which JSON allows."""
    finite = json.loads(json.dumps(value), parse_constant=lambda constant: None)
    return json.dumps(finite, indent=1)
