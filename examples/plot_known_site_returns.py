"""
New subjects of a known site
============================

A hospital recruits for years. `partial_fit` takes further subjects of a site that was learned before:
the memory of the site is extended, and HCTS shares its quotas among the visits.
"""

# %%
# Hospital A, hospital B, and hospital A again
# --------------------------------------------
# Simulated hospitals that disagree. The Gaussian generator keeps this short.
import matplotlib.pyplot as plt
import numpy as np

from fcforge import ForgeClassifier
from fcforge.data.simulated import simulate

people = simulate("systems", subjects_per_site=90, seed=3)
X, y = people.fc, people.y
first, second = people.site_names[:2]
names = {first: "hospital A", second: "hospital B"}
test = np.arange(len(people)) % 3 == 0
of_a = np.flatnonzero((people.site == first) & ~test)
of_b = np.flatnonzero((people.site == second) & ~test)
visits = [("hospital A", of_a[:30]), ("hospital B", of_b), ("hospital A", of_a[30:])]


def accuracy(model):
    """Return the accuracy at both hospitals."""
    right = model.predict(X) == y
    return {
        name: right[test & (people.site == key)].mean() for key, name in names.items()
    }


forge = ForgeClassifier(generator="corr_gauss")
rows = []
for name, who in visits:
    forge.partial_fit(X[who], y[who], site=name)
    rows.append(accuracy(forge))
    found = ", ".join(f"{k} {v:.2f}" for k, v in rows[-1].items())
    memory = len(forge.model_.remembered)
    print(f"after {len(who)} of {name}: {found}; {memory} synthetic subjects")

# %%
# The model knows two sites and three visits. For HCTS every visit counts as a hospital with a quota of its own.
print("sites:", forge.sites_)
print("visits:", forge.model_.order)

# %%
# The same scan twice is refused
# ------------------------------
# A subject of an earlier visit is recognised by a hash of the scan, which never leaves the memory of
# this process.
try:
    forge.partial_fit(X[of_a[:5]], y[of_a[:5]], site="hospital A")
except ValueError as error:
    print(error)

# %%
# The picture
# -----------
fig, ax = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
for name in names.values():
    ax.plot([row[name] for row in rows], "o-", lw=2, label=name)
ax.set(ylabel="accuracy on test subjects", ylim=(0.4, 1.02), xticks=range(3))
ax.set_xticklabels(["A, first visit", "B", "A, second visit"])
ax.legend(frameon=False, loc="lower right")

# %%
# In an experiment, ``visits = 2`` in the table ``[experiment]`` of a config divides the training
# subjects of every site into two visits (:doc:`/experiments`).
