"""What is said while something works: messages and progress, all on stderr.

On a terminal a bar is drawn; elsewhere (a log file, a notebook, a cluster) plain lines are written.
"""

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from fcforge.messages import printable

if TYPE_CHECKING:
    from rich.progress import Progress

Report = Callable[[int, int, str], None]
T = TypeVar("T")
EVERY = 10.0  # seconds between lines
PATIENCE = 2.0  # seconds that something may take in silence


def say(text: str = "", style: str = "") -> None:
    """Print a message to stderr."""
    import typer

    typer.secho(printable(text, keep="\n"), err=True, fg=style or None)


@contextmanager
def progress_on_stderr(what: str) -> Iterator[Report]:
    """Yield a function (done, total, last) that shows how far it is.

    No time left is told: pieces of work differ in length, so that any guess would swing.
    """
    if not sys.stderr.isatty():
        yield _lines(what)
        return
    counts = "{task.completed:.0f}/{task.total:.0f}"
    bar = _drawn("{task.description}", counts, "[dim]{task.fields[last]}")
    task = bar.add_task(what, total=None, last="")

    def report(done: int, total: int, last: str) -> None:
        bar.update(task, completed=done, total=total, last=last)
        bar.start()  # at the first report: before it somebody may have to be asked

    try:
        yield report
    finally:
        bar.stop()


def _lines(what: str) -> Report:
    """Progress as plain lines, at most one every few seconds."""
    shown = -math.inf

    def report(done: int, total: int, last: str) -> None:
        nonlocal shown
        now = time.monotonic()
        if done == total or now - shown >= EVERY:
            shown = now
            say(f"{what}: {done}/{total} {last}".rstrip())

    return report


@contextmanager
def at_work(what: str) -> Iterator[None]:
    """Show that something is at work once it has taken two seconds."""
    ended = threading.Event()

    def watch() -> None:
        if ended.wait(PATIENCE):
            return
        if not sys.stderr.isatty():
            say(f"{what} ...")
            return
        with _drawn("{task.description}") as bar:
            bar.add_task(what, total=None)
            ended.wait()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def progress_of(items: Iterable[T], total: int) -> Iterator[T]:
    """Yield items while stderr shows how many are done."""
    with progress_on_stderr("subjects") as report:
        for done, item in enumerate(items, start=1):
            yield item
            report(done, total, "")


def _drawn(first: str, *more: str) -> "Progress":
    """A bar with these texts beside it, not started; what is printed to stdout stays there."""
    from rich import progress as rich
    from rich.console import Console

    columns = [
        rich.TextColumn(first),
        rich.BarColumn(),
        rich.TimeElapsedColumn(),
        *map(rich.TextColumn, more),
    ]
    console = Console(stderr=True)
    return rich.Progress(
        *columns, console=console, transient=True, redirect_stdout=False
    )
