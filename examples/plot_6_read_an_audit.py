"""
Read an audit
=============

"No raw scan is stored" is not "private". An audit attacks what would be released and says how far
it got, beside two references: a generator that copies people (bootstrap) and one that never saw
them (untrained).
"""

# %%
# Attack
# ------
# A made-up hospital, two generators. Every generator is fitted several times on random halves of
# the people, so that it is known who was trained on; the attacker tries to tell.
import matplotlib.pyplot as plt

from fcforge.data.simulated import simulate
from fcforge.evaluation.privacy.audit_result import AuditPlan
from fcforge.evaluation.privacy.generator_audit import audit_generators
from fcforge.report.audits import sentences

cohort = simulate("realistic", n_rois=16, n_sites=1, scale=0.6)
plan = AuditPlan(worlds=3, multiple=2, n_draws=50)
audit = audit_generators(cohort, ["corr_gauss", "edge_gauss"], plan)

# %%
# The numbers
# -----------
# AUC 0.5 is blind guessing, 1 tells everybody. The control is the same attack on people nobody
# trained on: away from 0.5, the split itself tells people apart.
for row in audit.rows:
    print(f"{row.release:>11} / {row.attack:<22} AUC {row.auc.value:.2f}", end=" ")
    print(f"[{row.auc.low:.2f}, {row.auc.high:.2f}], control {row.control.value:.2f}")

# %%
# The same as a picture
# ---------------------
rows = list(audit.rows)[::-1]
fig, ax = plt.subplots(figsize=(7, 0.3 * len(rows) + 1), layout="constrained")
for k, row in enumerate(rows):
    colour = "#7f7f7f" if row.is_reference else "#1a5c93"
    ax.plot([row.auc.low, row.auc.high], [k, k], color=colour, lw=3)
    ax.plot(row.auc.value, k, "o", color=colour)
ax.axvline(0.5, color="k", ls=":", lw=1)
ax.set_yticks(range(len(rows)), [f"{r.release} / {r.attack}" for r in rows])
ax.set(xlim=(0.3, 1.02), xlabel="AUC of telling who was trained on")

# %%
# In words
# --------
for sentence in sentences(audit):
    print(sentence)
