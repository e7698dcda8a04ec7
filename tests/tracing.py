"""Which files of fcforge a reader meets on the way of one FC: those whose functions are entered.

Run as a script it prints the way, for docs/architecture.md::

    python tests/tracing.py
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import chdir, contextmanager
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
    """Record the functions that this thread enters in the block."""
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


def run_command(words: Sequence[str]) -> None:
    """Run a command in this process; any exit code but 0 raises."""
    from fcforge.cli import main

    code: Any = 0
    with mock.patch.object(sys, "argv", ["fcforge", *words]):
        try:
            main()
        except SystemExit as end:
            code = end.code
    if code:
        raise RuntimeError(f"{' '.join(words[:2])} ended with {code}")


def from_run_to_report(folder: Path) -> Way:
    """`fcforge run` of two sites with FC files, and its page."""
    from fcforge.data.simulated import simulate

    people = simulate("easy", n_rois=12, n_sites=2, scale=0.15, seed=3)
    who = {"site": people.site, "subject_id": people.subject_id, "label": people.y}
    np.savez(folder / "people.npz", fc=people.fc, **who)
    (folder / "run.toml").write_text(RUN)
    words = ["run", str(folder / "run.toml"), "--out", str(folder / "out")]
    with (
        mock.patch("fcforge.experiments.execute._workers", return_value=Here()),
        traced() as way,
    ):
        run_command([*words, "--device", "cpu"])
    assert (folder / "out" / "report.html").is_file()
    return way


def from_base_model_to_prediction(folder: Path) -> Way:
    """A consortium in five commands: base model, two contributions, merge, predict."""
    from fcforge.data.simulated import simulate

    people = simulate("easy", n_rois=12, n_sites=4, scale=0.4, seed=3)
    who = {"site": people.site, "subject_id": people.subject_id, "label": people.y}
    np.savez(folder / "people.npz", fc=people.fc, **who)
    public = ",".join(people.site_names[:2])
    data = ("--data", "people.npz")
    hospitals = people.site_names[2:]
    commands = [("base-model", *data, "--sites", public, "--out", "base.fcx")]
    for site in hospitals:
        given = ["--state", "base.fcx", "--site", site, "--out", f"{site}.fcx"]
        given += ["--ledger", f"{site}.private", "--new-ledger"]
        commands.append(("contribute", *data, *given, "--yes"))
    files = [f"{site}.fcx" for site in hospitals]
    commands.append(("merge", *files, "--out", "all.fcx"))
    commands.append(("predict", "all.fcx", "people.npz", "--out", "predictions.csv"))
    with chdir(folder), traced() as way:
        for words in commands:
            run_command(["consortium", *words])
    assert (folder / "predictions.csv").is_file()
    return way


WAYS = {
    "run to report": from_run_to_report,
    "base model to prediction": from_base_model_to_prediction,
}

if __name__ == "__main__":
    for title in sys.argv[1:] or WAYS:
        with tempfile.TemporaryDirectory() as scratch:
            found = WAYS[title](Path(scratch))
        print(f"{title}: {len(found.files)} files, {found.n_functions} functions")
        for name in found.files:
            print(f"  {name}: {', '.join(found.functions[name])}"[:150])
