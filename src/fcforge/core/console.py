"""Messages of long-running work on stderr."""

import sys

from fcforge.core.formatting import printable


def say(text: str) -> None:
    """Print a message to stderr, without characters that control a terminal."""
    print(printable(text), file=sys.stderr)
