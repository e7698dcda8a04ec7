"""Messages of long-running work, printed to stderr."""

import sys

from fcforge.core.formatting import printable


# -- how numbers and foreign text look -------------------------------------------------------------
def say(text: str) -> None:
    """Print a message to stderr."""
    print(printable(text), file=sys.stderr)
