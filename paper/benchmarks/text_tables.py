"""Tables of what the paper's text leaves open: leaks one by one, its order, its whole grid.

Views of make_tables.py, over the experiments leaks_single, main, lambda_grid and augmentation_100;
and own thresholds.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean, stdev

from paper_tables import (
    Finished,
    Found,
    Runs,
    _compared,
    differences,
    markdown,
    numbers,
)

from fcforge.core.formatting import bracket, number, p_value, with_interval
from fcforge.evaluation.forgetting import finite, summary
from fcforge.experiments.site_thresholds import OWN
from fcforge.report.run_numbers import curves

LEAKS = ("epoch", "context", "generator", "all")
# What chooses no context and trains no generator has nothing to leak there.
WITHOUT = {"context": "", "generator": "", "all": "epoch"}
METRICS = ("acc", "pre", "rec", "f1")
NONE = "–"
POINT = re.compile(r"l1 (\S+) l2 (\S+) l3 (\S+)")


def _under(name: str, leak: str, learner: str, results: Found) -> Finished | None:
    """Table that has a learner under a leak; None where it was not run whole."""
    table = results[f"{name}+{leak}"] if leak else results[name]
    if learner in table.groups:
        return table
    if learner in table.missing:
        return None
    return _under(name, WITHOUT[leak], learner, results)


def _leaks(name: str, results: Found) -> list[str]:
    """Leaks under which a table was run."""
    return [leak for leak in LEAKS if f"{name}+{leak}" in results]


def leaks(name: str, results: Found) -> str:
    """AAA of every learner without a leak and under each; below, minus itself without."""
    learners = list(results[name].groups)
    run = _leaks(name, results)
    lines = []
    for learner in learners:
        tables = [_under(name, leak, learner, results) for leak in ("", *run)]
        cells = [numbers(t.rows[learner], ("aaa",))[0] if t else NONE for t in tables]
        lines.append([learner, *cells])
    changes: dict[str, Mapping[str, list[str]]] = {}
    for leak in run:
        pairs = {}
        for learner in learners:
            table = _under(name, leak, learner, results)
            if table is not None and table is not results[name]:
                runs = table.groups[learner]
                pairs[learner] = (runs, results[name].groups[learner])
        changes[leak] = {k: _compared(d) for k, d in differences(pairs).items()}
    below = [
        [k, *(" p ".join(changes[leak].get(k, [NONE])) for leak in run)]
        for k in learners
    ]
    heads = [leak if leak == "all" else f"{leak} on test" for leak in run]
    first = markdown(["learner", "no leak", *heads], lines)
    return (
        f"{first}\n\n{markdown(['leak minus no leak [95 %], p (Holm)', *run], below)}"
    )


def leaks_minus(name: str, reference: str, results: Found) -> str:
    """Every learner minus a reference under the same leak."""
    learners = [k for k in results[name].groups if k != reference]
    run = _leaks(name, results)
    columns = []
    for leak in ("", *run):
        pairs = {}
        other = _under(name, leak, reference, results)
        for learner in learners:
            one = _under(name, leak, learner, results)
            if one and other:
                pairs[learner] = (one.groups[learner], other.groups[reference])
        made = differences(pairs)
        columns.append({k: " p ".join(_compared(d)) for k, d in made.items()})
    lines = [[k, *(c.get(k, NONE) for c in columns)] for k in learners]
    return markdown([f"minus {reference} [95 %], p (Holm)", "no leak", *run], lines)


def own_order(name: str, order: str, results: Found) -> str:
    """Accuracy after every stage and FOR, in one order / mean of all orders."""
    sites = tuple(part.strip() for part in order.split(">"))
    lines = []
    for learner, runs in results[name].groups.items():
        good = [r for r in runs if finite(r)]
        mine = [r for r in good if r.spec.order == sites]
        if not mine:
            continue
        stages = [curves(runs, 2)[0].mean for runs in (mine, good)]
        cells = [_pair(a, b) for a, b in zip(*stages, strict=True)]
        lines.append([learner, *cells, _pair(_for(mine), _for(good))])
    heads = [f"accuracy after {site}" for site in sites]
    return markdown(["learner", *heads, "FOR"], lines)


def _pair(one: float, every: float) -> str:
    return f"{number(one)} / {number(every)}"


def _for(runs: Runs) -> float:
    return fmean(summary(r)["for_literal"] for r in runs)


def grid(name: str, chosen: str, results: Found) -> str:
    """AAA over a grid of three weights, its range, and the place of one point in it."""
    points = {}
    for title, row in results[name].rows.items():
        if match := POINT.fullmatch(title):
            points[tuple(map(float, match.groups()))] = row.estimates["aaa"].value
    thirds = sorted({p[2] for p in points})
    pairs = sorted({p[:2] for p in points})
    lines = [
        [f"{a:g}", f"{b:g}", *(number(points[a, b, c]) for c in thirds)]
        for a, b in pairs
    ]
    values = list(points.values())
    mine = points[tuple(map(float, chosen.split()))]
    place = 1 + sum(v > mine for v in values)
    table = markdown(["l1", "l2", *(f"l3 {c:g}" for c in thirds)], lines)
    return (
        f"{table}\n\n{len(values)} points from {number(min(values))} to "
        f"{number(max(values))}, standard deviation {number(stdev(values))}; the paper's choice "
        f"({chosen.replace(' ', ' / ')}) has {number(mine)}, place {place}."
    )


def augmentation(path: Path) -> str:
    """ACC / PRE / REC / F1 of every classifier and generator, the paper's below ours."""
    from fcforge.evaluation.generator_quality.summary import published, summarise

    summary_of = summarise(json.loads(path.read_text())["records"])
    names = next(iter(summary_of.values()))
    models = [
        k.removeprefix("aug_").removesuffix("_acc")
        for k in names
        if k.startswith("aug_") and k.endswith("_acc")
    ]
    lines = []
    for model in models:
        for row, results in summary_of.items():
            ours = [results.get(f"aug_{model}_{metric}") for metric in METRICS]
            if None not in ours:
                cells = [number(e.value) for e in ours]
                lines.append([model, row, " / ".join(cells), published(model, row)])
    heads = ["classifier", "added", "ACC / PRE / REC / F1", "the paper's"]
    return markdown(heads, lines)


def moved(tables: Iterable[tuple[str, Finished, Finished]]) -> str:
    """Return how far AAA moves if one of two duplicate scans is not scored, for the tables that move.

    Parameters
    ----------
    tables : iterable of (name, as it was run, look-alikes scored as one person)
    """
    lines = []
    for name, as_run, once in tables:
        seeds = set()
        changes = []
        for learner, runs in as_run.groups.items():
            others = once.groups[learner]
            for a, b in zip(runs, others, strict=True):
                if a.subject_ids != b.subject_ids:
                    seeds.add(a.spec.seed)
            changes.append(_aaa(others) - _aaa(runs))
        span = [number(end(changes), 4, sign=True) for end in (min, max)]
        if seeds:
            lines.append([name, str(len(seeds)), *span])
    return markdown(["table", "seeds changed", "least change of AAA", "largest"], lines)


def twice(name: str, pairs: Iterable[str], results: Found) -> str:
    """Change of AAA where a learner was trained again among other lanes, on the seeds of both.

    A pair is ``learner = table: learner there``.
    """
    lines = []
    for pair in pairs:
        learner, other_table = pair.split(" = ")
        other, title = other_table.split(": ")
        first, again = (
            _by_seed(runs)
            for runs in (results[name].groups[learner], results[other].groups[title])
        )
        moved = [fmean(again[k]) - fmean(first[k]) for k in first.keys() & again.keys()]
        spread = fmean(x * x for x in moved) ** 0.5
        change = number(fmean(moved), sign=True)
        lines.append([learner, f"{other}: {title}", change, number(spread)])
    heads = ["learner", "trained again as", "change of AAA", "RMS over seeds"]
    return markdown(heads, lines)


def _by_seed(runs: Runs) -> dict[int, list[float]]:
    """AAA of every order by seed."""
    values: dict[int, list[float]] = {}
    for r in runs:
        values.setdefault(r.spec.seed, []).append(summary(r)["aaa"])
    return values


def _aaa(runs: Runs) -> float:
    return fmean(summary(r)["aaa"] for r in runs if finite(r))


def studies(path: Path, title: str) -> str:
    """One table of paper/results/people.json: learners by columns, means with intervals."""
    rows = json.loads(path.read_text())["found"][title]
    columns = list(next(iter(rows.values())))
    lines = [[k, *(_with_interval(row[c]) for c in columns)] for k, row in rows.items()]
    return markdown(["learner", *columns], lines)


def _with_interval(cell: Mapping[str, float | None]) -> str:
    value, low, high = cell.values()
    if value is None:
        return NONE
    whole = float(value).is_integer() and low is None
    text = number(value, 0 if whole else 3)
    return text if low is None else f"{text} {bracket(low, high)}"


def own_threshold(path: Path) -> str:
    """Every learner with the common threshold, with each hospital's own, and the difference."""
    rows = json.loads(path.read_text())["rows"]
    local = {
        (row["hospitals"], row["learner"].removesuffix(OWN)): row
        for row in rows
        if row["learner"].endswith(OWN)
    }
    lines = []
    for row in rows:
        if not row["learner"].endswith(OWN):
            place = (row["hospitals"], row["learner"])
            cells = list(place)
            moved = local.get(place)
            for column in ("aaa", "bacc"):
                cells.append(with_interval(*row[column]))
                cells.append(number(moved[column][0]) if moved else "")
                cells.append(_gain(*moved[f"{column}_gain"]) if moved else "")
            both = [one["auroc"][0] for one in (row, moved) if one]
            lines.append([*cells, " / ".join(map(number, both))])
    heads = ["hospitals", "learner"]
    for name in ("AAA", "balanced accuracy"):
        heads += [name, "own threshold", "difference [95 %], p (Holm)"]
    return markdown([*heads, "AUROC / own threshold"], lines)


def _gain(value: float, low: float, high: float, p: float) -> str:
    ends = f"[{number(low, sign=True)}, {number(high, sign=True)}]"
    return f"{number(value, sign=True)} {ends} p {p_value(p)}"
