"""From 4 to 10,000 hospitals: what a consortium gains, what it costs, and how long it takes.

usage: python benchmarks/consortium.py [--repeats 10] [--out results/consortium.json]

No FC is stored for the simulated hospitals. The start is made of real public people (ABIDE's small
sites, else simulated ones); a hospital's 20 to 200 people are then drawn on its axes: a site's mean
from the public spread between sites, a person from that between persons, what the axes do not
say from the start's factors. Diagnoses follow a true head that differs from the public one by a
random step, the same for all hospitals, and by a further one of half that size of each hospital's
own. Every hospital makes a release as the product does. People of 100 further hospitals, who
released nothing, are diagnosed.

What this shows: how the noise of privacy weighs against the number of hospitals, what the files
weigh and how long they take. What it does not show: that real hospitals differ by as much, or
that 16 axes hold what sets patients apart. Beside it: one real start with 400 ROIs (simulated
people), and a hospital's turn with 200 people of 116 ROIs.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from setting import (
    FILES,
    FOLDER,
    ROOT,
    machine,
    options,
    quality,
    save,
    show,
    timed,
    whole_abide,
)

from fcforge.consortium import Consortium, Home, PublicStart, Release, make_public
from fcforge.consortium.files import read_consortium, write_consortium
from fcforge.consortium.learning import Budget, learn
from fcforge.randomness import torch_rng
from fcforge.releases import vector
from fcforge.releases.start import Start
from fcforge.sites.cohort import Cohort
from fcforge.sites.simulated import simulate

COUNTS = (4, 10, 30, 100, 300, 1_000, 3_000, 10_000)
EPSILONS = {
    "no noise": None,
    **{f"epsilon {e:g}": e for e in (8.0, 4.0, 2.0, 1.0, 0.5)},
}
DELTA, TESTED, OWN = 1e-3, 100, 0.5
TIMES = {
    "open_and_verify_s": "open and verify all",
    "solve_s": "solve the head",
    "merge_s": "merge two halves",
    "withdraw_s": "withdraw one",
}
CERTAIN = 0.98  # nobody's diagnosis is surer than that


@dataclass(frozen=True)
class World:
    """Where people come from: a start and the step from its head to the true one, (q + 1,)."""

    start: Start
    step: torch.Tensor

    @classmethod
    def drawn(cls, start: Start, rng: torch.Generator) -> World:
        """A true head as far from the public one as the start expects (`pull`)."""
        return cls(start, _normal((start.n_axes + 1,), rng) / start.pull.sqrt())

    def people(
        self, sizes: torch.Tensor, rng: torch.Generator
    ) -> tuple[torch.Tensor, ...]:
        """Coordinates (n, q + 1), public scores (n,) and diagnoses +-1 (n,), site after site."""
        start, sites, n = self.start, len(sizes), int(sizes.sum())
        site = torch.repeat_interleave(torch.arange(sites), sizes)
        shift = _normal((sites, start.n_axes), rng) * start.sites
        z = shift[site] + _normal((n, start.n_axes), rng) * start.persons
        u = torch.cat([z, torch.full((n, 1), 0.5, dtype=z.dtype)], 1)
        along = start.axes.T @ start.weight / (start.axes**2).sum(0)
        off = (start.factors @ start.weight).norm() * _normal((n,), rng)
        public = z @ along + off + start.bias
        own = (
            self.step
            + OWN * _normal((sites, start.n_axes + 1), rng) / start.pull.sqrt()
        )
        true = (public + (u * own[site]).sum(1)).clamp(-CERTAIN, CERTAIN)
        t = torch.where(
            torch.rand(n, generator=rng) < (1 + true) / 2, 1.0, -1.0
        ).double()
        return u, public, t

    def releases(self, count: int, rng: torch.Generator) -> torch.Tensor:
        """Exact sums (count, q + 2) of so many hospitals, a thousand at a time.

        They have 20 to 200 people, small ones being commoner (uniform in the logarithm).
        """
        found = []
        for begin in range(0, count, 1_000):
            some = min(1_000, count - begin)
            sizes = (20 * 10 ** torch.rand(some, generator=rng).double()).round().long()
            u, public, t = self.people(sizes, rng)
            rows = vector.contributions_on_axes(self.start, u, t - public)
            site = torch.repeat_interleave(torch.arange(some), sizes)
            empty = torch.zeros(some, rows.shape[1], dtype=torch.float64)
            found.append(empty.index_add(0, site, rows))
        return torch.cat(found)


def _normal(shape: tuple[int, ...], rng: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=rng, dtype=torch.float64)


def one_world(start: Start, repeat: int) -> dict[str, np.ndarray]:
    """Accuracy and AUROC (counts, 2) by number of hospitals, mean over the tested hospitals.

    Of the public and of the true head, and of the consortium's at each epsilon.
    """
    rng = torch_rng(repeat, "consortium benchmark")
    world = World.drawn(start, rng)
    u, public, t = world.people(torch.full((TESTED,), 200), rng)
    y = (t > 0).reshape(TESTED, -1).numpy().astype(int)
    exact = world.releases(max(COUNTS), rng)
    noise = _normal(tuple(exact.shape), rng)

    def tested(step: torch.Tensor) -> np.ndarray:
        score = (public + u @ step).reshape(TESTED, -1).numpy()
        return np.mean([quality(s, d) for s, d in zip(score, y, strict=True)], axis=0)

    heads = {"public head": 0 * world.step, "true head": world.step}
    found = {
        name: np.array([tested(step)] * len(COUNTS)) for name, step in heads.items()
    }
    for name, epsilon in EPSILONS.items():
        sd = vector.noise_sd(start, epsilon, DELTA)
        totals = (exact + sd * noise).cumsum(0)
        steps = [vector.solve(start, totals[k - 1], k * sd**2, k) for k in COUNTS]
        found[name] = np.array([tested(step) for step in steps])
    return found


def curves(start: Start, repeats: int) -> dict[str, dict[str, list[list[float]]]]:
    """Mean over worlds of accuracy and AUROC, and the standard error of its gap to the true head.

    Worlds differ far more than the curves of one world do, so the gap is what has a small error.
    """
    worlds = [one_world(start, r) for r in range(repeats)]
    out = {}
    for name in worlds[0]:
        values = np.array([w[name] for w in worlds])  # (repeats, counts, 2)
        gap = values - np.array([w["true head"] for w in worlds])
        both = np.stack([values.mean(0), gap.std(0, ddof=1) / repeats**0.5], -1).round(
            4
        )
        out[name] = {"accuracy": both[:, 0].tolist(), "auroc": both[:, 1].tolist()}
    return out


def signed_releases(start: PublicStart, keys: list[Ed25519PrivateKey]) -> list[Release]:
    """Releases at epsilon 1, each signed with the key of its hospital."""
    rng = torch_rng(0, "consortium files")
    sd = vector.noise_sd(start.arrays, 1.0, DELTA)
    totals = World.drawn(start.arrays, rng).releases(len(keys), rng)
    totals = totals + sd * _normal(tuple(totals.shape), rng)
    grain = 2.0 ** np.floor(np.log2(sd / 1024))
    return [
        Release(
            site=f"hospital {k:05d}",
            start=start.digest,
            time="2026-01-01T00:00:00Z",
            fcforge="0.2.0",
            numbers=tuple((np.round(row / grain) * grain).tolist()),
            epsilon=1.0,
            delta=DELTA,
            spent=1.0,
            noise_sd=sd,
            commitment=f"{k:064x}",
        ).signed(keys[k])
        for k, row in enumerate(totals.numpy())
    ]


def files(start: PublicStart, count: int) -> dict[str, Any]:
    """Bytes and seconds (wall, CPU) of a consortium of `count` hospitals."""
    keys = [Ed25519PrivateKey.generate() for _ in range(count)]
    made, took = signed_releases(start, keys), {}
    took["join_s"], group = timed(lambda: Consortium(start).joined(made))
    took["solve_s"], _ = timed(lambda: group.head)
    one, two = (
        Consortium(start).joined(part)
        for part in (made[: count // 2], made[count // 2 :])
    )
    took["merge_s"], both = timed(lambda: one.merged(two))
    took["withdraw_s"], less = timed(lambda: group.withdrawn(made[0].site, keys[0]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "group.capsule"
        empty = (
            write_consortium(Consortium(start), Path(folder) / "start.capsule")
            .stat()
            .st_size
        )
        took["write_s"], _ = timed(lambda: write_consortium(group, path))
        took["open_and_verify_s"], opened = timed(lambda: read_consortium(path))
        weight = path.stat().st_size
    same = torch.equal(opened.head.weight, both.head.weight)
    never = Consortium(start).joined(made[1:])
    if not (same and torch.equal(less.head.weight, never.head.weight)):
        raise RuntimeError("merge or withdrawal gives another head")
    per_hospital = round((weight - empty) / count)
    size = {"bytes": weight, "bytes_start": empty, "bytes_per_hospital": per_hospital}
    return {"hospitals": count, **size, **took}


def turn(start: PublicStart, cohort: Cohort, site: str) -> dict[str, Any]:
    """A hospital's turn: seconds, and bytes of what leaves."""
    taken, done = timed(
        lambda: learn(Consortium(start), cohort, site, Home(), Budget())
    )
    people = int((cohort.site == site).sum())
    return {
        "people": people,
        "seconds": taken,
        "release_bytes": len(done.release.content),
    }


def large_atlas(n_rois: int) -> dict:
    """A start of simulated people with a large atlas: seconds, bytes, a hospital's turn."""
    cohort = simulate(n_rois=n_rois, n_sites=4, scale=0.6)
    taken, start = timed(lambda: make_public(cohort, cohort.site_names[:3]))
    with tempfile.TemporaryDirectory() as folder:
        path = write_consortium(Consortium(start), Path(folder) / "start.capsule")
        weight = path.stat().st_size
        opening, _ = timed(lambda: read_consortium(path))
    told = {"n_rois": n_rois, "public_people": start.papers["people"], "start_s": taken}
    last = turn(start, cohort, cohort.site_names[3])
    return {**told, "start_bytes": weight, "open_s": opening, "turn": last}


def public_start() -> tuple[PublicStart, str]:
    """Start of ABIDE's small sites where the file is, else of simulated people."""
    path = FOLDER / FILES["444"]
    if not path.exists():
        return make_public(simulate()), "simulated public people, 116 ROIs"
    return make_public(
        *whole_abide(path)
    ), "ABIDE-I without the four tested sites, AAL-116"


def figure(found: dict, path: Path) -> None:
    """AUROC and accuracy by number of hospitals; bytes and seconds beside them."""
    fig, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="tight")
    for ax, key, title in zip(
        axes, ("auroc", "accuracy"), ("AUROC", "Accuracy"), strict=False
    ):
        for k, name in enumerate(EPSILONS):
            values = np.array(found["curves"][name][key])
            ax.errorbar(
                COUNTS,
                values[:, 0],
                values[:, 1],
                marker="o",
                ms=4,
                capsize=2,
                color=plt.cm.viridis(k / 6),
                label=name,
            )
        for name, style in (("true head", "--"), ("public head", ":")):
            level = found["curves"][name][key][0][0]
            ax.axhline(level, color="black", ls=style, lw=1, label=name)
        ax.set_title(f"{title} at hospitals that gave nothing")
    count = [f["hospitals"] for f in found["files"]]
    for key, label in TIMES.items():
        axes[2].plot(
            count,
            [max(f[key][1], 1e-3) for f in found["files"]],
            marker="o",
            label=label,
        )
    axes[2].set(yscale="log", ylabel="CPU seconds")
    axes[2].set_title(
        f"Time; {found['files'][-1]['bytes_per_hospital']:,} bytes a hospital"
    )
    for ax in axes:
        ax.set(xscale="log", xlabel="hospitals")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=8)
    axes[2].legend(fontsize=8)
    fig.savefig(path, dpi=130)


def main() -> None:
    args = options(__doc__, repeats=10, rois=400, out=ROOT / "results/consortium.json")
    torch.set_num_threads(1)
    begun, (start, of) = timed(public_start)
    command = f"python benchmarks/consortium.py --repeats {args.repeats}"
    made = {"of": of, "seconds": begun, "arrays": start.arrays.digest}
    found: dict = {
        "command": command,
        "machine": machine(),
        "start": made,
        "hospitals": COUNTS,
    }
    found["curves_s"], found["curves"] = timed(
        partial(curves, start.arrays, args.repeats)
    )
    rows = []
    for name, curve in found["curves"].items():
        pairs = zip(COUNTS, curve["auroc"], curve["accuracy"], strict=True)
        cells = {f"{c:,}": f"{a[0]:.3f} / {b[0]:.3f}" for c, a, b in pairs}
        rows.append({"AUROC / accuracy": name, **cells})
    show(rows)
    found["files"] = [files(start, count) for count in (10, 100, 1_000, 10_000)]
    people = simulate(n_rois=116, n_sites=4, scale=1.2)
    own = make_public(people, people.site_names[1:])
    found["turn"] = turn(own, people, people.site_names[0])
    found["large_atlas"] = large_atlas(args.rois)
    print(json.dumps({k: found[k] for k in ("files", "turn", "large_atlas")}, indent=1))
    save(args.out, found)
    figure(found, ROOT / "docs/images/consortium.png")


if __name__ == "__main__":
    main()
