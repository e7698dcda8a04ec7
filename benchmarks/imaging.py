"""Time, memory and accuracy of the imaging layer, on simulated scans.

    python benchmarks/imaging.py series          116 series of a 200-volume 3 mm scan
    python benchmarks/imaging.py raw             a 60-volume raw scan through the pip-only path
    python benchmarks/imaging.py raw --motion ants

Prints one JSON line: seconds of wall and processor time, peak memory, and for `raw` the residual
motion and the correlation of recovered with true ROI signals. Each measurement runs in a process
of its own, so that peak memory is its own; set OMP_NUM_THREADS to fix the threads.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "imaging"))


def measure(task: str, folder: Path, motion: str) -> dict:
    """Run `task` on the prepared folder in this process and measure it."""
    from imaging_calls import fc_command, preprocess_command

    start, cpu = time.perf_counter(), time.process_time()
    lines: list[str] = []
    if task == "series":
        code = fc_command(
            source=folder / "in", out=folder / "out", denoise="none", say=lines.append
        )
    else:
        code = preprocess_command(
            source=folder / "in",
            out=folder / "out",
            drop=0,
            route="pip",
            motion=motion,
            report=False,
            say=lines.append,
        )
    assert code == 0, lines
    return {
        "wall_s": round(time.perf_counter() - start, 1),
        "cpu_s": round(time.process_time() - cpu, 1),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 3),
    }


def prepare_series(folder: Path) -> None:
    from imaging_trees import roi_signals, write_scan

    from fcforge.imaging.atlases import load_atlas

    affine = np.diag([-3.0, 3, 3, 1])
    affine[:3, 3] = [90, -126, -72]
    grid = load_atlas().on_grid((61, 73, 61), affine)
    rng = np.random.default_rng(0)
    signals = roi_signals(rng, 200, 116)
    np.save(folder / "truth.npy", signals)
    write_scan(folder / "in" / "scan.nii.gz", grid, signals, affine, rng)


def prepare_raw(folder: Path, seed: int) -> None:
    from imaging_phantom import make_phantom
    from raw.test_pipeline import save_raw

    from fcforge.imaging.atlases import load_atlas

    phantom = make_phantom(load_atlas(), n_volumes=60, seed=seed)
    save_raw(folder / "in", "01", phantom)
    np.savez(
        folder / "truth.npz", motion=phantom.motion, pose=phantom.pose, signals=phantom.signals,
        centre=phantom.affine[:3, :3] @ ((np.array(phantom.data.shape[:3]) - 1) / 2)
        + phantom.affine[:3, 3],
    )  # fmt: skip


def accuracy(folder: Path) -> dict:
    """Residual motion and recovered signals of the raw path, after plain FC extraction."""
    import pandas as pd
    from imaging_calls import fc_command
    from imaging_phantom import displacement
    from scipy.signal import detrend

    from fcforge.imaging.atlases import load_atlas
    from fcforge.imaging.raw.motion import rigid

    truth = np.load(folder / "truth.npz")
    table = pd.read_csv(next((folder / "out").rglob("*confounds_timeseries.tsv")), sep="\t")
    columns = ["trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z"]
    found = np.stack([rigid(p, truth["centre"]) for p in table[columns].to_numpy()])
    atlas = load_atlas()
    left = displacement(found, truth["motion"], truth["pose"], atlas)
    still = np.stack([np.eye(4)] * len(found))
    moved = displacement(still, truth["motion"], truth["pose"], atlas)
    fc_command(
        source=folder / "out", out=folder / "fc", denoise="none", high_pass=0, low_pass=0,
        max_empty=0.5, report=False, say=lambda text: None,
    )  # fmt: skip
    series = pd.read_csv(
        next((folder / "fc").rglob("*_timeseries.tsv")), sep="\t", na_values=["n/a"]
    ).to_numpy()
    seen = [i for i in range(116) if np.isfinite(series[:, i]).all()]
    signals = detrend(truth["signals"], axis=0)
    r = [np.corrcoef(series[:, i], signals[:, i])[0, 1] for i in seen]
    return {
        "moved_mm": [round(float(v), 3) for v in (moved.mean(), moved.max())],
        "residual_mm": [round(float(v), 3) for v in (left.mean(), left.max())],
        "roi_r_median_p10": [round(float(v), 4) for v in (np.median(r), np.percentile(r, 10))],
        "rois_seen": len(seen),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["series", "raw"])
    parser.add_argument("--motion", default="fcforge", choices=["fcforge", "ants"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="prepared folder (internal)")
    args = parser.parse_args()
    if args.folder:
        print(json.dumps(measure(args.task, args.folder, args.motion)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.task == "series":
            prepare_series(folder)
        else:
            prepare_raw(folder, args.seed)
        command = [sys.executable, __file__, args.task, "--folder", name, "--motion", args.motion]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        result = {"task": args.task, **json.loads(done.stdout.splitlines()[-1])}
        if args.task == "raw":
            result |= {"motion": args.motion, "seed": args.seed, **accuracy(folder)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
