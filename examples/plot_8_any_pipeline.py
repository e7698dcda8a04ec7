"""
Any scikit-learn pipeline beside FORGE
======================================

Your own classifier becomes a row of the table: same splits, same orders, same intervals. Here a
logistic regression on edges, and a support vector machine on tangent space as nilearn users know
it, stand beside two of our learners.

``keeps`` says what a pipeline is trained on at each stage. Be fair when reading the table:
``"cumulative"`` pools the scans of all sites so far, which a consortium cannot do; the column
*keeps* says so. ``"independent"`` uses the last site alone, ``"partial_fit"`` goes from site to
site without looking back.
"""

# %%
# Tangent space at the mean of the training subjects: whitened by it, then the matrix logarithm.
# Any transformer will do, as long as it has ``fit`` and ``transform``; it is fitted on training
# subjects alone, because the whole pipeline is.

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import fcforge


class Tangent(TransformerMixin, BaseEstimator):
    def fit(self, fc, y=None):
        values, vectors = np.linalg.eigh(fc.mean(0))
        self.whitening_ = (vectors / np.sqrt(values.clip(1e-6))) @ vectors.T
        return self

    def transform(self, fc):
        values, vectors = np.linalg.eigh(self.whitening_ @ fc @ self.whitening_)
        logs = (
            vectors * np.log(values.clip(1e-3))[:, None, :] @ vectors.transpose(0, 2, 1)
        )
        return logs[:, *np.triu_indices(fc.shape[-1], 1)]


# %%
# Three simulated hospitals in three orders. Rows are those of ``[[learner]]`` in a config
# file, where a pipeline is named instead: ``estimator = "my_module:my_function"``.

hospitals = {
    "dataset": {"name": "simulated", "n_sites": 3, "n_rois": 30, "scale": 0.5},
    "experiment": {"orders": 3},
    "learner": [
        {
            "title": "FORGE, closed form",
            "method": "forge_ridge",
            "model": {"name": "linear", "features": "log"},
            "generator": "corr_gauss",
        },
        {"title": "analytic ridge", "method": "analytic", "model": "linear"},
    ],
}
pipelines = [
    {
        "title": "tangent + SVM, pooled",
        "estimator": make_pipeline(Tangent(), SVC(kernel="linear", C=0.01)),
        "keeps": "cumulative",
        "input": "matrices",
    },
    {
        "title": "logistic regression, pooled",
        "estimator": make_pipeline(
            StandardScaler(), LogisticRegression(C=1e-3, max_iter=1000)
        ),
        "keeps": "cumulative",
    },
    {
        "title": "logistic regression, last site",
        "estimator": make_pipeline(
            StandardScaler(), LogisticRegression(C=1e-3, max_iter=1000)
        ),
        "keeps": "independent",
    },
    {
        "title": "naive Bayes, site after site",
        "estimator": GaussianNB(),
        "keeps": "partial_fit",
    },
]
results = fcforge.run(hospitals, learners=pipelines)

# %%
# AAA is accuracy averaged over all stages, FM what was forgotten; the interval is over subjects.

shown = ["learner", "keeps", "aaa", "aaa_low", "aaa_high", "auroc", "fm"]
print(results.table[shown].to_string(index=False, float_format="%.3f"))

# %%
# The same as a picture. With ``out="runs/mine"`` the run folder stays, and
# ``fcforge report runs/mine`` writes the page with all orders, sites and paired comparisons.

import matplotlib.pyplot as plt

table = results.table.iloc[::-1]
colours = table["keeps"].map({"real subjects": "#b3402a"}).fillna("#1a5c93")
error = np.abs(table[["aaa_low", "aaa_high"]].to_numpy().T - table["aaa"].to_numpy())
fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.barh(table["learner"], table["aaa"], xerr=error, color=colours, capsize=3)
ax.set(
    xlim=(0.4, 1), xlabel="accuracy over all stages (AAA); red: pools everybody's scans"
)
