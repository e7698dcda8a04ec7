r"""
Train your own network with FORGE
=================================

Any ``torch.nn.Module`` is a model of fcforge, also one of PyTorch Geometric. Its ``forward`` gets FC,
the matrix logarithm of FC, or a dense or sparse graph, as `inputs` says. Parameters are drawn anew
for every training, seeded by `random_state`, and the module that you pass is never changed.
"""

# %%
# A PyTorch Geometric network in FORGE
# ------------------------------------
# PyTorch Geometric is no part of ``.[train]``: ``pip install -c constraints.txt torch-geometric``.
# Two graph convolutions and a mean over the ROIs. The sparse form passes node features, edges,
# their weights and the subject of every node, as PyTorch Geometric has them.

# start of the network
from torch import nn
from torch_geometric.nn import GraphConv, MeanAggregation

from fcforge import ForgeClassifier, TorchModule


class Net(nn.Module):
    def __init__(self, n_rois=40, width=32):
        super().__init__()
        self.near, self.far = GraphConv(n_rois, width), GraphConv(width, width)
        self.pool, self.head = MeanAggregation(), nn.Linear(width, 2)

    def forward(self, x, edge_index, edge_weight, batch):
        h = self.near(x, edge_index, edge_weight).relu()
        h = self.far(h, edge_index, edge_weight).relu()
        return self.head(self.pool(h, batch))


own = TorchModule(Net(), readout="pool", inputs="sparse", tau=0.2, n_rois=40)
# end of the network

# %%
# `readout` names the layer whose output FORGE distils beside the logits. Before anything is trained,
# the module is tried on random FC: a wrong shape, a layer built inside ``forward``, or scores that depend
# on the other subjects of a batch are refused by name.
#
# Four hospitals that disagree
# ----------------------------
# These simulated hospitals were made so that each has its own disease pattern beside a common one.
# On real ones (ABIDE-I) little is forgotten, and FORGE gains at most a point or two of accuracy.
# The Gaussian generator fits faster than FCM-VAE, the default.
import numpy as np

from fcforge.data.simulated import simulate

people = simulate(preset="systems", n_rois=40, seed=0)
test = np.arange(len(people)) % 4 == 0


def accuracy(method, model):
    """Return the accuracy at every hospital after the last of them was learned."""
    generator = "corr_gauss" if method == "forge" else None
    learner = ForgeClassifier(method, model=model, generator=generator, epochs=40)
    learner.fit(people.fc[~test], people.y[~test], people.site[~test])
    right = learner.predict(people.fc) == people.y
    return {
        name: float(right[test & (people.site == name)].mean())
        for name in learner.sites_
    }


results = {method: accuracy(method, own) for method in ("finetune", "forge")}
print("accuracy at every hospital after the last of them was learned")
for method, by_hospital in results.items():
    line = "  ".join(f"{name} {value:.2f}" for name, value in by_hospital.items())
    print(f"{method:9} {line}")

# %%
# Fine-tuning forgets the first hospital. FORGE replays synthetic subjects of it and does not.
import matplotlib.pyplot as plt

fig, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for method, by_hospital in results.items():
    axes.plot(list(by_hospital), list(by_hospital.values()), "o-", label=method)
axes.set(ylim=(0.4, 1), ylabel="accuracy after the last hospital")
axes.legend()

# %%
# The same network in a config file
# ---------------------------------
# Put the class into ``networks.py`` beside the config and name it. Commands that check a config of
# somebody else import such a file only with ``--allow-code``, because importing it runs it.
#
# .. code-block:: toml
#
#     [[learner]]
#     method = "forge"
#     generator = "corr_gauss"
#
#     [learner.model]
#     name = "networks:Net"
#     readout = "pool"
#     inputs = "sparse"
#     tau = 0.2
