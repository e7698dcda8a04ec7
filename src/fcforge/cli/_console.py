"""What a command says while it works: messages and progress, all on stderr."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import typer

from fcforge.text import duration, printable

Report = Callable[[int, int, str], None]
T = TypeVar("T")


def say(text: str = "", style: str = "") -> None:
    """Print a message to stderr."""
    typer.secho(printable(text, keep="\n"), err=True, fg=style or None)


@contextmanager
def progress_on_stderr(what: str, every: float = 10.0) -> Iterator[Report]:
    """Yield a function (done, total, last) that shows how far it is and how long is left."""
    if sys.stderr.isatty():
        with _bar(what) as report:
            yield report
    else:
        yield _plain(what, every)


def progress_of(items: Iterable[T], total: int) -> Iterator[T]:
    """Yield items while a bar on stderr shows how many are done."""
    from rich.console import Console
    from rich.progress import track

    yield from track(items, total=total, description="subjects", console=Console(stderr=True))


@contextmanager
def _bar(what: str) -> Iterator[Report]:
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left"),
        rich.TimeRemainingColumn(),
        rich.TextColumn("[dim]{task.fields[last]}"),
    )
    bar = rich.Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None, last="")

    def report(done: int, total: int, last: str) -> None:
        bar.start()  # at the first report: before it somebody may have to be asked
        bar.update(task, completed=done, total=total, last=last)

    try:
        yield report
    finally:
        bar.stop()


def _plain(what: str, every: float) -> Report:
    started = time.monotonic()
    first: list[int] = []
    shown = [0.0]

    def report(done: int, total: int, last: str) -> None:
        first[:] = first or [done]
        now = time.monotonic()
        if done < total and now - shown[0] < every:
            return
        shown[0] = now
        moved = done - first[0]
        left = duration((now - started) / moved * (total - done)) if moved else ""
        tail = f", about {left} left" if left and done < total else ""
        line = printable(f"{what}: {done}/{total}{tail} {last}".rstrip())
        print(line, file=sys.stderr, flush=True)

    return report
