"""
Synthetic FC beside real FC
===========================

FCM-VAE alone, on arrays: fit it to the scans of one hospital, sample patients and controls, and look
at them beside the real ones, as the paper's figure does.
"""

# %%
# Fit and sample
# --------------
# The scans are simulated from statistics of real ABIDE scans; use your own FC (n, R, R) and
# diagnoses. Only the training subjects are shown to the generator.
import matplotlib.pyplot as plt
import numpy as np

from fcforge import FCMVAE
from fcforge.data.simulated import simulate

people = simulate("realistic", n_rois=60, n_sites=1, d_scale=4.0, seed=2)
train = np.arange(len(people)) % 2 == 0
fc, y = people.fc[train], people.y[train]
vae = FCMVAE(random_state=0).fit(fc, y)
synthetic = vae.sample(y)
print(f"{len(fc)} real and {len(synthetic)} synthetic subjects of {fc.shape[1]} ROIs")

# %%
# Matrices
# --------
# One real and one synthetic control, the means of both classes, and how patients differ from
# controls. The difference of the means is small beside the variation of single subjects.
rows, cols = np.triu_indices(fc.shape[1], 1)


def contrast(matrices):
    """Return the mean FC of patients minus that of controls."""
    return matrices[y == 1].mean(0) - matrices[y == 0].mean(0)


names = ("a control", "mean of controls", "mean of patients", "patients - controls")
fig, axes = plt.subplots(2, 4, figsize=(9.5, 4.8), layout="constrained")
for line, kind, some in zip(axes, ("real", "synthetic"), (fc, synthetic), strict=True):
    shown = (
        some[y == 0][0],
        some[y == 0].mean(0),
        some[y == 1].mean(0),
        contrast(some),
    )
    for ax, name, matrix in zip(line, names, shown, strict=True):
        limit = 0.15 if name == names[-1] else 1.0
        image = ax.imshow(matrix, vmin=-limit, vmax=limit, cmap="RdBu_r")
        ax.set(title=f"{kind}: {name}", xticks=[], yticks=[])
        ax.title.set_fontsize(9)
        if kind == "real" and name in names[-2:]:
            fig.colorbar(image, ax=axes[:, names.index(name)], shrink=0.6)

# %%
# Edge by edge
# ------------
# Every point is an edge. Synthetic subjects should have the same mean, the same spread between subjects
# and the same contrast of patients and controls. The contrast of the subjects that were not shown to
# the generator says how much of it is chance.
unseen, unseen_y = people.fc[~train], people.y[~train]
held_back = unseen[unseen_y == 1].mean(0) - unseen[unseen_y == 0].mean(0)
panels = {
    "mean": (fc.mean(0), synthetic.mean(0)),
    "spread (SD)": (fc.std(0), synthetic.std(0)),
    "contrast": (contrast(fc), contrast(synthetic)),
    "contrast, unseen": (held_back, contrast(synthetic)),
}
fig, axes = plt.subplots(1, 4, figsize=(10, 2.9), layout="constrained")
for ax, (name, (real, made)) in zip(axes, panels.items(), strict=True):
    real, made = real[rows, cols], made[rows, cols]
    r = np.corrcoef(real, made)[0, 1]
    ax.plot(real, made, ".", ms=2, alpha=0.3, color="#1a5c93")
    ends = [min(real.min(), made.min()), max(real.max(), made.max())]
    ax.plot(ends, ends, color="k", lw=0.8)
    ax.set(xlabel="real", ylabel="synthetic")
    ax.set_title(f"{name}: r = {r:.2f}", fontsize=9)
    print(f"{name:16} r {r:.2f}, slope {np.polyfit(real, made, 1)[0]:.2f}")

# %%
# How the training went
# ---------------------
# `history_` has the terms of the loss per epoch. A KL term that falls to zero would mean that the
# latent variables carry nothing, so that all samples of a class look alike.
fig, axes = plt.subplots(1, 3, figsize=(9, 2.4), layout="constrained")
for ax, (name, values) in zip(axes, vae.history_.items(), strict=True):
    ax.plot(values, color="#1a5c93")
    ax.set(title=name, xlabel="epoch")

# %%
# Other generators have the same interface: ``FCGenerator("corr_gauss").fit(fc, y).sample(y)``. How close
# samples come to single training subjects is the subject of :doc:`plot_6_read_an_audit`.
