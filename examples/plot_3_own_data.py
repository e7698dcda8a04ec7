"""
Your own data
=============

A folder with ``participants.tsv`` and one file of ROI time series (or FC) per subject is all that
is needed. Here such a folder is made up, checked, and learned with the scikit-learn face.
"""

# %%
# A folder as you may have it
# ---------------------------
# One text file per subject, volumes by ROIs, its name starts with the subject's id.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fcforge.core.component import Component
from fcforge.core.randomness import numpy_rng
from fcforge.data.checks import check_cohort
from fcforge.data.datasets import load_dataset
from fcforge.data.splits import make_sites
from fcforge.estimator import ForgeClassifier

rng = numpy_rng(0, "own data")
home = tempfile.TemporaryDirectory()
folder = Path(home.name)
rows = ["participant_id\tsite\tdiagnosis"]
n_rois, n_volumes = 12, 120
for k in range(80):
    patient, site = k % 2, "Basel" if k < 44 else "Zurich"
    series = rng.standard_normal((n_volumes, n_rois))
    series[:, 1] += (0.4 + 0.7 * patient) * series[
        :, 0
    ]  # patients: ROIs 1 and 2 move together
    np.savetxt(
        folder / f"sub-{k:03d}_timeseries.tsv", series, fmt="%.5f", delimiter="\t"
    )
    rows.append(f"sub-{k:03d}\t{site}\t{'patient' if patient else 'control'}")
(folder / "participants.tsv").write_text("\n".join(rows) + "\n")
print(
    len(list(folder.iterdir())),
    "files, for example",
    sorted(p.name for p in folder.iterdir())[1],
)

# %%
# Load and check
# --------------
# Trouble with a subject is listed, with what to do about it, before anything is trained.
# ``fcforge check FOLDER`` prints the same.
cohort = load_dataset(Component("folder", {"path": str(folder)}))
print(
    f"{len(cohort)} subjects, {cohort.n_rois} ROIs, sites {', '.join(cohort.site_names)}"
)
findings = check_cohort(cohort)
print("\n".join(map(str, findings)) or "nothing to complain about")

# %%
fig, axes = plt.subplots(1, 2, figsize=(7, 3.2), layout="constrained")
for ax, label, name in zip(axes, (0, 1), ("controls", "patients"), strict=True):
    ax.imshow(cohort.fc[cohort.y == label].mean(0), vmin=-1, vmax=1, cmap="RdBu_r")
    ax.set(title=f"mean FC of {name}", xticks=[], yticks=[])

# %%
# Learn site by site
# ------------------
# ``partial_fit`` sees one site at a time. `analytic` keeps sums over subjects, never the subjects.
sites = make_sites(cohort, seed=0)
learner = ForgeClassifier("ridge")
for name, site in sites.items():
    here = site.learning(with_val=True)
    learner.partial_fit(here.fc.numpy(), here.y.numpy(), site=name)
    scores = {
        s.name: learner.score(s.test.fc.numpy(), s.test.y.numpy())
        for s in sites.values()
    }
    print(f"after {name}:", ", ".join(f"{k} {v:.2f}" for k, v in scores.items()))
home.cleanup()
