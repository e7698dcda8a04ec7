"""
FORGE in five minutes
=====================

Four hospitals contribute their patients one after another. A classifier that is trained on hospital
after hospital forgets the earlier ones. FORGE replays synthetic subjects of them instead, and keeps
no scan.
"""

# %%
# Four hospitals
# --------------
# These hospitals are simulated, and made to disagree: patients share one disease pattern and have
# a second one that differs between hospitals. On real ones (ABIDE-I) little is forgotten, and FORGE
# gains at most a point or two of accuracy. Replace ``X`` (FC matrices), ``y`` (diagnoses) and ``site``
# by your own.
import matplotlib.pyplot as plt
import numpy as np

from fcforge import ForgeClassifier
from fcforge.data.simulated import simulate

people = simulate("systems", subjects_per_site=60, seed=1)
X, y, site = people.fc, people.y, people.site
hospitals = people.site_names
test = np.arange(len(people)) % 3 == 0
print(f"{len(X)} subjects of {', '.join(hospitals)}; FC of {people.n_rois} ROIs")

# %%
# Learn one hospital after another
# --------------------------------
# ``partial_fit`` learns a hospital. FORGE then fits a generator, FCM-VAE, to its scans, and stores
# synthetic subjects with the classifier's answers. While the next hospital is learned, HCTS chooses
# which of them are replayed, and distillation keeps the answers.


def accuracies(model):
    """Return the accuracy at every hospital (column) after each was learned (row)."""
    rows = []
    for hospital in hospitals:
        here = (site == hospital) & ~test
        model.partial_fit(X[here], y[here], site=hospital)
        right = model.predict(X) == y
        rows.append([right[test & (site == name)].mean() for name in hospitals])
    return np.array(rows)


forge = ForgeClassifier(verbose=1)
curves = {
    "fine-tuning": accuracies(ForgeClassifier("finetune")),
    "FORGE": accuracies(forge),
}

# %%
# What became of the first hospitals
# ----------------------------------
# Read a line from left to right: the accuracy at one hospital, from the moment when it was learned.
fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
for ax, (name, matrix) in zip(axes, curves.items(), strict=True):
    for k, hospital in enumerate(hospitals):
        stages = range(k, len(hospitals))
        ax.plot(stages, matrix[k:, k], "o-", lw=2, label=hospital)
    ax.set(
        title=name, xticks=range(4), xlabel="last hospital learned", ylim=(0.4, 1.02)
    )
    ax.set_xticklabels(hospitals)
axes[0].set_ylabel("accuracy on test subjects")
axes[1].legend(frameon=False, fontsize="small", loc="lower right")
for name, matrix in curves.items():
    lost = np.mean(np.diag(matrix)[:-1] - matrix[-1, :-1])
    print(
        f"{name:11}: accuracy at the end {matrix[-1].mean():.2f}, "
        f"lost at the first three hospitals {lost:+.2f}"
    )

# %%
# What FORGE remembers
# --------------------
# Synthetic subjects, never a real one: 256 of every hospital to choose from, and 64 on which HCTS
# measures how much of the hospital is forgotten.
memory = forge.model_.remembered
print(f"{len(memory)} synthetic subjects of {len(forge.sites_)} hospitals")
assert not {scan.tobytes() for scan in X} & {
    scan.numpy().tobytes() for scan in memory.fc
}

# %%
# Next steps
# ----------
# ``ForgeClassifier(model="gcn")`` is the paper's network, ``generator="corr_gauss"`` a generator that
# fits in a second. ``forge.save("model.safetensors")`` stores the model, so that another hospital
# can be learned later. ``fcforge demo`` compares four methods on two classifiers over several
# orders of the hospitals and writes a report.
