"""
Hospitals around a base model
=============================

Some people are public. Three hospitals each add a handful of noisy numbers, in any order, and one
of them takes its numbers back. The same in five commands: :doc:`/consortium`.
"""

# %%
# The base model
# --------------
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from fcforge.data.simulated import simulate
from fcforge_consortium.base_model.record import make_base_model
from fcforge_consortium.contributions.prediction import probability
from fcforge_consortium.operations.contribute import contribute
from fcforge_consortium.options import ContributeRequest
from fcforge_consortium.records.exchange import save

people = simulate("easy", n_rois=30, n_sites=8, scale=0.5)
public = people.site_names[:4]
hospitals = people.site_names[4:7]
unseen = people.site_names[7]
folder = tempfile.TemporaryDirectory()
place = Path(folder.name)

start = make_base_model(people.select_sites(public))
save(start, place / "start.fcx")
print(f"{start.root.people} public people; at an unseen site: {start.root.expected}")

# %%
# Each hospital's release
# -----------------------
# Made apart from each other, from the same base model. What stays at home is the ledger.
releases = []
for site in hospitals:
    mine = people.select_sites([site])
    home = place / site
    home.mkdir()
    np.savez(
        home / "data.npz",
        fc=mine.fc,
        label=mine.y,
        site=mine.site,
        subject_id=mine.subject_id,
        **mine.covariates,
    )
    asked = ContributeRequest(
        site,
        home / "data.npz",
        place / f"{site}.fcx",
        state=place / "start.fcx",
        epsilon=1.0,
        new_ledger=True,
        yes=True,
    )
    releases.append(contribute(asked).exchange)
for given in releases[0].model.given:
    print("numbers of", given.name, *given.numbers)

# %%
# Any order is the same model
# ---------------------------
one, two, three = releases
group = one.merged(two, three)
print("order does not matter:", group.id == three.merged(one).merged(two).id)
without = group.withdrawn(hospitals[0])
never = two.merged(three)
same = np.array_equal(without.model.head.weight, never.model.head.weight)
print("withdrawn is never learned:", same)

# %%
# New people
# ----------
# The base model alone, and with the hospitals, on a hospital nobody has learned from.
new = people.select_sites([unseen])
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for title, state in {"base model alone": start, "with three hospitals": group}.items():
    p = probability(state.model.score(new.fc, new.covariates).odds)
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
folder.cleanup()
