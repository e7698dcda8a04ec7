"""
First run
=========

Three made-up hospitals learn one after another, in every order, with three learners. What
``fcforge run`` does, in Python.
"""

# %%
# What to run
# -----------
# An experiment is plain data: a dataset, learners, seeds, orders, training settings. The disorder
# is made far stronger than in real data, so that a few seconds of training show something.
import tempfile

import matplotlib.pyplot as plt

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec, Training
from fcforge.evaluation.tables import results_frame
from fcforge.experiments.collect import collect
from fcforge.experiments.config import Experiment
from fcforge.experiments.run import open_store, prepare, run_experiment
from fcforge.methods import METHODS

dataset = {
    "preset": "hard_shift",
    "n_sites": 3,
    "n_rois": 30,
    "scale": 0.4,
    "d_scale": 6.0,
}
experiment = Experiment(
    title="First run",
    dataset=Component("simulated", dataset),
    learners=(
        LearnerSpec(Component("finetune"), Component("linear")),
        LearnerSpec(Component("cumulative"), Component("linear")),
        LearnerSpec(Component("analytic"), Component("linear")),
    ),
    seeds=(0,),
    orders="all",
    training=Training(epochs=10, lr=1e-3),
)

# %%
# Train
# -----
# Orders that begin alike share the training of what they have in common.
prepared = prepare(experiment)
plan = prepared.plan
alone = sum(len(spec.order) for spec, _ in plan.runs)
print(plan.words)
print(f"not {alone}, because orders share their prefixes.")

folder = tempfile.TemporaryDirectory()
store = open_store(prepared, folder.name)
run_experiment(prepared, store, group=6)
results, asked = collect(store)
print(f"{len(results)} of {asked} runs are complete")

# %%
# The table
# ---------
# Every number has an interval over test subjects. The row of the majority class is always there:
# a learner below it has learned nothing useful.
keeps = {x.title: METHODS[x.method.name].keeps for x in experiment.learners}
found = results_frame(results, keeps=keeps, n_draws=200).set_index("learner")
found[["aaa", "aaa_low", "aaa_high", "acc", "fm", "keeps", "runs"]].round(3)

# %%
# The same as a picture
# ---------------------
# AAA is the accuracy averaged over all stages; the bar is its 95 % interval.
fig, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
for k, row in enumerate(found.to_dict("records")):
    ax.plot([row["aaa_low"], row["aaa_high"]], [k, k], color="#1a5c93", lw=3)
    ax.plot(row["aaa"], k, "o", color="#1a5c93", ms=9)
ax.set_yticks(range(len(found)), found.index)
ax.set_xlabel("AAA")
folder.cleanup()
