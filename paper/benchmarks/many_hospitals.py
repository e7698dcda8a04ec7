"""Many hospitals: what rounds cost in time and bytes, and what their sums would be worth.

usage: python paper/benchmarks/many_hospitals.py rounds [--hospitals 10000] [--rounds 100]
       python paper/benchmarks/many_hospitals.py rois [--people 100]
       python paper/benchmarks/many_hospitals.py worth

`rounds` plays rounds of two aggregators with the product's own functions on a real base model
(ABIDE's smaller sites, 116 ROIs): every hospital signs and encrypts, every aggregator checks, adds
and signs, all aggregate shares are merged, written, opened with every signature checked, and the
model is solved. Numbers of hospitals are made up; what they cost is not. `rois` measures one
hospital's step and an aggregator's round at 116 and 400 ROIs on simulated people. Seconds are of the
processor.

`worth` asks what 10,000 hospitals would add. An earlier simulation drew hospitals from the base
model's own axes and promised ten times what real ones give. This one is a Gaussian world with three
numbers that are fitted to the real partitions of paper/results/sums.csv (1,098 people, 200 public): how far
the diagnosis moves the mean scan (`strength`, a squared Mahalanobis distance, which decides what
nobody can exceed), how that is spread over strong and weak directions (`tilt`: the squared shift
along a direction of variance v is as v^tilt), and how far every hospital's own shift lies from the
common one (`apart`, in the same units). Variances, coordinates, clip and settings are those of real
partitions. Sums, noise and head follow the product's formulas; the AUROC of a linear head in a
Gaussian world is known. Beyond the people that ABIDE has it is an extrapolation.
"""

import itertools
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scipy.special import ndtr
from setting import FILES, FOLDER, ROOT, machine, options, save, whole_abide
from sums import DRAWS, World, commit
from sums_tables import at

from fcforge.core.randomness import numpy_rng
from fcforge.data.cohort import Cohort
from fcforge.data.simulated import simulate
from fcforge_consortium.aggregation.aggregators import (
    Aggregated,
    Noise,
    RoundList,
    aggregate,
    card_of,
    close,
)
from fcforge_consortium.aggregation.rounds import give, read_share
from fcforge_consortium.base_model.expected_gain import Partition
from fcforge_consortium.base_model.planning import noise_per_subject, planned_settings
from fcforge_consortium.base_model.record import make_base_model
from fcforge_consortium.base_model.space import ContributionSpace
from fcforge_consortium.base_model.vectors import (
    COUNT,
    DOSES,
    SENSITIVITY,
    UNIT,
    noise_units,
    step_factor,
)
from fcforge_consortium.contributions.contribution import learn
from fcforge_consortium.ledger.entries import LedgerEntry, Spent
from fcforge_consortium.ledger.ledger import Ledger
from fcforge_consortium.options import ContributeRequest
from fcforge_consortium.privacy.noise import DELTA
from fcforge_consortium.records import archive
from fcforge_consortium.records import exchange as exchanges
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.policy import Policy
from fcforge_consortium.records.trust import Trust

AGGREGATORS = ("Ministry", "University")
PEOPLE = 35  # of a hospital; 17 of them are the 590 who learn in the real partitions
EPSILONS = (None, 8.0, 4.0, 2.0, 1.0)
CROWDS = (17, 100, 1_000, 10_000)
IN_A_ROUND = 100
FILE = FILES["529"]
GRID = {
    "strength": (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0),
    "tilt": (1.5, 2.0, 2.5, 3.0, 4.0),
    "apart": (0.0, 3.0, 10.0, 30.0, 100.0),
}


def timed(work: Callable[..., Any], *given: Any, **more: Any) -> tuple[Any, float]:
    """Return the result of some work, and its processor seconds."""
    began = time.process_time()
    results = work(*given, **more)
    return results, time.process_time() - began


# -- what rounds cost ------------------------------------------------------------------------------
class Consortium:
    """A base model with two aggregators, and hospitals that contribute to its rounds."""

    def __init__(self, people: Cohort, folder: Path) -> None:
        self.keys = {name: Ed25519PrivateKey.generate() for name in AGGREGATORS}
        cards = tuple(card_of(name, key) for name, key in self.keys.items())
        key = Ed25519PrivateKey.generate()
        self.start = make_base_model(people, policy=Policy(aggregators=cards), key=key)
        self.model = self.start.model
        self.noise = Noise(noise_units(1.0), self.model.grid, self.model.size)
        self.folder = folder
        self.lists = {name: folder / f"{name}.rounds" for name in AGGREGATORS}
        for name, local in self.keys.items():
            new = RoundList.new(name, local)
            with RoundList.open(self.lists[name], local, new=new):
                pass

    def given(self, site: str, name: str, numbers: np.ndarray) -> dict[str, Path]:
        """Share files of a hospital by aggregator."""
        who = {"site": site, "number": 1, "people": (), "round": name}
        entry = LedgerEntry(**who, epsilon=1.0, delta=DELTA)
        key = Ed25519PrivateKey.generate()
        _, files = give(self.start, entry, numbers, Spent(1.0, DELTA), key)
        places = {}
        for aggregator, data in files.items():
            places[aggregator] = self.folder / f"{site}.{aggregator}.share"
            places[aggregator].write_bytes(data)
        return places

    def closed(self, shares: list[dict[str, Path]]) -> Exchange:
        """Return the exchange with the closing records of both aggregators."""
        state = self.start
        for name in sorted(AGGREGATORS):
            mine = [read_share(one[name]) for one in shares]
            with RoundList.open(self.lists[name], self.keys[name]) as listed:
                done = close(state, mine, self.keys[name], self.noise.size, listed)
                listed.publish(done.line, {})
            state = done.exchange
        return state

    def kept(
        self, state: Exchange, aggregator: str, files: list[Path], out: Path
    ) -> Aggregated:
        """Aggregate share of a closed round, published."""
        shares = [read_share(file) for file in files]
        key = self.keys[aggregator]
        with RoundList.open(self.lists[aggregator], key) as listed:
            results = aggregate(state, shares, key, self.noise, listed)
            listed.publish(results.line, {out: archive.pack(results.contents)})
        return results

    def round(self, name: str, sites: list[str]) -> tuple[list[Path], list[float]]:
        """Both aggregate shares of a round; seconds of a hospital, an aggregator, and bytes of a share."""
        rng = np.random.default_rng(len(name))
        numbers = rng.integers(-UNIT, UNIT, self.model.size)
        numbers[-1] = PEOPLE * COUNT
        shares, hospitals = timed(
            lambda: [self.given(site, name, numbers) for site in sites]
        )
        shared = []
        state, aggregators = timed(self.closed, shares)
        for aggregator in AGGREGATORS:
            out = self.folder / f"{name}.{aggregator}.record"
            mine = [one[aggregator] for one in shares]
            _, seconds = timed(self.kept, state, aggregator, mine, out)
            aggregators += seconds
            shared.append(out)
        size = shares[0][AGGREGATORS[0]].stat().st_size
        for file in itertools.chain.from_iterable(one.values() for one in shares):
            file.unlink()
        return shared, [hospitals / len(sites), aggregators / 2, size]


def rounds(args: Any) -> dict[str, Any]:
    """All rounds, merged, opened and solved."""
    public = whole_abide(FOLDER / FILE)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        world = Consortium(public[0].select_sites(public[1]), folder)
        results = []
        files = [exchanges.save(world.start, folder / "start.fcx")]
        each = args.hospitals // args.rounds
        for k in range(args.rounds):
            sites = [f"H{k:03d}-{i:03d}" for i in range(each)]
            shared, cost = world.round(f"round {k}", sites)
            files += shared
            results.append(cost)
        joined, merging = timed(exchanges.union_of, files, Trust())
        whole = exchanges.save(joined, folder / "all.fcx")
        opened, opening = timed(exchanges.open_exchange, whole)
        _, solving = timed(opened.model.beta)
        hospital, aggregator, share = np.mean(results, axis=0).tolist()
        return {
            "hospitals": args.hospitals,
            "rounds": args.rounds,
            "numbers": world.model.size,
            "hospital_s": hospital,
            "aggregator_round_s": aggregator,
            "aggregator_slowest_s": float(np.max(results, axis=0)[1]),
            "share_bytes": int(share),
            "aggregate_share_bytes": files[-1].stat().st_size,
            "merge_s": merging,
            "open_s": opening,
            "solve_s": solving,
            "file_bytes": whole.stat().st_size,
        }


def rois(args: Any) -> list[dict[str, Any]]:
    """One hospital's step and an aggregator's round of 100 at 116 and 400 ROIs."""
    rows = []
    for n_rois in (116, 400):
        scale = args.people / 184  # Sim-NYU's
        everybody = simulate(n_rois=n_rois, n_sites=3, scale=scale)
        public = everybody.select_sites(everybody.site_names[1:])
        hospital = everybody.select_sites(everybody.site_names[:1])
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            world, starting = timed(Consortium, public, folder)
            _, step = timed(stepped, world.start, hospital, folder)
            sites = [f"H{i:03d}" for i in range(IN_A_ROUND)]
            _, (_, aggregator, share) = world.round("round", sites)
        rows.append(
            {
                "rois": n_rois,
                "people": len(hospital),
                "start_s": starting,
                "step_s": step,
                "share_bytes": int(share),
                "aggregator_round_s": aggregator,
            }
        )
        print(rows[-1], flush=True)
    return rows


def stepped(start: Exchange, people: Cohort, folder: Path) -> None:
    """A hospital's whole step but for reading its scans: checks, features, shares."""
    asked = ContributeRequest(
        people.site_names[0], folder, folder, state=folder, round="own"
    )
    key = Ed25519PrivateKey.generate()
    new = Ledger.new(people.site_names[0], key)
    with Ledger.open(folder / "fcforge.private", key, new=new) as private:
        done = learn(start.model, people, private, asked, key)
        files = {folder / aggregator: data for aggregator, data in done.files.items()}
        private.publish(done.entry, files)


# -- what they would be worth ----------------------------------------------------------------------
class Gaussian:
    """People of a Gaussian world with the variances of one real partition."""

    def __init__(self, part: Partition) -> None:
        _, learn_rows, _ = part.rows
        self.part = part
        self.n_public = len(part.rows[0])
        along = part.z[learn_rows].var(0) / part.p
        total = part.x[learn_rows].var(0).sum() / part.p
        k = len(along)
        off = max(total - along.sum(), 0.0) / (part.p - k)
        self.variance = np.append(along, np.full(part.p - k, off))
        self.place = np.append(np.arange(k), np.full(part.p - k, k))

    def aurocs(
        self,
        strength: float,
        tilt: float,
        apart: float,
        hospitals: float,
        levels: dict[Any, float],
        rng: np.random.Generator,
    ) -> dict[Any, float]:
        """AUROC of the base model alone, pooled ridge and sums, by noise per person."""
        v = self.variance
        normal = lambda: rng.standard_normal(len(v))  # noqa: E731
        spread = v**tilt / (v ** (tilt - 1)).sum()
        shift = np.sqrt(strength * spread) * normal()
        local = np.sqrt(apart * spread / hospitals) * normal()
        n = hospitals * PEOPLE
        seen = 0.5 * shift + np.sqrt(v / self.n_public) * normal()
        head = self.n_public * seen / (self.n_public * v + 1.0)
        learned = 0.5 * (shift + local) + np.sqrt(v / n) * normal()
        both = self.n_public + n
        pooled = self.n_public * seen + n * learned
        results = {"public": head, "pooled": pooled / (both * v + 1.0)}
        drawn = normal()
        for title, level in levels.items():
            start = self.placed(level)
            results[title] = head + self._step(start, head, learned, level, n, drawn)
        return {
            title: float(ndtr(weight @ shift / np.sqrt(2 * weight**2 @ v)))
            for title, weight in results.items()
        }

    @cache  # noqa: B019 (a handful of partitions, for the whole run)
    def placed(self, level: float) -> ContributionSpace:
        """Return the base model with the settings of the plan."""
        return self.part.space(planned_settings(level))

    def _step(
        self,
        start: ContributionSpace,
        head: np.ndarray,
        learned: np.ndarray,
        level: float,
        n: float,
        drawn: np.ndarray,
    ) -> np.ndarray:
        """Return how far the sum over n people moves the model."""
        rows = self.part.rows[1]
        left = np.clip(self.part.t[rows] - self.part.score[rows], -2, 2)
        clipped = self.part.factor(start, rows)
        kept = float((clipped * left).sum() / (left**2).sum())  # after the clip
        gain = (start.gain * self.part.p**0.5)[self.place]
        loud = level * n * start.clip * SENSITIVITY / UNIT
        hold = start.hold * np.maximum(start.share, 1e-9) ** 2
        factor = step_factor(n, np.maximum(start.second, 1e-12), hold, loud**2)
        factor = np.where(start.share > 0, factor, 0.0)[self.place]
        total = kept * n * gain * (learned - self.variance * head) + loud * drawn
        return gain * factor * total


def worth(args: Any) -> dict[str, Any]:
    """Fit the world to the real partitions, then let it grow."""
    world = World(FILE)
    worlds = [Gaussian(world.partition(k, 200, None)) for k in range(4)]
    real = at(FILE, "200")
    titles = {
        e: f"two aggregators, epsilon {e:g}" if e else "two aggregators, exact"
        for e in EPSILONS
    }
    public = float(real["base model alone"]["auroc"])
    wanted = {e: float(real[title]["gain"]) for e, title in titles.items()}
    wanted["pooled"] = float(real["pooled ridge"]["gain"])
    misfit = {
        three: _misfit(worlds, three, public, wanted)
        for three in itertools.product(*GRID.values())
    }
    best = min(misfit, key=misfit.__getitem__)
    rows = []
    for hospitals in CROWDS:
        for in_rounds in sorted({1, max(1, hospitals // IN_A_ROUND)}):
            gains = _gains(worlds, best, hospitals, in_rounds)
            row = {"hospitals": hospitals, "rounds": in_rounds}
            rows.append(row | {str(k): round(v, 4) for k, v in gains.items()})
    fits = []
    for strength in GRID["strength"]:  # the best world of each: how little is known
        local = min((t for t in misfit if t[0] == strength), key=misfit.__getitem__)
        last = _gains(worlds, local, CROWDS[-1], CROWDS[-1] // IN_A_ROUND)
        gains = {str(e): round(last[e], 4) for e in EPSILONS}
        about = dict(zip(GRID, local, strict=True))
        fits.append({**about, "misfit": round(misfit[local] ** 0.5, 4), **gains})
    return {
        "fitted": dict(zip(GRID, best, strict=True)),
        "real": {"public": public, **{str(k): v for k, v in wanted.items()}},
        "rows": rows,
        "fits": fits,
    }


def _gains(
    worlds: list[Gaussian], three: tuple, hospitals: float, in_rounds: int
) -> dict[Any, float]:
    """AUROC of the base model alone, and what pooled ridge and sums add to it: mean over draws."""
    people = int(hospitals * PEOPLE)
    levels = {e: noise_per_subject(people, e, DOSES * in_rounds) for e in EPSILONS}
    results = []
    for k, world in enumerate(worlds):
        for draw in range(DRAWS):
            rng = numpy_rng(draw, "many hospitals", k)
            one = world.aurocs(*three, hospitals, levels, rng)
            results.append(
                [v - one["public"] * (t != "public") for t, v in one.items()]
            )
    return dict(zip(one, np.mean(results, axis=0).tolist(), strict=True))


def _misfit(
    worlds: list[Gaussian], three: tuple, public: float, wanted: dict[Any, float]
) -> float:
    """Mean squared error of the numbers of real partitions."""
    results = _gains(worlds[:2], three, 17, 1)
    errors = [results[key] - value for key, value in wanted.items()]
    return float(np.square([results["public"] - public, *errors]).mean())


def main() -> None:
    args = options(
        __doc__,
        "rounds",
        "rois",
        "worth",
        hospitals=10_000,
        rounds=100,
        people=100,
        out=Path,
    )
    work = {"rounds": rounds, "rois": rois, "worth": worth}[args.command]
    results = work(args)
    command = f"python paper/benchmarks/many_hospitals.py {args.command}"
    about = {"command": command, "commit": commit(), "machine": machine()}
    usual = ROOT / "paper" / "results" / f"many_hospitals_{args.command}.json"
    print(results)
    save(args.out or usual, {**about, "found": results})


if __name__ == "__main__":
    main()
