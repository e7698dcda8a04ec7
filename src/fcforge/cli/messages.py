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


def say(text: str = "", style: str = "") -> None:
    """Print a message to stderr."""
    typer.secho(printable(text, keep="\n"), sys.stderr, fg=style or None)


def warn(line: str) -> None:
    """Print a warning about the data to stderr, in the form that all commands share."""
    say(line, style="yellow")


def at_work(activity: str) -> "Status":
    """Return a context manager that shows a spinner with the text `activity` on a terminal."""
    from rich.console import Console

    return Console(stderr=True).status(activity)


@contextmanager
def progress_on_stderr(work: str, every: float = EVERY) -> Iterator[Report]:
    """Yield a function that shows the progress of `work`, for example "training".

    The function takes the number of finished pieces, the number of all pieces and the name of the
    last one. The remaining time is not shown: pieces differ in length, so an estimate would jump.
    Where stderr is no terminal, it prints a line every `every` seconds.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    line_of = TextColumn("{task.description}", markup=False)
    bar = Progress(BarColumn(), line_of, console=Console(stderr=True), transient=True)
    task = bar.add_task("")
    last_printed = -math.inf
    on_terminal = sys.stderr.isatty()

    def report(done: int, total: int, last: str) -> None:
        nonlocal last_printed
        line = f"{work}: {done}/{total} {last}".rstrip()
        now = time.monotonic()
        if on_terminal:
            bar.update(task, completed=done, total=total, description=printable(line))
            bar.start()  # not before the first report: until then a question may be on the terminal
        elif done == total or now - last_printed >= every:
            last_printed = now
            say(line)

    try:
        yield report
    finally:
        if on_terminal:
            bar.stop()
