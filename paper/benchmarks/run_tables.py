"""Every table of the paper: the product's own experiments, one after the other on one device.

    python paper/benchmarks/run_tables.py write .carry/tables --precision tf32  # here: what to run
    python paper/benchmarks/run_tables.py run .carry/tables --out $OUT  # there: torch is enough
    python paper/benchmarks/run_tables.py read OUT                      # here: paper/results/*.npz
    make tables                                                         # every page and figure

`run` leaves ordinary run folders; tables of one dataset share their nodes, so a learner that two
tables name is trained once. After --limit seconds nothing new is started, and the same command
again continues. With --processes the learners of a table train side by side (on a GPU start
`nvidia-cuda-mps-control -d` first, or they take turns): a card waits for one process that loads,
captures and stores while it computes for others. Scores and metadata (no lane, no generator) go
into OUT/*.tar.gz; `read` makes one small file per table of them, with what was asked for, the
machine and the commit.
Tuned strengths: `fcforge tune paper/experiments/main_abide.toml --device cuda`, then a config with
base = "main_abide.toml" and the learners of tuned.toml, run into OUT/main_abide_tuned.
"""

import argparse
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import forkserver
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from fcforge.core.spec import LearnerSpec
from fcforge.experiments.config import Experiment
from fcforge.experiments.run import Prepared, open_store, prepare, run_experiment
from fcforge.experiments.store import Store

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "paper" / "experiments"
NODE = ("meta.json", "scores.npz")  # what is kept of a node: no lane
# methods whose tables take longest, by seconds on one H200
LONGEST = (
    "forge",
    "ugcl",
    "derpp",
    "twp",
    "ewc",
    "der",
    "er",
    "cumulative",
    "lwf",
    "si",
    "packnet",
    "finetune",
)
FITTING = 4  # processes beside each of several that fit its generators
PART_BYTES = 12 << 20  # of an archive; more than 16 MiB does not come back
TOLD = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
WANTED: dict[str, tuple[str, ...]] = {
    name: tuple(setting for which in sets for setting in TOLD["settings"][which])
    for name, sets in TOLD["tables"].items()
}


class OutOfTime(RuntimeError):
    """The wall-clock limit has passed."""


def load(name: str, precision: str = "float32", data: str = "") -> Experiment:
    """Experiment of a table, with the settings it is run with."""
    from fcforge.experiments.config import load_experiment

    settings = [*WANTED[name], f"training.precision={precision}"]
    file = name.partition("+")[0]
    if data and file not in (
        "main_mdd",
        "main_bsnip",
        "ablation_mdd",
        "ablation_bsnip",
    ):
        settings.append(f"dataset.path={Path(data).resolve()}")
    return load_experiment(EXPERIMENTS / f"{file}.toml", settings)


def commit() -> str:
    """The commit of this checkout; "+" after it where files differ from it."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    return subprocess.check_output(command, cwd=ROOT, text=True).strip()


def write(args: argparse.Namespace) -> None:
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.only or WANTED:
        asked = {
            "experiment": load(name, args.precision, args.data).to_json(),
            "commit": commit(),
            "config": (EXPERIMENTS / f"{name.partition('+')[0]}.toml").read_text(),
            "settings": WANTED[name],
        }
        (args.folder / f"{name}.json").write_text(json.dumps(asked, indent=1))


def run(args: argparse.Namespace) -> None:
    args.started = time.monotonic()
    if args.processes > 1:
        load_once()
    try:
        for name in [n for n in WANTED if (args.folder / f"{n}.json").is_file()]:
            told = (args.folder / f"{name}.json").read_text()
            args.root.mkdir(parents=True, exist_ok=True)
            (args.root / f"{name}.json").write_text(told)
            experiment = Experiment.from_json(json.loads(told)["experiment"])
            run_table(name, experiment, args)
    except OutOfTime:
        print("the time is over; the same command again continues", flush=True)
    finally:
        pack(args.root, args.out)


def run_table(name: str, experiment: Experiment, args: argparse.Namespace) -> None:
    """One run folder; its nodes and generators are those of its dataset."""
    prepared = prepare(experiment)
    pool, folder = args.root / ".pool" / prepared.data_sha256[:12], args.root / name
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("nodes", "generators"):
        (pool / part).mkdir(parents=True, exist_ok=True)
        if not (folder / part).exists():
            (folder / part).symlink_to(
                (pool / part).resolve(), target_is_directory=True
            )
    open_store(prepared, folder)
    if args.processes == 1:
        train(name, prepared, folder, args)
    else:
        train_side_by_side(name, experiment, folder, args)
    for lane in folder.glob("nodes/*/lane.safetensors"):
        lane.unlink()  # the table is whole: only scores are read from now on


def train(
    name: str, prepared: Prepared, folder: Path, args: argparse.Namespace
) -> None:
    """What the folder does not hold yet; `OutOfTime` after the limit."""

    def progress(done: int, total: int, last: str) -> None:
        seconds = time.monotonic() - args.started  # the same clock in all processes
        print(f"{seconds:7.1f} s  {name} {done}/{total} {last}", flush=True)
        if seconds > args.limit:
            raise OutOfTime

    beside = {"jobs": FITTING} if args.processes > 1 else {}
    how = {"device": args.device, "group": args.group, **beside}
    run_experiment(prepared, Store(folder), **how, progress=progress)


def load_once() -> None:
    """Start the process that others are forked from: it has torch, no card and no threads."""
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    multiprocessing.set_forkserver_preload(["fcforge.experiments.trainer"])
    forkserver.ensure_running()


def train_side_by_side(
    name: str, experiment: Experiment, folder: Path, args: argparse.Namespace
) -> None:
    """The same, shares of the learners in processes of their own."""
    shares = shares_of(experiment.learners)
    fork = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(min(args.processes, len(shares)), fork) as pool:
        one = partial(train_share, name, experiment, folder=folder, args=args)
        ended = list(pool.map(one, shares))
    if not all(ended):
        raise OutOfTime


def train_share(
    name: str,
    experiment: Experiment,
    learners: tuple[LearnerSpec, ...],
    *,
    folder: Path,
    args: argparse.Namespace,
) -> bool:
    """Train some learners of a table; False where the time was over first."""
    own = replace(experiment, learners=learners)
    try:
        train(f"{name}, {learners[0].title}", prepare(own), folder, args)
    except OutOfTime:
        return False
    return True


def shares_of(learners: Sequence[LearnerSpec]) -> list[tuple[LearnerSpec, ...]]:
    """Learners that share a generator, or a method, stay together; the longest work first.

    A generator is then fitted once, and lanes of one method train as one group.
    """
    alike: dict[str, list[LearnerSpec]] = {}
    for learner in learners:
        shared = learner.generator or learner.method.name
        alike.setdefault(str(shared), []).append(learner)
    long = sorted(alike.values(), key=lambda some: place_of(LONGEST, some[0]))
    return [tuple(some) for some in long]


def place_of(names: Sequence[str], learner: LearnerSpec) -> int:
    """Place of a learner's method among some; after them where it is not named."""
    name = learner.method.name
    return names.index(name) if name in names else len(names)


def pack(root: Path, out: Path) -> None:
    """Scores, metadata and what was asked for, in archives that stay small."""
    out.mkdir(parents=True, exist_ok=True)
    wanted = ("*.json", "*/experiment.json", *(f".pool/*/nodes/*/{f}" for f in NODE))
    files = [path for pattern in wanted for path in root.glob(pattern)]
    parts = max(
        1, math.ceil(sum(p.stat().st_size for p in files) / 2 / PART_BYTES)
    )  # gzip halves
    for k in range(parts):
        with tarfile.open(out / f"tables-{k}.tar.gz", "w:gz", compresslevel=6) as tar:
            for path in files[k::parts]:
                tar.add(path, path.relative_to(root))
    pools = {p.parent.name: p.resolve().parent.name for p in root.glob("*/nodes")}
    (out / "pools.json").write_text(json.dumps(pools))


def unpack(archives: Path, runs: Path) -> Path:
    """Run folders from what `pack` wrote; a folder that holds run folders already is taken."""
    if not (archives / "pools.json").is_file():
        return archives
    for path in sorted(archives.glob("*.tar.gz")):
        with tarfile.open(path) as tar:
            tar.extractall(runs, filter="data")
    for name, pool in json.loads((archives / "pools.json").read_text()).items():
        nodes = runs / name / "nodes"
        if not nodes.exists():
            nodes.symlink_to(
                (runs / ".pool" / pool / "nodes").resolve(), target_is_directory=True
            )
    return runs


def read(args: argparse.Namespace) -> None:
    """Pack the finished learners of every run folder into paper/results/NAME.npz."""
    from paper_tables import read_folder
    from scores import pack as pack_scores
    from scores import places, write_table

    folder = unpack(args.folder, args.root)
    for path in sorted(folder.glob("*/experiment.json")):
        name = path.parent.name
        table = (
            None if args.only and name not in args.only else read_folder(path.parent)
        )
        if table is None or not table.groups:
            continue
        asked = folder / f"{name}.json"
        found = json.loads(asked.read_text()) if asked.is_file() else {}
        told = {k: found[k] for k in ("commit", "config", "settings") if k in found}
        told.setdefault("commit", args.commit)
        data = Store(path.parent).read_experiment()
        numbers = places(Experiment.from_json(data["experiment"]).dataset)
        arrays = pack_scores(table, data, numbers, **told)
        write_table(args.results / f"{name}.npz", arrays)
        size = (args.results / f"{name}.npz").stat().st_size
        print(
            f"{name}: {len(table.groups)} learners, {size:,} bytes; missing {table.missing}"
        )


def main() -> None:
    form = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    commands = parser.add_subparsers(required=True)
    for work in (write, run, read):
        command = commands.add_parser(work.__name__)
        command.set_defaults(work=work)
        command.add_argument("folder", type=Path)
        command.add_argument(
            "--root", type=Path, default=Path("runs/tables"), help="run folders"
        )
    writing, running, reading = (commands.choices[n] for n in ("write", "run", "read"))
    writing.add_argument("--precision", default="float32", choices=["float32", "tf32"])
    writing.add_argument(
        "--data", default="", help="place of abide1_aal116.npz on the machine"
    )
    for some in (writing, reading):
        some.add_argument("--only", nargs="*", choices=WANTED, help="these tables")
    running.add_argument(
        "--out", type=Path, default=Path("out"), help="folder for the archives"
    )
    running.add_argument("--device", default="cuda")
    running.add_argument(
        "--group", type=int, default=None, help="most lanes trained together"
    )
    running.add_argument(
        "--processes", type=int, default=1, help="learners trained side by side"
    )
    running.add_argument(
        "--limit", type=float, default=540, help="seconds; then nothing starts"
    )
    reading.add_argument(
        "--results",
        type=Path,
        default=ROOT / "paper" / "results",
        help="for the tables",
    )
    reading.add_argument(
        "--commit", default="unknown", help="of a run that did not store it"
    )
    args = parser.parse_args()
    args.work(args)


if __name__ == "__main__":
    main()
