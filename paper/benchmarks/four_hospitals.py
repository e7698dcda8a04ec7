"""The paper's four hospitals in all 24 orders, from the pure functions of contributions.

usage: python paper/benchmarks/four_hospitals.py [--seeds 20] [--parts FOLDER]
           [--out paper/results/four_hospitals.npz]

For each file the base model is made of the public sites (all but NYU, UM, USM, UCLA) for the planned
people and epsilon (`fcforge_consortium.base_model.planning`, chosen on public people alone).
Seeds 0 to 19 of the split, strict; the model after each set of hospitals scores their test parts:
what a run of `contributions` does, with five draws of the noise for every seed. AAA is the accuracy
averaged along the way over all 24 orders; AUROC is after all four, the mean over hospitals.
Intervals are 95 % over seeds, differences paired.

Scores are written to paper/results/four_hospitals.npz (`four_hospitals_scores`), from which the
spreadsheet beside it follows; `make tables` writes it again. `--parts FOLDER` stores each row there
as soon as it is done, and a second run of the same commit takes it from there.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import four_hospitals_scores
import numpy as np
from four_hospitals_scores import FileScores, Stored, sets_of, signed_ranks
from scores import places, write_table
from setting import FILES, FOLDER, ROOT, SITES, TWICE, machine, options, whole_abide
from sums import commit, write_csv
from sums_scores import EPSILONS, PUBLIC, title

from fcforge.base_model.features import log_features
from fcforge.core.component import Component
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
SETS = sets_of(SITES)
RIDGE = "ridge on a base model"
PLANS = {title(e, True): (e, True) for e in EPSILONS} | {
    title(1.0, False): (1.0, False)
}


class Hospitals:
    """Public and tested people of a file."""

    def __init__(self, file: str) -> None:
        cohort, public = whole_abide(FOLDER / file)
        cohort = cohort.select(~np.isin(cohort.subject_id, TWICE))
        everybody = log_features(cohort.fc, SpaceSettings().shrink)
        inside = np.isin(cohort.site, public)
        self.public = (everybody[inside], cohort.y[inside])
        self.cohort = cohort.select_sites(SITES)
        rank = {i: k for k, i in enumerate(cohort.subject_id.tolist())}
        self.features = everybody[[rank[i] for i in self.cohort.subject_id.tolist()]]
        place = places(Component("folder", {"path": str(FOLDER / file)}))
        self.place = np.array([place[who] for who in self.cohort.subject_id])
        self.site = np.array([SITES.index(name) for name in self.cohort.site])

    def split(self, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Learning rows of every hospital, and tested rows of all in the order of the file."""
        learning = {}
        tested = np.full(len(self.site), False)
        for name in SITES:
            ids = split_site(self.cohort, name, seed).subject_ids
            learn = np.isin(self.cohort.subject_id, [*ids["train"], *ids["val"]])
            learning[name] = np.flatnonzero(learn)
            tested |= np.isin(self.cohort.subject_id, ids["test"])
        return learning, np.flatnonzero(tested)


def drawn(
    space: ContributionSpace, units: int, doses: int, *names: str | int
) -> np.ndarray:
    """Return so many doses of repeatable noise."""
    rng = numpy_rng(0, "four hospitals", *names)
    results = np.zeros(space.n_numbers, dtype=np.int64)
    for _ in range(doses if units else 0):
        results = results + experiment_noise("seeded", units, len(results), rng)
    return results


def plan_scores(
    world: Hospitals, epsilon: float | None, aggregators: bool, seeds: int
) -> Iterator[np.ndarray]:
    """Yield for every seed the scores (m, sets, draws) of one plan."""
    people = sum(len(rows) for rows in world.split(0)[0].values())
    doses = vector.DOSES if aggregators else len(SITES)
    settings = planned_settings(noise_per_subject(people, epsilon, doses))
    space = fit_base_and_space(*world.public, settings)
    rows = vector.contribution_rows(space, world.features, world.cohort.y)
    x = space.base.standardise(world.features)
    units = vector.noise_units(epsilon)
    for seed in range(seeds):
        learning, tested = world.split(seed)
        n_draws = DRAWS if units else 1
        scores = np.empty((len(tested), len(SETS), n_draws))
        for draw in range(n_draws):
            for k, chosen in enumerate(SETS):
                total = np.zeros(space.n_numbers, dtype=np.int64)
                for name in chosen:
                    total = total + rows[learning[name]].sum(0)
                    if not aggregators:
                        total = total + drawn(space, units, 1, seed, draw, name)
                if aggregators:
                    total = total + drawn(space, units, doses, seed, draw, *chosen)
                count = doses if aggregators else len(chosen)
                beta = vector.solve(space, total, float(count * units**2), len(chosen))
                weight, bias = vector.stepped_model(space, beta)
                scores[:, k, draw] = x[tested] @ weight + bias
        yield scores


def ridge_scores(world: Hospitals, seeds: int, learns: bool) -> Iterator[np.ndarray]:
    """Yield the same of ridge on the public people and (with `learns`) everybody so far in one place."""
    features, y = world.public
    spread = features.std(0)
    scale = np.where(spread > 1e-9, spread, np.inf)
    public = (features - features.mean(0)) / scale
    x = (world.features - features.mean(0)) / scale
    everybody = np.concatenate([public, x])
    gram = everybody @ everybody.T
    t = 2.0 * np.concatenate([y, world.cohort.y]) - 1.0
    n = len(public)
    for seed in range(seeds):
        learning, tested = world.split(seed)
        scores = np.empty((len(tested), len(SETS), 1))
        for k, chosen in enumerate(SETS):
            learn = [n + learning[name] for name in chosen if learns]
            rows = np.concatenate([np.arange(n), *learn])
            scores[:, k, 0] = dual(gram, t, rows, n + tested, x.shape[1])
        yield scores


def dual(
    gram: np.ndarray, t: np.ndarray, rows: np.ndarray, tested: np.ndarray, p: int
) -> np.ndarray:
    """Return scores of tested people by ridge on `rows` with a free intercept, from inner products."""
    inner = gram[np.ix_(rows, rows)]
    cross = gram[np.ix_(tested, rows)]
    middle = inner.mean(0)
    centred = inner - middle - middle[:, None] + inner.mean()
    coefficient = np.linalg.solve(
        centred + p * np.eye(len(rows)), t[rows] - t[rows].mean()
    )
    moved = cross - cross.mean(1, keepdims=True) - middle + inner.mean()
    return moved @ coefficient + t[rows].mean()


def row_scores(world: Hospitals, row: str, seeds: int) -> Iterator[np.ndarray]:
    """Yield for every seed the scores (m, sets, draws) of one row of the table."""
    if row in PLANS:
        return plan_scores(world, *PLANS[row], seeds)
    return ridge_scores(world, seeds, learns=row == RIDGE)


def file_scores(file: str, seeds: int, parts: Path | None) -> FileScores:
    """Signed ranks of all rows of one file, from the folder of parts where they are there already."""
    world = Hospitals(file)
    tested = np.zeros((seeds, len(world.site)), dtype=bool)
    for seed in range(seeds):
        tested[seed, world.split(seed)[1]] = True
    ranks = {}
    for number, row in enumerate((PUBLIC, RIDGE, *PLANS)):
        path = parts and parts / f"{Path(file).stem}-{seeds}-{number}.npz"
        if path and path.is_file():
            with np.load(path) as part:
                ranks[row] = part["ranks"]
            continue
        scores = row_scores(world, row, seeds)
        ranks[row] = np.concatenate(
            [
                signed_ranks(each, world.site[rows])
                for each, rows in zip(scores, tested, strict=True)
            ]
        )
        if path:
            write_table(path, {"ranks": ranks[row]})
        print(file, row, f"{time.process_time():.0f} s of CPU", flush=True)
    return FileScores(world.place, world.site, world.cohort.y, tested, ranks)


def main() -> None:
    args = options(
        __doc__, seeds=20, parts=Path, out=ROOT / "paper/results/four_hospitals.npz"
    )
    began = time.perf_counter()
    source = commit()  # of now: the checkout may move on during the run
    parts = args.parts and args.parts / source[:10]
    files = {f: file_scores(f, args.seeds, parts) for f in sorted(FILES.values())}
    about = {
        "command": f"python paper/benchmarks/four_hospitals.py --seeds {args.seeds}",
        "commit": source,
        "machine": machine(),
        "seconds": round(time.perf_counter() - began),
    }
    stored = Stored(SITES, files, about)
    write_table(args.out, four_hospitals_scores.pack(stored))
    rows = four_hospitals_scores.summary(four_hospitals_scores.read_scores(args.out))
    write_csv(args.out.with_suffix(".csv"), rows, about)


if __name__ == "__main__":
    main()
