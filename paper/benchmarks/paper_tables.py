"""The paper's tables from our own scores, with the numbers the paper prints beside them.

Tables are named as the experiments are; what the paper prints and what a row is compared with
stands in paper_tables.toml. Intervals are 95 % over test subjects and trainings; differences are
paired over orders, seeds and subjects, their p-values corrected within the table (Holm).
"""

import json
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import exchanged
from scipy.stats import spearmanr, ttest_1samp

from fcforge.core.estimate import Estimate
from fcforge.core.formatting import number, p_value, with_interval
from fcforge.core.result import RunResult
from fcforge.evaluation.comparison import Comparer, Comparison, holm
from fcforge.evaluation.forgetting import finite
from fcforge.evaluation.resampling import split_batches
from fcforge.evaluation.tables import Row, by_learner, results_rows
from fcforge.report.run_numbers import curves
from fcforge.report.tables import Table

Runs = list[RunResult]


@dataclass(frozen=True)
class Printed:
    """A table of the paper; the fields are explained in paper_tables.toml."""

    title: str
    printed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    ranked: bool = False
    minus: str = ""
    of: str = ""
    of_row: Mapping[str, str] = field(default_factory=dict)
    leaks: str = ""
    rest: str = ""
    rest_as: Mapping[str, str] = field(default_factory=dict)
    second: str = ""


def on_529(name: str) -> str:
    """The experiment of that name on the paper's own 529 subjects."""
    stem, plus, leaks = name.partition("+")
    return f"{stem.removesuffix('_abide')}_529{plus}{leaks}" if name else ""


TOLD = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
DROPPED: Sequence[str] = TOLD.pop("dropped")
ON_529: Mapping[str, Mapping[str, Any]] = TOLD.pop("on_529")


def shown(table: "Finished") -> "Finished":
    """A table without the rows of learners that are gone."""
    kept = {k: runs for k, runs in table.groups.items() if k not in DROPPED}
    return replace(table, groups=kept)


def split(text: str, by: str = ",") -> list[str]:
    """Parts of a text, without blanks around them."""
    return [part.strip() for part in text.split(by) if part.strip()]


@cache
def printed_tables() -> dict[str, Printed]:
    """The paper's tables by the name of the experiment; those of ASD on the 529 subjects too."""
    results = {}
    for name, table in TOLD.items():
        pairs = {
            k: (float(aaa), float(fm))
            for k, (aaa, fm) in table.pop("printed", {}).items()
        }
        one = Printed(**table, printed=pairs)
        results[name] = one
        if not name.endswith(("_mdd", "_bsnip", "_tuned", "_529")):
            rows = {k: on_529(v) for k, v in one.of_row.items()}
            printed = {k: on_529(getattr(one, k)) for k in ("of", "leaks", "rest")}
            title, second = f"{one.title}, 529 subjects", name if one.ranked else ""
            printed |= ON_529.get(on_529(name), {})
            results[on_529(name)] = replace(
                one, title=title, second=second, of_row=rows, **printed
            )
    return results


@dataclass(frozen=True)
class Finished:
    """Learners of a run folder all of whose runs are there.

    A learner that was stopped half-way would be a mean over other orders than its rivals'.
    """

    groups: Mapping[str, Runs]
    keeps: Mapping[str, str]
    missing: tuple[str, ...] = ()
    n_draws: int = 500

    @cached_property
    def rows(self) -> dict[str, Row]:
        """Lines of the results table by learner: the majority classes, then by falling AAA."""
        runs = [r for results in self.groups.values() for r in results]
        return {
            r.learner: r
            for r in results_rows(runs, keeps=self.keeps, n_draws=self.n_draws)
        }

    def about(self) -> str:
        """Orders, seeds, epochs, precision and device behind a table, and what is missing."""
        runs = [r for results in self.groups.values() for r in results]
        n_orders, seeds = (
            len({r.spec.order for r in runs}),
            sorted({r.spec.seed for r in runs}),
        )
        epochs = sorted({r.spec.training.epochs for r in runs})
        precision = sorted({str(r.spec.training.precision) for r in runs})
        devices = sorted(
            {str(r.environment.get("gpu", r.environment.get("cpu"))) for r in runs}
        )
        whole = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
        span = f"{seeds[0]} to {seeds[-1]}" if whole else ", ".join(map(str, seeds))
        text = f"{n_orders} orders, seeds {span}, {'/'.join(map(str, epochs))} epochs"
        text = ", ".join([text, *precision, *devices])
        return text + (
            f"; not finished: {', '.join(self.missing)}" if self.missing else ""
        )


def read_folder(folder: str | Path) -> Finished:
    """Finished learners of a run folder."""
    # `make tables` reads no run folder, and needs no torch
    from fcforge.experiments.collect import collect, kept_by, stored_plan
    from fcforge.experiments.store import Store

    store = Store(folder)
    groups = by_learner(collect(store)[0])
    titles = [spec.learner.title for spec, _ in stored_plan(store)[1].stages]
    unique = dict.fromkeys(titles)
    whole = {k: groups[k] for k in unique if len(groups.get(k, ())) == titles.count(k)}
    return Finished(whole, kept_by(store), tuple(k for k in unique if k not in whole))


Found = Mapping[str, Finished]


def differences(
    pairs: Mapping[str, tuple[Runs, Runs]], metric: str = "accuracy"
) -> dict[str, Comparison]:
    """Paired differences in AAA, those that diverged left out, with Holm's p-values."""
    comparer = Comparer(metric)
    good = [
        ([r for r in a if finite(r)], [r for r in b if finite(r)])
        for a, b in pairs.values()
    ]
    made = []
    for (a, b), p in zip(good, exchanged.p_values(good, metric), strict=True):
        results = comparer.compare(a, b)
        made.append(replace(results, p_value=p, n_draws=exchanged.N_PERMUTATIONS))
    return dict(zip(pairs, holm(made), strict=True))


def partners(name: str, asked: Printed, results: Found) -> dict[str, tuple[Runs, Runs]]:
    """Runs of each row and of what it is compared with, where both are there."""
    pairs = {}
    for learner, runs in results[name].groups.items():
        title = asked.minus.format(first=learner.split()[0], row=learner)
        where = asked.of_row.get(learner, asked.of or name)
        other_table = (
            results[where].groups.get(title)
            if asked.minus and where in results
            else None
        )
        if other_table and (where, title) != (name, learner):
            pairs[learner] = (runs, other_table)
    return pairs


def beside(name: str, results: Found) -> str:
    """The paper's AAA and FOR, ours, the paired difference, and the same with leaks on."""
    asked, mine = printed_tables()[name], results[name]
    rest = results[asked.rest].rows if asked.rest in results else {}
    compared = differences(partners(name, asked, results))
    leaky, second, plain = map(
        results.get, (asked.leaks, asked.second, f"{name}+printed")
    )
    order = list(mine.rows) if asked.ranked else list(mine.groups)
    more = [k for k in leaky.groups if k not in order] if leaky else []
    printed = {
        **(printed_tables()[asked.leaks].printed if more else {}),
        **asked.printed,
    }
    heads = ["learner", "paper AAA / FOR", "AAA", "FM", "FM unb.", "FOR", "AUROC"]
    heads += ["difference", "p (Holm)"] * bool(compared)
    heads += ["AAA, as printed"] * bool(plain)
    heads += ["AAA, leaks on", "FM, leaks on"] * bool(leaky) + ["AAA, the 444"] * bool(
        second
    )
    lines = []
    for learner in [*order, *more]:
        other_table = rest.get(asked.rest_as.get(learner, learner))
        ours = numbers(mine.rows.get(learner, other_table))
        line = [learner, _printed(printed.get(learner)), *ours]
        if compared:
            line += _compared(compared.get(learner))
        if plain:
            line += numbers(plain.rows.get(learner), ("aaa",))
        if leaky:
            line += numbers(leaky.rows.get(learner), ("aaa", "fm"))
        if second:
            line += numbers(second.rows.get(learner), ("aaa",))
        lines.append(line)
    return markdown(heads, lines)


def order_table(name: str, reference: str, results: Found) -> str:
    """Whether the paper's ordering holds: every row minus one, printed, strict and with leaks."""
    asked = printed_tables()[name]
    heads, columns = ["learner minus " + reference, "paper"], []
    for where, title in ((name, "strict"), (asked.leaks, "leaks on")):
        groups = results[where].groups if where in results else {}
        if reference in groups:
            heads += [f"{title} [95 %]", "p (Holm)"]
            rows = [k for k in groups if k in asked.printed and k != reference]
            pairs = {k: (groups[k], groups[reference]) for k in rows}
            columns.append(differences(pairs))
    learners = dict.fromkeys(
        k for column in columns for k in column if k in asked.printed
    )
    by_paper = sorted(learners, key=lambda k: asked.printed[k][0])
    lines = []
    for learner in by_paper:
        gap = number(asked.printed[learner][0] - asked.printed[reference][0], sign=True)
        cells = [cell for column in columns for cell in _compared(column.get(learner))]
        lines.append([learner, gap, *cells])
    return markdown(heads, lines)


def paired(name: str, asked: Sequence[str], results: Found) -> str:
    """Differences "one learner minus another" in AAA and in AUROC along the way."""
    groups = results[name].groups
    titles = {text: text.split(" minus ") for text in asked}
    return _paired(
        "difference", {text: (groups[a], groups[b]) for text, (a, b) in titles.items()}
    )


def against(name: str, other: str, learners: Sequence[str], results: Found) -> str:
    """Differences of some learners from themselves in another table on the same people."""
    here, other_table = results[name].groups, results[other].groups
    return _paired(
        "learner, here minus there", {k: (here[k], other_table[k]) for k in learners}
    )


def _paired(head: str, pairs: Mapping[str, tuple[Runs, Runs]]) -> str:
    columns = [differences(pairs, metric=metric) for metric in ("accuracy", "auroc")]
    heads = [head, "AAA [95 %]", "p (Holm)", "AUROC [95 %]", "p (Holm)"]
    lines = [
        [text, *(x for c in columns for x in _compared(c[text]))] for text in pairs
    ]
    return markdown(heads, lines)


def spearman(name: str, results: Found) -> str:
    """Spearman's correlation of our AAA with the paper's, over the methods it prints.

    With leaks on over the same rows as without: FORGE counts once.
    """
    printed, mine = (
        printed_tables()[name.replace("leaks", "main")].printed,
        results[name].rows,
    )
    both = [
        (mine[k].estimates["aaa"].value, aaa)
        for k, (aaa, _) in printed.items()
        if k in mine
    ]
    if len(both) < 4:
        return ""
    value = float(spearmanr(*zip(*both, strict=True)).statistic)
    return f"Spearman's correlation of our AAA with the paper's: {number(value, 2, sign=True)}."


KEYS = {
    "AAA": "aaa",
    "final accuracy": "acc",
    "AUROC": "auroc",
    "FM": "fm",
    "FM unb.": "fm_split",
    "bACC": "bacc",
    "FM of bACC": "bacc_fm",
    "FM of AUROC": "auroc_fm",
    "FOR": "for_literal",
}


def plain(name: str, heads: Sequence[str], results: Found) -> str:
    """Learners by some columns."""
    lines = [
        [learner, *numbers(row, [KEYS[h] for h in heads])]
        for learner, row in results[name].rows.items()
    ]
    return markdown(["learner", *heads], lines)


def two_sets(name: str, rest: str, results: Found) -> str:
    """Return a table of some learners on two data sets: AAA, FOR, and AAA minus a reference.

    Parameters
    ----------
    name : str
        Table of the first data set.
    rest : str
        ``OTHER; REFERENCE; LEARNER = ABOUT; ...``: the other table, the learner that is
        subtracted, and what each learner keeps between hospitals.
    found : mapping of name to Finished
    """
    other, reference, *asked = split(rest, ";")
    tables = [results[name], results[other]]
    learners = dict(tuple(map(str.strip, text.split("="))) for text in asked)
    changes = []
    for table in tables:
        runs = {k: table.groups[k] for k in learners if k != reference}
        pairs = {
            k: (runs_of_learner, table.groups[reference])
            for k, runs_of_learner in runs.items()
        }
        changes.append({k: _compared(d)[0] for k, d in differences(pairs).items()})
    lines = []
    for learner, keeps in learners.items():
        cells = []
        for table, change in zip(tables, changes, strict=True):
            estimates = table.rows[learner].estimates
            values = [number(estimates[k].value) for k in ("aaa", "for_literal")]
            cells += [*values, change.get(learner, "")]
        lines.append([learner, keeps, *cells])
    heads = ["AAA", "FOR", f"AAA minus {reference.lower()} [95 %]"]
    sizes = [f"{head}, {n}" for n in ("529", "444") for head in heads]
    return markdown(["learner", "keeps of earlier hospitals", *sizes], lines)


def stages(name: str, results: Found, n_draws: int = 50) -> str:
    """Accuracy on the sites so far, and forgetting, after every stage."""
    lines, n = [], 0
    for learner, runs in results[name].groups.items():
        accuracy, forgetting = curves([r for r in runs if finite(r)], n_draws)
        n = len(accuracy.mean)
        lines.append(
            [learner, *map(number, accuracy.mean), *map(number, forgetting.mean[1:])]
        )
    heads = [f"accuracy after {t}" for t in range(1, n + 1)]
    heads += [f"forgetting after {t}" for t in range(2, n + 1)]
    return markdown(["learner", *heads], lines)


def sites(name: str, results: Found) -> str:
    """AUROC site by site: after all sites, and (left out) after all others but not this one."""
    names = next(iter(results[name].groups.values()))[0].sites
    lines = []
    for learner, runs in results[name].groups.items():
        last: dict[str, list[float]] = {site: [] for site in names}
        unseen: dict[str, list[float]] = {site: [] for site in names}
        for batch in split_batches([r for r in runs if finite(r)]):
            for run, matrix in zip(batch.runs, batch.values("auroc"), strict=True):
                for place, site in enumerate(run.spec.order):
                    last[site].append(matrix[-1, place])
                unseen[run.spec.order[-1]].append(matrix[-2, -1])
        cells = [[fmean(part[site]) for part in (last, unseen)] for site in names]
        lines.append([learner, *(" / ".join(map(number, pair)) for pair in cells)])
    return markdown(["learner", *names], lines)


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A GitHub table."""
    return Table.of(heads, lines).markdown().rstrip()


def _printed(pair: tuple[float, float] | None) -> str:
    return " / ".join(map(number, pair)) if pair else ""


WITH_INTERVAL = ("aaa", "fm_split", "auroc")


def numbers(
    row: Row | None,
    keys: Sequence[str] = ("aaa", "fm", "fm_split", "for_literal", "auroc"),
) -> list[str]:
    """Cells of a learner; some columns with their interval."""
    if row is None:
        return [""] * len(keys)
    return [_cell(row.estimates[k], k in WITH_INTERVAL) for k in keys]


def _cell(e: Estimate, interval: bool) -> str:
    if not math.isfinite(e.value):
        return ""
    return with_interval(e.value, e.low, e.high) if interval else number(e.value)


def _compared(d: Comparison | None) -> list[str]:
    if d is None:
        return ["", ""]
    low, high = number(d.low, sign=True), number(d.high, sign=True)
    return [
        f"{number(d.difference, sign=True)} [{low}, {high}]",
        p_value(d.p_holm, d.holm_at_floor),
    ]


# -- generators ------------------------------------------------------------------------------------
JUDGED = {
    "active units": "active_units",
    "PSD share": "psd_share",
    "edge-mean r": "edge_mean_r",
    "variance ratio": "variance_ratio",
    "class-diff. r": "class_difference_r",
    "C2ST AUC": "c2st_auc",
    "TSTR linear": "tstr_linear_acc",
    "TSTR GCN": "tstr_gcn_acc",
    "GAE": "aug_gae_acc",
    "GAT": "aug_gat_acc",
    "GCN": "aug_gcn_acc",
    "GraphSAGE": "aug_sage_acc",
    "graph transformer": "aug_graph_transformer_acc",
}


def judged(path: Path, heads: Sequence[str]) -> str:
    """Generators by some numbers of the judge, the paper's accuracy in round brackets."""
    from fcforge.evaluation.generator_quality.summary import summarise

    summary = summarise(json.loads(path.read_text())["records"])
    lines = []
    for row, results in summary.items():
        cells = [_judged(results.get(JUDGED[h])) for h in heads]
        lines.append(
            [
                row,
                *(
                    c + _paper(JUDGED[h], row)
                    for c, h in zip(cells, heads, strict=True)
                ),
            ]
        )
    return markdown(["generator", *heads], lines)


def augmented(path: Path, reference: str, rows: Sequence[str] = ()) -> str:
    """Gain of adding a generator's subjects, minus a reference row's, paired over seeds.

    Without `rows` those of all others. Brackets are 95 % t intervals over seeds; Holm's
    correction is over all cells.
    """
    from fcforge.evaluation.generator_quality.summary import by_seed

    means = by_seed(json.loads(path.read_text())["records"])
    heads = {h: m for h, m in JUDGED.items() if m.startswith("aug_")}
    rows = rows or list(dict.fromkeys(row for row, _ in means if row != reference))
    cells = {}
    for row, metric in product(rows, heads.values()):
        one, other = means[row, metric], means[reference, metric]
        test = ttest_1samp([one[seed] - other[seed] for seed in other], 0)
        low, high = test.confidence_interval()
        cells[row, metric] = Comparison(
            (low + high) / 2, low, high, test.pvalue, len(other), 0.5
        )
    beyond = sum(c.low > 0 or c.high < 0 for c in cells.values())
    least = min(c.p_holm for c in holm(list(cells.values())))
    lines = [
        [row, *(_compared(cells[row, m])[0] for m in heads.values())] for row in rows
    ]
    return (
        f"{markdown([f'generator minus {reference}', *heads], lines)}\n\n{beyond} of {len(cells)} "
        f"intervals exclude zero ({number(0.05 * len(cells), 1)} expected by chance); the least "
        f"p after Holm's correction is {p_value(least)}."
    )


def _judged(results: Any | None) -> str:
    if results is None:
        return ""
    flat = results.high - results.low < 0.0005
    return (
        number(results.value)
        if flat
        else with_interval(results.value, results.low, results.high)
    )


def _paper(metric: str, row: str) -> str:
    from fcforge.evaluation.generator_quality.summary import published

    classifier = metric.removeprefix("aug_").removesuffix("_acc")
    printed = published(classifier, row) if metric.startswith("aug_") else "–"
    return "" if printed == "–" else f" ({printed.split(' / ')[0]})"
