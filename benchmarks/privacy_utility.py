"""Privacy against utility on ABIDE: what differential privacy costs, and what attacks still find.

    python benchmarks/privacy_utility.py --data ../shared/data/abide1_aal116.npz --out OUT

Four hospitals (NYU, UM, USM, UCLA) are learned one after another; every point is the mean over
splits and noise draws of the final model on all sites' real test subjects. The 16 small ABIDE
sites are the public people: they are in no hospital's data. Writes privacy_utility.png,
privacy_utility.md and privacy_utility.json. Noise is seeded here, so nothing of it may be released.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from fcforge.generators import make_generator
from fcforge.methods import Lane, make_method
from fcforge.models import make_model
from fcforge.privacy import attacks
from fcforge.privacy.measures import auc
from fcforge.privacy.template import write_template
from fcforge.randomness import numpy_rng, torch_rng
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.sites import load_dataset, split_site
from fcforge.studies.audit import attack_records, people, stratified
from fcforge.types import Component, FCBatch, Site, SiteSeal

SITES = ("NYU", "UM", "USM", "UCLA")
MERGE = {"UM": ["UM_1", "UM_2"], "UCLA": ["UCLA_1", "UCLA_2"]}
NO_DP = "no DP"


def teach(method: Component, batches: Mapping[str, FCBatch], seed: int, *names: str | int) -> Lane:
    """Lane of a closed-form method after all sites."""
    method, model = make_method(method), make_model(Component("linear"), 116)
    bank = Bank()
    lane = method.start(model, Lane(model.init(torch_rng(0)), {}, {}), torch_rng(0))
    for i, (name, batch) in enumerate(batches.items()):
        rows = bank.add(PoolName("real", name, seed, "train"), batch)
        view = SiteView(name, i, bank, rows, rows[:0], SiteSeal(name))
        lane = method.end_site(model, lane, view, torch_rng(seed, "noise", name, *names))
    return lane


def score(lane: Lane, fc: torch.Tensor) -> np.ndarray:
    """P(patient) up to a monotone map."""
    model = make_model(Component("linear"), 116)
    logits = model.apply(lane.params, {}, model.prepare(fc)).logits
    return (logits[:, 1] - logits[:, 0]).double().numpy()


def utility(lane: Lane, sites: Mapping[str, Site]) -> tuple[float, float]:
    """Accuracy and AUC, mean over the sites' real test subjects."""
    right, area = [], []
    for site in sites.values():
        s, y = score(lane, site.test.fc), site.test.y.numpy()
        right.append(float(((s > 0) == (y == 1)).mean()))
        area.append(auc(s[y == 1], s[y == 0]))
    return float(np.mean(right)), float(np.mean(area))


def statistics_leak(method: Component, lane: Lane, sites: Mapping[str, Site]) -> float:
    """Strongest AUC of leverage in the statistics and of the network's loss, over all sites."""
    method, model = make_method(method), make_model(Component("linear"), 116)
    key = "moments" if "moments" in lane.state else "root"
    scores: dict[str, list[np.ndarray]] = {"in": [], "out": []}
    for site in sites.values():
        for part, batch in (("in", site.learning(with_val=True)), ("out", site.test)):
            rows = method.statistics_rows(model, model.prepare(batch.fc), batch.y).numpy()
            lever = attacks.leverage(rows, lane.state[key].numpy())
            margin = score(lane, batch.fc) * rows[:, -1]
            scores[part].append(np.stack([lever, margin], 1))
    inside, outside = (np.concatenate(scores[part]) for part in ("in", "out"))
    return max(auc(inside[:, i], outside[:, i]) for i in range(2))


def records_leak(released: Mapping[str, FCBatch], sites: Mapping[str, Site], seed: int) -> float:
    """Strongest AUC of the record attacks, each averaged over sites."""
    found = []
    for name, site in sites.items():
        mask = stratified(site.test.y.numpy(), 0.5, numpy_rng(seed, "reference", name))
        inside = site.learning(with_val=True)
        batch = FCBatch.concat([inside, site.test.select(torch.from_numpy(~mask))])
        who = people(batch, site.test.select(torch.from_numpy(mask)))
        evidence = attack_records(who, released[name], 30)
        n = len(inside)
        found.append({k: auc(v[:n], v[n:]) for k, v in evidence.scores.items()})
    return max(float(np.mean([f[k] for f in found])) for k in found[0])


def synthesise(generator: Component, sites: Mapping[str, Site], seed: int) -> dict[str, FCBatch]:
    """Twice as many synthetic as training subjects, per site."""
    out = {}
    for name, site in sites.items():
        made, batch = make_generator(generator), site.learning(with_val=True)
        state = made.fit(batch, torch_rng(seed, "fit", name))
        out[name] = made.sample(state, batch.y.repeat(2), torch_rng(seed, "draw", name))
    return out


def ridge_points(sites_of, epsilons, draws: int, public: str, projection: int) -> dict:
    """dp_analytic at every epsilon: list of (accuracy, AUC, leak)."""
    points = {}
    for epsilon in epsilons:
        found = []
        for seed, sites in sites_of.items():
            train = {n: s.learning(with_val=True) for n, s in sites.items()}
            for draw in range(draws):
                params = {"epsilon": epsilon, "noise": "seeded", "public": public}
                method = Component("dp_analytic", {**params, "projection": projection})
                lane = teach(method, train, seed, "draw", draw)
                found.append((*utility(lane, sites), statistics_leak(method, lane, sites)))
        points[epsilon] = found
    return points


def flow_points(sites_of, epsilons, public: str) -> dict:
    """Ridge on the synthetic subjects of dp_flow at every epsilon."""
    points = {}
    for epsilon in epsilons:
        params = {"epsilon": epsilon, "noise": "seeded", "public": public}
        points[epsilon] = synthetic_points(sites_of, Component("dp_flow", params))
    return points


def synthetic_points(sites_of, generator: Component) -> list:
    found = []
    for seed, sites in sites_of.items():
        released = synthesise(generator, sites, seed)
        lane = teach(Component("analytic"), released, seed)
        found.append((*utility(lane, sites), records_leak(released, sites, seed)))
    return found


def exact_points(sites_of) -> list:
    found = []
    for seed, sites in sites_of.items():
        train = {n: s.learning(with_val=True) for n, s in sites.items()}
        lane = teach(Component("analytic"), train, seed)
        leak = statistics_leak(Component("analytic"), lane, sites)
        found.append((*utility(lane, sites), leak))
    return found


def majority(sites_of) -> float:
    """Accuracy of always naming the commoner class of the own site's training part."""
    right = []
    for sites in sites_of.values():
        for site in sites.values():
            label = int(site.learning(with_val=True).y.double().mean() > 0.5)
            right.append(float((site.test.y == label).double().mean()))
    return float(np.mean(right))


def summary(found: list) -> list[float]:
    """Mean and standard error of accuracy, AUC, leak."""
    values = np.array(found)
    error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros(3)
    return [*values.mean(0).round(4).tolist(), *error.round(4).tolist()]


def figure(curves: dict, chance: float, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    titles = ("accuracy on real test subjects", "AUC on real test subjects", "attack AUC")
    for i, (ax, title) in enumerate(zip(axes, titles, strict=True)):
        for j, (name, points) in enumerate(curves.items()):
            private = {float(k): v for k, v in points.items() if k != NO_DP}
            colour = f"C{j}"
            if private:
                x = list(private)
                y = [v[i] for v in private.values()]
                ax.errorbar(x, y, [v[3 + i] for v in private.values()], marker="o", ms=4,
                            color=colour, label=name, capsize=2)  # fmt: skip
            else:
                ax.axhline(points[NO_DP][i], color=colour, ls="--", lw=1, label=name)
        if i == 0:
            ax.axhline(chance, color="0.5", ls=":", label="majority class")
        else:
            ax.axhline(0.5, color="0.5", ls=":")
        ax.set(xscale="log", xlabel="epsilon per person (delta 0.001)", title=title)
    axes[0].legend(fontsize=7)
    fig.savefig(path, dpi=130)


def table(curves: dict, chance: float) -> str:
    lines = [
        "| learner | epsilon | accuracy | AUC | strongest attack AUC |",
        "|---|---|---|---|---|",
    ]
    for name, points in curves.items():
        for epsilon, v in points.items():
            cells = [f"{v[i]:.3f} ± {v[3 + i]:.3f}" for i in range(3)]
            lines.append(f"| {name} | {epsilon} | {' | '.join(cells)} |")
    return "\n".join([*lines, f"| majority class | - | {chance:.3f} | 0.500 | 0.500 |"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1, 2, 4, 8, 16, 64])
    parser.add_argument("--flow-epsilons", type=float, nargs="*", default=[1, 4, 16, 64])
    parser.add_argument("--seeds", type=int, default=3, help="splits")
    parser.add_argument("--draws", type=int, default=3, help="noise draws per split (ridge)")
    parser.add_argument("--projection", type=int, default=16)
    args = parser.parse_args()
    started = time.perf_counter()
    args.out.mkdir(parents=True, exist_ok=True)
    cohort = load_dataset(Component("folder", {"path": str(args.data), "merge": MERGE}))
    outside = cohort.select(~np.isin(cohort.site, SITES))
    sites_of = {
        seed: {name: split_site(cohort, name, seed) for name in SITES} for seed in range(args.seeds)
    }
    curves: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as folder:
        public = str(Path(folder) / "public.npz")
        write_template(public, torch.from_numpy(outside.fc))
        plain = {"ridge, exact statistics": exact_points}
        for name, make in plain.items():
            curves[name] = {NO_DP: summary(make(sites_of))}
        for name, template in (("DP ridge, public axes", public), ("DP ridge, random axes", "")):
            found = ridge_points(sites_of, args.epsilons, args.draws, template, args.projection)
            curves[name] = {e: summary(v) for e, v in found.items()}
            print(name, f"{time.perf_counter() - started:.0f} s", flush=True)
        if args.flow_epsilons:
            few = dict(list(sites_of.items())[:2])
            curves["ridge on corr_gauss subjects"] = {
                NO_DP: summary(synthetic_points(few, Component("corr_gauss")))
            }
            found = flow_points(few, args.flow_epsilons, public)
            curves["ridge on dp_flow subjects"] = {e: summary(v) for e, v in found.items()}
    chance = majority(sites_of)
    text = table(curves, chance)
    (args.out / "privacy_utility.md").write_text(text)
    (args.out / "privacy_utility.json").write_text(json.dumps(curves, indent=1))
    figure(curves, chance, args.out / "privacy_utility.png")
    print(text)
    print(f"public people {len(outside)}; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
