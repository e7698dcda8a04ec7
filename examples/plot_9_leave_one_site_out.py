"""
Leave one site out, in one line
===============================

Would the model work at a hospital it has never seen? Every subject has a site; scikit-learn leaves
out one site after another, and `ForgeClassifier` learns the others one by one.
"""

# %%
# Six hospitals
# -------------
# Simulated here; your own FC matrices (or nilearn's vectorised edges) and one site per subject do.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_validate

from fcforge.data.simulated import simulate
from fcforge.estimator import ForgeClassifier

cohort = simulate("easy", n_rois=20, n_sites=6, scale=0.5, seed=1)
X, y, site = cohort.fc, cohort.y, cohort.site
print(f"{len(X)} subjects of {', '.join(cohort.site_names)}")

# %%
# The line
# --------
# `site` goes to `fit` cut to the fold's subjects, as scikit-learn does with all metadata.
found = cross_validate(
    ForgeClassifier("ridge"),
    X,
    y,
    groups=site,
    cv=LeaveOneGroupOut(),
    params={"site": site},
    scoring=("accuracy", "roc_auc"),
)
left_out = np.unique(site)
for name, accuracy, auroc in zip(
    left_out, found["test_accuracy"], found["test_roc_auc"], strict=True
):
    print(f"{name}: accuracy {accuracy:.2f}, AUROC {auroc:.2f}")

# %%
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.bar(left_out, found["test_roc_auc"], color="#1a5c93")
ax.axhline(0.5, color="k", linestyle=":", label="chance")
ax.set(ylabel="AUROC at the site left out", ylim=(0, 1))
ax.tick_params(axis="x", labelrotation=30)
ax.legend(loc="lower right")

# %%
# Search over a setting of the method
# -----------------------------------
# Settings of the parts are reached by name.
search = GridSearchCV(
    ForgeClassifier("ridge"),
    {"method__penalty": [0.1, 1.0, 10.0]},
    cv=LeaveOneGroupOut(),
    scoring="roc_auc",
).fit(X, y, groups=site)
print("best penalty:", search.best_params_["method__penalty"])
