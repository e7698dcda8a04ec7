"""What is said while something works: messages and progress, all on stderr.

On a terminal a bar is drawn; elsewhere (a log file, a notebook, a cluster) plain lines are written.
"""

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
    """Yield a function (done, total, last) that shows how far it is and how long is left."""
    if not on:
        yield lambda done, total, last: None
    elif sys.stderr.isatty():
        with _bar(what) as report:
            yield report
    else:
        yield _plain(what, every)


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
        with _drawn("{task.description}", time_left=False) as bar:
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
    bar = _drawn("{task.description}", "{task.completed:.0f}/{task.total:.0f}")
    task = bar.add_task(what, total=None, last="")

    def report(done: int, total: int, last: str) -> None:
        bar.update(task, completed=done, total=total, last=last)
        bar.start()  # at the first report: before it somebody may have to be asked

    try:
        yield report
    finally:
        bar.stop()


def _drawn(*texts: str, time_left: bool = True) -> "Progress":
    """A bar with these texts beside it, not started; what is printed to stdout stays there."""
    from rich import progress as rich
    from rich.console import Console

    first, *more = map(rich.TextColumn, texts)
    left = (rich.TextColumn("left"), rich.TimeRemainingColumn()) if time_left else ()
    last = (rich.TextColumn("[dim]{task.fields[last]}"),) if time_left else ()
    columns = (first, rich.BarColumn(), *more, rich.TimeElapsedColumn(), *left, *last)
    console = Console(stderr=True)
    return rich.Progress(
        *columns, console=console, transient=True, redirect_stdout=False
    )


def _plain(what: str, every: float) -> Report:
    first: list[int] = []
    started, shown = [0.0], [0.0]

    def report(done: int, total: int, last: str) -> None:
        first[:] = first or [done]
        now = time.monotonic()
        if done == first[0]:  # what is made ready before says nothing about the rest
            started[0] = now
        if done < total and now - shown[0] < every:
            return
        shown[0] = now
        moved = done - first[0]
        left = duration((now - started[0]) / moved * (total - done)) if moved else ""
        tail = f", about {left} left" if left and done < total else ""
        line = printable(f"{what}: {done}/{total}{tail} {last}".rstrip())
        print(line, file=sys.stderr, flush=True)

    return report
