"""
Two hospitals hand over a file
==============================

Hospital A learns and writes one file. Hospital B gets it, checks it, and learns its own patients on
top. Nobody's scan travels, and what did travel can be read by everybody.
"""

# %%
# Hospital A
# ----------
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fcforge.core.errors import ExchangeError
from fcforge.data.simulated import simulate
from fcforge_consortium.operations.chain import begin_chain, continue_chain
from fcforge_consortium.operations.verification import verify
from fcforge_consortium.options import ChainBeginRequest, ChainContinueRequest
from fcforge_consortium.records.exchange import open_exchange
from fcforge_consortium.records.trust import Trust
from fcforge_consortium.report.describe import describe
from fcforge_consortium.report.terminal import described_text

cohort = simulate("hard_shift", n_rois=30, n_sites=2, scale=0.5, d_scale=6.0)
name_a, name_b = cohort.site_names
folder = tempfile.TemporaryDirectory()
post = Path(folder.name)
for name in cohort.site_names:
    mine = cohort.select_sites([name])
    (post / name).mkdir()
    np.savez(
        post / name / "data.npz",
        fc=mine.fc,
        label=mine.y,
        site=mine.site,
        subject_id=mine.subject_id,
    )

(post / "chain.toml").write_text("""
[dataset]
name = "simulated"
[training]
epochs = 15
[[learner]]
method = "forge"
model = "linear"
generator = "corr_gauss"
""")
letter_a = post / "a.fcx"
begin_chain(
    ChainBeginRequest(
        site=name_a,
        data=post / name_a / "data.npz",
        out=letter_a,
        config=post / "chain.toml",
        new_ledger=True,
    )
)
print(f"{letter_a.name}: {letter_a.stat().st_size} bytes")

# %%
# Hospital B
# ----------
# Everything is checked before anything is used: the file, its records, who signed, the arrays.
for check in verify(letter_a, Trust()):
    print("ok " if check.ok else "NO ", check.name, "-", check.detail)

letter_b = post / "b.fcx"
asked = ChainContinueRequest(
    name_b,
    post / name_b / "data.npz",
    letter_b,
    state=letter_a,
    new_ledger=True,
    yes=True,
)
continue_chain(asked)

# %%
# What the ethics board reads
# ---------------------------
model = open_exchange(letter_b).model
found = describe(open_exchange(letter_b))
print(described_text(found))

# %%
# What became of A
# ----------------
# Synthetic held-out subjects of every site travel along. They say how the model changed without a
# single real scan; they are easier than real subjects, so read the change.
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for site in model.sites:
    values = [step.held_out.get(site) for step in model.steps]
    ax.plot(np.array(values, dtype=float), marker="o", lw=2, label=site)
ax.set(xticks=range(2), ylabel="accuracy, synthetic held-out")
ax.set_xticklabels([f"after {site}" for site in found.sites])
ax.legend(frameon=False)

# %%
# A changed bit
# -------------
damaged = post / "damaged.fcx"
data = bytearray(letter_b.read_bytes())
data[len(data) // 2] ^= 1
damaged.write_bytes(bytes(data))
try:
    open_exchange(damaged)
except ExchangeError as error:
    print(error.what, error.do)
folder.cleanup()
