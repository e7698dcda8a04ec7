"""Made-up scans in fMRIPrep's file names, for the pictures of the quality pages.

The scans have the contrast of an EPI of nilearn's MNI template, correlated signals in the ROIs of
AAL-116, and motion that changes the whole brain. Nobody was scanned for them.
"""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from nilearn.datasets import load_mni152_brain_mask, load_mni152_template
from nilearn.image import resample_img
from scipy.ndimage import gaussian_filter1d

from fcforge.imaging.atlas import load_atlas

SHAPE = (46, 55, 46)
AFFINE = np.array([[4.0, 0, 0, -90], [0, 4, 0, -126], [0, 0, 4, -72], [0, 0, 0, 1]])
N_VOLUMES, TR = 180, 2.0
SITES = ("Simulated A", "Simulated B", "Simulated C")
SPACE = "space-MNI152NLin2009cAsym"


def make_study(root: Path, n_subjects: int = 30) -> None:
    """Write a study of made-up subjects at three sites, as fMRIPrep would leave it."""
    atlas = load_atlas("AAL116")
    labels = atlas.on_grid(SHAPE, AFFINE)
    template = resample_img(load_mni152_template(2), AFFINE, SHAPE)
    mask = resample_img(
        load_mni152_brain_mask(2), AFFINE, SHAPE, interpolation="nearest"
    )
    t1, inside = np.asarray(template.dataobj), np.asarray(mask.dataobj) > 0
    bright = np.clip(t1 / np.percentile(t1[inside], 99), 0, 1)
    epi = np.where(inside, 1500 - 800 * bright, 0).astype(np.float32)
    tissue = {"WM": inside & (bright > 0.8), "CSF": inside & (bright < 0.3)}
    loadings = np.random.default_rng(0).normal(size=(8, atlas.n_rois))
    root.mkdir(parents=True)
    made_by = [{"Name": "fMRIPrep", "Version": "made up"}]
    about = {"Name": "made up", "BIDSVersion": "1.9.0", "GeneratedBy": made_by}
    (root / "dataset_description.json").write_text(json.dumps(about))
    rows = []
    for k in range(n_subjects):
        who = f"{k + 1:02d}"
        _write_subject(root, who, k, epi, labels, tissue, loadings)
        dx = ("control", "ASD")[(k // 3) % 2]
        rows.append((f"sub-{who}", SITES[k % 3], dx, 18 + k))
    table = pd.DataFrame(rows, columns=["participant_id", "site", "diagnosis", "age"])
    table.to_csv(root / "participants.tsv", sep="\t", index=False)


def _write_subject(
    root: Path,
    who: str,
    k: int,
    epi: np.ndarray,
    labels: np.ndarray,
    tissue: dict[str, np.ndarray],
    loadings: np.ndarray,
) -> None:
    rng = np.random.default_rng([1, k])
    # a few move much more than the others
    restless = rng.gamma(2.0, 0.035) + (0.25 if k in (4, 17) else 0.0)
    steps = rng.normal(scale=restless / 4, size=(N_VOLUMES, 6))
    jumps = rng.random(N_VOLUMES) < 0.02 + 0.1 * restless
    steps[jumps] += rng.normal(scale=4 * restless, size=(int(jumps.sum()), 6)) / 2
    motion = gaussian_filter1d(np.cumsum(steps, axis=0), 0.7, axis=0)
    motion -= motion.mean(axis=0)
    motion[:, 3:] /= 50
    change = np.abs(np.diff(motion, axis=0))
    fd = np.r_[np.nan, change[:, :3].sum(axis=1) + 50 * change[:, 3:].sum(axis=1)]
    hit = gaussian_filter1d(np.nan_to_num(fd), 0.8)
    waves = gaussian_filter1d(rng.normal(size=(N_VOLUMES, 8)), 2.5, axis=0) * 4
    signal = waves @ loadings / 3 + rng.normal(size=(N_VOLUMES, labels.max() + 1))
    breath = gaussian_filter1d(rng.normal(size=N_VOLUMES), 2.0) * 2
    whole = 1 + 0.006 * breath - 0.02 * hit
    data = epi[..., None] * whole.astype(np.float32)
    inside = labels >= 0
    data[inside] *= 1 + 0.012 * signal.T[labels[inside]].astype(np.float32)
    data += (
        rng.normal(scale=9, size=data.shape).astype(np.float32) * (epi > 0)[..., None]
    )
    func = root / f"sub-{who}" / "func"
    func.mkdir(parents=True)
    image = nib.Nifti1Image(np.rint(data).astype(np.int16), AFFINE)
    image.header.set_xyzt_units("mm", "sec")
    image.header["pixdim"][4] = TR
    image.set_sform(AFFINE, 4)
    nib.save(image, func / f"sub-{who}_task-rest_{SPACE}_desc-preproc_bold.nii.gz")
    anat = root / f"sub-{who}" / "anat"
    anat.mkdir()
    means = {"global_signal": data[epi > 0].mean(axis=0)}
    names = {"WM": "white_matter", "CSF": "csf"}
    for label, where in tissue.items():
        means[names[label]] = data[where].mean(axis=0)
        probable = nib.Nifti1Image(where.astype(np.float32), AFFINE)
        nib.save(probable, anat / f"sub-{who}_{SPACE}_label-{label}_probseg.nii.gz")
    _write_confounds(func / f"sub-{who}_task-rest", motion, means, fd)


def _write_confounds(
    stem: Path, motion: np.ndarray, means: dict[str, np.ndarray], fd: np.ndarray
) -> None:
    names = [f"{kind}_{axis}" for kind in ("trans", "rot") for axis in "xyz"]
    columns = {}
    for name, base in {**dict(zip(names, motion.T, strict=True)), **means}.items():
        change = np.r_[np.nan, np.diff(base)]
        columns[name] = base
        columns[f"{name}_derivative1"] = change
        columns[f"{name}_power2"] = base**2
        columns[f"{name}_derivative1_power2"] = change**2
    columns["framewise_displacement"] = fd
    time = (np.arange(N_VOLUMES) + 0.5) * np.pi / N_VOLUMES
    for k in range(5):
        columns[f"cosine{k:02d}"] = np.cos((k + 1) * time)
    path = stem.with_name(f"{stem.name}_desc-confounds_timeseries.tsv")
    pd.DataFrame(columns).to_csv(path, sep="\t", index=False, na_rep="n/a")
    path.with_suffix(".json").write_text("{}")
