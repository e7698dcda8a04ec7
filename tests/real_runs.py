"""Small experiments; one is run through the command line once per test session and shared."""

import atexit
import io
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fcforge.cli import main
from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec, Training
from fcforge.experiments.config import Experiment
from fcforge.experiments.store import Store

SMALL = """\
[experiment]
title = "Small"
seeds = [0]
orders = "all"

[dataset]
name = "simulated"
preset = "hard_shift"
n_sites = 3
n_rois = 12
scale = 0.2

[training]
epochs = 3
batch_size = 8

[[learner]]
method = "finetune"
model = { name = "gcn", hidden = 8, depth = 2, tau = 0.2 }

[[learner]]
method = { name = "er", memory = 10 }
model = { name = "mlp", hidden = 8 }

[[learner]]
method = { name = "forge", memory = 8, candidates = 8, dev = 4, replay = 8, refresh = 1 }
model = { name = "gcn", hidden = 8, depth = 2, tau = 0.2 }
generator = "corr_gauss"

[[learner]]
method = "cumulative"
model = "linear"

[[learner]]
method = "joint"
model = "linear"

[[learner]]
method = "analytic"
model = "linear"
"""


def small_experiment(seed: int = 0, *methods: str) -> Experiment:
    """Two simulated sites, one epoch, edges: a run of a second."""
    return Experiment(
        Component("simulated", {"n_sites": 2, "n_rois": 8, "scale": 0.1, "seed": seed}),
        tuple(
            LearnerSpec(Component(m), Component("linear"))
            for m in methods or ("finetune",)
        ),
        training=Training(epochs=1, batch_size=8),
    )


class Answer(NamedTuple):
    """Output of a command."""

    code: int
    out: str
    err: str


def fcforge(*args: object) -> Answer:
    """Run a command in this process: importing torch again would cost seconds."""
    out, err, code = io.StringIO(), io.StringIO(), None
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(a) for a in args])
        except SystemExit as stop:
            code = stop.code
    assert isinstance(code, int)
    return Answer(code, out.getvalue(), err.getvalue())


def consortium(*args: object) -> Answer:
    """Run a command of the consortium in this process."""
    return fcforge("consortium", *args)


def chain_config(path: Path, method: str = "analytic", model: str = "linear") -> Path:
    """A config with one learner and few epochs, which a chain can begin with."""
    path.write_text(
        '[dataset]\nname = "simulated"\n[training]\nepochs = 3\n'
        f'[[learner]]\nmethod = "{method}"\nmodel = "{model}"\n'
    )
    return path


@cache
def scratch() -> Path:
    """Folder that lives as long as the test session."""
    folder = Path(tempfile.mkdtemp(prefix="fcforge-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def small_config() -> Path:
    path = scratch() / "small.toml"
    path.write_text(SMALL)
    return path


class Finished(NamedTuple):
    """A run that nobody disturbed."""

    folder: Path
    answer: Answer


@cache
def finished() -> Finished:
    """The small experiment, run with one worker."""
    folder = scratch() / "finished"
    answer = fcforge(
        "run", small_config(), "--out", folder, "--jobs", 1, "--device", "cpu"
    )
    assert answer.code == 0, answer.err
    return Finished(folder, answer)


def contents(folder: Path) -> dict[str, tuple[dict[str, np.ndarray], dict[str, Any]]]:
    """Scores and stored tensors of every node."""
    store = Store(folder)
    found = {}
    for key in sorted(store.done()):
        deep = (folder / "nodes" / key / "lane.safetensors").exists()
        lane = {k: v.numpy() for k, v in store.read_lane(key).items()} if deep else {}
        found[key] = (store.read_scores(key), lane)
    return found


def assert_same_run(a: Path, b: Path) -> None:
    """Every score and every parameter equal, bit by bit."""
    left, right = contents(a), contents(b)
    assert left.keys() == right.keys()
    for key in left:
        for x, y in zip(left[key], right[key], strict=True):
            assert x.keys() == y.keys()
            for name in x:
                assert np.array_equal(x[name], y[name], equal_nan=True), (key, name)


def do_damage(path: Path, damage: str) -> None:
    """Damage a file as a full disk, a broken copy or a bad sector does."""
    data = path.read_bytes()
    half = len(data) // 2
    flipped = bytes(b ^ 0xFF for b in data[half : half + 40])
    if damage == "delete":
        path.unlink()
        return
    path.write_bytes(
        {
            "truncate": data[:half],
            "empty": b"",
            "noise": bytes(range(256)),
            "flip": data[:half] + flipped + data[half + 40 :],
            "one bit": data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :],
        }[damage]
    )


def without_seconds(table: str) -> list[Sequence[str]]:
    """Rows of a table.csv without what the clock decides."""
    rows = [line.split(",") for line in table.splitlines()]
    drop = {i for i, name in enumerate(rows[0]) if "second" in name.lower()}
    return [[v for i, v in enumerate(row) if i not in drop] for row in rows]
