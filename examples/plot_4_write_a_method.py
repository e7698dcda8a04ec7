r"""
Write a method
==============

A method is a small frozen class: hyper-parameters are fields, what it learns is a NamedTuple in
``lane.state``, and its loss is a pure function of one model's parameters. The engine runs it alone
on a CPU or lifts it over many site orders on a GPU; the method cannot tell which.
"""

# %%
# Parameter averaging in one screen
# ---------------------------------
# A simple guard against forgetting: after every site, go only a share of the way from the old
# parameters to the new ones.
#
# .. math:: \theta \leftarrow \theta_{old} + s \, (\theta_{new} - \theta_{old})
#
# and while learning, stay near the old ones: :math:`L = CE + \frac{\lambda}{2}
# \lVert \theta - \theta_{old} \rVert^2`.

# start of the method
from dataclasses import dataclass
from typing import NamedTuple

import torch

from fcforge.methods import Method
from fcforge.nn.tensors import Params


class Before(NamedTuple):
    """Parameters at the start of the site; empty between sites."""

    params: Params


@dataclass(frozen=True)
class Average(Method):
    """Go a share of the way to the new site's parameters, tethered to the old ones."""

    share: float = 0.5
    strength: float = 0.0

    name = "average"
    title = "Parameter averaging"
    State = Before

    def start(self, model, lane, public=None):
        """Return the lane with an empty state."""
        return lane._replace(state=Before({}))

    def begin_site(self, model, lane, site):
        """Remember the parameters; the first site is free."""
        return lane.with_state(params=lane.params) if site.position else lane

    def loss(self, model, params, lane, batch, key):
        """Add the tether to the cross-entropy."""
        loss, stats = super().loss(model, params, lane, batch, key)
        for k, before in lane.state.params.items():
            loss = loss + 0.5 * self.strength * (params[k] - before).square().sum()
        return loss, stats

    def end_site(self, model, lane, site):
        """Average; nothing but the network travels on."""
        params = dict(lane.params)
        for k, before in lane.state.params.items():
            params[k] = torch.lerp(before, params[k], self.share)
        return lane._replace(params=params, state=Before({}))


# end of the method

# %%
# To make it part of fcforge, put the class into its own file in ``fcforge/methods``: the table
# `METHODS` and the contract tests find it there by themselves. Its name
# also goes into a list of ``pyproject.toml`` (:doc:`/add_a_method`). In a script, add it to the table.
from fcforge.methods import METHODS

METHODS["average"] = Average

# %%
# Compare
# -------
import tempfile

import matplotlib.pyplot as plt

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec, Training
from fcforge.evaluation.resampling import means
from fcforge.evaluation.tables import by_learner
from fcforge.experiments.collect import collect
from fcforge.experiments.config import Experiment
from fcforge.experiments.run import open_store, prepare, run_experiment

shares = (1.0, 0.7, 0.5, 0.3)
hospitals = {"preset": "hard_shift", "n_sites": 3, "n_rois": 30, "scale": 0.5}
experiment = Experiment(
    dataset=Component("simulated", {**hospitals, "d_scale": 8.0, "rho": -0.3}),
    learners=tuple(
        LearnerSpec(
            Component("average", {"share": s}), Component("linear"), title=f"{s:g}"
        )
        for s in shares
    ),
    orders=2,
    training=Training(epochs=20, lr=1e-3),
)
with tempfile.TemporaryDirectory() as folder:
    prepared = prepare(experiment)
    store = open_store(prepared, folder)
    run_experiment(prepared, store, group=4)
    results, _ = collect(store)

found = {
    k: means(runs, "accuracy", ("acc", "fm")) for k, runs in by_learner(results).items()
}
for k, v in found.items():
    print(f"share {k:>3}: final accuracy {v['acc']:.2f}, forgetting {v['fm']:.2f}")

# %%
# A share of 1 is plain fine-tuning; smaller steps forget less here.
fig, ax = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
ax.plot(
    shares, [v["acc"] for v in found.values()], marker="o", lw=2, label="final accuracy"
)
ax.plot(shares, [v["fm"] for v in found.values()], marker="s", lw=2, label="forgetting")
ax.set(xlabel="share of the way to the new parameters")
ax.legend(frameon=False)
del METHODS["average"]
