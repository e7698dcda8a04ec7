"""
From fMRIPrep to a report
=========================

The whole way with four commands: ``fcforge fc`` makes FC matrices of fMRIPrep's output, ``fcforge
check`` looks for trouble, ``fcforge run`` trains FORGE and its references, and writes a report.
"""

# %%
# fMRIPrep's output
# -----------------
# You have such a folder. Here one is made up, with small scans of 48 people at two hospitals: patients
# differ from controls in how strongly the first half of the ROIs moves together.
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd

home = tempfile.TemporaryDirectory()
work = Path(home.name)
derivatives = work / "derivatives"
derivatives.mkdir()
rng = np.random.default_rng(0)

# an atlas of ten slabs on a grid of 12 mm in MNI space
labels = np.zeros((15, 18, 15), dtype=np.int16)
edges = np.linspace(1, 17, 11).astype(int)
for roi in range(10):
    labels[2:13, edges[roi] : edges[roi + 1], 2:13] = roi + 1
affine = np.diag([12.0, 12, 12, 1])
affine[:3, 3] = [-90, -125, -71]
nibabel.save(nibabel.Nifti1Image(labels, affine), work / "slabs.nii.gz")
names = "".join(f"{roi + 1}\tSlab{roi + 1}\n" for roi in range(10))
(work / "slabs.tsv").write_text("index\tname\n0\tBackground\n" + names)


def write_subject(name, patient, n_volumes=180):
    """Write a scan and its confounds in fMRIPrep's file names."""
    waves = rng.normal(size=(n_volumes, 3))
    waves = np.apply_along_axis(np.convolve, 0, waves, np.hanning(7), "same")
    series = rng.normal(size=(n_volumes, 10)) + waves[:, :1] / 2
    series[:, :5] += rng.normal(0.35 + 0.25 * patient, 0.25) * waves[:, 1:2]
    scan = np.zeros((*labels.shape, n_volumes), dtype=np.float32)
    inside = labels > 0
    scan[inside] = 1000 + 20 * series.T[labels[inside] - 1]
    scan[inside] += rng.normal(scale=4, size=(int(inside.sum()), n_volumes))
    image = nibabel.Nifti1Image(scan.astype(np.int16), affine)
    image.header.set_zooms((12, 12, 12, 2))
    image.header.set_xyzt_units("mm", "sec")
    func = derivatives / name / "func"
    func.mkdir(parents=True)
    space = f"{name}_task-rest_space-MNI152NLin2009cAsym_desc-preproc_bold"
    nibabel.save(image, func / f"{space}.nii.gz")
    (func / f"{space}.json").write_text('{"RepetitionTime": 2.0}')
    confounds = {}
    motion = [f"{kind}_{axis}" for kind in ("trans", "rot") for axis in "xyz"]
    for column in [*motion, "csf", "white_matter"]:
        values = rng.normal(scale=0.02, size=n_volumes).cumsum()
        slope = np.r_[np.nan, np.diff(values)]
        confounds |= {column: values, f"{column}_derivative1": slope}
        confounds |= {
            f"{column}_power2": values**2,
            f"{column}_derivative1_power2": slope**2,
        }
    confounds["framewise_displacement"] = np.abs(rng.normal(scale=0.08, size=n_volumes))
    table = func / f"{name}_task-rest_desc-confounds_timeseries.tsv"
    pd.DataFrame(confounds).to_csv(table, sep="\t", index=False, na_rep="n/a")


rows = []
for k in range(48):
    name, patient = f"sub-{k + 1:02d}", k % 2
    write_subject(name, patient)
    site = "Basel" if k < 24 else "Zurich"
    rows.append((name, site, "ASD" if patient else "control", 20 + k % 30))
people = pd.DataFrame(rows, columns=["participant_id", "site", "diagnosis", "age"])
people.to_csv(derivatives / "participants.tsv", sep="\t", index=False)
about = {"Name": "made up", "BIDSVersion": "1.9.0"}
about["GeneratedBy"] = [{"Name": "fMRIPrep", "Version": "23.2.0"}]
(derivatives / "dataset_description.json").write_text(json.dumps(about))


def fcforge(*arguments):
    """Run a command line and print what it prints."""
    print("$ fcforge", *(str(a).replace(str(work), ".") for a in arguments))
    command = [sys.executable, "-m", "fcforge.cli", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=work, capture_output=True, text=True, check=False
    )
    lines = (done.stdout + done.stderr).replace(str(work), ".").splitlines()
    progress = re.compile(r"training: |subject \d+ of ")
    print("\n".join(line for line in lines if not progress.match(line)))
    done.check_returncode()


# %%
# FC of every subject
# -------------------
# With real scans leave the atlas out: AAL with 116 ROIs is the default, and a name such as Schaefer400
# takes another. A page per subject shows scan, motion, confounds and FC; the made-up scans do without.
# A cohort with a few hundred subjects is better made by one job per subject; the level ``group`` then
# collects them.
fcforge(
    "fc", derivatives, work / "fc", "participant", "--no-report",
    "--atlas", work / "slabs.nii.gz", "--atlas-lut", work / "slabs.tsv",
)  # fmt: skip

# %%
# The folder ``fc`` is a data set of fcforge. The mean FC of each group, and their difference:
import matplotlib.pyplot as plt

from fcforge.core.component import Component
from fcforge.data.datasets import load_dataset

cohort = load_dataset(Component("folder", {"path": str(work / "fc")}))
controls, patients = (cohort.fc[cohort.y == group].mean(0) for group in (0, 1))
fig, panels = plt.subplots(1, 3, figsize=(8, 2.6), layout="constrained")
means = {"controls": controls, "patients": patients, "difference": patients - controls}
for axes, (title, matrix) in zip(panels, means.items(), strict=True):
    axes.imshow(matrix, vmin=-1, vmax=1, cmap="RdBu_r")
    axes.set(title=title, xticks=[], yticks=[])

# %%
# An experiment
# -------------
# ``fcforge init`` writes a commented config to start from. This one keeps what matters here.
(work / "my.toml").write_text("""
[experiment]
title = "Basel, then Zurich"
seeds = [0]

[dataset]
name = "folder"
path = "fc"

[training]
epochs = 20
lr = 1e-3

[generator.fcm_vae]
epochs = 20

[[learner]]
method = "forge"
generator = "fcm_vae"
model = { name = "linear", features = "log+diagonal" }

[[learner]]
method = "finetune"
model = { name = "linear", features = "log+diagonal" }
""")
fcforge("check", work / "my.toml")
fcforge("run", work / "my.toml", "--out", work / "run")

# %%
# The report
# ----------
# ``report.html`` is one file that opens offline. It has the table, curves for every hospital, who forgot
# what, and a methods paragraph for your paper. Its sections:
page = (work / "run" / "report.html").read_text()
print("\n".join(re.findall(r"<h2[^>]*>([^<]+)", page)))
home.cleanup()
