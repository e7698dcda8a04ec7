"""
A consortium around a public start
==================================

Some people are public. Three hospitals each add a handful of noisy numbers, in any order, and one
of them takes its numbers back. The same in five commands: :doc:`/consortium`.
"""

# %%
# The public start
# ----------------
import matplotlib.pyplot as plt
import numpy as np

from fcforge.consortium import Consortium, Home, make_public
from fcforge.consortium.learning import Budget, learn
from fcforge.consortium.predicting import judge, probability
from fcforge.report.consortium import release_words
from fcforge.sites.simulated import simulate

people = simulate("easy", n_rois=30, n_sites=8, scale=0.5)
public, hospitals, unseen = (
    people.site_names[:4],
    people.site_names[4:7],
    people.site_names[7],
)
start = make_public(people, public)
print(
    f"{start.papers['people']} public people; unseen site: {start.papers['unseen_site']}"
)

# %%
# Each hospital's release
# -----------------------
# Made apart from each other, from the same start. What stays at home is in ``home``.
turns = [
    learn(Consortium(start), people, site, Home(), Budget(epsilon=1.0))
    for site in hospitals
]
print("\n".join(release_words(turns[0].release)))

# %%
# Any order is the same model
# ---------------------------
one, two, three = (turn.group for turn in turns)
group = one.merged(two, three)
print("order does not matter:", group.digest == three.merged(one).merged(two).digest)
without = group.withdrawn(hospitals[0])
print(
    "withdrawn is never learned:", np.array_equal(without.beta, two.merged(three).beta)
)

# %%
# New people
# ----------
# The public head alone, and the consortium's, on a hospital nobody has learned from.
new = people.select_sites([unseen])
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for title, state in {"public head": Consortium(start), "consortium": group}.items():
    p = probability(judge(state, new.fc, new.covariates).odds)
    known = np.isfinite(p)
    right = ((p[known] > 0.5) == new.y[known]).mean()
    print(f"{title}: accuracy {right:.2f} on {known.sum()} people")
    ax.hist(
        p[known][new.y[known] == 1],
        bins=np.linspace(0, 1, 11),
        histtype="step",
        lw=2,
        label=f"patients, {title}",
    )
ax.set(xlabel="P(patient)", ylabel="people")
ax.legend(frameon=False)
