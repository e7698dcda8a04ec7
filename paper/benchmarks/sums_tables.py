"""Tables of sums: views of make_tables.py over paper/results/sums*.csv.

The attacks of a row are the strongest of three (paper/benchmarks/sums.py): *public* is the best one
of an attacker who knows public people or everybody but not who is in; *all others* the one that
the mechanism's ceiling is for.
"""

import csv
import io
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from paper_tables import difference_text, markdown

from fcforge.core.estimate import Estimate
from fcforge.core.formatting import memory, number, with_interval

RESULTS = Path(__file__).parents[1] / "results"
PEOPLE = {"abide1_aal116_dparsf.npz": "1,098 people", "abide1_aal116.npz": "871 people"}
SCORED = ("sums", "sums_attacks")  # spreadsheets that follow from stored scores
FOUR = "four_hospitals"  # another one, of `four_hospitals_scores`
_SHEETS: dict[str, str] = {}


def use(sheets: Mapping[str, str]) -> None:
    """Show these spreadsheets instead of those in paper/results/."""
    _SHEETS.update(sheets)
    rows_of.cache_clear()


@cache
def rows_of(name: str) -> tuple[dict[str, str], ...]:
    """Lines of a spreadsheet of paper/results/."""
    text = _SHEETS.get(name) or (RESULTS / f"{name}.csv").read_text()
    return tuple(csv.DictReader(io.StringIO(text)))


def _interval(row: dict[str, str], key: str, sign: bool = False) -> str:
    value, low, high = (float(row[f"{key}{end}"]) for end in ("", "_low", "_high"))
    if not sign:
        return with_interval(value, low, high)
    return difference_text(Estimate(value, low, high))


def _signed(value: float) -> str:
    return number(value, sign=True)


def _percent(share: str) -> str:
    return f"{number(100 * float(share), 0)} %"


def attacks(file: str, public: str, row: str) -> tuple[str, str, str]:
    """Strongest attack of those who do not know who is in, of one who does, and the ceiling."""
    for results in rows_of("sums_attacks"):
        if (results["file"], results["public"], results["row"]) == (file, public, row):
            seen = [results[key] for key in ("public covariance", "everybody known")]
            known = [float(value) for value in seen if value not in ("", "nan")]
            if known:
                best = number(max(known), 2)
                alone = number(float(results["all others known"]), 2)
                return best, alone, number(float(results["ceiling"]), 2)
    return "", "", ""


def at(file: str, public: str) -> dict[str, dict[str, str]]:
    """Rows of one file at one number of public people where all hospitals give, by title."""
    place = (file, public, "all")
    keys = ("file", "public", "hospitals")
    results = (row for row in rows_of("sums") if tuple(row[k] for k in keys) == place)
    return {row["row"]: row for row in results}


def curve(_: str, rest: str) -> str:
    """One file at one number of public people: worth and attacks, row by row."""
    file, public = rest.split()
    lines = []
    for title, row in at(file, public).items():
        gain = "" if title == "base model alone" else _interval(row, "gain", True)
        closed = _percent(row["gap_closed"]) if gain else ""
        tried = attacks(file, public, title)
        lines.append((title, _interval(row, "auroc"), gain, closed, *tried))
    heads = (
        "what leaves",
        "AUROC",
        "above the base model alone",
        "of the gap",
        "attack",
        "attack, all others known",
        "ceiling",
    )
    return markdown(heads, lines)


def by_hospitals(name: str, rest: str) -> str:
    """Share of the gap by how many hospitals give."""
    cells: dict[str, dict[str, str]] = {}
    for row in rows_of(name):
        if (
            row["file"] == rest
            and row["public"] == "200"
            and "aggregators" in row["row"]
        ):
            cell = f"{_signed(float(row['gain']))} ({_percent(row['gap_closed'])})"
            cells.setdefault(row["row"], {})[row["hospitals"]] = cell
    counts = ("4", "8", "all")
    lines = [(title, *(each[k] for k in counts)) for title, each in cells.items()]
    return markdown(("what leaves", *(f"{k} hospitals" for k in counts)), lines)


def in_orders(name: str, rest: str) -> str:
    """The paper's four hospitals in all orders."""
    lines = []
    for row in rows_of(name):
        if row["file"] == rest:
            keys = (("aaa", False), ("auroc", False), ("auroc_gain", True))
            lines.append((row["row"], *(_interval(row, *key) for key in keys)))
    return markdown(
        ("what leaves", "AAA", "AUROC", "above the base model alone"), lines
    )


def groups(name: str, rest: str) -> str:
    """AUROC by subgroup, and calibration, at 200 public people."""
    kinds = ("female", "male", "under 15", "15 and over")
    errors = {
        row["row"]: number(float(row["ece"]))
        for row in rows_of(f"{name}_attacks")
        if (row["file"], row["public"]) == (rest, "200") and row["ece"]
    }
    lines = []
    for title, row in at(rest, "200").items():
        inside = [number(float(row[kind])) for kind in kinds]
        lines.append((title, *inside, errors.get(title, "")))
    return markdown(("what leaves", *kinds, "calibration error"), lines)


def _found(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())["found"]


def many(name: str, _: str) -> str:
    """What sums of many hospitals would add, in a world fitted to real partitions."""
    results = _found(name)
    ways = {"pooled": "pooled ridge", "None": "exact"}
    ways |= {f"{e}.0": f"epsilon {e}" for e in (8, 4, 2, 1)}
    real = [_signed(results["real"][key]) for key in ways]
    lines = [("14 (mean of real partitions)", "1", *real)]
    for row in results["rows"]:
        gains = [_signed(row[key]) for key in ways]
        line = (f"{row['hospitals']:,}", str(row["rounds"]), *gains)
        if line not in lines:
            lines.append(line)
    return markdown(("hospitals", "rounds", *ways.values()), lines)


def fits(name: str, _: str) -> str:
    """The best world of every strength, and what it promises the largest consortium."""
    lines = []
    for row in _found(name)["fits"]:
        gains = [_signed(row[key]) for key in ("None", "8.0", "1.0")]
        lines.append((f"{row['strength']:g}", number(row["misfit"]), *gains))
    heads = ("strength", "error of the fit", "exact", "epsilon 8", "epsilon 1")
    return markdown(heads, lines)


def costs(name: str, _: str) -> str:
    """What rounds of many hospitals cost."""
    results = _found(name)
    hospitals = f"{results['hospitals']:,} hospitals in {results['rounds']} rounds"
    lines = [
        ("a hospital: split, encrypt, sign", f"{1000 * results['hospital_s']:.1f} ms"),
        ("one share", memory(results["share_bytes"])),
        ("an aggregator's round, mean", f"{results['aggregator_round_s']:.2f} s"),
        ("an aggregator's round, slowest", f"{results['aggregator_slowest_s']:.2f} s"),
        ("an aggregate share", memory(results["aggregate_share_bytes"])),
        ("merging all aggregate shares", f"{results['merge_s']:.1f} s"),
        ("opening, every signature checked", f"{results['open_s']:.1f} s"),
        ("solving the model", f"{results['solve_s']:.2f} s"),
        ("the whole file", memory(results["file_bytes"])),
    ]
    return markdown((hospitals, "processor or size"), lines)


def by_rois(name: str, _: str) -> str:
    """A hospital's step and an aggregator's round by the number of ROIs."""
    lines = []
    for row in _found(name):
        seconds = [f"{row[key]:.2f} s" for key in ("step_s", "aggregator_round_s")]
        cells = (str(row["rois"]), str(row["people"]), seconds[0])
        lines.append((*cells, memory(row["share_bytes"]), seconds[1]))
    heads = ("ROIs", "people", "a hospital's step", "one share")
    return markdown((*heads, "an aggregator's round of 100 hospitals"), lines)


def _with_present_paths(text: str) -> str:
    """Return `text` with paths that lie under paper/; a record has those of its commit."""
    return re.sub(r"(?<![\w/])(?=(?:benchmarks|experiments|results)/)", "paper/", text)


def about(name: str, _: str) -> str:
    """Command, commit and machine of a spreadsheet."""
    stored = json.loads((RESULTS / f"{name}.json").read_text())
    machine = stored["machine"]
    if isinstance(machine, dict):
        parts = (
            machine["cpu"],
            f"{machine['cores']} cores",
            f"torch {machine['torch']}",
        )
        machine = ", ".join(parts)
    commit = stored["commit"] if " " in stored["commit"] else stored["commit"][:10]
    return _with_present_paths(f"`{stored['command']}`; commit {commit}; {machine}.")
