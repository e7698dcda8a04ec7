"""What the generator study trains: rows, order, cost, data; and the files it keeps."""

from __future__ import annotations

import io
import json
import os
import sys
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np
import torch

from fcforge.graphs import from_edges
from fcforge.sites import Cohort, load_dataset, split_site
from fcforge.studies.judge.panel import REAL, Panel
from fcforge.types import Component, FCBatch, Site

SITES = ("NYU", "UM", "USM", "UCLA")
# Cheapest first: what is left over when time ends is the dearest.
FIVE = ("gcn", "gae", "sage", "gat", "graph_transformer")
ROWS = {
    "edge_gauss": Component("edge_gauss"),
    "corr_flow": Component("corr_flow"),
    "fcm_vae": Component("fcm_vae"),
    "w/o node feature": Component("fcm_vae", {"node_feature": False}),
    "w/o LAE": Component("fcm_vae", {"lae": False}),
    "w/o SGE": Component("fcm_vae", {"sge": False}),
    "fcm_vae paper": Component("fcm_vae", {"preset": "paper"}),
    "fcm_vae authors": Component("fcm_vae", {"preset": "authors"}),
    "regate": Component("regate"),
    "brainnetgan": Component("brainnetgan", {"steps": 1000}),
    "gr_spd_gan": Component("gr_spd_gan", {"steps": 1500}),
}
# The GANs' schedule where they are fitted on a CPU core, one site at a time.
ON_CPU = {
    "brainnetgan": Component("brainnetgan", {"steps": 300, "width": 8}),
    "gr_spd_gan": Component("gr_spd_gan", {"steps": 600}),
}
# Rows in order of importance, with CPU seconds of one job at NYU (one thread, sampling and
# fidelity included), and how many seeds are fitted.
PRIORITY = {
    REAL: (0, 1, 5),
    "bootstrap": (0, 1, 5),
    "edge_gauss": (0, 1, 5),
    "corr_gauss": (0, 6, 5),
    "corr_flow": (0, 8, 5),
    "fcm_vae": (0, 25, 5),
    "fcm_vae authors": (1, 156, 5),
    "w/o node feature": (2, 25, 5),
    "w/o LAE": (2, 25, 5),
    "w/o SGE": (2, 25, 5),
    "regate": (3, 22, 5),
    "fcm_vae paper": (4, 142, 5),
    "gr_spd_gan": (5, 130, 5),
    "brainnetgan": (6, 440, 5),
}
# Generators whose cost is a number of steps, not of epochs; they train in lanes on a GPU.
GANS = ("gr_spd_gan", "brainnetgan")
# Rows that take part in 1:1 augmentation: the paper's options, its ablation, our baseline.
AUGMENTED = (
    REAL,
    "regate",
    "brainnetgan",
    "gr_spd_gan",
    "fcm_vae",
    "corr_gauss",
    "w/o node feature",
    "w/o LAE",
    "w/o SGE",
)
# Not worth carrying from machine to machine: made again in seconds.
CHEAP = (REAL, "bootstrap", "edge_gauss", "corr_gauss", "corr_flow")
TINY = {"epochs": 1, "steps": 1, "width": 8}


class JobKey(NamedTuple):
    """One generator at one site with one seed."""

    row: str
    site: str
    seed: int

    @property
    def name(self) -> str:
        """As a file name."""
        return f"{self.row.replace('/', '').replace(' ', '_')}-{self.site}-{self.seed}"


@cache
def cohort(path: str) -> Cohort:
    """The four large ABIDE-I sites."""
    merge = {"UM": ["UM_1", "UM_2"], "UCLA": ["UCLA_1", "UCLA_2"]}
    return load_dataset(Component("folder", {"path": path, "sites": list(SITES), "merge": merge}))


@cache
def load(path: str, name: str, seed: int) -> Site:
    """One site, split 7:3 by class; depends on (seed, site) alone."""
    return split_site(cohort(path), name, seed)


def seconds(job: JobKey) -> float:
    """CPU seconds expected of a job."""
    share = {"NYU": 1.0, "UM": 0.7, "USM": 0.4, "UCLA": 0.5}.get(job.site, 1.0)
    return PRIORITY[job.row][1] * (1.0 if job.row in GANS else share)


def jobs(rows: Sequence[str], sites: Sequence[str], seeds: int, all_seeds: bool) -> list[JobKey]:
    """Jobs by importance, longest first within a class."""
    out = [
        JobKey(row, site, seed)
        for row, (_, _, limit) in PRIORITY.items()
        for site in sites
        for seed in range(seeds if all_seeds else min(seeds, limit))
        if not rows or row in rows
    ]
    return sorted(out, key=lambda job: (PRIORITY[job.row][0], -seconds(job), job.seed))


def component(row: str, tiny: bool, *, lanes: bool = False) -> Component:
    """Generator and settings of a row."""
    from fcforge.generators import make_generator

    found = Panel(ROWS).rows[row]
    if row in GANS and not lanes:
        found = ON_CPU[row]
    assert found is not None
    if not tiny:
        return found
    small = {k: v for k, v in TINY.items() if hasattr(make_generator(found), k)}
    return Component(found.name, {**found.params, **small})


# -- files ------------------------------------------------------------------------------------
def write_bytes(path: Path, data: bytes) -> None:
    """All or nothing."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    os.replace(part, path)


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Arrays as one npz file."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    write_bytes(path, stream.getvalue())


def samples_file(work: Path, job: JobKey) -> Path:
    """Edges (float16) and labels of as many synthetic subjects as training ones."""
    return work / f"{job.name}.npz"


def numbers_file(work: Path, job: JobKey) -> Path:
    """Fidelity (of the uncompressed samples), linear classifiers, diagnostics."""
    return work / f"{job.name}.json"


def stored(work: Path, job: JobKey) -> bool:
    """Whether a job is fitted; its numbers are written last."""
    return samples_file(work, job).exists() and numbers_file(work, job).exists()


def portrait_file(work: Path, job: JobKey) -> Path:
    """What the figures show of a row (NYU, seed 0)."""
    return work / f"{job.name}.portrait.npz"


def state_file(work: Path, job: JobKey) -> Path:
    """State of a GAN that was fitted in lanes."""
    return work / f"{job.name}.state.npz"


def read_samples(work: Path, job: JobKey) -> FCBatch:
    """Synthetic subjects as they were stored."""
    with np.load(samples_file(work, job)) as found:
        fc = torch.from_numpy(found["fc"].astype(np.float32))
        return FCBatch(from_edges(fc), torch.from_numpy(found["y"]))


def squeeze(fc: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Edges (n, p) as class means plus residuals in sixths of their SD, deflated.

    Adds noise of 0.2 % of the within-class variance; about 4.6 bits per edge.
    """
    x = fc.astype(np.float32)
    mean = np.stack([x[y == c].mean(0) if (y == c).any() else x.mean(0) for c in (0, 1)])
    mean = mean.astype(np.float16)
    residual = x - mean.astype(np.float32)[y]
    step = max(float(residual.std()) / 6.0, 1e-6)
    q = np.clip(np.rint(residual / step), -127, 127).astype(np.int8)
    packed = np.frombuffer(zlib.compress(q.tobytes(), 6), dtype=np.uint8)
    return {"q": packed, "mean": mean, "step": np.float32(step), "y": y.astype(np.int8)}


def unsqueeze(found: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Inverse of `squeeze`, up to its rounding."""
    y = found["y"].astype(np.int64)
    mean = found["mean"].astype(np.float32)
    q = np.frombuffer(zlib.decompress(found["q"].tobytes()), dtype=np.int8)
    return (mean[y] + q.reshape(len(y), -1) * found["step"]).astype(np.float16), y


def read_json(path: Path) -> Any:
    """A JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))
