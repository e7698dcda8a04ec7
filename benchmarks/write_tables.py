"""Every table of the paper in Markdown: the paper's value, ours, ours with the leaks on.

    python benchmarks/write_tables.py ARCHIVES [--runs runs/tables] [--done FILE] > tables.md

ARCHIVES is a folder with what `benchmarks/run_tables.py` sent back (any depth), or a folder of run
folders of `fcforge run experiments/NAME.toml --out FOLDER/NAME`. Archives are unpacked into one run
folder per table under --runs, on which `fcforge report` works as on any other. Intervals are 95 %
over test subjects; differences are paired over orders, seeds and subjects.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import numpy as np
import paper_tables as paper
from tables_numbers import NONE, Numbers, cell, lines, pair, plain
from tables_read import Runs, Table, read, unpack

from fcforge.metrics import finite
from fcforge.report.contents import curves
from fcforge.stats import with_majority


def seconds(runs: Runs) -> float:
    """Training time of an order; `joint` trains once, whatever the number of stages."""
    once = runs[0].spec.learner.method.name == "joint"
    return float(np.mean([r.seconds[-1] if once else r.seconds.sum() for r in runs]))


def about(table: Table) -> str:
    """Orders and seeds behind a table, and what is missing from it."""
    everything = [r for runs in table.groups.values() for r in runs]
    orders = len({r.spec.order for r in everything})
    seeds = sorted({r.spec.seed for r in everything})
    epochs = sorted({r.spec.training.epochs for r in everything})
    devices = sorted({str(r.environment.get("gpu", r.environment["device"])) for r in everything})
    missing = [k for k in table.asked if k not in table.groups]
    precision = sorted({r.spec.training.precision for r in everything})
    text = f"{orders} orders, seeds {seeds}, {epochs} epochs, {', '.join(precision)}, {devices}"
    return text + (f"; not finished: {', '.join(missing)}" if missing else "")


# -- sections -------------------------------------------------------------------------------------
def main_table(
    table: Table, leaky: Table | None, printed: Mapping[str, tuple[float, float]], n: Numbers
) -> str:
    """All learners by falling AAA, the majority class first."""
    everything = with_majority([r for runs in table.groups.values() for r in runs])
    majority = [r for r in everything if r.spec.learner.method.name == "majority"]
    groups = dict(table.groups)
    order = sorted(groups, key=lambda k: -n.of(groups[k])["aaa"].mean)
    base = seconds(groups["Base"]) if "Base" in groups else math.nan
    rows = []
    for k, runs in [("majority class", majority), *((k, groups[k]) for k in order)]:
        e = n.of(runs)
        leak = leaky.groups.get(k) if leaky else None
        cost = seconds(runs) / base
        on_cpu = runs[0].environment.get("device") == "cpu" or k == "majority class"
        rows.append(
            [
                k,
                table.keeps.get(k, "counts"),
                pair(printed.get(k)),
                cell(e["aaa"]),
                cell(e["fm"]),
                cell(e["for_literal"]),
                plain(e["acc"].mean),
                *([cell(n.of(leak)["aaa"]) if leak else NONE] if leaky else []),
                NONE if on_cpu or not math.isfinite(cost) else f"{cost:.1f}",
            ]
        )
    heads = ["learner", "keeps", "paper AAA / FOR", "AAA", "FM", "FOR literal", "final"]
    heads += [*(["AAA, leaks on"] if leaky else []), "time, Base = 1"]
    return lines(heads, rows)


def differences(groups: Mapping[str, Runs], one: str, others: Sequence[str], n: Numbers) -> str:
    """Paired differences of one learner from others, as a sentence."""
    if one not in groups:
        return f"{one} is not there."
    found = [
        f"{o} {n.minus(groups[one], groups[o])} (FM {n.minus(groups[one], groups[o], 'fm')})"
        for o in others
        if o in groups and o != one
    ]
    return f"Paired, {one} minus the other, AAA: " + "; ".join(found) + "."


def ranking(
    groups: Mapping[str, Runs], printed: Mapping[str, tuple[float, float]], n: Numbers
) -> str:
    """Spearman's correlation of our AAA with the paper's over the methods both have."""
    both = [k for k in printed if k in groups]
    if len(both) < 4:
        return ""
    ours = np.array([n.of(groups[k])["aaa"].mean for k in both])
    theirs = np.array([printed[k][0] for k in both])
    ranks = [np.argsort(np.argsort(x)) for x in (ours, theirs)]
    rho = float(np.corrcoef(*ranks)[0, 1])
    best = sorted(both, key=lambda k: -n.of(groups[k])["aaa"].mean)
    rank = f"Spearman with the paper's AAA {rho:+.2f} ({len(both)} methods)"
    return f"Order here: {' > '.join(best)}; {rank}."


def leaks_table(leaky: Table, strict: Table | None, literal: Table | None, n: Numbers) -> str:
    """Paper, the paper's protocol without leaks, and with them."""
    rows = []
    without: dict[str, Runs] = {}
    if strict:
        seeds = {r.spec.seed for runs in leaky.groups.values() for r in runs}
        for k, runs in strict.groups.items():
            without[k] = [r for r in runs if r.spec.seed in seeds]
    if literal and "FORGE" in literal.groups:
        without["FORGE"] = literal.groups["FORGE"]
    for k in sorted(leaky.groups, key=lambda k: -n.of(leaky.groups[k])["aaa"].mean):
        runs, old = leaky.groups[k], without.get(k)
        e = n.of(runs)
        before = cell(n.of(old)["aaa"]) if old else NONE
        gain = n.minus(runs, old) if old else NONE
        ours = [before, cell(e["aaa"]), gain, cell(e["fm"]), cell(e["for_literal"])]
        rows.append([k, pair(paper.LEAKS.get(k)), *ours])
    heads = ["learner", "paper AAA / FOR", "AAA without leaks", "AAA with leaks", "gain (paired)"]
    return lines([*heads, "FM with leaks", "FOR literal with leaks"], rows)


def rows_table(
    tables: Mapping[str, Table],
    name: str,
    printed: Mapping[str, tuple[float, float]],
    n: Numbers,
    partner: Callable[[str], tuple[str, str]] | None = None,
    than: str = "",
) -> str:
    """Complete learners in the order of the config, each with its difference from its partner."""
    table, leaky = tables[name], tables.get(f"{name}+leaks")
    rows = []
    for k in (k for k in table.asked if k in table.groups):
        e = n.of(table.groups[k])
        row = [k, pair(printed.get(k)), cell(e["aaa"]), cell(e["fm"]), cell(e["for_literal"])]
        if partner:
            where, whom = partner(k)
            other = tables[where].groups.get(whom)
            same = not other or (where, whom) == (name, k)
            row.append(NONE if same else n.minus(table.groups[k], other))
        if leaky:
            there = leaky.groups.get(k)
            row.append(cell(n.of(there)["aaa"]) if there else NONE)
        rows.append(row)
    heads = ["learner", "paper AAA / FOR", "AAA", "FM", "FOR literal"]
    heads += [f"AAA minus {than}"] if partner else []
    return lines(heads + (["AAA, leaks on"] if leaky else []), rows)


def stages(table: Table) -> str:
    """Accuracy on the sites so far, and forgetting, after every stage."""
    rows, n_stages = [], 0
    for k, runs in table.groups.items():
        accuracy, forgetting = curves([r for r in runs if finite(r)], 200)
        n_stages = len(accuracy.mean)
        rows.append([k, *map(plain, accuracy.mean), *map(plain, forgetting.mean[1:])])
    heads = [f"accuracy after {t + 1}" for t in range(n_stages)]
    heads += [f"forgetting after {t + 1}" for t in range(1, n_stages)]
    return lines(["learner", *heads], rows)


class Section(NamedTuple):
    """A table with what is to be said about it."""

    name: str
    table: str
    notes: list[str]


def main_sections(tables: Mapping[str, Table], n: Numbers) -> Iterator[Section]:
    rivals = ["Base", "ER", "DER++", "PDGNN", "Cumulative", "Joint", "Analytic ridge"]
    forges = ["FORGE (Gaussian)", "FORGE (FCM-VAE)", "FORGE, closed form (Gaussian)"]
    for name, printed in (
        ("main_abide", paper.MAIN["asd"]),
        ("main_mdd", paper.MAIN["mdd"]),
        ("main_bsnip", paper.MAIN["bsnip"]),
        ("edges_mdd", {}),
        ("edges_bsnip", {}),
    ):
        if name in tables:
            table = tables[name]
            leaky = tables.get("leaks" if name == "main_abide" else f"{name}+leaks")
            there = [f for f in forges if f in table.groups]
            notes = [differences(table.groups, f, [*rivals, *there], n) for f in there]
            notes += [ranking(table.groups, printed, n), f"Over the stages:\n\n{stages(table)}"]
            yield Section(name, main_table(table, leaky, printed, n), notes)
    if "main_abide_tuned" in tables:
        tuned, main = tables["main_abide_tuned"].groups, tables["main_abide"].groups
        both = [k for k in tuned if k in main]
        notes = [f"{k}: tuned minus default {n.minus(tuned[k], main[k])}" for k in both]
        found = rows_table(tables, "main_abide_tuned", paper.MAIN["asd"], n)
        yield Section("main_abide_tuned", found, notes)
    if "leaks" in tables:
        leaky = tables["leaks"]
        strict, literal = tables.get("main_abide"), tables.get("paper_protocol")
        notes = [
            differences(leaky.groups, "FORGE", list(leaky.groups), n),
            differences(leaky.groups, "DER++", ["ER", "Base"], n),
            differences(leaky.groups, "ER", ["Base"], n),
            ranking(leaky.groups, paper.LEAKS, n),
        ]
        yield Section("leaks", leaks_table(leaky, strict, literal, n), notes)


def small_sections(tables: Mapping[str, Table], n: Numbers) -> Iterator[Section]:
    for name, printed, partner, than in (
        ("ablation", paper.ABLATION, lambda k: ("ablation", "FORGE"), "FORGE"),
        ("ablation_mdd", paper.ABLATION_MDD, lambda k: ("ablation_mdd", "FORGE"), "FORGE"),
        ("ablation_bsnip", paper.ABLATION_BSNIP, lambda k: ("ablation_bsnip", "FORGE"), "FORGE"),
        ("ladder", paper.LADDER, lambda k: ("main_abide", "DER++"), "DER++"),
        ("buffer", paper.BUFFER, lambda k: ("buffer", f"{k.split()[0]} 256"), "the same at 256"),
        ("tau", paper.TAU, lambda k: ("tau", f"{k.split()[0]} tau 0.4"), "the same at 0.4"),
        ("lambda", {}, lambda k: ("lambda", "l1 0.2 l2 0.35 l3 0.15"), "the paper's choice"),
    ):
        if name in tables:
            leaky = tables.get(f"{name}+leaks")
            notes = [f"Leaks on: {about(leaky)}"] if leaky else []
            yield Section(name, rows_table(tables, name, printed, n, partner, than), notes)


def draw(tables: Mapping[str, Table], folder: Path) -> None:
    from tables_figures import draw_lambda, draw_stages

    folder.mkdir(parents=True, exist_ok=True)
    for name in ("main_abide", "main_mdd", "main_bsnip"):
        if name in tables:
            draw_stages(tables[name].groups, folder / f"stages_{name}.svg")
    if "lambda" in tables:
        draw_lambda(tables["lambda"].groups, Numbers().of, folder / "lambda_abide.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archives", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/tables"))
    parser.add_argument("--done", type=Path, help="write TABLE/LABEL of what is complete")
    parser.add_argument("--figures", type=Path, help="folder for the two curve figures")
    parser.add_argument("--reports", action="store_true", help="report.html of every run folder")
    args = parser.parse_args()
    folders = sorted(args.archives.glob("*/experiment.json"))
    if not folders:
        unpack(args.archives, args.runs)
        folders = sorted(args.runs.glob("*/experiment.json"))
    tables = {p.parent.name: read(p.parent) for p in folders}
    tables = {k: t for k, t in tables.items() if t.groups}
    if args.done:
        done = [f"{name}/{k}" for name, table in tables.items() for k in table.complete()]
        args.done.write_text("\n".join(done) + "\n")
    n = Numbers()
    found = [*main_sections(tables, n), *small_sections(tables, n)]
    for name, text, notes in found:
        print("\n\n".join([f"## {name}", about(tables[name]), text, *filter(None, notes)]) + "\n")
    if args.reports:
        from tables_reports import write_reports

        write_reports({p.parent.name: p.parent for p in folders}, found)
    if args.figures:
        draw(tables, args.figures)


if __name__ == "__main__":
    main()
