"""What goes on beside the GPU in `benchmarks/run_tables.py`: CPU work, and packing results."""

from __future__ import annotations

import json
import math
import os
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np

from fcforge.runner.execute import missing_nodes
from fcforge.runner.experiment import Experiment
from fcforge.runner.plan import Node
from fcforge.runner.run import prepare
from fcforge.runner.store import Store

PART_BYTES = 12 << 20  # of an archive; more than 16 MiB does not come back
FILES = ("meta.json", "scores.npz")
_cohorts: dict[str, Any] = {}


def start_helper() -> None:
    import torch

    torch.set_num_threads(1)
    os.nice(5)  # the process that feeds the GPU goes first


def _site(node: Node, site: str) -> Any:
    from fcforge.sites import load_dataset, make_sites

    key = json.dumps([node.spec.dataset.name, dict(node.spec.dataset.params)], sort_keys=True)
    if key not in _cohorts:
        _cohorts[key] = load_dataset(node.spec.dataset)
    fractions = {"test_fraction": node.spec.test_fraction, "val_fraction": node.spec.val_fraction}
    return make_sites(_cohorts[key], node.spec.seed, **fractions)[site]


def sample_site(node: Node, site: str, n: int, cache: str) -> tuple[np.ndarray, np.ndarray]:
    """Synthetic subjects of a site; the fitted generator stays in the cache."""
    from fcforge.runner.pools import synthetic_subjects

    batch = synthetic_subjects(_site(node, site), node.spec, n, Path(cache))
    return batch.fc.numpy(), batch.y.numpy()


def train_on_cpu(experiment: Experiment, root: str) -> int:
    """A learner that a GPU does not help."""
    from fcforge.runner.workshop import Workshop

    prepared, store = prepare(experiment), Store(root)
    workshop = Workshop(prepared.cohort, store)
    todo = missing_nodes(prepared.plan, store)
    for node in todo:
        workshop.run([node])
    return len(todo)


# -- what comes back ------------------------------------------------------------------------------
@contextmanager
def whole(path: Path) -> Iterator[tarfile.TarFile]:
    """An archive that takes its place when it is complete: a killed run leaves the one before."""
    part = path.with_name(f".{path.name}.part")
    with tarfile.open(part, "w:gz", compresslevel=6) as tar:
        yield tar
    part.replace(path)


def pack_nodes(root: Path, place: str, out: Path) -> None:
    """Scores and metadata of every node of a store, in archives that stay small."""
    nodes = sorted((root / place / "nodes").glob("[!.]*"))
    for part, members in enumerate(_parts(nodes)):
        with whole(out / f"{place}-{part}.tar.gz") as tar:
            for node in members:
                for name in FILES:
                    tar.add(node / name, f"{place}/nodes/{node.name}/{name}")


def pack_tables(root: Path, places: Mapping[str, str], out: Path) -> None:
    """What was asked for, the logs, and what tuning found."""
    with whole(out / "tables.tar.gz") as tar:
        for name, place in places.items():
            file = root / "experiments" / name / "experiment.json"
            tar.add(file, f"{place}/tables/{name}.json")
        for log in root.glob("log-*.txt"):
            tar.add(log, f"logs/{log.name}")
        for path in (root / "tune").glob("t*.*"):
            if path.suffix in (".toml", ".csv"):
                tar.add(path, f"tune/{path.name}")


def _parts(nodes: Sequence[Path]) -> list[Sequence[Path]]:
    """Groups of nodes whose archives stay small; gzip halves scores and metadata at least."""
    size = sum((n / name).stat().st_size for n in nodes for name in FILES)
    k = max(1, math.ceil(size / 2 / PART_BYTES))
    step = max(1, math.ceil(len(nodes) / k))
    return [nodes[i : i + step] for i in range(0, len(nodes), step)]
