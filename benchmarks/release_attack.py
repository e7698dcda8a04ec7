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

import argparse
import itertools
import json
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from setting import FOLDER, MERGE, ROOT, SITES, Stopwatch, machine

from fcforge.consortium import make_public
from fcforge.consortium.audit import PLAN, audit_people, ceiling_of, contributors, release_name
from fcforge.consortium.public import PublicStart
from fcforge.metrics import cell_values
from fcforge.randomness import torch_rng
from fcforge.releases import vector
from fcforge.sites import load_dataset, split_site
from fcforge.sites.cohort import Cohort
from fcforge.studies.audit_result import REFERENCES, Audit
from fcforge.types import Component

FILES = {"444 subjects": "abide1_aal116.npz", "529 subjects": "abide1_aal116_dparsf.npz"}
EPSILONS = (None, 8.0, 4.0, 2.0, 1.0)
DELTA = 1e-3
DRAWS = 5
WORTH = (("auroc", "AUROC", "#d1751f"), ("aaa", "AAA", "#1b6ca8"))
PUBLIC = (("public_auroc", "AUROC", "#d1751f"), ("public_accuracy", "accuracy", "#1b6ca8"))


def subsets() -> list[tuple[str, ...]]:
    """All sets of hospitals, each in the order of `SITES`; the empty one first."""
    return [s for k in range(len(SITES) + 1) for s in itertools.combinations(SITES, k)]


class People(NamedTuple):
    """Everybody at the four hospitals: ids, features (n, p), diagnoses."""

    ids: np.ndarray
    features: torch.Tensor
    y: torch.Tensor


def people_of(start: PublicStart, cohort: Cohort) -> People:
    mine = cohort.select_sites(SITES)
    features = start.features(torch.from_numpy(mine.fc), mine.covariates)
    return People(mine.subject_id, features, torch.from_numpy(mine.y))


def cells(
    start: PublicStart, cohort: Cohort, people: People, seed: int, epsilon: float | None, draw: int
) -> dict[tuple[str, ...], dict[str, tuple[float, float]]]:
    """Accuracy and AUROC at every hospital after every set of hospitals."""
    arrays, given, test = start.arrays, {}, {}
    for name in SITES:
        ids = split_site(cohort, name, seed).subject_ids
        inside = np.isin(people.ids, [*ids["train"], *ids["val"]])
        outside = np.isin(people.ids, ids["test"])
        rng = torch_rng(seed, "release attack", name, str(epsilon), draw)
        given[name] = vector.release_vector(
            arrays, people.features[inside], people.y[inside], epsilon, DELTA, rng
        )
        x = arrays.standardise(people.features[outside])
        test[name] = (x, people.y[outside].numpy())
    sd = vector.noise_sd(arrays, epsilon, DELTA)
    found = {}
    for chosen in subsets():
        total = sum((given[s] for s in chosen), torch.zeros(arrays.n_axes + 2).double())
        beta = vector.solve(arrays, total, len(chosen) * sd**2, len(chosen))
        head = vector.head(arrays, beta)
        found[chosen] = {
            name: _quality((x @ head.weight + head.bias).numpy(), y)
            for name, (x, y) in test.items()
        }
    return found


def _quality(score: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    auroc = float(cell_values(score[None], y, "auroc")[0])
    return float(((score > 0) == (y == 1)).mean()), auroc


def order_free(found: dict) -> list[float]:
    """AAA over the 24 orders and final AUROC; accuracy and AUROC of the public head alone."""
    aaa = []
    for order in itertools.permutations(SITES):
        stages = []
        for k in range(1, len(order) + 1):
            seen = tuple(s for s in SITES if s in order[:k])
            stages.append(np.mean([found[seen][s][0] for s in seen]))
        aaa.append(np.mean(stages))
    final, public = (np.mean(list(found[s].values()), axis=0) for s in (SITES, ()))
    return [float(v) for v in (np.mean(aaa), final[1], public[0], public[1])]


def utility(start: PublicStart, cohort: Cohort, seeds: int) -> dict[str, dict]:
    """AAA and AUROC by epsilon, and their paired differences to the exact release."""
    people = people_of(start, cohort)

    def of_seed(seed: int, epsilon: float | None) -> np.ndarray:
        draws = range(1 if epsilon is None else DRAWS)
        each = [order_free(cells(start, cohort, people, seed, epsilon, d)) for d in draws]
        return np.mean(each, axis=0)

    values = {release_name(e): np.array([of_seed(s, e) for s in range(seeds)]) for e in EPSILONS}
    exact = values[release_name(None)]
    names = ("aaa", "auroc", "public_accuracy", "public_auroc")
    return {
        name: {key: _mean(v[:, k]) for k, key in enumerate(names)}
        | {
            "aaa_less_exact": _mean(v[:, 0] - exact[:, 0]),
            "auroc_less_exact": _mean(v[:, 1] - exact[:, 1]),
            "auroc_less_public": _mean(v[:, 1] - v[:, 3]),
        }
        for name, v in values.items()
    }


def _mean(v: np.ndarray) -> list[float]:
    """Mean and 95 % interval over seeds."""
    half = 1.96 * v.std(ddof=1) / len(v) ** 0.5 if len(v) > 1 else 0.0
    return [round(float(a), 4) for a in (v.mean(), v.mean() - half, v.mean() + half)]


def attack(start: PublicStart, cohort: Cohort) -> dict[str, Audit]:
    """The audit of every hospital."""
    found = {}
    for name in SITES:
        mine = cohort.select_sites([name])
        features = start.features(torch.from_numpy(mine.fc), mine.covariates)
        everybody = contributors(start.arrays, features, torch.from_numpy(mine.y))
        found[name] = audit_people(start.arrays, everybody, EPSILONS, DELTA, PLAN)
        print(f"{name}: {found[name].about['seconds_total']:.0f} s", flush=True)
    return found


def strongest(audit: Audit, release: str) -> tuple[str, list[float], float]:
    """The attack with the highest AUC on a release, its AUC with interval, its TPR."""
    row = max((r for r in audit.rows if r.release == release), key=lambda r: r.auc.value)
    return row.attack, row.auc.to_json(), round(row.tpr.value, 4)


def table(found: dict) -> str:
    """One row per release: utility of the model, strongest attack at each hospital, the limit."""
    lines = [
        f"| data | release | AAA | AUROC | {' | '.join(SITES)} | limit of any attack |",
        "|---|---|---|---|" + "---|" * (len(SITES) + 1),
    ]
    for data, part in found["data"].items():
        for name in (*(release_name(e) for e in EPSILONS), *REFERENCES):
            u = part["utility"].get(name)
            shown = [f"{u['aaa'][0]:.3f}", f"{u['auroc'][0]:.3f}"] if u else ["", ""]
            shown += [f"{part['strongest'][site][name]['auc'][0]:.3f}" for site in SITES]
            limit = found["ceilings"].get(name)
            shown += [f"{limit:.2f}" if limit else ""]
            lines.append(f"| {data} | {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def figure(found: dict, path: Path) -> None:
    """Above what the model is worth, below what the strongest attack finds, both by epsilon."""
    names = [release_name(e) for e in EPSILONS]
    ticks = ["none" if e is None else f"{e:g}" for e in EPSILONS]
    at = np.arange(len(names))
    fig, axes = plt.subplots(2, 2, figsize=(11, 6.4), sharex=True, sharey="row", layout="tight")
    for (data, part), (top, bottom) in zip(found["data"].items(), axes.T, strict=True):
        for key, label, colour in WORTH:
            values = np.array([part["utility"][n][key] for n in names])
            errors = np.abs(values[:, 1:] - values[:, :1]).T
            top.errorbar(at, values[:, 0], errors, color=colour, marker="o", capsize=3, label=label)
        for key, label, colour in PUBLIC:
            level = part["utility"][names[0]][key][0]
            top.axhline(level, color=colour, ls=":", lw=1, label=f"{label}, public head alone")
        top.set_title(data)
        for k, site in enumerate(SITES):
            values = np.array([part["strongest"][site][n]["auc"] for n in names])
            errors = np.abs(values[:, 1:] - values[:, :1]).T
            bottom.errorbar(at + 0.06 * (k - 1.5), values[:, 0], errors, marker="o", ms=4, lw=1,
                            capsize=2, label=site, color=plt.cm.viridis(k / 4))  # fmt: skip
        bottom.plot(at, [found["ceilings"][n] for n in names], "k--", lw=1,
                    label="limit of any attack")  # fmt: skip
        bottom.axhline(1.0, color="#b0272f", lw=1, label="exact ridge statistics")
        bottom.axhline(0.5, color="grey", lw=1, ls=":", label="guessing")
        bottom.set(xticks=at, xticklabels=ticks, xlabel="epsilon of each person (delta 0.001)")
    axes[0, 0].set_ylabel("model on unseen test subjects")
    axes[1, 0].set_ylabel("AUC of the strongest attack")
    axes[0, 0].set_ylim(0.62, 0.80)
    for ax in axes[:, 1]:
        ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(path, dpi=130)


def measure(file: str, seeds: int, clock: Stopwatch) -> dict:
    """Utility and attacks on one file."""
    cohort = load_dataset(Component("folder", {"path": str(FOLDER / file), "merge": MERGE}))
    public = [s for s in cohort.site_names if s not in SITES]
    with clock.stage(f"start {file}"):
        start = make_public(cohort, public)
    with clock.stage(f"utility {file}"):
        worth = utility(start, cohort, seeds)
    with clock.stage(f"attack {file}"):
        audits = attack(start, cohort)
    keys = ("attack", "auc", "tpr_at_1pct_fpr")
    best = {
        site: {
            name: dict(zip(keys, strongest(audit, name), strict=True))
            for name in dict.fromkeys(r.release for r in audit.rows)
        }
        for site, audit in audits.items()
    }
    return {
        "start_arrays": start.arrays.digest,
        "public_people": start.papers["people"],
        "utility": worth,
        "strongest": best,
        "audits": {site: audit.to_json() for site, audit in audits.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=ROOT / "results/release_attack.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    clock = Stopwatch()
    found: dict = {
        "command": f"python benchmarks/release_attack.py --seeds {args.seeds}",
        "machine": machine("cpu"),
        "delta": DELTA,
        "ceilings": {release_name(e): round(ceiling_of(e, DELTA), 4) for e in EPSILONS},
        "data": {name: measure(file, args.seeds, clock) for name, file in FILES.items()},
    }
    found["seconds"] = {name: [round(t, 1) for t in spent] for name, spent in clock.spent.items()}
    args.out.write_text(json.dumps(found, indent=1))
    figure(found, ROOT / "docs/images/release_attack.png")
    print(table(found))


if __name__ == "__main__":
    main()
