"""Messages and progress on stderr: a bar on a terminal, plain lines in logs."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from fcforge.core.formatting import printable

if TYPE_CHECKING:
    from rich.status import Status


Report = Callable[[int, int, str], None]
EVERY = 10.0  # seconds between lines


# -- what is said while something works -----------------------------------------------------------
def say(text: str = "", style: str = "") -> None:
    """Print a message to stderr."""
    typer.secho(printable(text, keep="\n"), sys.stderr, fg=style or None)


def at_work(what: str) -> "Status":
    """Return a context manager that shows a spinner on a terminal."""
    from rich.console import Console

    return Console(stderr=True).status(what)


@contextmanager
def progress_on_stderr(what: str) -> Iterator[Report]:
    """Yield a function (done, total, last) that shows how far it is.

    No time left is told: pieces of work differ in length, so that any guess would swing.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    line_of = TextColumn("{task.description}", markup=False)
    shown = Progress(BarColumn(), line_of, console=Console(stderr=True), transient=True)
    task = shown.add_task("")
    told = -math.inf
    on_terminal = sys.stderr.isatty()

    def report(done: int, total: int, last: str) -> None:
        nonlocal told
        line = f"{what}: {done}/{total} {last}".rstrip()
        now = time.monotonic()
        if on_terminal:
            shown.update(task, completed=done, total=total, description=printable(line))
            shown.start()  # at the first report: before it somebody may have to be asked
        elif done == total or now - told >= EVERY:
            told = now
            say(line)

    try:
        yield report
    finally:
        if on_terminal:
            shown.stop()
