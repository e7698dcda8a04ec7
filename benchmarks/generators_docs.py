"""The study's records as the tables of docs/results/generators.md and REPRODUCIBILITY.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import generators_rows as g
import numpy as np

from fcforge.report.judge_tables import TITLES, Table, cell
from fcforge.studies.judge import paper
from fcforge.studies.judge.panel import REAL, Interval, best_tstr, interval, summarise

Records = Sequence[Mapping[str, Any]]
Per = dict[int, float]


def by_seed(records: Records, row: str, metric: str) -> Per:
    """Mean over sites of a metric for every seed of a row."""
    found: dict[int, list[float]] = {}
    for r in records:
        value = {**r["diagnostics"], **r["numbers"]}.get(metric)
        if r["row"] == row and value is not None:
            found.setdefault(r["seed"], []).append(float(value))
    return {seed: float(np.mean(values)) for seed, values in found.items()}


def difference(records: Records, row: str, other: str, metric: str) -> Interval:
    """Row minus other row, paired by seed, over the seeds both have."""
    a, b = by_seed(records, row, metric), by_seed(records, other, metric)
    return interval([a[s] - b[s] for s in sorted(a) if s in b])


def seeds_of(records: Records, row: str) -> str:
    """``0-4``, or ``0, 1``."""
    seeds = sorted({r["seed"] for r in records if r["row"] == row})
    return f"{seeds[0]}-{seeds[-1]}" if len(seeds) > 2 else ", ".join(map(str, seeds))


def titled(records: Records, row: str, title: str) -> str:
    """Title of a row, with its seeds where they are fewer than the real row's."""
    mine, all_seeds = seeds_of(records, row), seeds_of(records, REAL)
    word = "seeds" if "," in mine or "-" in mine else "seed"
    return title if mine == all_seeds else f"{title} ({word} {mine})"


def range_of(records: Records, row: str, metric: str) -> tuple[float, float]:
    """Smallest and largest value over sites and seeds."""
    found = [{**r["diagnostics"], **r["numbers"]}[metric] for r in records if r["row"] == row]
    return min(found), max(found)


def must_show(records: Records) -> Table:
    """The issue's criteria, one line each."""
    s = summarise(records)
    body: list[tuple[str, str, str, str]] = []

    def line(what: str, asked: str, found: str, met: bool) -> None:
        body.append((what, asked, found, "yes" if met else "**no**"))

    if "fcm_vae authors" in s:
        authors = s["fcm_vae authors"]
        units = [r["diagnostics"]["active_units"] for r in records if r["row"] == "fcm_vae authors"]
        none = sum(n == 0 for n in units)
        most = f"0 in {none} of {len(units)} fits, at most {max(units)}"
        line("authors preset: active units", "0", most, none == len(units))
        ratio = authors["sd_ratio"]
        line("authors preset: edge SD ratio", "< 0.5", cell(ratio), ratio.mean < 0.5)
    mine, real = s["fcm_vae"], s[REAL]
    low, _ = range_of(records, "fcm_vae", "active_units")
    units = f"{mine['active_units'].mean:.1f} (fewest {low:.0f})"
    line("careful: active units", ">= 8", units, mine["active_units"].mean >= 8)
    ratio = mine["variance_ratio"]
    line("careful: variance ratio", "0.6 to 1.4", cell(ratio), 0.6 <= ratio.mean <= 1.4)
    r = mine["edge_mean_r"]
    held = f"{cell(r)}; held-out subjects {cell(mine['edge_mean_r_test'])}"
    held += f" (real sample {cell(real['edge_mean_r_test'])})"
    line("careful: edge-mean r", ">= 0.98", held, r.mean >= 0.98)
    share = mine["class_difference_r"].mean / real["class_difference_r"].mean
    both = f"{share:.2f} ({cell(mine['class_difference_r'])} / {cell(real['class_difference_r'])})"
    line("careful: class-difference r / another real sample's", ">= 0.8", both, share >= 0.8)
    gap = best_tstr(s, REAL) - best_tstr(s, "fcm_vae")
    paired = difference(records, "fcm_vae", REAL, "tstr_linear_acc")
    text = f"{gap:+.3f} ({best_tstr(s, REAL):.3f} - {best_tstr(s, 'fcm_vae'):.3f}; "
    text += f"ridge, synthetic minus real, paired {cell(paired)})"
    line(
        "careful: train-on-real minus TSTR accuracy, best of ridge and GCN",
        "<= 0.02",
        text,
        gap <= 0.02,
    )
    psd = mine["psd_share"]
    line("careful: PSD share (no projection)", ">= 0.95", cell(psd), psd.mean >= 0.95)
    for row in ("corr_gauss", "corr_flow"):
        low, _ = range_of(records, row, "psd_share")
        line(f"{row}: valid matrices, smallest share", "1.00", f"{low:.2f}", low == 1.0)
    return Table("Must show", ("criterion", "asked", "found", "met"), tuple(body))


def augmentation(records: Records, classifiers: Sequence[str], rows: Mapping[str, str]) -> Table:
    """Classifier by training set: ours with interval, gain by pairs, the paper's four numbers."""
    s = summarise(records)
    base = next(iter(rows))
    header = (
        *("classifier", "training set", "ACC", "PRE", "REC", "F1"),
        f"ACC minus {rows[base]}, paired",
        "paper's ACC / PRE / REC / F1",
    )
    body = []
    for model in classifiers:
        for row, title in rows.items():
            values = s.get(row, {})
            acc = f"aug_{model}_acc"
            if acc not in values:
                continue
            rest = [f"{values[f'aug_{model}_{m}'].mean:.3f}" for m in ("pre", "rec", "f1")]
            gain = "" if row == base else _signed(difference(records, row, base, acc))
            line = (TITLES[model], titled(records, row, title), cell(values[acc]), *rest, gain)
            body.append((*line, paper.published(model, row)))
    return Table("", header, tuple(body))


def _signed(value: Interval) -> str:
    return cell(value) if value.mean < 0 else f"+{cell(value)}"


def schedule(records: Records) -> Table:
    """What was fitted: seeds, steps or epochs, seconds of one fit at NYU."""
    body = []
    for row in g.PRIORITY:
        mine = [r for r in records if r["row"] == row]
        if not mine:
            continue
        info = mine[0]["diagnostics"]
        length = info.get("epochs", info.get("steps"))
        at_nyu = [r["diagnostics"].get("fit_seconds") for r in mine if r["site"] == "NYU"]
        took = [x for x in at_nyu if x is not None]
        seconds = f"{np.mean(took):.1f}" if took else ""
        if "lanes" in info:
            seconds += f" for {info['lanes']} (site, seed) together, GPU"
        elif str(info.get("fitted_on", "cpu")) != "cpu":
            seconds += " (GPU)"
        body.append((row, seeds_of(records, row), "" if length is None else str(length), seconds))
    header = ("generator", "seeds", "epochs or steps", "seconds of a fit at NYU")
    return Table("", header, tuple(body))


def reproducibility(records: Records, classifiers: Sequence[str]) -> str:
    """Both of the paper's tables for REPRODUCIBILITY.md."""
    options = {**paper.OPTIONS, "corr_gauss": "corr_gauss (ours)"}
    first = augmentation(records, classifiers, options)
    second = augmentation(records, classifiers, paper.ABLATIONS)
    return f"{first.markdown()}\n\n{second.markdown()}\n"
