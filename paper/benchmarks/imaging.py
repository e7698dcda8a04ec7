"""Time, memory and accuracy of the imaging layer, on simulated scans.

    python paper/benchmarks/imaging.py series    116 series of a 200-volume 3 mm scan
    python paper/benchmarks/imaging.py raw       a 60-volume raw scan through the pip-only path
    python paper/benchmarks/imaging.py cohort    100 subjects of 200 volumes in 2 processes

Prints one JSON line: seconds of wall and processor time, peak memory, and for `raw` the residual
motion and the correlation of recovered with true ROI signals. The measurement runs in a process
of its own, so that peak memory is its own; set OMP_NUM_THREADS to fix the threads. Of `cohort` the
processor time is that of all processes, and the memory that of the largest one.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.signal import detrend

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "imaging"))
from imaging_calls import fc_command, preprocess_command
from imaging_phantom import displacement, make_phantom
from imaging_trees import describe, fmriprep_subject, roi_signals, write_scan
from raw.test_pipeline import save_raw

from fcforge.imaging.atlas import load_atlas
from fcforge.imaging.raw.motion import rigid

PLAIN = {
    "denoise": "none",
    "high_pass": 0,
    "low_pass": 0,
    "max_empty": 0.5,
    "report": False,
}


def measure(task: str, folder: Path) -> dict[str, Any]:
    """Run `task` on the prepared folder in this process and measure it."""
    lines: list[str] = []
    where = {"source": folder / "in", "out": folder / "out", "say": lines.append}
    if task == "series":
        work = partial(fc_command, denoise="none", **where)
    elif task == "cohort":
        work = partial(fc_command, n_cpus=2, **where)
    else:
        how: dict[str, Any] = {"drop": 0, "route": "pip", "report": False}
        work = partial(preprocess_command, **how, **where)
    wall, cpu = time.perf_counter(), time.process_time()
    if work():
        raise RuntimeError("\n".join(lines))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu += children.ru_utime + children.ru_stime
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = max(usage.ru_maxrss, children.ru_maxrss) / 1e6
    return {"wall_s": round(wall, 1), "cpu_s": round(cpu, 1), "peak_gb": round(peak, 3)}


def prepare_series(folder: Path) -> None:
    """A scan of 200 volumes whose ROIs have signals of their own."""
    affine = np.diag([-3.0, 3, 3, 1])
    affine[:3, 3] = [90, -126, -72]
    grid, rng = load_atlas().on_grid((61, 73, 61), affine), np.random.default_rng(0)
    write_scan(
        folder / "in" / "scan.nii.gz", grid, roi_signals(rng, 200, 116), affine, rng
    )


def prepare_cohort(folder: Path, n: int = 100) -> None:
    """fMRIPrep's output of `n` subjects; all have the scan of the first, as links to its files."""
    root = folder / "in"
    affine = np.diag([3.0, 3, 3, 1])
    affine[:3, 3] = [-90, -126, -72]
    grid = load_atlas().on_grid((61, 73, 61), affine)
    describe(root, "fMRIPrep")
    fmriprep_subject(root, "1", grid, affine=affine, n_volumes=200)
    for i in range(2, n + 1):
        func = root / f"sub-{i}" / "func"
        func.mkdir(parents=True)
        for file in (root / "sub-1" / "func").iterdir():
            (func / file.name.replace("sub-1", f"sub-{i}")).hardlink_to(file)


def accuracy(folder: Path, phantom: Any) -> dict[str, Any]:
    """Residual motion and recovered signals of the raw path, after plain FC extraction."""
    table = pd.read_csv(
        next((folder / "out").rglob("*confounds_timeseries.tsv")), sep="\t"
    )
    columns = ["trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z"]
    middle = (np.array(phantom.data.shape[:3]) - 1) / 2
    centre = phantom.affine[:3, :3] @ middle + phantom.affine[:3, 3]
    results = np.stack([rigid(p, centre) for p in table[columns].to_numpy()])
    still = np.stack([np.eye(4)] * len(results))
    moved, left = (
        displacement(m, phantom.motion, phantom.pose, load_atlas())
        for m in (still, results)
    )
    fc_command(source=folder / "out", out=folder / "fc", say=lambda text: None, **PLAIN)
    series = pd.read_csv(
        next((folder / "fc").rglob("*_timeseries.tsv")), sep="\t"
    ).to_numpy(float)
    seen, signals = np.isfinite(series).all(0), detrend(phantom.signals, axis=0)
    r = [np.corrcoef(series[:, i], signals[:, i])[0, 1] for i in np.flatnonzero(seen)]
    moves = {
        "moved_mm": (moved.mean(), moved.max()),
        "residual_mm": (left.mean(), left.max()),
    }
    shown = {k: [round(float(v), 3) for v in both] for k, both in moves.items()}
    recovered = [round(float(v), 4) for v in np.percentile(r, [50, 10])]
    return {**shown, "roi_r_median_p10": recovered, "rois_seen": int(seen.sum())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["series", "raw", "cohort"])
    parser.add_argument("--seed", type=int, default=0)
    args = (
        parser.parse_args()
    )  # not `setting.options`: its torch would count as peak memory
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.task == "series":
            prepare_series(folder)
        elif args.task == "cohort":
            prepare_cohort(folder)
        else:
            phantom = make_phantom(load_atlas(), n_volumes=60, seed=args.seed)
            save_raw(folder / "in", "01", phantom)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            results: dict[str, Any] = dict(
                pool.submit(measure, args.task, folder).result()
            )
        if args.task == "raw":
            results |= {"seed": args.seed, **accuracy(folder, phantom)}
    print(json.dumps({"task": args.task, **results}))


if __name__ == "__main__":
    main()
