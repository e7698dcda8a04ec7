"""Train every table of the paper on one GPU, and bring the scores back.

    python paper/benchmarks/run_tables.py write .carry/tables --precision tf32  # here: what to run
    bash paper/benchmarks/on_gpu.sh .carry 560 1700 parts figures  # there: torch, numpy (generators: scipy)
    python paper/benchmarks/run_tables.py read OUT                 # here: paper/results/NAME.npz and NAME.json
    make tables                                                    # every page and figure

`run` leaves ordinary run folders. Tables of one dataset share their nodes and generators, so a
learner that two tables name is trained once. One whose runs are stored in paper/results already, of
the same commit, is not trained again: `read` takes its scores from there. Learners of all tables of
the portions asked for train side by side in `--processes` processes: on a GPU start
`nvidia-cuda-mps-control -d` first (on_gpu.sh does), or they take turns. After `--limit` seconds
nothing new is started; the same command continues where the run folders are still there. Scores and
metadata (no lane, no generator) go into OUT/*.tar.xz; `pack` writes them again while `run` goes on.
`dry` runs the tables in small on this machine: two orders, one seed, two epochs.
"""

import argparse
import json
import math
import multiprocessing
import os
import re
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from fcforge.core.component import Component
from fcforge.core.errors import FCForgeError, StoreError
from fcforge.core.spec import LearnerSpec
from fcforge.experiments.config import Experiment
from fcforge.experiments.config_files import read_config
from fcforge.experiments.environment import describe
from fcforge.experiments.plan import Plan
from fcforge.experiments.run import Prepared, open_store, prepare, run_experiment
from fcforge.experiments.run_keys import run_key
from fcforge.experiments.store import Store

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "paper" / "experiments"
RESULTS = ROOT / "paper" / "results"
NODE = ("meta.json", "scores.npz")  # what is kept of a node: no lane
# files of a judged site; the first two are named as in generator_quality/summary.py, which needs scipy
RECORDS, PORTRAITS, MACHINE = "records.json", "portraits.npz", "machine.json"
# methods by falling time on one H200
LONGEST = (
    "forge",
    "joint",
    "cumulative",
    "ugcl",
    "twp",
    "ewc",
    "derpp",
    "er",
    "der",
    "si",
    "packnet",
    "lwf",
    "finetune",
)
# the sampler of these variants chooses in every epoch
SLOW_VARIANTS = ("paper", "authors")
PART_BYTES = 14 << 20  # largest archive; more than 16 MiB does not come back
PARTS = 6  # most archives; more than eight files do not come back
UNPACKED_BYTES = 2 << 30  # of one archive
POOL = re.compile(r"[0-9a-f]{12}")  # name of the nodes of one data file
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
PORTIONS: Mapping[str, Sequence[str]] = _TABLES["portions"]
# tables whose learners, or whose learners and seeds, each train in a process of their own
APART: Mapping[str, str] = _TABLES["apart"]
AT_ONCE = 6  # most shares of such a table side by side, so that others fill the card
TABLES = tuple(name for names in PORTIONS.values() for name in names)
UNFINISHED = 3  # exit status of a process whose time was over
GRACE = 40.0  # seconds after the limit in which a process may finish its node
FITTED = (
    "fcm_vae",
    "brainnetgan",
    "gr_spd_gan",
)  # generators that take epochs or steps
REAL, COPIES = "real", "bootstrap"  # rows of every table of generators
SMALL = ("experiment.orders=2", "experiment.seeds=[0]", "training.epochs=2")


class OutOfTime(RuntimeError):
    """The wall-clock limit has passed."""


@dataclass(frozen=True)
class Share:
    """Learners of a table that one process trains, or a site whose generators one process judges.

    Parameters
    ----------
    table : str
    learners : tuple of LearnerSpec
        Empty for a table of generators.
    nodes : frozenset of str
        Keys of the nodes that the share trains; two shares with a common one run one after the other.
    generators : frozenset of str
        What the share may fit; the same, until a share with that generator has finished.
    site : str
        Site whose generators are judged.
    seed : int or None
        Seed of its runs, or of the generators judged; None: all seeds.
    """

    table: str
    learners: tuple[LearnerSpec, ...]
    nodes: frozenset[str]
    generators: frozenset[str] = frozenset()
    site: str = ""
    seed: int | None = None

    @property
    def title(self) -> str:
        """Table and first learner, or table and site."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.table}, {self.site or self.learners[0].title}{seed}"


def judges(name: str) -> bool:
    """Whether a table compares generators (`fcforge judge`)."""
    return "judge" in read_config(EXPERIMENTS / f"{name}.toml")


def load(
    name: str, precision: str = "float32", settings: Sequence[str] = ()
) -> Experiment:
    """Return the experiment of a table."""
    from fcforge.experiments.config import load_experiment

    every = [f"training.precision={precision}", *settings]
    return load_experiment(EXPERIMENTS / f"{name}.toml", every)


def shrunk(experiment: Experiment) -> Experiment:
    """Return an experiment whose generators are fitted for one epoch."""
    learners = [
        replace(le, generator=small_generator(le.generator)) if le.generator else le
        for le in experiment.learners
    ]
    return replace(experiment, learners=tuple(learners))


def small_generator(generator: Component) -> Component:
    """Return a generator that is fitted for one epoch, if it is fitted in epochs."""
    if generator.name != "fcm_vae":
        return generator
    return Component(generator.name, {**generator.params, "epochs": 1})


def commit() -> str:
    """Return the commit of this checkout; "+" after it where files differ from it."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    return subprocess.check_output(command, cwd=ROOT, text=True).strip()


def config_text(name: str) -> str:
    """Return the text of a table's config file and of those it is based on."""
    texts = []
    path: Path | None = EXPERIMENTS / f"{name}.toml"
    while path:
        texts.append(f"# {path.relative_to(EXPERIMENTS)}\n{path.read_text()}")
        base = tomllib.loads(path.read_text()).get("base")
        path = path.parent / base if base else None
    return "\n".join(texts)


def write(args: argparse.Namespace) -> None:
    """Write what to run into a folder, one JSON file per table."""
    args.folder.mkdir(parents=True, exist_ok=True)
    settings = list(SMALL) if args.small else []
    for name in args.only or TABLES:
        if not (EXPERIMENTS / f"{name}.toml").is_file():  # of an older commit
            print(f"{name}: no config at this commit")
            continue
        asked: dict[str, Any] = {
            "commit": args.commit or commit(),
            "config": config_text(name),
            "settings": settings,
        }
        if judges(name):
            asked["judge"] = small_judge(name) if args.small else []
            asked["precision"] = args.precision
        else:
            experiment = load(name, args.precision, settings)
            asked["experiment"] = (
                shrunk(experiment) if args.small else experiment
            ).to_json()
            if not args.small:
                found = stored_learners(experiment, asked["commit"], args.results)
                asked["stored"] = sorted(found)
        (args.folder / f"{name}.json").write_text(json.dumps(asked, indent=1))


def stored_learners(
    experiment: Experiment, made_at: str, results: Path, data_sha256: str = ""
) -> dict[str, list[Any]]:
    """Return the learners of an experiment whose runs are stored, all of them, with their results.

    Subjects of these results are places in the list of the data file's ids, as they are stored.

    Parameters
    ----------
    experiment : Experiment
    made_at : str
        Commit. Tables of other commits are not looked at; none is if it ends in "+", because two checkouts
        with changed files may differ.
    results : Path
        Folder of stored tables.
    data_sha256 : str
        Digest of the data, where it is known. Without it all tables must be of the same data.
    """
    from scores import without_folders

    if made_at.endswith("+"):
        return {}
    dataset = without_folders(experiment.to_json()["dataset"])
    by_data = stored_runs(json.dumps(dataset), made_at, results)
    if not data_sha256 and len(by_data) > 1:
        digests = ", ".join(sha[:10] for sha in sorted(by_data))
        raise SystemExit(
            f"{results} holds tables of {experiment.title!r} from different data files ({digests}). "
            "Train those of one file again."
        )
    sha = data_sha256 or next(iter(by_data), "")
    if sha not in by_data:
        return {}
    sites, found = by_data[sha]
    wanted: dict[str, list[Any]] = {}
    for spec in experiment.specs(sites, sha):
        run = found.get(run_key(spec))
        wanted.setdefault(spec.learner.title, []).append(
            run and replace(run, spec=spec)
        )
    return {title: runs for title, runs in wanted.items() if None not in runs}


@cache
def stored_runs(
    dataset: str, made_at: str, results: Path
) -> dict[str, tuple[tuple[str, ...], dict[str, Any]]]:
    """Return sites and stored runs, by their keys, of a dataset given as JSON; by digest of the data."""
    from scores import read_table

    found: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {}
    for path in sorted(results.glob("*.npz")):
        facts = stored_facts(path)
        about_data = facts.get("experiment", {}).get("dataset")
        if about_data == json.loads(dataset) and facts["commit"] == made_at:
            _, by_key = found.setdefault(
                facts["data_sha256"], (tuple(facts["sites"]), {})
            )
            runs = [r for rs in read_table(path)[0].groups.values() for r in rs]
            by_key |= {
                run_key(run.spec): run
                for run in runs
                if not has_own_code(run.spec.learner)
            }
    return found


def has_own_code(learner: LearnerSpec) -> bool:
    """Return whether a part of a learner is named "module:object".

    Such a module lies beside its config and may be missing in the code of another commit, so that stored
    runs of it are never taken in place of a training.
    """
    parts = (learner.method, learner.model, learner.generator)
    return any(part is not None and ":" in part.name for part in parts)


def stored_facts(path: Path) -> dict[str, Any]:
    """Return what a stored table says of itself; nothing for a file of another kind."""
    with np.load(path, allow_pickle=False) as arrays:
        return json.loads(arrays["about"].tobytes()) if "about" in arrays else {}


def small_judge(name: str) -> list[str]:
    """Return settings with which a table of generators takes seconds."""
    tables = []
    for table in read_config(EXPERIMENTS / f"{name}.toml")["generator"]:
        key = "epochs" if table["name"] == "fcm_vae" else "steps"
        small = {**table, key: 2} if table["name"] in FITTED else table
        parts = [f"{k} = {json.dumps(v)}" for k, v in small.items()]
        tables.append(f"{{ {', '.join(parts)} }}")
    return [f"generator=[{', '.join(tables)}]", "training.epochs=2", "judge.seeds=[0]"]


def asked_tables(args: argparse.Namespace) -> list[str]:
    """Return the tables of the portions asked for that were written and are not finished."""
    names = [name for portion in args.portions for name in PORTIONS[portion]]
    written = [name for name in names if (args.folder / f"{name}.json").is_file()]
    return [name for name in written if not (args.root / name / ".finished").is_file()]


def run(args: argparse.Namespace) -> None:
    """Train the tables of some portions; start no learner after the limit."""
    args.started = time.monotonic()
    args.root.mkdir(parents=True, exist_ok=True)
    if args.processes > 1:
        start_forkserver()
    try:
        in_time = run_side_by_side(args) if args.processes > 1 else run_in_turn(args)
        if not in_time:
            print("not everything is finished; the same command continues", flush=True)
    finally:
        pack(args.root, args.out)


def run_in_turn(args: argparse.Namespace) -> bool:
    """Run all shares in this process; return False if the time was over first."""
    for name in asked_tables(args):
        for share in opened(name, args):
            if not run_share(share, args):
                return False
        finish(name, args)
    return True


def run_side_by_side(args: argparse.Namespace) -> bool:
    """Run every share in a process of its own; return False if one did not finish.

    A share starts once nothing that runs does the same work (`may_start`). A share that fails is
    started once more, because a card can be busy for a moment; if it fails again, its table stays
    unfinished and the others go on. Processes that still run `GRACE` seconds after the limit are
    killed, so that there is time to pack; a killed node is trained again by the next command.
    """
    fork = multiprocessing.get_context("forkserver")
    tables = iter(asked_tables(args))
    waiting: list[Share] = []
    running: dict[int, tuple[Any, Share]] = {}
    unfinished: dict[str, int] = {}
    fitted: set[str] = set()
    failed: set[str] = set()
    in_time = True
    while True:
        while (
            len(running) < args.processes
            and time.monotonic() - args.started < args.limit
        ):
            busy = [share for _, share in running.values()]
            share = next((s for s in waiting if may_start(s, busy, fitted)), None)
            if share is not None:
                waiting.remove(share)
                process = fork.Process(target=run_share_and_exit, args=(share, args))
                process.start()
                running[process.sentinel] = (process, share)
            elif (name := next(tables, None)) is not None:
                try:
                    waiting += opened(name, args)
                except FCForgeError as error:  # the other tables are still run
                    print(f"FAILED: {name}: {error}", flush=True)
                    in_time = False
                unfinished[name] = sum(share.table == name for share in waiting)
                if not unfinished[name]:
                    finish(name, args)  # all of its learners are stored
            else:
                break
        if not running:
            return in_time and not waiting and next(tables, None) is None
        left = args.limit + GRACE - (time.monotonic() - args.started)
        ended = wait(list(running), None if math.isinf(left) else max(left, 0.0))
        if not ended:
            kill([process for process, _ in running.values()])
            return False
        for sentinel in ended:
            process, share = running.pop(sentinel)
            process.join()
            if process.exitcode == 0:
                fitted |= share.generators
                unfinished[share.table] -= 1
                if not unfinished[share.table]:
                    finish(share.table, args)
            elif process.exitcode == UNFINISHED:
                in_time = False
            elif share.title not in failed:
                failed.add(share.title)
                waiting.append(share)
                print(f"failed, starts again: {share.title}", flush=True)
            else:
                in_time = False
                print(f"FAILED with {process.exitcode}: {share.title}", flush=True)


def kill(processes: Sequence[Any]) -> None:
    """Kill processes and wait until they are gone."""
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def may_start(share: Share, running: Sequence[Share], fitted: Collection[str]) -> bool:
    """Return whether nothing that runs trains the same nodes or fits the same generators.

    Of a table of `APART` only `AT_ONCE` shares run side by side.
    """
    beside = sum(one.table == share.table for one in running)
    if share.table in APART and beside >= AT_ONCE:
        return False
    missing = share.generators.difference(fitted)
    return not any(
        share.nodes & one.nodes or missing & one.generators for one in running
    )


def opened(name: str, args: argparse.Namespace) -> list[Share]:
    """Open the run folder of a table, with the nodes and generators of its dataset, and return its shares."""
    text = (args.folder / f"{name}.json").read_text()
    (args.root / f"{name}.json").write_text(text)
    asked = json.loads(text)
    if "judge" in asked:
        return shares_of_sites(name, asked["judge"], args.device)
    experiment = located(asked["experiment"])
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
    return shares_of(name, experiment, prepared.plan, asked.get("stored", ()))


def located(asked: Mapping[str, Any]) -> Experiment:
    """Return an experiment that reads its data from $FCFORGE_DATA of this machine."""
    experiment = Experiment.from_json(asked)
    dataset, folder = experiment.dataset, os.environ.get("FCFORGE_DATA")
    if folder is None or "path" not in dataset.params:
        return experiment
    path = str(Path(folder).resolve() / Path(str(dataset.params["path"])).name)
    here = Component(dataset.name, {**dataset.params, "path": path})
    return replace(experiment, dataset=here)


def finish(name: str, args: argparse.Namespace) -> None:
    """Mark a table as finished."""
    (args.root / name).mkdir(parents=True, exist_ok=True)
    (args.root / name / ".finished").touch()
    print(f"{time.monotonic() - args.started:7.1f} s  {name} is finished", flush=True)


def start_forkserver() -> None:
    """Start the process that others are forked from: it has torch, no card and no threads."""
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    multiprocessing.set_forkserver_preload(["fcforge.experiments.trainer"])
    forkserver.ensure_running()


def run_share(share: Share, args: argparse.Namespace) -> bool:
    """Train or judge one share; False if the time was over first."""
    try:
        (judge_site if share.site else train)(share, args)
    except OutOfTime:
        return False
    return True


def run_share_and_exit(share: Share, args: argparse.Namespace) -> None:
    """Run a share as the work of a process, whose exit status says whether it finished."""
    sys.exit(0 if run_share(share, args) else UNFINISHED)


def progress_of(share: Share, args: argparse.Namespace) -> Any:
    """Return a function that prints progress, and raises `OutOfTime` after the limit."""

    def progress(*about: Any) -> None:
        seconds = time.monotonic() - args.started  # the same clock in all processes
        if seconds - last[0] > 20 or about[0] == about[-2 if len(about) > 1 else 0]:
            last[0] = seconds
            print(
                f"{seconds:7.1f} s  {share.title} {' '.join(map(str, about))}",
                flush=True,
            )
        if seconds > args.limit:
            raise OutOfTime

    last = [-math.inf]
    return progress


def train(share: Share, args: argparse.Namespace) -> None:
    """Train what the run folder does not hold yet of a share's learners."""
    asked = json.loads((args.root / f"{share.table}.json").read_text())
    whole = located(asked["experiment"])
    seeds = whole.seeds if share.seed is None else (share.seed,)
    prepared = prepare(replace(whole, learners=share.learners, seeds=seeds))
    store = Store(args.root / share.table)
    progress = progress_of(share, args)
    run_experiment(
        prepared, store, device=args.device, group=args.group, progress=progress
    )
    drop_lanes(prepared, store)


def drop_lanes(prepared: Prepared, store: Store) -> None:
    """Delete the lanes of finished nodes: only scores are read from now on."""
    for key in prepared.plan.nodes:
        store.drop_lane(key)


def judge_site(share: Share, args: argparse.Namespace) -> None:
    """Judge the generators of a table on one site."""
    from fcforge.evaluation.generator_quality.experiment import judge_config

    asked = json.loads((args.root / f"{share.table}.json").read_text())
    settings = [
        f'judge.sites=["{share.site}"]',
        f"training.precision={asked['precision']}",
        *asked["judge"],
    ]
    if share.seed is not None:
        settings.append(f"judge.seeds=[{share.seed}]")
    out = args.root / share.table / judged_folder(share.site, share.seed)
    out.mkdir(parents=True, exist_ok=True)
    (out / MACHINE).write_text(json.dumps(describe(args.device)))
    progress = progress_of(share, args)
    judge_config(
        EXPERIMENTS / f"{share.table}.toml", settings, out, args.device, progress
    )


def shares_of_sites(name: str, settings: Sequence[str], device: str) -> list[Share]:
    """Return the shares of a table of generators.

    A site is a share on a GPU, where classifiers of all seeds train as lanes of one group. On a CPU a site and
    seed is one, seed by seed, so that little is lost when the time is over.
    """
    sites, seeds = judged_sites(name, settings)
    split = [None] if device != "cpu" else seeds
    return [
        Share(name, (), frozenset((f"{name} {site} {seed}",)), site=site, seed=seed)
        for seed in split
        for site in sites
    ]


def judged_sites(name: str, settings: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the sites and seeds of a table of generators."""
    config = read_config(EXPERIMENTS / f"{name}.toml", settings)["judge"]
    return list(config["sites"]), list(config["seeds"])


def judged_folder(site: str, seed: int | None) -> str:
    """Return the name of the folder of a site, or of a site and seed."""
    return site if seed is None else f"{site}-{seed}"


def shares_of(
    table: str, experiment: Experiment, plan: Plan, stored: Collection[str] = ()
) -> list[Share]:
    """Return the shares of a table, the longest work first.

    Learners that share a generator and a model, or a method and a model, stay together: the
    generator is then fitted once, and lanes train as one group. Tables of `APART` are divided further:
    lanes of a large network fill the card alone, and chains of twenty sites have few lanes each.

    Parameters
    ----------
    table : str
    experiment : Experiment
    plan : Plan
        Of all its learners.
    stored : collection of str
        Learners that are not trained, by title.
    """
    apart = APART.get(table, "")
    alike: dict[str, list[LearnerSpec]] = {}
    for learner in experiment.learners:
        if learner.title not in stored:
            kind = f"{learner.generator or learner.method.name} {learner.model}"
            alike.setdefault(learner.title if apart else kind, []).append(learner)
    place = f"{Path(str(experiment.dataset.params.get('path'))).name} {experiment.dataset} {experiment.leaks}"
    of_learner = plan.nodes_of_learners()
    shares = []
    for learners in alike.values():
        keys = {key for le in learners for key in of_learner[le.title]}
        for seed in experiment.seeds if apart == "learner and seed" else (None,):
            nodes = {
                key for key in keys if seed is None or plan.nodes[key].spec.seed == seed
            }
            fits = {
                f"{place} {le.generator} {number}"
                for le in learners
                if le.generator
                for number in (experiment.seeds if seed is None else (seed,))
            }
            shares.append(
                Share(
                    table, tuple(learners), frozenset(nodes), frozenset(fits), seed=seed
                )
            )
    return sorted(shares, key=lambda share: speed(share.learners))


def variant_of(learner: LearnerSpec) -> str:
    """Return the variant of a learner's method, or no text."""
    return str(learner.method.params.get("variant", ""))


def speed(learners: Sequence[LearnerSpec]) -> tuple[int, int, int]:
    """Return a sort key: learners that take long come first."""
    first = learners[0].method
    slow = variant_of(learners[0]) in SLOW_VARIANTS
    place = LONGEST.index(first.name) if first.name in LONGEST else len(LONGEST)
    return (place, -int(slow), -len(learners))


def pack_now(args: argparse.Namespace) -> None:
    """Pack what is finished of a run that may still go on."""
    pack(args.folder, args.out)


def pack(root: Path, out: Path) -> None:
    """Write scores, metadata and what was asked for into a few archives that stay small."""
    out.mkdir(parents=True, exist_ok=True)
    wanted = (
        "*.json",
        "*/.finished",
        "*/experiment.json",
        f"*/*/{RECORDS}",
        f"*/*/{PORTRAITS}",
        f"*/*/{MACHINE}",
    )
    nodes = (f".pool/*/nodes/*/{file}" for file in NODE)
    files = sorted(
        {path for pattern in (*wanted, *nodes) for path in root.glob(pattern)}
    )
    size = sum(path.stat().st_size for path in files)
    parts = max(1, min(PARTS, math.ceil(size / 2 / PART_BYTES)))
    chunk = math.ceil(len(files) / parts)
    for k in range(parts):
        with tarfile.open(out / f"tables-{k}.tar.xz", "w:xz", preset=1) as archive:
            for path in files[k * chunk : (k + 1) * chunk]:
                archive.add(path, path.relative_to(root))
    pools = {p.parent.name: p.resolve().parent.name for p in root.glob("*/nodes")}
    (out / "pools.json").write_text(json.dumps(pools))
    packed = sum(path.stat().st_size for path in out.glob("*.tar.xz"))
    print(
        f"packed {len(files)} files, {size / 2**20:.1f} MiB, into {parts} archives, {packed / 2**20:.1f} MiB",
        flush=True,
    )


def unpack(archives: Path, runs: Path) -> Path:
    """Return run folders from what `pack` wrote, or the folder itself if it holds run folders.

    `pack` writes plain files of known tables. Anything else stops before it is written.
    """
    if not (archives / "pools.json").is_file():
        return archives
    for path in sorted(archives.glob("*.tar.xz")):
        with tarfile.open(path) as tar:
            members = tar.getmembers()
            if not all(member.isreg() for member in members):
                raise SystemExit(f"{path} holds links or devices: not of this script.")
            if sum(member.size for member in members) > UNPACKED_BYTES:
                raise SystemExit(
                    f"{path} unpacks to more than {UNPACKED_BYTES:,} bytes."
                )
            tar.extractall(runs, filter="data")
    pools = json.loads((archives / "pools.json").read_text())
    for name, pool in pools.items():
        if name not in TABLES or not POOL.fullmatch(pool):
            raise SystemExit(
                f"{archives / 'pools.json'}: {name} and {pool} are no table and pool."
            )
        nodes = runs / name / "nodes"
        if not nodes.exists():
            nodes.symlink_to(
                (runs / ".pool" / pool / "nodes").resolve(), target_is_directory=True
            )
    return runs


def read(args: argparse.Namespace) -> None:
    """Pack every finished table into paper/results: scores as NAME.npz, measures of generators as NAME.json."""
    folder = unpack(args.folder, args.root)
    args.results.mkdir(parents=True, exist_ok=True)
    for asked in sorted(folder.glob("*.json")):
        name = asked.stem
        if args.only and name not in args.only:
            continue
        about = json.loads(asked.read_text())
        if "experiment" in about:
            read_scores(name, folder / name, about, args.results)
        elif "judge" in about:
            read_judged(name, folder / name, about, args.results)


def read_scores(
    name: str, folder: Path, asked: Mapping[str, Any], results: Path
) -> None:
    """Pack a table of learners, if all of them are finished."""
    from paper_tables import Finished, read_folder
    from scores import pack as pack_scores
    from scores import places, write_table

    try:
        table = read_folder(folder)
    except StoreError as error:
        print(f"{name}: not published: {error}")
        return
    experiment = Experiment.from_json(asked["experiment"])
    asks = bool(asked.get("stored"))
    data = Store(folder).read_experiment()
    stored = (
        stored_learners(experiment, asked["commit"], results, data["data_sha256"])
        if asks
        else {}
    )
    missing = tuple(title for title in table.missing if title not in stored)
    if missing:
        print(f"{name}: not published, unfinished: {', '.join(missing)}")
        return
    numbers = places(Experiment.from_json(data["experiment"]).dataset)
    if stored:
        table = Finished(
            dict(in_order(table, stored, numbers, experiment)), table.keeps
        )
    about = {key: asked[key] for key in ("commit", "config", "settings")}
    write_table(results / f"{name}.npz", pack_scores(table, data, numbers, **about))
    size = (results / f"{name}.npz").stat().st_size
    print(f"{name}: {len(table.groups)} learners, {size:,} bytes")


def in_order(
    table: Any,
    stored: Mapping[str, list[Any]],
    numbers: Mapping[str, int],
    experiment: Experiment,
) -> Iterator[tuple[str, list[Any]]]:
    """Yield a table's learners with their results, those of a run folder and the stored ones."""
    names = {str(place): who for who, place in numbers.items()}

    def named(tested: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        return {site: tuple(names[p] for p in ids) for site, ids in tested.items()}

    for learner in experiment.learners:
        title = learner.title
        if title in table.groups:
            yield title, table.groups[title]
            continue
        yield (
            title,
            [replace(r, subject_ids=named(r.subject_ids)) for r in stored[title]],
        )


def read_judged(
    name: str, folder: Path, about: Mapping[str, Any], results: Path
) -> None:
    """Pack a table of generators, if all sites are judged with all seeds."""
    sites, seeds = judged_sites(name, about["settings"])
    folders = []
    for site in sites:
        together = folder / judged_folder(site, None)
        apart = [folder / judged_folder(site, seed) for seed in seeds]
        folders += apart if apart[0].is_dir() else [together]
    unfinished = [f.name for f in folders if not (f / RECORDS).is_file()]
    if unfinished:
        print(f"{name}: not published, unfinished: {', '.join(unfinished)}")
        return
    records = [
        record
        for place in folders
        for rows in json.loads((place / RECORDS).read_text())["sites"].values()
        for record in rows
    ]
    machines = [json.loads((place / MACHINE).read_text()) for place in folders]
    kept = {
        "commit": about["commit"],
        "config": about["config"],
        "settings": about["settings"],
        "machine": "; ".join(sorted({machine_text(facts) for facts in machines})),
    }
    (results / f"{name}.json").write_text(
        json.dumps({**kept, "records": rounded(records)}, allow_nan=False) + "\n"
    )
    portraits = folders[0] / PORTRAITS
    if portraits.is_file():
        real = real_means(name, sites[0], seeds[0])
        write_portraits(portraits, real, results / f"{name}_portraits.npz")
    print(f"{name}: {len(records)} records")


def machine_text(facts: Mapping[str, Any]) -> str:
    """Return a machine in words: its card, or its processor and cores."""
    where = facts.get("gpu") or f"{facts['cpu']}, {facts['cores']} cores"
    return f"{where}, torch {facts['torch']}"


def write_portraits(path: Path, real: np.ndarray, to: Path) -> None:
    """Write what the picture of synthetic FC shows of a file of portraits, in two bytes a value.

    No person's FC is published: the row of real subjects becomes the mean of each class, and the row
    of copies of real subjects is left out.

    Parameters
    ----------
    path : Path
        Portraits of `fcforge judge`: a typical control and patient of every row.
    real : ndarray of shape (2, R, R)
        Mean FC of real controls and of real patients.
    to : Path
    """
    with np.load(path, allow_pickle=False) as portraits:
        rows = portraits["rows"].tolist()
        fc = {k: portraits[k].astype(np.float16) for k in ("control", "patient")}
        where = portraits["where"]
    for k, name in enumerate(fc):
        fc[name][rows.index(REAL)] = real[k]
    kept = [k for k, row in enumerate(rows) if row != COPIES]
    titles = [f"{row}, mean" if row == REAL else row for row in rows]
    fc = {name: values[kept] for name, values in fc.items()}
    np.savez_compressed(to, rows=np.array(titles)[kept], where=where, **fc)


def real_means(name: str, site: str, seed: int) -> np.ndarray:
    """Return the mean FC (2, R, R) of the controls and patients from whom a table's generators learn."""
    from fcforge.data.datasets import load_dataset
    from fcforge.data.splits import split_site
    from fcforge.experiments.config import resolve_dataset

    path = EXPERIMENTS / f"{name}.toml"
    cohort = load_dataset(resolve_dataset(read_config(path)["dataset"], path))
    people = split_site(cohort, site, seed).learning(with_val=True)
    return np.stack([people.fc[people.y == label].mean(0) for label in (0, 1)])


def rounded(value: Any) -> Any:
    """Return JSON with five decimals."""
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, Mapping):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else value


def dry(args: argparse.Namespace) -> None:
    """Run tables in small on this machine and read them back."""
    plan = args.folder / "plan"
    written = argparse.Namespace(
        folder=plan, only=args.only, precision="float32", small=True, commit=None
    )
    write(written)
    args.portions, args.out, args.device, args.processes = (
        list(PORTIONS),
        args.folder / "out",
        "cpu",
        1,
    )
    args.folder, args.root, args.group, args.limit = (
        plan,
        args.folder / "runs",
        16,
        math.inf,
    )
    run(args)
    back = argparse.Namespace(
        folder=args.out,
        root=plan.parent / "back",
        only=args.only,
        results=plan.parent / "results",
    )
    read(back)


COMMANDS = {"write": write, "run": run, "read": read, "dry": dry, "pack": pack_now}


def main() -> None:
    """Parse the command line."""
    form = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    commands = parser.add_subparsers(required=True)
    for name, work in COMMANDS.items():
        text = (work.__doc__ or "").splitlines()[0]
        command = commands.add_parser(name, help=text)
        command.set_defaults(work=work)
        command.add_argument("folder", type=Path)
        if work in (write, read, dry):
            command.add_argument(
                "--only", nargs="*", choices=TABLES, help="these tables"
            )
    writing, running, reading, packing = (
        commands.choices[name] for name in ("write", "run", "read", "pack")
    )
    writing.add_argument("--precision", default="float32", choices=["float32", "tf32"])
    writing.add_argument(
        "--small", action="store_true", help="two orders, one seed, two epochs"
    )
    for subcommand in (running, reading):
        subcommand.add_argument(
            "--root", type=Path, default=Path("runs/tables"), help="run folders"
        )
    running.add_argument(
        "--portions", nargs="+", choices=PORTIONS, default=list(PORTIONS)
    )
    for subcommand in (running, packing):
        subcommand.add_argument(
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
    for subcommand in (writing, reading):
        subcommand.add_argument(
            "--results", type=Path, default=RESULTS, help="stored tables"
        )
    writing.add_argument("--commit", help="commit of the code, if it is no checkout")
    args = parser.parse_args()
    args.work(args)


if __name__ == "__main__":
    main()
