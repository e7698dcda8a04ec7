"""Utility and attack of a release in one table and one figure, on real data.

usage: python benchmarks/release_attack.py [--seeds 20] [--out results/release_attack.json]

For each file: the start is made of the public sites (all but NYU, UM, USM, UCLA) with the
product's defaults, which were chosen on public people alone (results/start_choice.json) and are not
touched here. Utility: seeds 0 to 19 of the split, all 24 orders of the four hospitals, strict; the
head after each set of hospitals scores their test parts (what a run of `forge_release` does, from
the same pure functions; five draws of the noise for every seed, since the mean over 20 seeds of one
draw still varies by 0.003). Attack: `fcforge.consortium.audit` on 100
random halves of each hospital, each with its own noise. Results go to results/release_attack.json
and docs/images/release_attack.png.
"""

import itertools
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import setting
import torch
from setting import (
    FILES,
    FOLDER,
    ROOT,
    SITES,
    Stopwatch,
    options,
    quality,
    show,
    whole_abide,
)

from fcforge.consortium import make_public
from fcforge.consortium.audit import PLAN, audit_people, contributors, release_name
from fcforge.consortium.public import PublicStart
from fcforge.privacy.mechanisms import ceiling_of
from fcforge.randomness import torch_rng
from fcforge.releases import vector
from fcforge.sites import split_site
from fcforge.sites.cohort import Cohort
from fcforge.studies.audit_result import REFERENCES, Audit

EPSILONS = {release_name(e): e for e in (None, 8.0, 4.0, 2.0, 1.0)}
DELTA = 1e-3
DRAWS = 5
NAMES = ("aaa", "auroc", "public_accuracy", "public_auroc")
BLUE, ORANGE = "#1b6ca8", "#d1751f"
SETS = [s for k in range(len(SITES) + 1) for s in itertools.combinations(SITES, k)]


def features_of(
    start: PublicStart, cohort: Cohort
) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (n, p), confounds removed as the start says, and diagnoses."""
    features = start.features(torch.from_numpy(cohort.fc), cohort.covariates)
    return features, torch.from_numpy(cohort.y)


class Utility:
    """What the head is worth at the four hospitals after every set of them."""

    def __init__(self, start: PublicStart, cohort: Cohort) -> None:
        self.arrays, self.cohort = start.arrays, cohort.select_sites(SITES)
        self.features, self.y = features_of(start, self.cohort)

    def cells(self, seed: int, epsilon: float | None, draw: int) -> dict[tuple, dict]:
        """Set of hospitals -> hospital -> accuracy and AUROC."""
        arrays, given, test, found = self.arrays, {}, {}, {}
        for name in SITES:
            ids = split_site(self.cohort, name, seed).subject_ids
            inside = np.isin(self.cohort.subject_id, [*ids["train"], *ids["val"]])
            outside = np.isin(self.cohort.subject_id, ids["test"])
            rng = torch_rng(seed, "release attack", name, str(epsilon), draw)
            given[name] = vector.release_vector(
                arrays, self.features[inside], self.y[inside], epsilon, DELTA, rng
            )
            test[name] = (
                arrays.standardise(self.features[outside]),
                self.y[outside].numpy(),
            )
        sd = vector.noise_sd(arrays, epsilon, DELTA)
        for chosen in SETS:
            total = sum(
                (given[s] for s in chosen), torch.zeros(arrays.n_axes + 2).double()
            )
            beta = vector.solve(arrays, total, len(chosen) * sd**2, len(chosen))
            w, b = vector.head(arrays, beta)
            found[chosen] = {
                s: quality((x @ w + b).numpy(), y) for s, (x, y) in test.items()
            }
        return found

    def order_free(self, seed: int, epsilon: float | None, draw: int) -> list[float]:
        """AAA over the 24 orders and final AUROC; accuracy and AUROC of the public head alone."""
        found = self.cells(seed, epsilon, draw)
        # each size of set is equally often a stage, each set of one size equally often that stage
        seen = {s: np.mean([found[s][site][0] for site in s]) for s in SETS if s}
        sizes = range(1, len(SITES) + 1)
        aaa = np.mean(
            [np.mean([v for s, v in seen.items() if len(s) == k]) for k in sizes]
        )
        final, public = (np.mean(list(found[s].values()), axis=0) for s in (SITES, ()))
        return [float(v) for v in (aaa, final[1], public[0], public[1])]

    def table(self, seeds: int) -> dict[str, dict]:
        """Means by epsilon, and their paired differences to the exact release and the public head.

        Five draws of the noise for every seed.
        """
        values = {}
        for name, epsilon in EPSILONS.items():
            draws = range(1 if epsilon is None else DRAWS)
            each = [
                [self.order_free(s, epsilon, d) for d in draws] for s in range(seeds)
            ]
            values[name] = np.mean(each, axis=1)
        exact, rows = values[release_name(None)], {}
        for name, v in values.items():
            row = dict(zip(NAMES, v.T, strict=True))
            row["aaa_less_exact"], row["auroc_less_exact"] = (v - exact).T[:2]
            row["auroc_less_public"] = v[:, 1] - v[:, 3]
            rows[name] = {key: _mean(found) for key, found in row.items()}
        return rows


def _mean(v: np.ndarray) -> list[float]:
    """Mean and 95 % interval over seeds."""
    half = 1.96 * v.std(ddof=1) / len(v) ** 0.5 if len(v) > 1 else 0.0
    return [round(float(a), 4) for a in (v.mean(), v.mean() - half, v.mean() + half)]


def attack(start: PublicStart, cohort: Cohort, site: str) -> Audit:
    """The audit of a hospital."""
    everybody = contributors(
        start.arrays, *features_of(start, cohort.select_sites([site]))
    )
    found = audit_people(start.arrays, everybody, list(EPSILONS.values()), DELTA, PLAN)
    print(f"{site}: {found.about['seconds_total']:.0f} s", flush=True)
    return found


def strongest(audit: Audit) -> dict[str, dict]:
    """For each release the attack with the highest AUC, its AUC with interval, its TPR."""
    best: dict[str, dict] = {}
    for row in sorted(audit.rows, key=lambda r: r.auc.value):
        told = {"attack": row.attack, "auc": row.auc.to_json()}
        best[row.release] = {**told, "tpr_at_1pct_fpr": round(row.tpr.value, 4)}
    return best


def measure(file: str, seeds: int, clock: Stopwatch) -> dict:
    """Utility and attacks on one file."""
    cohort, public = whole_abide(FOLDER / file)
    with clock.stage(f"start {file}"):
        start = make_public(cohort, public)
    with clock.stage(f"utility {file}"):
        worth = Utility(start, cohort).table(seeds)
    with clock.stage(f"attack {file}"):
        audits = {site: attack(start, cohort, site) for site in SITES}
    return {
        "start_arrays": start.arrays.digest,
        "public_people": start.papers["people"],
        "utility": worth,
        "strongest": {site: strongest(audit) for site, audit in audits.items()},
        "audits": {site: audit.to_json() for site, audit in audits.items()},
    }


def print_table(found: dict) -> None:
    """One row per release: utility of the model, strongest attack at each hospital, the limit."""
    rows = []
    for data, part in found["data"].items():
        for name in (*EPSILONS, *REFERENCES):
            u = part["utility"].get(name)
            shown = (
                {"AAA": u["aaa"][0], "AUROC": u["auroc"][0]}
                if u
                else {"AAA": "", "AUROC": ""}
            )
            shown |= {site: part["strongest"][site][name]["auc"][0] for site in SITES}
            limit = found["ceilings"].get(name)
            shown["limit of any attack"] = f"{limit:.2f}" if limit else ""
            rows.append({"data": data, "release": name, **shown})
    show(rows, ".3f")


def _bars(ax, at: np.ndarray, values: list, **style) -> None:
    mean, *ends = np.array(values).T
    ax.errorbar(at, mean, np.abs(np.array(ends) - mean), marker="o", **style)


def figure(found: dict, path: Path) -> None:
    """Above what the model is worth, below what the strongest attack finds, both by epsilon."""
    at, ticks = (
        np.arange(len(EPSILONS)),
        [f"{e:g}" if e else "none" for e in EPSILONS.values()],
    )
    fig, axes = plt.subplots(
        2, 2, figsize=(11, 6.4), sharex=True, sharey="row", layout="tight"
    )
    for (data, part), (top, bottom) in zip(found["data"].items(), axes.T, strict=True):
        for key, label, colour in (("auroc", "AUROC", ORANGE), ("aaa", "AAA", BLUE)):
            worth = [part["utility"][n][key] for n in EPSILONS]
            _bars(top, at, worth, color=colour, capsize=3, label=label)
        for key, label, colour in zip(
            NAMES[:1:-1], ("AUROC", "accuracy"), (ORANGE, BLUE), strict=True
        ):
            level = part["utility"][release_name(None)][key][0]
            top.axhline(
                level, color=colour, ls=":", lw=1, label=f"{label}, public head alone"
            )
        top.set_title(data)
        for k, site in enumerate(SITES):
            auc = [part["strongest"][site][n]["auc"] for n in EPSILONS]
            _bars(
                bottom,
                at + 0.06 * (k - 1.5),
                auc,
                ms=4,
                lw=1,
                capsize=2,
                label=site,
                color=plt.cm.viridis(k / 4),
            )
        limits = [found["ceilings"][n] for n in EPSILONS]
        bottom.plot(at, limits, "k--", lw=1, label="limit of any attack")
        bottom.axhline(1.0, color="#b0272f", lw=1, label="exact ridge statistics")
        bottom.axhline(0.5, color="grey", lw=1, ls=":", label="guessing")
        bottom.set(
            xticks=at, xticklabels=ticks, xlabel="epsilon of each person (delta 0.001)"
        )
    axes[0, 0].set(ylabel="model on unseen test subjects", ylim=(0.62, 0.80))
    axes[1, 0].set_ylabel("AUC of the strongest attack")
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[:, 1]:
        ax.legend(
            fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False
        )
    fig.savefig(path, dpi=130)


def main() -> None:
    args = options(__doc__, seeds=20, out=ROOT / "results/release_attack.json")
    torch.set_num_threads(1)
    clock = Stopwatch()
    command = f"python benchmarks/release_attack.py --seeds {args.seeds}"
    found: dict = {"command": command, "machine": setting.machine(), "delta": DELTA}
    found["ceilings"] = {
        name: round(ceiling_of(e, DELTA), 4) for name, e in EPSILONS.items()
    }
    found["data"] = {
        f"{k} subjects": measure(f, args.seeds, clock) for k, f in FILES.items()
    }
    found["seconds"] = {
        name: [round(t, 1) for t in spent] for name, spent in clock.spent.items()
    }
    setting.save(args.out, found)
    figure(found, ROOT / "docs/images/release_attack.png")
    print_table(found)


if __name__ == "__main__":
    main()
