r"""
HCTS at work
============

HCTS decides how many of the K replayed subjects come from each earlier hospital. Here it is fed with
made-up accuracies, so that one can watch the quotas move to the hospital that forgets.
"""

# %%
# Three earlier hospitals
# -----------------------
# Each was learned to an accuracy of .9. While a fourth is learned, the second one forgets at first,
# and from the tenth choice on the third one. The cross-entropy falls where a hospital is replayed.
import matplotlib.pyplot as plt
import numpy as np
import torch

from fcforge import HCTS
from fcforge.replay.selection import Contexts

hospitals = ("hospital 1", "hospital 2", "hospital 3")
BUDGET, CANDIDATES, CHOICES = 60, 40, 20
rng = torch.Generator().manual_seed(0)
readouts = torch.rand(3, CANDIDATES, 2, generator=rng)


def accuracy_at(choice):
    """Return the accuracy at every hospital before a choice."""
    forgetting = [0.0, 0.25, 0.0] if choice < 10 else [0.0, 0.0, 0.25]
    return 0.9 - torch.tensor(forgetting)


# %%
# Feed the sampler
# ----------------
# Its contexts are accuracy and cross-entropy of every hospital, and for every candidate how
# undecided the classifier is and how typical the candidate is of its diagnosis. `refresh` learns
# from the last choice and returns the next one.


def quotas(variant):
    """Return the quotas (choices, hospitals) of a variant of the sampler."""
    sampler = HCTS(variant=variant)
    state = sampler.start("cpu")
    for _ in hospitals:
        state = sampler.add_site(state, torch.tensor(0.9))
    rows, ce = [], torch.full((3,), 0.5)
    for k in range(CHOICES):
        contexts = Contexts(
            accuracy=accuracy_at(k),
            ce=ce,
            psi=torch.rand(3, CANDIDATES, 2, generator=rng),
            distance=torch.cdist(readouts, readouts),
        )
        key = torch.tensor(k, dtype=torch.int32)
        state, choice = sampler.refresh(state, contexts, key, capacity=BUDGET)
        rows.append(choice.quota.tolist())
        lost = 0.9 - contexts.accuracy
        ce = 0.5 - 0.3 * lost * choice.quota / BUDGET  # replay repairs what was lost
    return np.array(rows)


found = {variant: quotas(variant) for variant in ("stable", "paper")}
print(f"mean quotas of {', '.join(hospitals)}")
for variant, rows in found.items():
    early, late = rows[:10].mean(0).round(), rows[10:].mean(0).round()
    print(
        f"{variant:7} choices 1 to 10: {early}, 11 to 20: {late} of {BUDGET} subjects"
    )

# %%
# The picture
# -----------
# The stable variant follows the forgetting. The paper's variant hardly does: it standardises
# utilities, which turns noise into preferences.
fig, axes = plt.subplots(
    3, 1, figsize=(7, 6), sharex=True, layout="constrained", height_ratios=(1, 2, 2)
)
steps = np.arange(1, CHOICES + 1)
accuracy = np.stack([accuracy_at(k).numpy() for k in range(CHOICES)])
colours = ("#8a8a8a", "#1a5c93", "#c4622d")
for k, (name, colour) in enumerate(zip(hospitals, colours, strict=True)):
    axes[0].plot(steps, accuracy[:, k] - 0.006 * k, color=colour, lw=2, label=name)
axes[0].set(ylabel="accuracy", ylim=(0.55, 0.95))
axes[0].legend(frameon=False, fontsize="small", loc="center right")
for ax, (variant, rows) in zip(axes[1:], found.items(), strict=True):
    ax.stackplot(steps, rows.T, colors=colours)
    ax.set(ylabel=f"quotas, {variant}", ylim=(0, BUDGET))
axes[-1].set(xlabel="choice", xticks=steps[::3])
