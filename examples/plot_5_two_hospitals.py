"""
Two hospitals hand over a capsule
=================================

Hospital A learns and seals. Hospital B gets one file, checks it, learns its own patients on top and
seals again. Nobody's scan travels, and what did travel can be read by everybody.
"""

# %%
# Hospital A
# ----------
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from fcforge.capsule import learn, open_capsule, settings_for, verify
from fcforge.errors import CapsuleError
from fcforge.report.inspect import inspect_words
from fcforge.sites.simulated import simulate
from fcforge.types import Component, LearnerSpec, Training

cohort = simulate("hard_shift", n_rois=30, n_sites=2, scale=0.5, d_scale=6.0)
name_a, name_b = cohort.site_names
post = tempfile.TemporaryDirectory()
letter_a, letter_b = Path(post.name) / "a.capsule", Path(post.name) / "b.capsule"

learner = LearnerSpec(
    Component("forge", {"memory": 64, "candidates": 64, "dev": 16}),
    Component("linear"),
    Component("corr_gauss"),
)
settings = settings_for(learner, n_rois=30, training=Training(epochs=15, lr=1e-3))
learn(None, name_a, cohort.select_sites([name_a]), letter_a, settings=settings)
print(f"{letter_a.name}: {letter_a.stat().st_size} bytes")

# %%
# Hospital B
# ----------
# Everything is checked before anything is used: container, seal, ledger, arrays.
for check in verify(letter_a):
    print("ok " if check.ok else "NO ", f"{check.name:<10}", check.detail)

learn(letter_a, name_b, cohort.select_sites([name_b]), letter_b)

# %%
# What the ethics board reads
# ---------------------------
capsule = open_capsule(letter_b)
print("\n".join(inspect_words(capsule)))

# %%
# What became of A
# ----------------
# The capsule carries synthetic held-out subjects of every site. They say how the model changed
# without a single real scan; they are easier than real subjects, so read the change.
stages = [entry["metrics"]["held_out"] for entry in capsule.entries]
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for site in capsule.sites:
    at = [t for t, stage in enumerate(stages) if site in stage]
    ax.plot(at, [stages[t][site]["accuracy"] for t in at], marker="o", lw=2, label=site)
ax.set(xticks=range(2), ylabel="accuracy, synthetic held-out")
ax.set_xticklabels([f"after {s}" for s in capsule.sites])
ax.legend(frameon=False)

# %%
# A changed bit
# -------------
damaged = Path(post.name) / "damaged.capsule"
data = bytearray(letter_b.read_bytes())
data[len(data) // 2] ^= 1
damaged.write_bytes(bytes(data))
try:
    open_capsule(damaged)
except CapsuleError as error:
    print(error.what, error.do)
post.cleanup()
