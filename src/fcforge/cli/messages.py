"""Messages and progress on stderr: a bar on a terminal, plain lines in logs."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from fcforge.core.formatting import duration, printable

if TYPE_CHECKING:
    from rich.status import Status


Report = Callable[[int, int, str], None]
EVERY = 10.0  # seconds between lines
SETTLED = 20.0  # seconds after which the remaining time is estimated


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
    last one. From `SETTLED` seconds on it shows the remaining time, by the mean time of the pieces so far.
    Pieces differ in length, so this is a rough estimate. Where stderr is no terminal, it prints a line
    every `every` seconds.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    line_of = TextColumn("{task.description}", markup=False)
    bar = Progress(BarColumn(), line_of, console=Console(stderr=True), transient=True)
    task = bar.add_task("")
    last_printed = -math.inf
    on_terminal = sys.stderr.isatty()
    first: tuple[float, int] | None = (
        None  # time and number of pieces at the first report
    )

    def report(done: int, total: int, last: str) -> None:
        nonlocal last_printed, first
        now = time.monotonic()
        first = first or (now, done)
        left = _time_left(now - first[0], done - first[1], total - done)
        line = f"{work}: {done}/{total} {left}{last}".rstrip()
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


def _time_left(elapsed: float, done: int, left: int) -> str:
    """Return the remaining time in brackets, by the mean time of a piece; "" while it is not known.

    Parameters
    ----------
    elapsed : float
        Seconds since the first report.
    done, left : int
        Number of pieces finished since then, and of those that remain.
    """
    if elapsed < SETTLED or not done or not left:
        return ""
    seconds = elapsed / done * left
    unit = 10 if seconds < 120 else 60
    return f"(about {duration(max(unit, round(seconds / unit) * unit))} left) "
