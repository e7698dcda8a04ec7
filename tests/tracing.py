"""Which files of fcforge a reader meets on the way of one FC: those whose functions are entered.

Run as a script it prints the way, for docs/architecture.md::

    python tests/tracing.py
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np

import fcforge

HOME = Path(fcforge.__file__).parent
RUN = """
[experiment]
seeds = [0]
[dataset]
name = "folder"
path = "people.npz"
[training]
epochs = 1
[[learner]]
method = "finetune"
model = "gcn"
"""


class Way:
    """Files in the order in which they were entered first, and the functions in each."""

    def __init__(self) -> None:
        self.functions: dict[str, Counter[str]] = {}

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event == "call" and HOME in path.parents and not _importing(frame):
            name = path.relative_to(HOME).as_posix()
            self.functions.setdefault(name, Counter())[code.co_qualname] += 1

    @property
    def files(self) -> list[str]:
        """Python files below src/fcforge; templates are entered, too, and not counted."""
        return [name for name in self.functions if name.endswith(".py")]

    @property
    def n_functions(self) -> int:
        """Functions, those inside others too."""
        return sum(len(self.functions[name]) for name in self.files)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported here: its body calls functions, too."""
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(
        "fcforge"
    )


@contextmanager
def traced() -> Iterator[Way]:
    """What is entered by this thread meanwhile."""
    way = Way()
    before = sys.getprofile()
    sys.setprofile(way)
    try:
        yield way
    finally:
        sys.setprofile(before)


class Here:
    """In place of worker processes: whatever is handed in is done at once, where it is seen."""

    def submit(self, call: Any, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(call(*args, **kwargs))
        return done

    def shutdown(self, **_: Any) -> None:
        """Nothing to end."""


def from_run_to_report(folder: Path) -> Way:
    """`fcforge run` of two sites with FC files, and its page."""
    from fcforge.cli import main
    from fcforge.data.simulated import simulate

    people = simulate("easy", n_rois=12, n_sites=2, scale=0.15, seed=3)
    who = {"site": people.site, "subject_id": people.subject_id, "label": people.y}
    np.savez(folder / "people.npz", fc=people.fc, **who)
    (folder / "run.toml").write_text(RUN)
    words = ["run", str(folder / "run.toml"), "--out", str(folder / "out")]
    with (
        mock.patch("fcforge.experiments.execute._workers", return_value=Here()),
        mock.patch.object(sys, "argv", ["fcforge", *words, "--device", "cpu"]),
        traced() as way,
        suppress(SystemExit),
    ):
        main()
    assert (folder / "out" / "report.html").is_file()
    return way


def from_start_to_predict(folder: Path) -> Way:
    """A consortium in five commands: start, two hospitals learn, merge, predict."""
    from fcforge.cli import main
    from fcforge.data.simulated import simulate

    people = simulate("easy", n_rois=12, n_sites=4, scale=0.4, seed=3)
    who = {"site": people.site, "subject_id": people.subject_id, "label": people.y}
    np.savez(folder / "people.npz", fc=people.fc, **who)
    public = ",".join(people.site_names[:2])
    data = ("--data", "people.npz")
    commands = [("start", *data, "--sites", public, "--out", "start.fcx")]
    for site in people.site_names[2:]:
        given = ("--state", "start.fcx", "--site", site, "--out", f"{site}.fcx")
        commands.append(("learn", *data, *given, "--yes"))
    files = [f"{site}.fcx" for site in people.site_names[2:]]
    commands.append(("merge", *files, "--out", "all.fcx"))
    commands.append(("predict", "all.fcx", "people.npz", "--out", "predictions.csv"))
    with chdir(folder), traced() as way:
        for words in commands:
            with (
                mock.patch.object(sys, "argv", ["fcforge", *words]),
                suppress(SystemExit),
            ):
                main()
    assert (folder / "predictions.csv").is_file()
    return way


WAYS = {"run to report": from_run_to_report, "start to predict": from_start_to_predict}

if __name__ == "__main__":
    for title in sys.argv[1:] or WAYS:
        with tempfile.TemporaryDirectory() as scratch:
            found = WAYS[title](Path(scratch))
        print(f"{title}: {len(found.files)} files, {found.n_functions} functions")
        for name in found.files:
            print(f"  {name}: {', '.join(found.functions[name])}"[:150])
