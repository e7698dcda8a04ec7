"""
See forgetting
==============

A network that learns hospital after hospital forgets the first ones. Here three hospitals are made
so different that it can be seen in seconds: fine-tuning forgets; training on everybody again does
not, but needs all scans in one place; FORGE rehearses synthetic subjects instead.
"""

# %%
# Three learners, two orders
# --------------------------
import tempfile

import matplotlib.pyplot as plt
import numpy as np

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec, Training
from fcforge.evaluation.forgetting import accuracy_curve, score_matrix
from fcforge.evaluation.resampling import means
from fcforge.evaluation.tables import by_learner
from fcforge.experiments.collect import collect
from fcforge.experiments.config import Experiment
from fcforge.experiments.run import open_store, prepare, run_experiment

hospitals = {"preset": "hard_shift", "n_sites": 3, "n_rois": 30, "scale": 0.5}
hospitals |= {
    "d_scale": 8.0,
    "rho": -0.3,
}  # rho < 0: what marks patients differs between sites
forge = Component("forge", {"memory": 64, "candidates": 64, "dev": 16})
experiment = Experiment(
    dataset=Component("simulated", hospitals),
    learners=(
        LearnerSpec(Component("finetune"), Component("linear"), title="fine-tuning"),
        LearnerSpec(
            Component("cumulative"), Component("linear"), title="all data again"
        ),
        LearnerSpec(forge, Component("linear"), Component("corr_gauss"), title="FORGE"),
    ),
    orders=2,
    training=Training(epochs=20, lr=1e-3),
)
with tempfile.TemporaryDirectory() as folder:
    prepared = prepare(experiment)
    store = open_store(prepared, folder)
    run_experiment(prepared, store, group=4)
    results, _ = collect(store)
learners = by_learner(results)
for name, runs in learners.items():
    found = means(runs, "accuracy", ("aaa", "acc", "fm"))
    print(
        f"{name:>15}: final accuracy {found['acc']:.2f}, forgetting {found['fm']:.2f}"
    )

# %%
# Accuracy of every site after every site
# ---------------------------------------
# Rows are stages, columns the sites in order of arrival. Read a column downwards from the
# diagonal: that is what becomes of a site once others are learned. Above the diagonal are sites
# that have not been learned yet.
fig, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
for ax, (name, runs) in zip(axes, learners.items(), strict=True):
    matrix = np.mean([score_matrix(run) for run in runs], axis=0)
    ax.imshow(matrix, vmin=0.4, vmax=1, cmap="Blues")
    for (t, i), value in np.ndenumerate(matrix):
        ax.text(
            i,
            t,
            f"{value:.2f}",
            ha="center",
            va="center",
            color="w" if value > 0.75 else "k",
        )
    ax.set(title=name, xticks=range(3), yticks=range(3))
    ax.set_xticklabels(["1st", "2nd", "3rd"])
    ax.set_yticklabels(["after 1", "after 2", "after 3"])

# %%
# Accuracy on the sites so far
# ----------------------------
fig, ax = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
for name, runs in learners.items():
    curve = np.mean([accuracy_curve(score_matrix(run)) for run in runs], axis=0)
    ax.plot(range(1, 4), curve, marker="o", lw=2, label=name)
ax.set(xticks=[1, 2, 3], xlabel="sites learned", ylabel="accuracy on the sites so far")
ax.legend(frameon=False)
