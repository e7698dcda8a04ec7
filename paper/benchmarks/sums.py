"""The real curve: what sums and releases add to the public head, and what attacks find in them.

usage: python paper/benchmarks/sums.py worth [--partitions 40] [--publics 100 200 400] [--jobs 1]
       python paper/benchmarks/sums.py attacks --partitions 6

Both ABIDE files, everybody in them. In each partition sites at random are public until so many
people are; all other sites are hospitals, 70 % of each learn and 30 % are tested. The public head,
every budget with two keepers (two doses of noise on the sum) and with noise of every hospital's
own, exact sums and ridge on everybody's data in one place score the same tested people. Settings
are those of `fcforge_consortium.base_model.expected_gain` for the people at hand, chosen before this was run
(paper/benchmarks/choose_sums.py) on the fourteen sites other than NYU, UM, USM and UCLA. These are dealt
as hospitals here, too, so that about half of the people were in view of the choice. At 200 public
people also 4 and 8 hospitals give alone, and all are tested.

AUROC is within hospitals: patients and controls of one hospital are compared, pairs of all
hospitals count alike. Intervals are 95 % over partitions and people: both are drawn again (200
times), a person with all its pairs in every partition. Noise is averaged over 4 draws.

Membership attacks (second command) on the same sums, where all hospitals give: who was in it
(learning people) against who was not (tested people of the same hospitals).

- *public covariance*: likelihood ratio with means and covariance from public people alone;
- *everybody known*: the attacker has the scans and diagnoses of all people of all hospitals, and
  does not know which 70 % are in: true mean and covariance;
- *all others known*: the attacker knows everybody else in the sum, and one keeper's noise: what
  is left is one dose. The ceiling of the mechanism is for this one.

The expected calibration error is that of the product's own functions on the same partitions.
"""

import csv
import json
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
from setting import FILES, FOLDER, ROOT, TWICE, machine, options, show, whole_abide

from fcforge.base_model.features import log_features
from fcforge.core.randomness import numpy_rng
from fcforge.data.cohort import Cohort
from fcforge.evaluation.privacy.measures import auc
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.base_model.expected_gain import Partition, random_partition
from fcforge_consortium.base_model.planning import noise_per_subject, planned_settings
from fcforge_consortium.base_model.space import (
    ContributionSpace,
    SpaceSettings,
    fit_base_and_space,
)
from fcforge_consortium.base_model.vectors import DOSES, SENSITIVITY, UNIT
from fcforge_consortium.privacy.noise import DELTA, ceiling_of, sigma_for

EPSILONS = (None, 8.0, 4.0, 2.0, 1.0)
PUBLIC = "public head"
ALONE = "each hospital alone"
POOLED = "pooled ridge"
RESAMPLED = 200
DRAWS = 4
FEW = (4, 8)
REPEATED = 30  # draws of the one dose that is left to an attacker who knows all others
USUAL = 200  # public people for whom fewer hospitals are tried, too
ATTACKS = ("public covariance", "everybody known", "all others known")
GROUPS = ("female", "male", "under 15", "15 and over")


def title(epsilon: float | None, keepers: bool) -> str:
    """Return the title of a row."""
    form = "two keepers" if keepers else "local"
    return f"{form}, exact" if epsilon is None else f"{form}, epsilon {epsilon:g}"


PLANS = {title(e, k): (e, k) for k in (True, False) for e in EPSILONS}


class World:
    """Everybody in a file."""

    def __init__(self, file: str) -> None:
        cohort = whole_abide(FOLDER / file)[0]
        self.cohort: Cohort = cohort.select(~np.isin(cohort.subject_id, TWICE))
        self.features = log_features(self.cohort.fc, SpaceSettings().shrink)
        self.file = file
        age = np.asarray(self.cohort.covariates["age"], dtype=float)
        sex = np.asarray(self.cohort.covariates["sex"], dtype=float)
        self.groups = np.stack([sex == 2, sex == 1, age < 15, age >= 15])

    def partition(self, number: int, public: int, hospitals: int | None) -> Partition:
        """One dealing; the first so many hospitals learn, all are tested."""
        site = self.cohort.site
        rng = numpy_rng(number, "sums", self.file, public)
        rows = random_partition(site, self.cohort.y, public, rng)
        if hospitals is not None:
            names = list(dict.fromkeys(site[rows[1]].tolist()))[:hospitals]
            rows = (rows[0], rows[1][np.isin(site[rows[1]], names)], rows[2])
        return Partition(self.features, self.cohort.y, site, rows, rng, draws=DRAWS)


def hospitals_of(part: Partition) -> int:
    """Return the number of hospitals that learn."""
    return len(np.unique(part.site[part.rows[1]]))


def alone(part: Partition, site: np.ndarray) -> np.ndarray:
    """Scores (m,) of ridge on the own hospital's learning people."""
    _, learn, test = part.rows
    results = np.zeros(len(test))
    for name in np.unique(site[test]):
        mine = learn[site[learn] == name]
        here = site[test] == name
        centre = part.x[mine].mean(0)
        rows = part.x[mine] - centre
        t = part.t[mine, 0]
        gram = rows @ rows.T + part.p * np.eye(len(mine))
        weight = rows.T @ np.linalg.solve(gram, t - t.mean())
        results[here] = (part.x[test[here]] - centre) @ weight + t.mean()
    return results


def scored(part: Partition, site: np.ndarray) -> dict[str, np.ndarray]:
    """Scores (m, draws) of the tested people by every row."""
    _, learn, test = part.rows
    results = {PUBLIC: part.score[test], POOLED: part.ridge()}
    if len(np.unique(site[learn])) == len(np.unique(site[test])):
        results[ALONE] = alone(part, site)[:, None]
    for name in PLANS:
        start, noise = placed(part, name)
        results[name] = part.scores(start, noise)[..., 0]
    return results


def placed(part: Partition, name: str) -> tuple[ContributionSpace, float]:
    """Return the base model of a plan and all noise in its sum, in units of the sensitivity."""
    epsilon, keepers = PLANS[name]
    people = len(part.rows[1])
    level = noise_per_subject(people, epsilon, DOSES if keepers else hospitals_of(part))
    return part.space(planned_settings(level)), level * people


# -- AUROC with people drawn again -----------------------------------------------------------------
def resampled(
    part: Partition, scores: dict[str, np.ndarray], times: np.ndarray
) -> dict[str, np.ndarray]:
    """AUROC (1 + RESAMPLED,) of each row: as it is, and with each person so many times (n, B)."""
    ill, well = part.pairs[0]
    test = part.rows[2]
    weight = times[test[ill]] * times[test[well]]
    weight = np.concatenate([np.ones((len(ill), 1)), weight], 1)
    results = {}
    for name, score in scores.items():
        above = score[ill] - score[well]
        right = ((above > 0) + 0.5 * (above == 0)).mean(1)
        results[name] = right @ weight / weight.sum(0)
    return results


def in_groups(part: Partition, score: np.ndarray, groups: np.ndarray) -> list[float]:
    """AUROC within hospitals of pairs whose two people are of one group."""
    ill, well = part.pairs[0]
    test = part.rows[2]
    above = score[ill] - score[well]
    right = ((above > 0) + 0.5 * (above == 0)).mean(1)
    results = []
    for members in groups:
        both = members[test[ill]] & members[test[well]]
        results.append(float(right[both].mean()) if both.sum() > 20 else np.nan)
    return results


def calibration(odds: np.ndarray, y: np.ndarray) -> float:
    """Expected calibration error over ten bins of the probability."""
    p = 1 / (1 + np.exp(-odds))
    place = np.minimum((10 * p).astype(int), 9)
    results = 0.0
    for k in range(10):
        here = place == k
        if here.any():
            results += here.mean() * abs(p[here].mean() - y[here].mean())
    return float(results)


def product_odds(part: Partition, world: World, name: str, number: int) -> np.ndarray:
    """Log odds (m,) of the tested people, by the functions that a consortium uses."""
    epsilon, keepers = PLANS.get(name, (None, True))
    public, learn, test = part.rows
    doses = DOSES if keepers else hospitals_of(part)
    level = noise_per_subject(len(learn), epsilon, doses)
    y = world.cohort.y
    start = fit_base_and_space(
        world.features[public], y[public], planned_settings(level)
    )
    total = np.zeros(start.n_numbers)
    units = vector.noise_units(epsilon)
    if name in PLANS:
        rng = numpy_rng(number, "sums odds", name)
        rows = vector.contribution_rows(start, world.features[learn], y[learn])
        noise = doses**0.5 * units * rng.standard_normal(start.n_numbers)
        total = rows.sum(0) + noise
    beta = vector.solve(start, total, float(doses * units**2))
    head = vector.stepped_model(start, beta)
    score = start.base.standardise(world.features[test]) @ head.weight + head.bias
    return score / vector.temperature(start, head)


# -- attacks ---------------------------------------------------------------------------------------
def area_of(inside: np.ndarray, outside: np.ndarray) -> float:
    """AUC of people who all count alike."""
    return float(auc(inside, outside, np.ones(len(inside)), np.ones(len(outside))))


def rows_of(
    part: Partition, start: ContributionSpace, people: np.ndarray
) -> np.ndarray:
    """Return what n people would add to the sum, (n, d + 1), without the count."""
    each = part.factor(start, people)[:, 0]
    x = part.x[people]
    if start.all_directions:
        z = start.scaled(x, start.gain)
    else:
        q = int(start.full_axes)
        z = part.z[people][:, :q] * start.gain[:q]
    return each[:, None] * np.concatenate([z, np.full((len(z), 1), 0.5)], 1)


def unlike(
    start: ContributionSpace, rows: np.ndarray, n: int, variance: float
) -> np.ndarray:
    """Rows times the inverse of what the attacker takes for the sum's covariance."""
    usual = (rows**2).sum(1).mean()
    second = np.append(start.second, 0.25)
    size = start.second[:-1].sum() + start.second[-1] * (
        start.n_features - len(start.second) + 1
    )
    if not start.all_directions:
        second = np.append(start.second[: int(start.full_axes)], 0.25)
        size = second[:-1].sum()
    spread = n * usual / (size + 0.25) * second + max(variance, 1e-12)
    if not start.all_directions:
        return rows / spread
    inside = start.scaled(rows[:, :-1], 1 / spread[:-1])
    return np.concatenate([inside, rows[:, -1:] / spread[-1]], 1)


def attacked(part: Partition, name: str, rng: np.random.Generator) -> list[float]:
    """AUC of each attack: on the sum of two keepers, or on every hospital's own release."""
    epsilon, keepers = PLANS[name]
    start = placed(part, name)[0]
    _, learn, test = part.rows
    people = np.concatenate([learn, test])
    rows = rows_of(part, start, people)
    inside = np.arange(len(people)) < len(learn)
    sigma = 0.0 if epsilon is None else sigma_for(epsilon)
    dose = sigma * start.clip * SENSITIVITY / UNIT
    norm = np.linalg.norm(rows, axis=1)
    if keepers:
        first, second = on_sum(start, rows, inside, DOSES * dose**2, rng)
    else:
        first = np.zeros(len(people))
        second = np.zeros(len(people))
        for site in np.unique(part.site[people]):
            here = part.site[people] == site
            success = on_sum(start, rows[here], inside[here], dose**2, rng)
            first[here] = success[0]
    results = [area_of(score[inside], score[~inside]) for score in (first, second)]
    alone = []
    for _ in range(REPEATED if dose else 1):
        noise = dose * norm * rng.standard_normal(len(rows))
        score = norm**2 * (inside - 0.5) + noise
        alone.append(area_of(score[inside], score[~inside]))
    return [results[0], results[1] if keepers else np.nan, float(np.mean(alone))]


def on_sum(
    start: ContributionSpace,
    rows: np.ndarray,
    inside: np.ndarray,
    variance: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Scores (N,) of the two likelihood ratios on the noisy sum of the rows that are inside."""
    n = int(inside.sum())
    noise = variance**0.5 * rng.standard_normal(rows.shape[1])
    total = rows[inside].sum(0) + noise
    solved = unlike(start, rows, n, variance)
    first = solved @ total - 0.5 * (solved * rows).sum(1)
    every = rows - rows.mean(0)
    value, vectors = np.linalg.eigh(every @ every.T)
    value = np.maximum(value, 1e-9 * value[-1])
    along = vectors * np.sqrt(value)  # people in the axes of their own span
    moved = vectors.T @ (every @ (total - n * rows.mean(0))) / np.sqrt(value)
    spread = n * (1 - n / len(rows)) * value / len(rows) + variance
    second = (along / spread) @ moved - 0.5 * (along**2 / spread).sum(1)
    return first, second


# -- all of it -------------------------------------------------------------------------------------
world_of = cache(World)


def cell(asked: tuple[str, int, int | None, int]) -> list[dict[str, object]]:
    """Worth: rows of one file, one number of public people, one number of hospitals."""
    file, public, hospitals, partitions = asked
    world = world_of(file)
    site = world.cohort.site
    times = numpy_rng(0, "sums people").poisson(1.0, (len(site), RESAMPLED))
    results: dict[str, list] = {}
    groups: dict[str, list] = {}
    sizes = []
    for k in range(partitions):
        part = world.partition(k, public, hospitals)
        scores = scored(part, site)
        for name, values in resampled(part, scores, times).items():
            results.setdefault(name, []).append(values)
            inside = in_groups(part, scores[name], world.groups)
            groups.setdefault(name, []).append(inside)
        people = len(part.rows[1])
        sizes.append([len(part.rows[0]), hospitals_of(part), people, len(part.rows[2])])
    place = {
        "file": file,
        "public": public,
        "hospitals": "all" if hospitals is None else hospitals,
        "partitions": partitions,
    }
    counts = ("public_people", "mean_hospitals", "learning_people", "tested_people")
    place |= dict(zip(counts, np.mean(sizes, axis=0).tolist(), strict=True))
    print(file, public, hospitals, f"{time.process_time():.0f} s of CPU", flush=True)
    return [{**place, **row} for row in summed(results, groups)]


def summed(
    results: dict[str, list], groups: dict[str, list]
) -> Iterator[dict[str, object]]:
    """Means with intervals over partitions and people, paired with the public head."""
    values = {name: np.array(v) for name, v in results.items()}
    partitions = len(values[PUBLIC])
    rng = numpy_rng(0, "sums partitions")
    again = rng.integers(partitions, size=(RESAMPLED, partitions))

    def interval(each: np.ndarray) -> tuple[float, float, float]:
        drawn = [each[again[b], 1 + b].mean() for b in range(RESAMPLED)]
        low, high = np.quantile(drawn, [0.025, 0.975])
        return float(each[:, 0].mean()), float(low), float(high)

    gap = (values[POOLED] - values[PUBLIC])[:, 0].mean()
    for name, each in values.items():
        gain = each - values[PUBLIC]
        row: dict[str, object] = {"row": name}
        for key, measured in (("auroc", each), ("gain", gain)):
            ends = (key, f"{key}_low", f"{key}_high")
            row |= dict(zip(ends, interval(measured), strict=True))
        row["gap_closed"] = float(gain[:, 0].mean() / gap)
        inside = np.nanmean(np.array(groups[name]), axis=0).tolist()
        yield row | dict(zip(GROUPS, inside, strict=True))


def attacked_cell(asked: tuple[str, int, int | None, int]) -> list[dict[str, object]]:
    """Attacks and calibration: rows of one file and number of public people."""
    file, public, _, partitions = asked
    world = world_of(file)
    results: dict[str, list] = {name: [] for name in (PUBLIC, *PLANS)}
    for k in range(partitions):
        part = world.partition(k, public, None)
        for name, values in results.items():
            odds = product_odds(part, world, name, k)
            rng = numpy_rng(k, "sums attacks", file, public)
            broken = attacked(part, name, rng) if name in PLANS else [np.nan] * 3
            values.append([calibration(odds, part.y_test), *broken])
    print(file, public, f"{time.process_time():.0f} s of CPU", flush=True)
    rows = []
    for name, values in results.items():
        row = {"file": file, "public": public, "partitions": partitions, "row": name}
        each = np.array(values).mean(0).tolist()
        row |= dict(zip(("ece", *ATTACKS), each, strict=True))
        row["ceiling"] = ceiling_of(PLANS[name][0]) if name in PLANS else np.nan
        rows.append(row)
    return rows


def main() -> None:
    args = options(
        __doc__,
        "worth",
        "attacks",
        partitions=40,
        publics=(100, 200, 400),
        few=FEW,
        jobs=1,
        out=Path,
    )
    worth = args.command == "worth"
    began = time.perf_counter()
    cells = [
        (file, public, hospitals, args.partitions)
        for file in FILES.values()
        for public in args.publics
        for hospitals in (None, *(args.few if worth and public == USUAL else ()))
    ]
    work = cell if worth else attacked_cell
    if args.jobs == 1:
        results = [work(asked) for asked in cells]
    else:
        with ProcessPoolExecutor(args.jobs) as pool:
            results = list(pool.map(work, cells))
    rows = [row for each in results for row in each]
    about = {
        "command": f"python paper/benchmarks/sums.py {args.command} "
        f"--partitions {args.partitions}",
        "commit": commit(),
        "machine": machine(),
        "seconds": round(time.perf_counter() - began),
        "jobs": args.jobs,
        "delta": DELTA,
    }
    usual = ROOT / "paper" / "results" / ("sums.csv" if worth else "sums_attacks.csv")
    write_csv(args.out or usual, rows, about)
    show(rows, ".3f")


def write_csv(
    path: Path, rows: list[dict[str, object]], about: dict[str, object]
) -> None:
    """Rows as CSV, numbers to five digits; command, commit and machine as JSON beside it."""
    with path.open("w", newline="") as file:
        sheet = csv.DictWriter(file, rows[0], lineterminator="\n")
        sheet.writeheader()
        for row in rows:
            plain = {
                k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()
            }
            sheet.writerow(plain)
    path.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")


def commit() -> str:
    """Return the commit of this checkout, or that of the environment if there is none."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    output = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return os.environ.get("FCFORGE_COMMIT", output)


if __name__ == "__main__":
    main()
