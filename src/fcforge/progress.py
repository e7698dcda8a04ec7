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

from fcforge.text import duration, printable

if TYPE_CHECKING:
    from rich.progress import Progress

Report = Callable[[int, int, str], None]
T = TypeVar("T")


def say(text: str = "", style: str = "") -> None:
    """Print a message to stderr."""
    import typer

    typer.secho(printable(text, keep="\n"), err=True, fg=style or None)


@contextmanager
def progress_on_stderr(
    what: str, every: float = 10.0, on: bool = True
) -> Iterator[Report]:
    """Yield a function (done, total, last) that shows how far it is.

    No time left is told: pieces of work differ in length, so that any guess would swing.
    """
    if not on:
        yield lambda done, total, last: None
    elif sys.stderr.isatty():
        with _bar(what) as report:
            yield report
    else:
        yield _Lines(what, every)


@contextmanager
def at_work(what: str, patience: float = 2.0, every: float = 10.0) -> Iterator[None]:
    """Show that something is at work, and for how long, once it has taken two seconds."""
    ended = threading.Event()
    thread = threading.Thread(
        target=_wait, args=(what, ended, patience, every), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _wait(what: str, ended: threading.Event, patience: float, every: float) -> None:
    if ended.wait(patience):
        return
    if sys.stderr.isatty():
        with _drawn("{task.description}") as bar:
            bar.add_task(what, total=None)
            ended.wait()
        return
    started = time.monotonic() - patience
    while True:
        told = f"{printable(what)}: at work for {duration(time.monotonic() - started)}"
        print(told, file=sys.stderr, flush=True)
        if ended.wait(every):
            return


def progress_of(items: Iterable[T], total: int) -> Iterator[T]:
    """Yield items while a bar on stderr shows how many are done."""
    from rich.console import Console
    from rich.progress import track

    yield from track(
        items, total=total, description="subjects", console=Console(stderr=True)
    )


@contextmanager
def _bar(what: str) -> Iterator[Report]:
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


class _Lines:
    """Progress as plain lines, at most one every few seconds."""

    def __init__(self, what: str, every: float) -> None:
        self.what = what
        self.every = every
        self.shown = -math.inf

    def __call__(self, done: int, total: int, last: str) -> None:
        now = time.monotonic()
        if done < total and now - self.shown < self.every:
            return
        self.shown = now
        line = f"{self.what}: {done}/{total} {last}".rstrip()
        print(printable(line), file=sys.stderr, flush=True)
