"""
Why it said so: a scan explained on the glass brain
===================================================

A diagnosis model answers with a probability. Which edges moved it? Are they stable? Here
with the 160 ROIs of Dosenbach (2010), whose coordinates come with nilearn; any atlas with
coordinates works.
"""

# %%
# People of an atlas that is not AAL
# ----------------------------------
# Simulated people with 160 ROIs stand in for your own FC of shape (n, 160, 160).
import matplotlib.pyplot as plt
import numpy as np
from nilearn import datasets, plotting

from fcforge.data.simulated import simulate
from fcforge.estimator import ForgeClassifier, edge_stability
from fcforge.imaging.atlas import Atlas

dosenbach = datasets.fetch_coords_dosenbach_2010()
atlas = Atlas(
    "Dosenbach160",
    roi_names=tuple(map(str, dosenbach.labels)),
    systems=tuple(map(str, dosenbach.networks)),
    xyz=dosenbach.rois.to_numpy(float),
)
people = simulate("easy", n_rois=160, n_sites=2, scale=0.6, d_scale=3.0)
train = np.arange(len(people)) % 4 > 0

# %%
# Explain one new scan
# --------------------
# Each edge's contribution to the log odds, against the mean of the people the model learned from.
# The default model is linear in the matrix logarithm of FC; the contributions are integrated
# gradients on the way from that mean to the scan, and add up to the decision value.
model = ForgeClassifier("ridge").fit(people.fc[train], people.y[train])
others = people.fc[~train]
likest = model.decision_function(others).argmax()  # the one most like the patients
new = others[[likest]]
why = model.explain(new, atlas=atlas)
print(f"decision value {model.decision_function(new)[0]:+.3f}")
print(f"reference {why.base[0]:+.3f} + edges {why.contribution.sum():+.3f}")
print(why.edges(n=5).to_string(index=False))

# %%
# On the glass brain
# ------------------
# `connectome` returns what ``plot_connectome`` and the interactive ``view_connectome`` of nilearn
# take; `to_brainnet` writes the same edges for BrainNet Viewer.
# Red edges speak for patient, blue ones for control.
fig = plt.figure(figsize=(9, 3.2))
plotting.plot_connectome(
    *why.connectome(n=30),
    node_size=8,
    figure=fig,
    colorbar=False,
    title="30 strongest edges",
)

# %%
# Networks
# --------
# No single edge decides: thousands add a little each. Sums within and between networks are easier
# to read.
networks = why.networks()
most = float(np.abs(networks.to_numpy()).max())
fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
image = ax.imshow(networks, cmap="RdBu_r", vmin=-most, vmax=most)
ax.set_xticks(range(len(networks)), networks.columns, rotation=90)
ax.set_yticks(range(len(networks)), networks.index)
fig.colorbar(image, label="added to the log odds")

# %%
# Do these edges matter to the model?
# -----------------------------------
# The deletion test sets the strongest edges to the reference and looks how far the score moves,
# beside as many random edges.
test = why.deletion
by_chance = test.random[0].mean()
print(f"{test.k} strongest edges: {test.explained[0]:.2f}; random: {by_chance:.2f}")

# %%
# Are they stable?
# ----------------
# An edge is stable if models of other people use it, too. Of models trained on random
# halves of the people, at least 70 % must have it among their strongest edges with the same sign;
# by chance that happens to one edge, on average.
stable = edge_stability(model, people.fc[train], people.y[train], draws=10)
print(f"{stable.stable.sum()} of {stable.stable.size} edges are stable")
why = model.explain(new, atlas=atlas, stability=stable)
top = why.edges(n=8)
print(top[["roi_a", "roi_b", "contribution", "stable"]].to_string())
