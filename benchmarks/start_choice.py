"""Choose the settings of a start on public people alone, by a rule fixed in advance.

usage: python benchmarks/start_choice.py [--out results/start_choice.json]

Read from each file: the public sites alone (everybody but NYU, UM, USM and UCLA, whose subjects
are dropped before anything is computed). Twelve times their sites are dealt at random into a
public half, of which the start is made, and hospitals, each cut 7:3 as in a run. Every hospital
releases at epsilon 1, delta 1e-3 (three draws of the noise); the consortium's head scores the
test parts of all hospitals.

Rule (committed before the run): the criterion is the AUROC over all hospitals' test subjects,
averaged over draws, partitions and both files. Every setting is varied alone around the design's
value (`DESIGN`). A value replaces the design's only if its mean paired gain is above one
standard error of that gain over the 24 partitions; of several such values the one with the
largest gain. Ties and everything else: the design's value stays. The form of a release (the
vector c, or sums of each class) and the solve (aware of the noise, or plain) are decided in the
same way.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from setting import FOLDER, machine

from fcforge.graphs import log_features
from fcforge.privacy.mechanisms import clip_rows, gaussian_sigma
from fcforge.randomness import numpy_rng, torch_rng
from fcforge.releases import vector
from fcforge.releases.start import Start, StartSettings, coordinates, make_start
from fcforge.sites.cohort import fc_from_upper

FILES = ("abide1_aal116.npz", "abide1_aal116_dparsf.npz")
TESTED = ("NYU", "UM_1", "UM_2", "USM", "UCLA_1", "UCLA_2")
TWICE = ("50286", "50602", "50808")  # second of each pair that looks like one person (PROVENANCE)
TRIALS = {
    "axes": (8, 16, 32),
    "directions": ("pca", "pls"),
    "shrink": (0.2, 0.4, 0.6),
    "penalty": (0.25, 0.5, 1.0),
    "pull": (3.0, 10.0, 30.0, 100.0),
    "clip": (0.5, 0.75, 0.9),
}
DESIGN = StartSettings(
    axes=16, directions="pca", shrink=0.4, penalty=0.5, pull=10.0, clip=0.5
)  # as drawn up before; `StartSettings` has what the rule made of it
PARTITIONS, DRAWS, EPSILON, DELTA = 12, 3, 1.0, 1e-3


def public_people(name: str) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """FC, diagnoses and sites of the public sites of a file."""
    with np.load(FOLDER / name) as data:
        site, ids = data["site"].astype(str), data["subject_id"].astype(str)
        kept = ~np.isin(site, TESTED) & ~np.isin(ids, TWICE)
        fc = fc_from_upper(data["fc_upper"][kept].astype(np.float32))
        return torch.from_numpy(fc), data["label"][kept].astype(np.int64), site[kept]


def deal(site: np.ndarray, y: np.ndarray, number: int) -> tuple[np.ndarray, list[tuple]]:
    """Rows of the public half, and (train rows, test rows) of every hospital."""
    rng = numpy_rng(number, "start choice")
    names = rng.permutation(np.unique(site))
    public = np.flatnonzero(np.isin(site, names[: len(names) // 2]))
    hospitals = []
    for name in names[len(names) // 2 :]:
        parts = [rng.permutation(np.flatnonzero((site == name) & (y == c))) for c in (0, 1)]
        cuts = [max(1, round(0.3 * len(p))) for p in parts]
        test = np.concatenate([p[:k] for p, k in zip(parts, cuts, strict=True)])
        train = np.concatenate([p[k:] for p, k in zip(parts, cuts, strict=True)])
        hospitals.append((train, test))
    return public, hospitals


def auroc(score: np.ndarray, y: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, score))


def head_of_class_sums(
    start: Start, parts: list, sigma: float, rng: torch.Generator
) -> vector.Head:
    """The rival form: noisy sums of u and counts of each class, public within-class moments."""
    q, half = start.n_axes, 0.5
    bound = float(1.25**0.5)  # of u = (z, 1/2) with z of median norm one
    sums = torch.zeros(2, q + 1, dtype=torch.float64)
    for x, y in parts:
        rows = clip_rows(coordinates(start, x), bound)
        for label in (0, 1):
            noise = torch.randn(q + 1, generator=rng, dtype=torch.float64)
            sums[label] += rows[y == label].sum(0) + sigma * bound * noise
    n = (sums[:, -1] / half).clamp(min=1.0)
    mean = sums / n[:, None]
    mean[:, -1] = half
    inside = start.second.clone()
    inside[-1, :], inside[:, -1] = 0.0, 0.0
    second = sum(n[c] * (torch.outer(mean[c], mean[c]) + inside) for c in (0, 1))
    public = torch.linalg.lstsq(start.second, _moments_of_score(start)[:, None]).solution[:, 0]
    right = n[1] * mean[1] - n[0] * mean[0] - second @ public
    eye = torch.eye(q + 1, dtype=torch.float64)
    return vector.head(start, torch.linalg.solve(second + start.pull * eye, right))


def _moments_of_score(start: Start) -> torch.Tensor:
    """E[u s0(x)] from what a start holds: axes diagonalise the public people."""
    along = start.axes.T @ start.weight / (start.axes**2).sum(0)
    theta = torch.cat([along, 2 * start.bias[None]])
    return start.second @ theta


def criterion(
    features: torch.Tensor, y: np.ndarray, site: np.ndarray, settings: StartSettings, number: int,
    form: str = "vector",
) -> dict[str, float]:  # fmt: skip
    """AUROC at epsilon 1 (mean over draws), without noise, and of the public head alone."""
    public, hospitals = deal(site, y, number)
    labels, aware = torch.from_numpy(y), form == "vector"
    start = make_start(features[public], labels[public], site[public], settings)
    test = np.concatenate([t for _, t in hospitals])
    x = start.standardise(features[test])

    def score(head: vector.Head) -> float:
        return auroc((x @ head.weight + head.bias).numpy(), y[test])

    def consortium(epsilon: float | None, draw: int) -> vector.Head:
        rng = torch_rng(draw, "start choice", number)
        if form == "class sums":
            parts = [(start.standardise(features[t]), labels[t]) for t, _ in hospitals]
            sigma = 0.0 if epsilon is None else gaussian_sigma(epsilon, DELTA)
            return head_of_class_sums(start, parts, sigma, rng)
        given = [
            vector.release_vector(start, features[t], labels[t], epsilon, DELTA, rng)
            for t, _ in hospitals
        ]
        variance = len(given) * vector.noise_sd(start, epsilon, DELTA) ** 2 if aware else 0.0
        return vector.head(start, vector.solve(start, sum(given), variance, len(given)))

    return {
        "public": score(vector.Head(start.weight, start.bias)),
        "exact": score(consortium(None, 0)),
        "epsilon 1": float(np.mean([score(consortium(EPSILON, d)) for d in range(DRAWS)])),
    }


def trials(people: list[tuple]) -> list[dict]:
    """Every candidate on every partition of every file."""
    rows = []
    design = DESIGN
    candidates = [("design", None, design, "vector")]
    candidates += [("form", form, design, form) for form in ("class sums", "plain solve")]
    for name, values in TRIALS.items():
        for value in values:
            if value != getattr(design, name):
                candidates.append((name, value, replace(design, **{name: value}), "vector"))
    for name, value, settings, form in candidates:
        found = []
        for fc, y, site in people:
            features = log_features(fc.double(), settings.shrink)
            for number in range(PARTITIONS):
                found.append(criterion(features, y, site, settings, number, form))
        rows.append({"setting": name, "value": value, "partitions": found})
        mean = {k: np.mean([f[k] for f in found]) for k in found[0]}
        print(
            f"{name:8s} {value!s:10s} " + "  ".join(f"{k} {v:.4f}" for k, v in mean.items()),
            flush=True,
        )
    return rows


def decide(rows: list[dict]) -> dict:
    """The rule of the module's docstring."""
    base = np.array([f["epsilon 1"] for f in rows[0]["partitions"]])
    chosen, table = {}, []
    for row in rows[1:]:
        gain = np.array([f["epsilon 1"] for f in row["partitions"]]) - base
        error = gain.std(ddof=1) / len(gain) ** 0.5
        numbers = {"gain": round(float(gain.mean()), 5), "standard_error": round(float(error), 5)}
        table.append({"setting": row["setting"], "value": row["value"], **numbers})
        best = chosen.get(row["setting"], {"gain": 0.0})
        if gain.mean() > error and gain.mean() > best["gain"]:
            chosen[row["setting"]] = table[-1]
    return {"design": asdict(DESIGN), "changed": chosen, "table": table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/start_choice.json"))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    rows = trials([public_people(name) for name in FILES])
    decision = {"machine": machine("cpu"), **decide(rows), "trials": rows}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(decision, indent=1))
    print(json.dumps({k: decision[k] for k in ("changed", "table")}, indent=1))


if __name__ == "__main__":
    main()
