"""The paper's four hospitals in all 24 orders, from the pure functions of releases.

usage: python paper/benchmarks/four_hospitals.py [--seeds 20]
           [--out paper/results/four_hospitals.csv]

For each file the start is made of the public sites (all but NYU, UM, USM, UCLA) for the planned
people and epsilon (`fcforge_consortium.base_model.planning`, chosen on public people alone).
Seeds 0 to 19 of the split, strict; the head after each set of hospitals scores their test parts: what a run of
`contributions` does, with five draws of the noise for every seed. AAA is the accuracy averaged
along the way over all 24 orders; AUROC is after all four, the mean over hospitals. Intervals are
95 % over seeds, differences paired.
"""

import itertools

import numpy as np
from setting import (
    FILES,
    FOLDER,
    ROOT,
    SITES,
    TWICE,
    machine,
    options,
    quality,
    whole_abide,
)
from sums import commit, write_csv
from sums_scores import EPSILONS, title

from fcforge.base_model.features import log_features
from fcforge.core.randomness import numpy_rng
from fcforge.data.splits import split_site
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.base_model.planning import noise_per_subject, planned_settings
from fcforge_consortium.base_model.space import (
    ContributionSpace,
    SpaceSettings,
    fit_base_and_space,
)
from fcforge_consortium.privacy.seeded_noise import experiment_noise

DRAWS = 5
PLANS = [(e, True) for e in EPSILONS] + [(1.0, False)]
SETS = [s for k in range(len(SITES) + 1) for s in itertools.combinations(SITES, k)]
NAMES = ("aaa", "auroc", "aaa_gain", "auroc_gain")


class Hospitals:
    """Public and tested people of a file."""

    def __init__(self, file: str) -> None:
        cohort, public = whole_abide(FOLDER / file)
        cohort = cohort.select(~np.isin(cohort.subject_id, TWICE))
        everybody = log_features(cohort.fc, SpaceSettings().shrink)
        inside = np.isin(cohort.site, public)
        self.public = (everybody[inside], cohort.y[inside])
        self.cohort = cohort.select_sites(SITES)
        places = {i: k for k, i in enumerate(cohort.subject_id.tolist())}
        rows = [places[i] for i in self.cohort.subject_id.tolist()]
        self.features = everybody[rows]

    def split(self, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Learning and tested rows of every hospital."""
        results = {}
        for name in SITES:
            ids = split_site(self.cohort, name, seed).subject_ids
            learn = np.isin(self.cohort.subject_id, [*ids["train"], *ids["val"]])
            test = np.isin(self.cohort.subject_id, ids["test"])
            results[name] = (np.flatnonzero(learn), np.flatnonzero(test))
        return results


def order_free(results: dict) -> tuple[float, float]:
    """AAA over the 24 orders, and AUROC after all four.

    Each size of set is equally often a stage, each set of one size equally often that stage.
    """
    seen = {s: np.mean([results[s][site][0] for site in s]) for s in SETS if s}
    by_size = []
    for size in range(1, len(SITES) + 1):
        by_size.append(np.mean([v for s, v in seen.items() if len(s) == size]))
    last = [auroc for _, auroc in results[SITES].values()]
    return float(np.mean(by_size)), float(np.mean(last))


def drawn(
    start: ContributionSpace, units: int, doses: int, *names: str | int
) -> np.ndarray:
    """So many doses of repeatable noise."""
    rng = numpy_rng(0, "four hospitals", *names)
    results = np.zeros(start.n_numbers, dtype=np.int64)
    for _ in range(doses if units else 0):
        results = results + experiment_noise("seeded", units, len(results), rng)
    return results


def plan_values(world: Hospitals, epsilon: float | None, aggregators: bool, seeds: int):
    """AAA and AUROC (seeds, 2) of one plan, averaged over draws; those of the base model alone."""
    people = sum(len(learn) for learn, _ in world.split(0).values())
    doses = vector.DOSES if aggregators else len(SITES)
    settings = planned_settings(noise_per_subject(people, epsilon, doses))
    start = fit_base_and_space(*world.public, settings)
    rows = vector.contribution_rows(start, world.features, world.cohort.y)
    x = start.base.standardise(world.features)
    units = vector.noise_units(epsilon)
    values = []
    for seed in range(seeds):
        of_seed = []
        parts = world.split(seed)
        for draw in range(DRAWS if units else 1):
            results = {}
            for chosen in SETS:
                total = np.zeros(start.n_numbers, dtype=np.int64)
                for name in chosen:
                    total = total + rows[parts[name][0]].sum(0)
                    if not aggregators:
                        total = total + drawn(start, units, 1, seed, draw, name)
                if aggregators and chosen:
                    total = total + drawn(start, units, doses, seed, draw, *chosen)
                count = doses if aggregators else len(chosen)
                beta = vector.solve(start, total, float(count * units**2), len(chosen))
                weight, bias = vector.stepped_model(start, beta)
                results[chosen] = {}
                for name, (_, test) in parts.items():
                    score = x[test] @ weight + bias
                    results[chosen][name] = quality(score, world.cohort.y[test])
            of_seed.append(order_free(results))
        values.append(np.mean(of_seed, axis=0))
    return np.array(values)


def ridge_values(world: Hospitals, seeds: int, learns: bool) -> np.ndarray:
    """The same of ridge on the public people and (with `learns`) everybody so far in one place."""
    features, y = world.public
    spread = features.std(0)
    scale = np.where(spread > 1e-9, spread, np.inf)
    public = (features - features.mean(0)) / scale
    x = (world.features - features.mean(0)) / scale
    everybody = np.concatenate([public, x])
    gram = everybody @ everybody.T
    t = 2.0 * np.concatenate([y, world.cohort.y]) - 1.0
    n = len(public)
    values = []
    for seed in range(seeds):
        parts = world.split(seed)
        results = {}
        for chosen in SETS:
            learn = [n + parts[name][0] for name in chosen if learns]
            rows = np.concatenate([np.arange(n), *learn])
            tested = n + np.concatenate([test for _, test in parts.values()])
            score = dict(
                zip(
                    tested.tolist(),
                    dual(gram, t, rows, tested, x.shape[1]),
                    strict=True,
                )
            )
            results[chosen] = {}
            for name, (_, test) in parts.items():
                local = np.array([score[i] for i in (n + test).tolist()])
                results[chosen][name] = quality(local, world.cohort.y[test])
        values.append(order_free(results))
    return np.array(values)


def dual(
    gram: np.ndarray, t: np.ndarray, rows: np.ndarray, tested: np.ndarray, p: int
) -> np.ndarray:
    """Scores of tested people by ridge on `rows` with a free intercept, from inner products."""
    inner = gram[np.ix_(rows, rows)]
    cross = gram[np.ix_(tested, rows)]
    middle = inner.mean(0)
    centred = inner - middle - middle[:, None] + inner.mean()
    coefficient = np.linalg.solve(
        centred + p * np.eye(len(rows)), t[rows] - t[rows].mean()
    )
    moved = cross - cross.mean(1, keepdims=True) - middle + inner.mean()
    return moved @ coefficient + t[rows].mean()


def interval(values: np.ndarray) -> list[float]:
    """Mean and its 95 % interval over seeds."""
    half = 1.96 * values.std(ddof=1) / len(values) ** 0.5
    return [
        float(values.mean()),
        float(values.mean() - half),
        float(values.mean() + half),
    ]


def main() -> None:
    args = options(__doc__, seeds=20, out=ROOT / "paper/results/four_hospitals.csv")
    rows = []
    for file in FILES.values():
        world = Hospitals(file)
        results = {"base model alone": ridge_values(world, args.seeds, learns=False)}
        results["ridge on a base model"] = ridge_values(world, args.seeds, learns=True)
        for epsilon, aggregators in PLANS:
            results[title(epsilon, aggregators)] = plan_values(
                world, epsilon, aggregators, args.seeds
            )
            print(file, title(epsilon, aggregators), flush=True)
        for name, values in results.items():
            both = np.concatenate([values, values - results["base model alone"]], 1)
            row = {"file": file, "row": name, "seeds": args.seeds}
            for key, column in zip(NAMES, both.T, strict=True):
                ends = (key, f"{key}_low", f"{key}_high")
                row |= dict(zip(ends, interval(column), strict=True))
            rows.append(row)
    about = {
        "command": f"python paper/benchmarks/four_hospitals.py --seeds {args.seeds}",
        "commit": commit(),
        "machine": machine(),
    }
    write_csv(args.out, rows, about)


if __name__ == "__main__":
    main()
