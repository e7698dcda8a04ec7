"""What contributions of hospitals add to the base model, and what attacks find in them.

usage: python paper/benchmarks/sums.py worth [--partitions 40] [--publics 100 200 400] [--jobs 1]
       python paper/benchmarks/sums.py attacks --partitions 5

Scores are written to paper/results/sums.npz and sums_attacks.npz (`sums_scores`), from which the
spreadsheets beside them follow; `make tables` writes these again. `--parts FOLDER` stores each cell
there as soon as it is done, and a second run of the same commit takes it from there.

Both ABIDE files, everybody in them. In each partition sites at random are public until so many
people are; all other sites are hospitals, 70 % of each learn and 30 % are tested. These rows score
the same tested people: the base model alone, every budget with two aggregators (two doses of noise
on the sum), every budget with noise of every hospital's own, exact sums, and ridge on everybody's
data in one place. Settings are those of `fcforge_consortium.base_model.expected_gain` for the people
at hand, chosen before this was run (paper/benchmarks/choose_sums.py) on the fourteen sites other
than NYU, UM, USM and UCLA. These are dealt as hospitals here, too, so that about half of the people
were in view of the choice. At 200 public people also 4 and 8 hospitals give alone, and all are tested.

AUROC is within hospitals: patients and controls of one hospital are compared, pairs of all
hospitals count alike. Intervals are 95 % over partitions and people: both are drawn again (200
times), a person with all its pairs in every partition. Noise is averaged over 4 draws.

Membership attacks (second command) on the same sums, where all hospitals give: who was in it
(learning people) against who was not (tested people of the same hospitals).

- *public covariance*: likelihood ratio with means and covariance from public people alone;
- *everybody known*: the attacker has the scans and diagnoses of all people of all hospitals, and
  does not know which 70 % are in: true mean and covariance;
- *all others known*: the attacker knows everybody else in the sum, and one aggregator's noise: what
  is left is one dose. The ceiling of the mechanism is for this one.

The expected calibration error is that of the product's own functions on the same partitions.
"""

import json
import os
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sums_scores
from scores import places, write_table
from setting import FILES, FOLDER, ROOT, TWICE, machine, options, show, whole_abide
from sums_scores import (
    ALONE,
    ATTACKS,
    LEARNING,
    PLANS,
    POOLED,
    PUBLIC,
    WHOLE,
    Cell,
    People,
    Stored,
    order_bits,
    ranks_within,
    roles_of,
    smallest,
)

from fcforge.base_model.features import log_features
from fcforge.core.component import Component
from fcforge.core.randomness import numpy_rng
from fcforge.data.cohort import Cohort
from fcforge_consortium.base_model import vectors as vector
from fcforge_consortium.base_model.expected_gain import Partition, random_partition
from fcforge_consortium.base_model.planning import noise_per_subject, planned_settings
from fcforge_consortium.base_model.space import (
    ContributionSpace,
    SpaceSettings,
    fit_base_and_space,
)
from fcforge_consortium.base_model.vectors import DOSES, SENSITIVITY, UNIT
from fcforge_consortium.privacy.noise import DELTA, sigma_for

DRAWS = 4
FEW = (4, 8)
REPEATED = 30  # draws of the one dose that is left to an attacker who knows all others
USUAL = 200  # public people for whom fewer hospitals are tried, too


class Asked(NamedTuple):
    """A cell to compute."""

    command: str
    file: str
    public: int
    hospitals: int | None
    partitions: int


class World:
    """Everybody in a file."""

    def __init__(self, file: str) -> None:
        cohort = whole_abide(FOLDER / file)[0]
        self.cohort: Cohort = cohort.select(~np.isin(cohort.subject_id, TWICE))
        self.features = log_features(self.cohort.fc, SpaceSettings().shrink)
        self.file = file
        age = np.asarray(self.cohort.covariates["age"], dtype=float)
        sex = np.asarray(self.cohort.covariates["sex"], dtype=float)
        place = places(Component("folder", {"path": str(FOLDER / file)}))
        sites, site = np.unique(self.cohort.site, return_inverse=True)
        self.people = People(
            np.array([place[who] for who in self.cohort.subject_id]),
            site,
            self.cohort.y,
            np.stack([sex == 2, sex == 1, age < 15, age >= 15]),
            tuple(sites.tolist()),
        )

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
    epsilon, aggregators = PLANS[name]
    people = len(part.rows[1])
    level = noise_per_subject(
        people, epsilon, DOSES if aggregators else hospitals_of(part)
    )
    return part.space(planned_settings(level)), level * people


def product_odds(part: Partition, world: World, name: str, number: int) -> np.ndarray:
    """Log odds (m,) of the tested people, by the functions that a consortium uses."""
    epsilon, aggregators = PLANS.get(name, (None, True))
    public, learn, test = part.rows
    doses = DOSES if aggregators else hospitals_of(part)
    level = noise_per_subject(len(learn), epsilon, doses)
    y = world.cohort.y
    start = fit_base_and_space(
        world.features[public], y[public], planned_settings(level)
    )
    total = np.zeros(start.n_numbers)
    units = vector.noise_units(epsilon)
    if name in PLANS:
        # the stored noise was drawn while this row was called "two keepers"
        drawn_as = name.replace("aggregators", "keepers")
        rng = numpy_rng(number, "sums odds", drawn_as)
        rows = vector.contribution_rows(start, world.features[learn], y[learn])
        noise = doses**0.5 * units * rng.standard_normal(start.n_numbers)
        total = rows.sum(0) + noise
    beta = vector.solve(start, total, float(doses * units**2))
    head = vector.stepped_model(start, beta)
    score = start.base.standardise(world.features[test]) @ head.weight + head.bias
    return score / vector.temperature(start, head)


# -- attacks ---------------------------------------------------------------------------------------
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


def attacked(
    part: Partition, name: str, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Scores (N, draws) of each attack: on the sum, or on every hospital's own contribution.

    People are those who learn, then those who are tested.
    """
    epsilon, aggregators = PLANS[name]
    start = placed(part, name)[0]
    _, learn, test = part.rows
    people = np.concatenate([learn, test])
    rows = rows_of(part, start, people)
    inside = np.arange(len(people)) < len(learn)
    sigma = 0.0 if epsilon is None else sigma_for(epsilon)
    dose = sigma * start.clip * SENSITIVITY / UNIT
    norm = np.linalg.norm(rows, axis=1)
    results = {}
    if aggregators:
        both = on_sum(start, rows, inside, DOSES * dose**2, rng)
        results |= {k: v[:, None] for k, v in zip(ATTACKS, both, strict=False)}
    else:
        first = np.zeros((len(people), 1))
        for site in np.unique(part.site[people]):
            here = part.site[people] == site
            success = on_sum(start, rows[here], inside[here], dose**2, rng)
            first[here, 0] = success[0]
        results[ATTACKS[0]] = first
    alone = []
    for _ in range(REPEATED if dose else 1):
        noise = dose * norm * rng.standard_normal(len(rows))
        alone.append(norm**2 * (inside - 0.5) + noise)
    return {**results, ATTACKS[2]: np.stack(alone, 1)}


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


def worth(world: World, asked: Asked) -> Cell:
    """Ranks of the scores of every row: one file, one number of public people and of hospitals."""
    site = world.cohort.site
    roles, ranks = [], []
    columns: tuple[tuple[str, int], ...] = ()
    for k in range(asked.partitions):
        part = world.partition(k, asked.public, asked.hospitals)
        scores = scored(part, site)
        columns = tuple((name, each.shape[1]) for name, each in scores.items())
        together = np.concatenate(list(scores.values()), 1)
        test = part.rows[2]
        ranks.append(ranks_within(together, site[test])[np.argsort(test)])
        roles.append(roles_of(len(site), part.rows))
    arrays = {"ranks": smallest(np.concatenate(ranks))}
    return Cell(*asked[1:4], columns, np.stack(roles), arrays)


def attacks(world: World, asked: Asked) -> Cell:
    """Scores of the attacks and probabilities of the tested people: one file and number of public."""
    roles, ranks, chances, orders = [], [], [], []
    columns: list[tuple[str, str, int]] = []
    for k in range(asked.partitions):
        part = world.partition(k, asked.public, None)
        everybody = np.concatenate(part.rows[1:])
        in_order = np.argsort(everybody)
        mine = roles_of(len(world.cohort.y), part.rows)
        inside = mine[mine >= LEARNING] == LEARNING
        odds, once, columns = [], [], []
        for name in (PUBLIC, *PLANS):
            odds.append(product_odds(part, world, name, k))
            if name == PUBLIC:
                continue
            rng = numpy_rng(k, "sums attacks", asked.file, asked.public)
            for attack, each in attacked(part, name, rng).items():
                scores = each[in_order]
                columns.append((name, attack, scores.shape[1]))
                if scores.shape[1] == 1:
                    once.append(scores)
                else:
                    orders.append(order_bits(scores, inside).ravel())
        together = np.zeros(len(everybody))  # ranks among all, not by hospital
        ranks.append(ranks_within(np.concatenate(once, 1), together))
        chance = 1 / (1 + np.exp(-np.stack(odds, 1)))
        chances.append(np.round(WHOLE * chance)[np.argsort(part.rows[2])])
        roles.append(mine)
    arrays = {
        "ranks": smallest(np.concatenate(ranks)),
        "chance": np.concatenate(chances).astype(np.uint32),
        "order": np.concatenate(orders),
    }
    return Cell(asked.file, asked.public, None, tuple(columns), np.stack(roles), arrays)


def computed(asked: Asked, parts: Path | None = None) -> Stored:
    """One cell, from the folder of a commit's parts if it is there already."""
    named = "-".join(map(str, (asked.command, Path(asked.file).stem, *asked[2:])))
    path = parts / f"{named}.npz" if parts else None
    if path and path.is_file():
        return sums_scores.read_scores(path)
    world = world_of(asked.file)
    cell = (worth if asked.command == "worth" else attacks)(world, asked)
    stored = Stored(asked.command, {asked.file: world.people}, (cell,), {})
    if path:
        write_table(path, sums_scores.pack(stored))
    print(*asked[:4], f"{time.process_time():.0f} s of CPU", flush=True)
    return stored


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
        parts=Path,
    )
    for_worth = args.command == "worth"
    began = time.perf_counter()
    cells = [
        Asked(args.command, file, public, hospitals, args.partitions)
        for file in FILES.values()
        for public in args.publics
        for hospitals in (None, *(args.few if for_worth and public == USUAL else ()))
    ]
    source = commit()  # of now: the checkout may move on during the run
    work = partial(computed, parts=args.parts and args.parts / source[:10])
    if args.jobs == 1:
        results = [work(asked) for asked in cells]
    else:
        with ProcessPoolExecutor(args.jobs) as pool:
            results = list(pool.map(work, cells))
    about = {
        "command": f"python paper/benchmarks/sums.py {args.command} "
        f"--partitions {args.partitions}",
        "commit": source,
        "machine": machine(),
        "seconds": round(time.perf_counter() - began),
        "jobs": args.jobs,
        "delta": DELTA,
    }
    people = {file: each for stored in results for file, each in stored.people.items()}
    every = tuple(cell for stored in results for cell in stored.cells)
    name = "sums.npz" if for_worth else "sums_attacks.npz"
    path = args.out or ROOT / "paper" / "results" / name
    write_table(path, sums_scores.pack(Stored(args.command, people, every, about)))
    rows = sums_scores.summary(sums_scores.read_scores(path))
    write_csv(path.with_suffix(".csv"), rows, about)
    show(rows, ".3f")


def write_csv(
    path: Path, rows: list[dict[str, object]], about: dict[str, object]
) -> None:
    """Rows as CSV; command, commit and machine as JSON beside it."""
    path.write_text(sums_scores.sheet(rows))
    path.with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")


def commit() -> str:
    """Return the commit of this checkout, or that of the environment if there is none."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    output = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    return os.environ.get("FCFORGE_COMMIT", output)


if __name__ == "__main__":
    main()
