"""
Our edges in a support vector machine
=====================================

`MatrixLog`, `ConfoundRemover` and `SiteHarmoniser` are steps of a pipeline: what comes after them
may be any classifier of scikit-learn.
"""

# %%
# Hospitals that measure differently
# ----------------------------------
# Simulated FC of four hospitals, and an age for everybody.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import sklearn
from sklearn.decomposition import PCA
from sklearn.model_selection import LeaveOneGroupOut, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from fcforge.core.randomness import numpy_rng
from fcforge.data.simulated import simulate
from fcforge.estimator import ConfoundRemover, MatrixLog, SiteHarmoniser

cohort = simulate("easy", n_rois=20, n_sites=4, scale=0.5, seed=3)
X, y, site = cohort.fc, cohort.y, cohort.site
people = pd.DataFrame({"age": numpy_rng(0, "ages").uniform(8, 40, len(X))})

# %%
# Edges of the matrix logarithm
# -----------------------------
# A matrix of correlations in, one row of edges out. In these coordinates adding and subtracting
# leaves a valid matrix, so that site effects can be taken out.
edges = MatrixLog().fit_transform(X)
print(edges.shape, MatrixLog().fit(X).get_feature_names_out()[:3])

# %%
harmonised = SiteHarmoniser().fit_transform(edges, y, site=site)
fig, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
for ax, rows, title in zip(
    axes, (edges, harmonised), ("as measured", "harmonised"), strict=True
):
    first, second = PCA(2).fit_transform(rows).T
    for name in cohort.site_names:
        ax.scatter(first[site == name], second[site == name], s=8, label=name)
    ax.set(title=title, xticks=[], yticks=[], xlabel="first axis", ylabel="second axis")
axes[0].legend(fontsize=7)

# %%
# The whole pipeline, leave-one-site-out
# --------------------------------------
# Sites and covariates are metadata: each step says what it asks for, scikit-learn routes it. The
# site that is left out was not seen in training; its effect is estimated from its own scans,
# without their diagnoses.
with sklearn.config_context(enable_metadata_routing=True):
    confounds = ConfoundRemover().set_fit_request(covariates=True)
    confounds.set_transform_request(covariates=True)
    harmonise = SiteHarmoniser(unseen="estimate").set_fit_request(
        site=True, covariates=False
    )
    harmonise.set_transform_request(site=True, covariates=False)
    for title, steps in {
        "log edges": [MatrixLog()],
        "log edges, age removed, harmonised": [MatrixLog(), confounds, harmonise],
    }.items():
        given = {"groups": site}
        if len(steps) > 1:
            given |= {"site": site, "covariates": people}
        model = make_pipeline(*steps, SVC(kernel="linear"))
        found = cross_validate(model, X, y, cv=LeaveOneGroupOut(), params=given)
        print(f"{title}: accuracy {np.mean(found['test_score']):.2f}")
