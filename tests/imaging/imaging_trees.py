"""Made-up derivative trees in the exact file names of fMRIPrep, XCP-D, C-PAC and DPABI."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from scipy.io import savemat

SHAPE = (31, 37, 31)
AFFINE = np.array([[6.0, 0, 0, -90], [0, 6, 0, -125], [0, 0, 6, -71], [0, 0, 0, 1]])
TR = 2.0
N_VOLUMES = 160
SITES = ("North", "South")


def roi_signals(rng: np.random.Generator, n_volumes: int, n_rois: int) -> np.ndarray:
    """Correlated series with power inside 0.01-0.1 Hz, (n_volumes, n_rois)."""
    shared = rng.normal(size=(n_volumes, 6)) @ rng.normal(size=(6, n_rois))
    x = shared + rng.normal(size=(n_volumes, n_rois))
    kernel = np.hanning(7) / np.hanning(7).sum()
    x = np.apply_along_axis(lambda c: np.convolve(c, kernel, mode="same"), 0, x)
    return (x - x.mean(0)) / x.std(0)


def block_atlas(folder: Path, n: int = 6) -> tuple[Path, Path]:
    """User atlas of `n` slabs along y on a 12 mm grid in MNI space, and its label table."""
    labels = np.zeros((15, 18, 15), dtype=np.int16)
    edges = np.linspace(1, 17, n + 1).astype(int)
    for i in range(n):
        labels[2:13, edges[i] : edges[i + 1], 2:13] = 10 * (i + 1)
    affine = np.diag([12.0, 12, 12, 1])
    affine[:3, 3] = [-90, -125, -71]
    image, lut = folder / "blocks.nii.gz", folder / "blocks.tsv"
    folder.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(labels, affine), image)
    rows = [f"{10 * (i + 1)}\tBlock{i + 1}" for i in range(n)]
    lut.write_text("index\tname\n0\tBackground\n" + "\n".join(rows) + "\n")
    return image, lut


def write_scan(
    path: Path,
    grid: np.ndarray,
    signals: np.ndarray,
    affine: np.ndarray,
    rng: np.random.Generator,
    tr: float = TR,
    nan: np.ndarray | None = None,
) -> None:
    """4D scan: baseline 1000, 2 % ROI signal, a little noise; zero outside the ROIs."""
    data = np.zeros((*grid.shape, len(signals)), dtype=np.float32)
    inside = grid >= 0
    data[inside] = 1000 + 20 * signals.T[grid[inside]]
    data[inside] += rng.normal(scale=4, size=(int(inside.sum()), len(signals)))
    if nan is not None:
        data[nan] = np.nan
        image = nib.Nifti1Image(data, affine)
    else:
        image = nib.Nifti1Image(np.rint(data).astype(np.int16), affine)
    image.header.set_xyzt_units("mm", "sec")
    image.header["pixdim"][4] = tr
    image.set_sform(affine, 4)
    image.set_qform(affine, 4)
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(image, path)


def write_confounds(
    path: Path,
    rng: np.random.Generator,
    n: int,
    jumps: int = 0,
    whole: np.ndarray | None = None,
) -> None:
    """fMRIPrep's confounds table and JSON with all columns nilearn's methods look for.

    `whole` is the global signal of the scan; without it the global signal is noise.
    """
    columns: dict[str, np.ndarray] = {}
    motion = [f"{kind}_{axis}" for kind in ("trans", "rot") for axis in "xyz"]
    for name in [*motion, "csf", "white_matter", "global_signal"]:
        base = rng.normal(scale=0.02, size=n).cumsum()
        if name == "global_signal" and whole is not None:
            base = whole
        columns[name] = base
        columns[f"{name}_derivative1"] = np.r_[np.nan, np.diff(base)]
        columns[f"{name}_power2"] = base**2
        columns[f"{name}_derivative1_power2"] = columns[f"{name}_derivative1"] ** 2
    fd = np.r_[np.nan, np.abs(rng.normal(scale=0.08, size=n - 1))]
    fd[10 : 10 + jumps] = 1.2
    columns["framewise_displacement"] = fd
    columns["std_dvars"] = np.r_[np.nan, np.full(n - 1, 1.0)]
    time = (np.arange(n) + 0.5) * np.pi / n
    for k in range(2):
        columns[f"cosine{k:02d}"] = np.cos((k + 1) * time)
    meta = {}
    for k in range(3):
        columns[f"a_comp_cor_{k:02d}"] = rng.normal(size=n)
        meta[f"a_comp_cor_{k:02d}"] = {
            "Mask": "combined",
            "Method": "aCompCor",
            "Retained": True,
        }
    table = pd.DataFrame(columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, sep="\t", index=False, na_rep="n/a")
    path.with_suffix(".json").write_text(json.dumps(meta))


def write_people(root: Path, ids: list[str]) -> None:
    """participants.tsv: two sites, alternating diagnosis, age and sex."""
    lines = ["participant_id\tage\tsex\tsite\tdiagnosis"]
    for i, subject in enumerate(ids):
        lines.append(
            f"sub-{subject}\t{20 + i}\t{'MF'[i % 2]}\t{SITES[i % 2]}\t{_dx(i)}"
        )
    (root / "participants.tsv").write_text("\n".join(lines) + "\n")


def _dx(i: int) -> str:
    return "ASD" if (i // 2) % 2 else "control"


def subject_ids(n: int) -> list[str]:
    return [f"{i + 1:02d}" for i in range(n)]


def fmriprep_subject(
    root: Path,
    subject: str,
    grid: np.ndarray,
    affine: np.ndarray = AFFINE,
    n_volumes: int = N_VOLUMES,
    tr: float = TR,
    run: str = "",
    ending: str = ".nii.gz",
    **scan,
) -> np.ndarray:
    """One fMRIPrep subject; returns its true ROI signals."""
    rng = np.random.default_rng([7, int(subject), len(run)])
    func = root / f"sub-{subject}" / "func"
    stem = f"sub-{subject}_task-rest{run}"
    space = f"{stem}_space-MNI152NLin2009cAsym_res-2"
    signals = roi_signals(rng, n_volumes, int(grid.max()) + 1)
    write_scan(
        func / f"{space}_desc-preproc_bold{ending}",
        grid,
        signals,
        affine,
        rng,
        tr,
        **scan,
    )
    (func / f"{space}_desc-preproc_bold.json").write_text(
        json.dumps({"RepetitionTime": tr})
    )
    table = func / f"{stem}_desc-confounds_timeseries.tsv"
    write_confounds(table, rng, n_volumes, whole=1000 + 20 * signals.mean(axis=1))
    return signals


def describe(root: Path, tool: str) -> None:
    root.mkdir(parents=True, exist_ok=True)
    made_by = [{"Name": tool, "Version": "1.0"}] if tool else []
    data = {"Name": "made up", "BIDSVersion": "1.9.0", "GeneratedBy": made_by}
    (root / "dataset_description.json").write_text(json.dumps(data))


def fmriprep_tree(root: Path, grid: np.ndarray, n: int = 40, **subject) -> None:
    describe(root, "fMRIPrep")
    for name in subject_ids(n):
        fmriprep_subject(root, name, grid, **subject)
    write_people(root, subject_ids(n))


def _tsv(path: Path, names: list[str], values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(values, columns=names).to_csv(
        path, sep="\t", index=False, na_rep="n/a"
    )


def xcpd_tree(root: Path, names: list[str], n: int = 16) -> None:
    """XCP-D: ``seg-AAL116`` series with a header, ``_motion.tsv`` beside."""
    describe(root, "XCP-D")
    for i, subject in enumerate(subject_ids(n)):
        rng = np.random.default_rng([11, i])
        func = root / f"sub-{subject}" / "ses-1" / "func"
        stem = f"sub-{subject}_ses-1_task-rest"
        series = roi_signals(rng, 80, len(names))
        space = f"{stem}_space-MNI152NLin2009cAsym"
        _tsv(func / f"{space}_seg-AAL116_stat-mean_timeseries.tsv", names, series)
        other = [f"Parcel{k}" for k in range(5)]
        _tsv(
            func / f"{space}_seg-4S156Parcels_stat-mean_timeseries.tsv",
            other,
            series[:, :5],
        )
        fd = np.abs(rng.normal(scale=0.1, size=(80, 1)))
        _tsv(func / f"{stem}_motion.tsv", ["framewise_displacement"], fd)
    write_people(root, subject_ids(n))


def cpac_tree(
    root: Path, codes: tuple[int, ...], n: int = 16, drop: int | None = None
) -> None:
    """C-PAC: ``atlas-AAL_desc-Mean-1_timeseries.1D`` with label codes in a comment line."""
    for i, subject in enumerate(subject_ids(n)):
        rng = np.random.default_rng([13, i])
        keep = [k for k in range(len(codes)) if k != drop]
        series = roi_signals(rng, 80, len(codes))[:, keep]
        stem = f"sub-{subject}_ses-1_task-rest_run-1"
        func = (
            root / "output" / "pipeline_cpac-default" / f"sub-{subject}_ses-1" / "func"
        )
        func.mkdir(parents=True)
        path = (
            func / f"{stem}_atlas-AAL_space-MNI152NLin6ASym_desc-Mean-1_timeseries.1D"
        )
        header = "\t".join(str(codes[k]) for k in keep)
        np.savetxt(path, series, delimiter="\t", header=header, fmt="%.8f")
    write_people(root, subject_ids(n))


def dpabi_tree(root: Path, n: int = 16, n_columns: int = 1833) -> None:
    """DPABI: .mat and .txt of all atlases side by side, FD in RealignParameter."""
    results = root / "Results" / "ROISignals_FunImgARCWF"
    results.mkdir(parents=True)
    for i, subject in enumerate(subject_ids(n)):
        rng = np.random.default_rng([17, i])
        series = roi_signals(rng, 80, 116)
        wide = np.concatenate([series, rng.normal(size=(80, n_columns - 116))], axis=1)
        savemat(results / f"ROISignals_sub-{subject}.mat", {"ROISignals": wide})
        (results / f"ROICorrelation_sub-{subject}.txt").write_text("1 0\n0 1\n")
        motion = root / "RealignParameter" / f"sub-{subject}"
        motion.mkdir(parents=True)
        fd = np.abs(rng.normal(scale=0.1, size=80))
        np.savetxt(motion / f"FD_Power_sub-{subject}.txt", fd)
    write_people(root, subject_ids(n))
