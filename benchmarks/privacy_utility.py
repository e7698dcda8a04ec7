"""Privacy against utility on ABIDE: what differential privacy costs, and what attacks still find.

    python benchmarks/privacy_utility.py --data ../shared/data/abide1_aal116.npz --out OUT

Four hospitals (NYU, UM, USM, UCLA) are learned one after another; every point is the mean over
splits and noise draws of the final model on all sites' real test subjects. The 16 small ABIDE
sites are the public people: they are in no hospital's data. Writes privacy_utility.png,
privacy_utility.md and privacy_utility.json. Noise is seeded here, so nothing of it may be released.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from setting import FILES, FOLDER, SITES, options, quality, show, timed, whole_abide

from fcforge.generators import make_generator
from fcforge.methods import Lane, make_method
from fcforge.models import make_model
from fcforge.privacy import attacks
from fcforge.privacy.measures import auc
from fcforge.privacy.template import write_template
from fcforge.randomness import numpy_rng, torch_rng
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.sites import split_site
from fcforge.studies.audit import People, attack_records, stratified
from fcforge.types import Component, FCBatch, Site

NO_DP = "no DP"
RIDGE = Component("analytic")
LINEAR = make_model(Component("linear"), 116)
COLUMNS = ("accuracy", "AUC", "strongest attack AUC")
TITLES = ("accuracy on real test subjects", "AUC on real test subjects", "attack AUC")
Sites = Mapping[str, Site]


def teach(
    ridge: Component, batches: Mapping[str, FCBatch], seed: int, *names: str | int
) -> Lane:
    """Lane of a closed-form method after all sites."""
    method, bank = make_method(ridge), Bank()
    lane = method.start(LINEAR, Lane(LINEAR.init(torch_rng(0)), {}, {}), torch_rng(0))
    for i, (name, batch) in enumerate(batches.items()):
        rows = bank.add(PoolName("real", name, seed, "train"), batch)
        view = SiteView(name, i, bank, rows, rows[:0])
        lane = method.end_site(
            LINEAR, lane, view, torch_rng(seed, "noise", name, *names)
        )
    return lane


def learning(sites: Sites) -> dict[str, FCBatch]:
    """Everybody but the test subjects."""
    return {name: site.learning(with_val=True) for name, site in sites.items()}


def score(lane: Lane, fc: torch.Tensor) -> np.ndarray:
    """P(patient) up to a monotone map."""
    logits = LINEAR.apply(lane.params, {}, LINEAR.prepare(fc)).logits
    return (logits[:, 1] - logits[:, 0]).double().numpy()


def utility(lane: Lane, sites: Sites) -> list[float]:
    """Accuracy and AUC, mean over the sites' real test subjects."""
    found = [quality(score(lane, s.test.fc), s.test.y.numpy()) for s in sites.values()]
    return np.mean(found, axis=0).tolist()


def statistics_leak(ridge: Component, lane: Lane, sites: Sites) -> float:
    """Strongest AUC of leverage in the statistics and of the network's loss, over all sites."""
    method, state = make_method(ridge), lane.state
    kept = state["moments" if "moments" in state else "root"].numpy()

    def evidence(batches: list[FCBatch]) -> np.ndarray:
        found = []
        for batch in batches:
            rows = method.statistics_rows(
                LINEAR, LINEAR.prepare(batch.fc), batch.y
            ).numpy()
            margin = score(lane, batch.fc) * rows[:, -1]
            found.append(np.stack([attacks.leverage(rows, kept), margin], 1))
        return np.concatenate(found)

    inside = evidence(list(learning(sites).values()))
    outside = evidence([site.test for site in sites.values()])
    return max(auc(inside[:, i], outside[:, i]) for i in range(2))


def records_leak(released: Mapping[str, FCBatch], sites: Sites, seed: int) -> float:
    """Strongest AUC of the record attacks, each averaged over sites."""
    found = []
    for name, inside in learning(sites).items():
        test = sites[name].test
        mask = stratified(test.y.numpy(), 0.5, numpy_rng(seed, "reference", name))
        batch = FCBatch.concat([inside, test.select(torch.from_numpy(~mask))])
        who, n = People(batch, test.select(torch.from_numpy(mask))), len(inside)
        scores = attack_records(who, released[name], 30).scores
        found.append({k: auc(v[:n], v[n:]) for k, v in scores.items()})
    return max(float(np.mean([f[k] for f in found])) for k in found[0])


def ridge_points(
    sites_of: Mapping[int, Sites], ridge: Component, draws: int = 1
) -> list:
    """Accuracy, AUC and leak of a ridge in closed form, split by split and draw by draw."""
    found = []
    for seed, sites in sites_of.items():
        for draw in range(draws):
            lane = teach(ridge, learning(sites), seed, "draw", draw)
            found.append((*utility(lane, sites), statistics_leak(ridge, lane, sites)))
    return found


def synthetic_points(sites_of: Mapping[int, Sites], generator: Component) -> list:
    """The same of a ridge on twice as many synthetic as training subjects of every site."""
    found, made = [], make_generator(generator)
    for seed, sites in sites_of.items():
        released = {}
        for name, batch in learning(sites).items():
            state = made.fit(batch, torch_rng(seed, "fit", name))
            y, rng = batch.y.repeat(2), torch_rng(seed, "draw", name)
            released[name] = made.sample(state, y, rng)
        lane = teach(RIDGE, released, seed)
        found.append((*utility(lane, sites), records_leak(released, sites, seed)))
    return found


def majority(sites_of: Mapping[int, Sites]) -> float:
    """Accuracy of always naming the commoner class of the own site's training part."""
    right = []
    for site in (site for sites in sites_of.values() for site in sites.values()):
        label = int(site.learning(with_val=True).y.double().mean() > 0.5)
        right.append(float((site.test.y == label).double().mean()))
    return float(np.mean(right))


def summary(found: list) -> list[float]:
    """Mean and standard error of accuracy, AUC, leak."""
    values = np.array(found)
    error = (
        values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros(3)
    )
    return [*values.mean(0).round(4).tolist(), *error.round(4).tolist()]


def measure(args, public: str, sites_of: Mapping[int, Sites]) -> dict[str, dict]:
    """Curve -> epsilon -> summary."""

    def private(
        name: str, epsilon: float, template: str = public, **more: int
    ) -> Component:
        return Component(
            name, {"epsilon": epsilon, "noise": "seeded", "public": template, **more}
        )

    exact = summary(ridge_points(sites_of, RIDGE))
    curves: dict[str, dict] = {"ridge, exact statistics": {NO_DP: exact}}
    for name, template in (
        ("DP ridge, public axes", public),
        ("DP ridge, random axes", ""),
    ):
        curves[name] = {}
        for e in args.epsilons:
            ridge = private("dp_analytic", e, template, projection=args.projection)
            curves[name][e] = summary(ridge_points(sites_of, ridge, args.draws))
        print(name, flush=True)
    if args.flow_epsilons:
        few = dict(list(sites_of.items())[:2])
        plain = synthetic_points(few, Component("corr_gauss"))
        curves["ridge on corr_gauss subjects"] = {NO_DP: summary(plain)}
        curves["ridge on dp_flow subjects"] = {
            e: summary(synthetic_points(few, private("dp_flow", e)))
            for e in args.flow_epsilons
        }
    return curves


def figure(curves: dict, chance: float, path: Path) -> None:
    """Accuracy, AUC and attack by epsilon."""
    fig, axes = plt.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    for i, (ax, title) in enumerate(zip(axes, TITLES, strict=True)):
        for j, (name, points) in enumerate(curves.items()):
            if NO_DP in points:
                ax.axhline(points[NO_DP][i], color=f"C{j}", ls="--", lw=1, label=name)
                continue
            mean, error = ([v[k] for v in points.values()] for k in (i, 3 + i))
            style = {"marker": "o", "ms": 4, "capsize": 2, "color": f"C{j}"}
            ax.errorbar([float(e) for e in points], mean, error, label=name, **style)
        level, label = (0.5, None) if i else (chance, "majority class")
        ax.axhline(level, color="0.5", ls=":", label=label)
        ax.set(xscale="log", xlabel="epsilon per person (delta 0.001)", title=title)
    axes[0].legend(fontsize=7)
    fig.savefig(path, dpi=130)


def main() -> None:
    args = options(
        __doc__,
        data=FOLDER / FILES["444"],
        out=Path("curve"),
        seeds=3,
        draws=3,
        projection=16,
        epsilons=(0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0),
        flow_epsilons=(1.0, 4.0, 16.0, 64.0),
    )
    args.out.mkdir(parents=True, exist_ok=True)
    cohort, names = whole_abide(args.data)
    outside = cohort.select_sites(names)
    sites_of = {
        k: {s: split_site(cohort, s, k) for s in SITES} for k in range(args.seeds)
    }
    with tempfile.TemporaryDirectory() as folder:
        public = str(Path(folder) / "public.npz")
        write_template(public, torch.from_numpy(outside.fc))
        spent, curves = timed(lambda: measure(args, public, sites_of))
    chance, rows = majority(sites_of), []
    for name, points in curves.items():
        for epsilon, v in points.items():
            cells = [f"{v[i]:.3f} ± {v[3 + i]:.3f}" for i in range(3)]
            rows.append(
                {"learner": name, "epsilon": epsilon}
                | dict(zip(COLUMNS, cells, strict=True))
            )
    level = dict(zip(COLUMNS, (f"{chance:.3f}", "0.500", "0.500"), strict=True))
    text = show([*rows, {"learner": "majority class", "epsilon": "-", **level}])
    (args.out / "privacy_utility.md").write_text(text + "\n")
    (args.out / "privacy_utility.json").write_text(json.dumps(curves, indent=1))
    figure(curves, chance, args.out / "privacy_utility.png")
    print(f"public people {len(outside)}; {spent.wall:.0f} s")


if __name__ == "__main__":
    main()
