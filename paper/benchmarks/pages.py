"""Pages of results, rendered from paper/pages/*.md.j2 and the scores in paper/results.

A template states first which tables it needs (``{# needs: main_gcn_529 #}``);
without them its page is not written, so that a page never shows a part of a table. Other tables it
shows if they exist (``{% if have("...") %}``). Everything a template may call is a public method
of `Pages`: numbers,
differences with intervals, sentences about them, and tables.
"""

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import bootstrap_intervals
import jinja2
import numpy as np
from paper_tables import (
    KEYS,
    Finished,
    Runs,
    corrected,
    difference_text,
    differences,
    grid,
    markdown,
    numbers,
    p_text,
    studies,
)
from scores import read_table

from fcforge.core.estimate import Estimate
from fcforge.core.formatting import number, with_interval
from fcforge.core.result import RunResult
from fcforge.evaluation.columns import NUMBER_COLUMNS, columns_of
from fcforge.evaluation.comparison import Comparison
from fcforge.evaluation.forgetting import finite
from fcforge.evaluation.generator_quality.summary import (
    FEWEST_SEEDS,
    REAL,
    by_seed,
    interval,
    published,
)

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "paper" / "pages"
DESTINATIONS = {"RESULTS": ROOT / "paper" / "RESULTS.md"}
NEEDS = re.compile(r"\{# needs:(.*?)#\}")
MAJORITY = ("majority class", "majority class of each site")
HIDDEN = ("render", "pages", "results", "n_draws", "use")
PORTRAITS = "_portraits"  # ends the name of a file with typical FC matrices
OWN = "AAA, own threshold"
LEVEL = 0.05  # of a corrected p-value
ABOVE, BELOW = "is found above", "is found below"
NOT_FOUND = "is not found to differ from"
SEEDS_AGREE = (
    "cannot be told from"  # of generators, whose intervals are over seeds alone
)
COLUMN_KEYS = {c.title: c.key for c in NUMBER_COLUMNS} | KEYS


def with_own_threshold(run: RunResult) -> RunResult:
    """Return a run whose scores are cut at each site's own threshold instead of one half.

    The threshold of a site and stage is the one at which the share of test subjects called patients
    equals the share of patients among the site's training subjects. It uses no test label, but the
    scores of all test subjects of the site at once (it is transductive). The order of scores, and so
    AUROC, stays.
    """
    scores = {}
    for site, values in run.scores.items():
        share = float(run.train_mean[site])
        scores[site] = np.stack([cut_at_share(p, share) for p in values])
    return replace(run, scores=scores)


def cut_at_share(p: np.ndarray, share: float) -> np.ndarray:
    """Return scores (n,) moved so that about `share` of them lie above one half."""
    n_above = int(np.floor(share * len(p) + 0.5))
    falling = np.sort(p)[::-1]
    high = falling[n_above - 1] if n_above else np.inf
    low = falling[n_above] if n_above < len(p) else -np.inf
    threshold = (max(min(high, 2.0), -2.0) + max(min(low, 2.0), -2.0)) / 2
    return 0.5 + (p - threshold) / 8  # stays within (0, 1)


@dataclass(frozen=True)
class Pages:
    """Templates' view of a folder of results.

    Parameters
    ----------
    results : Path
        Folder with NAME.npz and NAME.json.
    n_draws : int
        Bootstrap draws behind an interval of a row.
    """

    results: Path
    n_draws: int = 500

    @cached_property
    def _tables(self) -> dict[str, tuple[Finished, Mapping[str, Any]]]:
        return {}

    @cached_property
    def _own(self) -> dict[str, Finished]:
        return {}

    @cached_property
    def _families(self) -> dict[tuple[str, str, str], dict[str, Comparison]]:
        return {}

    def have(self, *names: str) -> bool:
        """Return whether all these tables exist."""
        return all(
            any((self.results / f"{name}{end}").is_file() for end in (".npz", ".json"))
            for name in names
        )

    def missing(self) -> list[str]:
        """Return the tables of run_tables.toml whose scores are not stored."""
        text = Path(__file__).with_name("run_tables.toml").read_text()
        portions = tomllib.loads(text)["portions"].values()
        return [name for names in portions for name in names if not self.have(name)]

    def table_of(self, name: str) -> Finished:
        """Return a table's runs."""
        return self._read(name)[0]

    def _read(self, name: str) -> tuple[Finished, Mapping[str, Any]]:
        if name not in self._tables:
            table, about = read_table(self.results / f"{name}.npz")
            self._tables[name] = replace(table, n_draws=self.n_draws), about
        return self._tables[name]

    def _with_own(self, name: str) -> Finished:
        if name not in self._own:
            table = self.table_of(name)
            groups = {
                k: [with_own_threshold(r) for r in runs]
                for k, runs in table.groups.items()
            }
            self._own[name] = replace(table, groups=groups)
        return self._own[name]

    def use(self, tables: Mapping[str, tuple[Finished, Mapping[str, Any]]]) -> None:
        """Take tables that were read already, with the rows that they have computed."""
        same = {k: v for k, v in tables.items() if v[0].n_draws == self.n_draws}
        self._tables.update(same)

    def learners(self, name: str) -> list[str]:
        """Return the learners of a table in the order of its config."""
        return list(self.table_of(name).groups)

    # -- numbers -------------------------------------------------------------------------------
    def value(self, name: str, learner: str, column: str = "AAA") -> str:
        """Return one number of a learner; a column may end with ", own threshold"."""
        own = column.endswith(", own threshold")
        table = self._with_own(name) if own else self.table_of(name)
        key = COLUMN_KEYS[column.removesuffix(", own threshold")]
        return number(table.rows[learner].estimates[key].value)

    def with_interval(self, name: str, learner: str, column: str = "AAA") -> str:
        """Return one number of a learner with its 95 % interval."""
        e = self._estimate(name, learner, column)
        return with_interval(e.value, e.low, e.high)

    def beside(
        self, name: str, learner: str, printed: float, column: str = "AAA"
    ) -> str:
        """Return "lower here", "higher here" or "agrees": ours beside a number of the paper."""
        e = self._estimate(name, learner, column)
        if e.low <= printed <= e.high:
            return "agrees"
        return "lower here" if e.high < printed else "higher here"

    def _estimate(self, name: str, learner: str, column: str) -> Estimate:
        return self.table_of(name).rows[learner].estimates[COLUMN_KEYS[column]]

    def by_threshold(self, name: str, one: str, other: str) -> str:
        """Return how much smaller a gain in AAA is once each site has its own threshold."""
        found = self._threshold_part(name, one, other)
        return difference_text(found)

    def own_gain(self, name: str, learner: str) -> str:
        """Return what each site's own threshold adds to a learner's AAA, with its interval."""
        tables = self._with_own(name), self.table_of(name)
        own, common = ([r for r in t.groups[learner] if finite(r)] for t in tables)
        return difference_text(bootstrap_intervals.intervals([(own, common)])[0])

    def _threshold_part(self, name: str, one: str, other: str) -> Estimate:
        tables = self.table_of(name), self._with_own(name)
        common, own = (
            tuple([r for r in t.groups[k] if finite(r)] for k in (one, other))
            for t in tables
        )
        return bootstrap_intervals.change(common, own)

    def _compared(
        self, name: str, one: str, other: str, metric: str = "accuracy"
    ) -> Comparison:
        """Return one learner minus another; p is corrected for all learners of the table."""
        return self._family(name, other, metric)[one]

    def _family(
        self, name: str, reference: str, metric: str = "accuracy"
    ) -> dict[str, Comparison]:
        """Return every learner of a table minus one, in accuracy at own thresholds for metric "own"."""
        key = (name, reference, metric)
        if key not in self._families:
            table = self._with_own(name) if metric == "own" else self.table_of(name)
            of = "accuracy" if metric == "own" else metric
            self._families[key] = corrected(table.groups, reference, of)
        return self._families[key]

    def difference(
        self, name: str, one: str, other: str, metric: str = "accuracy"
    ) -> str:
        """Return a paired difference with its interval; metric "accuracy", "auroc" or "own"."""
        return difference_text(self._compared(name, one, other, metric))

    def gap(self, name: str, one: str, other: str, metric: str = "accuracy") -> str:
        """Return a paired difference without its interval."""
        return number(self._compared(name, one, other, metric).difference, sign=True)

    def loss_below(self, name: str, one: str, other: str) -> str:
        """Return the largest loss in AAA of one learner against another that its interval holds."""
        return number(max(-self._compared(name, one, other).low, 0.0))

    def p(self, name: str, one: str, other: str) -> str:
        """Return "p 0.331": of one learner minus another, corrected for all learners of the table."""
        return f"p {p_text(self._compared(name, one, other))}"

    def established(self, name: str, one: str, other: str) -> bool:
        """Return whether a learner is found above another."""
        return self.finding(name, one, other) == ABOVE

    def finding(self, name: str, one: str, other: str, metric: str = "accuracy") -> str:
        """Return "is found above", "is found below" or "is not found to differ from".

        A difference is found where its interval excludes zero and its corrected p is below 0.05.
        """
        gap = self._compared(name, one, other, metric)
        if gap.p_holm >= LEVEL or gap.low <= 0 <= gap.high:
            return NOT_FOUND
        return ABOVE if gap.low > 0 else BELOW

    def tested(self, name: str, one: str, reference: str) -> str:
        """Return a difference with its interval and corrected p, e.g. "+0.012 [+0.002, +0.022], p 0.051"."""
        return (
            f"{self.difference(name, one, reference)}, {self.p(name, one, reference)}"
        )

    def on_both(
        self,
        tables: Mapping[str, str],
        one: str,
        other: str,
        words: str = "",
        metric: str = "accuracy",
    ) -> str:
        """Return a sentence part on two data sets: the verdicts, and the differences in brackets.

        Parameters
        ----------
        tables : mapping
            Table by the name of its data set.
        one, other : str
            Learners.
        words : str
            What the sentence calls the other learner.
        metric : str
            As in `difference`.
        """
        words = words or in_sentence(other)
        verdicts = {k: self.finding(t, one, other, metric) for k, t in tables.items()}
        gaps = {k: self.difference(t, one, other, metric) for k, t in tables.items()}
        if len({*verdicts.values()}) > 1:
            parts = [f"{verdicts[k]} {words} on the {k} ({gaps[k]})" for k in tables]
            return " and ".join(parts)
        verdict = next(iter(verdicts.values()))
        sets = "on either set" if verdict == NOT_FOUND else "on both sets"
        shown = "; ".join(f"{k}: {gap}" for k, gap in gaps.items())
        return f"{verdict} {words} {sets} ({shown})"

    def count_apart(self, name: str, reference: str, learners: Sequence[str]) -> str:
        """Return how many of some learners are found to differ from a reference, e.g. "0 of 11"."""
        apart = [k for k in learners if self.finding(name, k, reference) != NOT_FOUND]
        return f"{len(apart)} of {len(learners)}"

    def holds(self, name: str, one: str, other: str) -> str:
        """Return "holds", "not shown" or "the reverse" for the claim that one is above the other."""
        return {ABOVE: "holds", NOT_FOUND: "not shown", BELOW: "the reverse"}[
            self.finding(name, one, other)
        ]

    def spread(self, name: str, learners: Sequence[str]) -> str:
        """Return the smallest and largest AAA of some learners, e.g. ".593 to .605"."""
        rows = self.table_of(name).rows
        values = [rows[k].estimates["aaa"].value for k in learners]
        return f"{number(min(values))} to {number(max(values))}"

    # -- tables --------------------------------------------------------------------------------
    def main(
        self, name: str, printed: Mapping[str, Sequence[float]] | None = None
    ) -> str:
        """Return every learner of a table by falling AAA, the paper's AAA beside ours."""
        printed = printed or {}
        table, local = self.table_of(name), self._with_own(name)
        lines = []
        for learner, row in table.rows.items():
            cells = numbers(row, ("aaa", "auroc", "fm", "fm_split", "for_literal"))
            cut = (
                number(local.rows[learner].estimates["aaa"].value)
                if learner in local.groups
                else ""
            )
            paper = number(printed[learner][0]) if learner in printed else ""
            lines.append([learner, paper, cells[0], cut, *cells[1:]])
        heads = [
            "learner",
            "paper AAA",
            "AAA [95 %]",
            OWN,
            "AUROC [95 %]",
            "FM",
            "FM unb. [95 %]",
            "FOR",
        ]
        if not printed:
            heads.pop(1)
            lines = [[line[0], *line[2:]] for line in lines]
        return markdown(heads, lines)

    def minus(
        self, name: str, references: Sequence[str], learners: Sequence[str] = ()
    ) -> str:
        """Return AAA of learners minus some references, with p-values after Holm's correction.

        Without `learners` these are all learners of the table, references too.
        """
        groups = self.table_of(name).groups
        asked = list(learners) or [k for k in groups if [k] != list(references)]
        columns = []
        for reference in references:
            pairs = {k: (groups[k], groups[reference]) for k in asked if k != reference}
            columns.append(differences(pairs))
        lines = [[k, *(x for c in columns for x in _cells(c.get(k)))] for k in asked]
        heads = [
            h
            for k in references
            for h in (f"minus {in_sentence(k)} [95 %]", "p (Holm)")
        ]
        return markdown(["learner", *heads], lines)

    def by_auroc(self, name: str, reference: str) -> str:
        """Return every learner by falling AUROC, with AAA and its AUROC minus that of a reference.

        p is Holm's over all learners of the table.
        """
        rows = self.table_of(name).rows
        rising = sorted(rows, key=lambda k: rows[k].estimates["auroc"].value)
        lines = []
        for learner in reversed(rising):
            gap = None
            if learner in self.learners(name) and learner != reference:
                gap = self._compared(name, learner, reference, "auroc")
            levels = numbers(rows[learner], ("auroc", "aaa"))
            lines.append([learner, *levels, *_cells(gap)])
        heads = ["AUROC [95 %]", "AAA [95 %]", f"AUROC minus {reference} [95 %]"]
        return markdown(["learner", *heads, "p (Holm)"], lines)

    def apart(
        self, name: str, reference: str, verdict: str, metric: str = "accuracy"
    ) -> list[str]:
        """Return the learners of which `finding` beside a reference gives a verdict."""
        others = [k for k in self.learners(name) if k != reference]
        return [
            k for k in others if self.finding(name, k, reference, metric) == verdict
        ]

    def gains(
        self,
        names: Mapping[str, str],
        learners: Mapping[str, str],
        reference: str,
        levels: Sequence[str] = (),
    ) -> str:
        """Return AAA of a reference in several tables, and AAA of other learners minus it.

        A difference is bold where it is found (`finding`).

        Parameters
        ----------
        names : mapping
            Table by the head of its column.
        learners : mapping
            What each learner keeps of earlier sites, the reference included.
        reference : str
        levels : sequence of str
            Learners of whom AAA is shown instead of a difference.
        """
        lines = []
        for learner, keeps in learners.items():
            cells = []
            for name in names.values():
                if learner == reference or learner in levels:
                    cells.append(self.value(name, learner))
                    continue
                gap = self.difference(name, learner, reference)
                known = self.finding(name, learner, reference) != NOT_FOUND
                cells.append(f"**{gap}**" if known else gap)
            title = f"{learner} minus {in_sentence(reference)}"
            if learner == reference or learner in levels:
                title = f"{learner}, AAA"
            lines.append([title, keeps, *cells])
        return markdown(["learner", "keeps of earlier sites", *names], lines)

    def pairs(
        self,
        name: str,
        asked: Sequence[str],
        metrics: Mapping[str, str] = {"AAA": "accuracy", "AUROC": "auroc"},
    ) -> str:
        """Return differences "one learner minus another" in some metrics, by their heads.

        p-values are Holm's; they are those of permutations over subjects, for accuracy and AUROC.
        """
        groups = self.table_of(name).groups
        two = {text: text.split(" minus ") for text in asked}
        runs = {text: (groups[a], groups[b]) for text, (a, b) in two.items()}
        columns = [differences(runs, metric) for metric in metrics.values()]
        lines = [[text, *(x for c in columns for x in _cells(c[text]))] for text in two]
        heads = [h for head in metrics for h in (f"{head} [95 %]", "p (Holm)")]
        return markdown(["difference", *heads], lines)

    def columns(self, name: str) -> str:
        """Return every shown column of a table whose target is a number or several classes."""
        rows = self.table_of(name).rows
        kind = next(iter(rows.values())).kind
        shown = [c for c in columns_of(kind) if c.shown and not c.key.startswith("for")]
        lines = []
        for learner, row in rows.items():
            cells = [row.estimates[c.key] for c in shown]
            texts = [
                with_interval(e.value, e.low, e.high) if np.isfinite(e.value) else ""
                for e in cells
            ]
            lines.append([learner, *texts])
        return markdown(["learner", *(c.title for c in shown)], lines)

    def grid(self, name: str, chosen: str) -> str:
        """Return AAA over the grid of three loss weights, and the place of one point in it."""
        return grid(name, chosen, {name: self.table_of(name)})

    def studies(self, name: str, title: str) -> str:
        """Return one table of a file of studies: learners by columns, means with intervals."""
        return studies(self.results / f"{name}.json", title)

    def found(self, name: str, title: str) -> Any:
        """Return what a file of studies holds under a title."""
        return self._studies(name)["found"][title]

    def told(self, name: str, title: str) -> bool:
        """Return whether a file of studies holds something under a title."""
        return title in self._studies(name)["found"]

    def cell(self, name: str, title: str, row: str, column: str) -> str:
        """Return one mean of a table of a file of studies."""
        return number(self.found(name, title)[row][column]["mean"])

    def plain(self, value: float) -> str:
        """Return a number with three decimals."""
        return number(value)

    def ran(self, name: str) -> str:
        """Return command, commit and machine of a file of studies."""
        told = self._studies(name)
        machine = told["machine"]
        machine = (
            f"{machine['cpu']}, {machine['cores']} cores, torch {machine['torch']}"
        )
        return f"`{told['command']}`; commit {told['commit'][:10]}; {machine}."

    def _studies(self, name: str) -> Any:
        return json.loads((self.results / f"{name}.json").read_text())

    def own_table(self, name: str, learners: Sequence[str], reference: str) -> str:
        """Return learners minus a reference in AAA, in AAA with own thresholds, and in AUROC."""
        lines = []
        metrics = ("accuracy", "own", "auroc")
        groups = {
            m: (self._with_own(name) if m == "own" else self.table_of(name)).groups
            for m in metrics
        }
        results = {}
        for metric, summaries in groups.items():
            pairs = {k: (summaries[k], summaries[reference]) for k in learners}
            results[metric] = differences(
                pairs, "accuracy" if metric == "own" else metric
            )
        for learner in learners:
            lines.append(
                [learner, *(difference_text(results[m][learner]) for m in metrics)]
            )
        return markdown(
            [f"minus {in_sentence(reference)} [95 %]", "AAA", OWN, "AUROC"], lines
        )

    def across(
        self, names: Mapping[str, str], fallback: Mapping[str, str] | None = None
    ) -> str:
        """Return AAA of the same learners in several tables, and minus the first table.

        Parameters
        ----------
        names : mapping
            Table by the head of its column; the first is subtracted.
        fallback : mapping, optional
            Table to take learners from that a table does not have, by table.
        """
        tables = {head: self.table_of(name) for head, name in names.items()}
        instead = {h: (fallback or {}).get(n, "") for h, n in names.items()}
        first = next(iter(tables.values()))
        lines, changes = [], {}

        def runs_of(head: str, learner: str) -> Runs | None:
            here = tables[head].groups.get(learner)
            return here or (
                self.table_of(instead[head]).groups.get(learner)
                if instead[head]
                else None
            )

        for head in list(tables)[1:]:
            pairs = {
                k: (runs, first.groups[k])
                for k in first.groups
                if (runs := runs_of(head, k))
            }
            changes[head] = differences(pairs)
        for learner in first.groups:
            cells = [number(first.rows[learner].estimates["aaa"].value)]
            cells += [
                difference_text(changes[h][learner]) if learner in changes[h] else ""
                for h in changes
            ]
            lines.append([learner, *cells])
        heads = [
            f"AAA, {next(iter(tables))}",
            *(f"change with {h} [95 %]" for h in changes),
        ]
        return markdown(["learner", *heads], lines)

    def commit(self, name: str) -> str:
        """Return the commit of a table's training code."""
        return str(self._read(name)[1]["commit"][:10])

    def about(self, name: str) -> str:
        """Return where a table comes from: config, orders, seeds, machine and commit."""
        table, about = self._read(name)
        return f"Config `paper/experiments/{name}.toml`; {table.about()}; commit {about['commit'][:10]}."

    # -- generators ----------------------------------------------------------------------------
    def judged_about(self, name: str) -> str:
        """Return where a table of generators comes from."""
        about = json.loads((self.results / f"{name}.json").read_text())
        return f"Config `paper/experiments/{name}.toml`; {about['machine']}; commit {about['commit'][:10]}."

    def judged_intervals(self, name: str) -> bool:
        """Return whether a table of generators has seeds enough for intervals."""
        seeds = {record["seed"] for record in self._studies(name)["records"]}
        return len(seeds) >= FEWEST_SEEDS

    def judged_splits(self, name: str) -> str:
        """Return into how many splits a table of generators divides its people, in words."""
        seeds = {record["seed"] for record in self._studies(name)["records"]}
        words = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}
        return words.get(len(seeds), str(len(seeds)))

    def judged(
        self, name: str, columns: Mapping[str, str], classifier: str = ""
    ) -> str:
        """Return means over sites and seeds of some measures, by generator.

        With a classifier there are two further columns: accuracy minus that without augmentation, as
        `judged_gap` prints it, and the paper's numbers of augmentation.
        """
        lines = []
        for row, results in self._judged_means(name).items():
            values = [results.get(key) for key in columns.values()]
            cells = ["" if value is None else number(value) for value in values]
            if classifier:
                gap = self.judged_gap(name, f"aug_{classifier}_acc", row, REAL)
                cells += ["" if row == REAL else gap, published(classifier, row)]
            lines.append([row, *cells])
        heads = ["generator", *columns]
        if classifier:
            spread = "[95 %]" if self.judged_intervals(name) else "(range)"
            heads += [f"ACC minus real {spread}", f"paper's {' / '.join(columns)}"]
        return markdown(heads, lines)

    def judged_gap(self, name: str, key: str, row: str, other: str) -> str:
        """Return the mean of one measure of a generator minus another's, with its interval over seeds.

        Where seeds are too few for an interval, their range stands in its place: "+0.010 (−0.005 to +0.021)".
        """
        gap = self._judged_difference(name, key, row, other)
        if math.isnan(gap.low):
            gaps = self._judged_gaps(name, key, row, other)
            low, high = (number(value, sign=True) for value in (min(gaps), max(gaps)))
            return f"{number(gap.value, sign=True)} ({low} to {high})"
        return difference_text(gap)

    def judged_verdict(self, name: str, key: str, row: str, other: str) -> str:
        """Return "is above", "is below" or "cannot be told from", by the uncorrected interval over seeds."""
        gap = self._judged_difference(name, key, row, other)
        if gap.low > 0:
            return "is above"
        return "is below" if gap.high < 0 else SEEDS_AGREE

    def _judged_difference(self, name: str, key: str, row: str, other: str) -> Estimate:
        """Return the mean paired difference of two rows: means over sites, interval over seeds."""
        return interval(self._judged_gaps(name, key, row, other))

    def _judged_gaps(self, name: str, key: str, row: str, other: str) -> list[float]:
        """Return the paired difference of two rows for every seed."""
        seeds = by_seed(self._studies(name)["records"])
        ours, theirs = seeds[row, key], seeds[other, key]
        return [ours[seed] - theirs[seed] for seed in sorted(ours)]

    def _judged_means(self, name: str) -> dict[str, dict[str, float]]:
        about = json.loads((self.results / f"{name}.json").read_text())
        values: dict[str, dict[str, list[float]]] = {}
        for record in about["records"]:
            row = values.setdefault(record["row"], {})
            for key, value in {**record["diagnostics"], **record["numbers"]}.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    row.setdefault(key, []).append(float(value))
        return {
            row: {k: float(np.mean(v)) for k, v in results.items()}
            for row, results in values.items()
        }

    def augmented_apart(self, name: str, classifiers: Mapping[str, str]) -> str:
        """Return how often adding synthetic subjects changed a classifier's accuracy, e.g. "2 of 30"."""
        rows = [row for row in self._judged_means(name) if row != REAL]
        return self.ablation_apart(name, classifiers, dict.fromkeys(rows, REAL))

    def ablation_apart(
        self, name: str, classifiers: Mapping[str, str], rows: Mapping[str, str]
    ) -> str:
        """Return how many pairs of row and classifier differ in accuracy from a reference row.

        Differences are averaged over sites; one counts where the 95 % interval of its mean over
        seeds (t distribution) excludes zero.

        Parameters
        ----------
        name : str
        classifiers : mapping
            Keys of classifiers in the records, by title.
        rows : mapping
            The row to compare with, by row.
        """
        pairs = [(row, key) for row in rows for key in classifiers.values()]
        verdicts = [
            self.judged_verdict(name, f"aug_{key}_acc", row, rows[row])
            for row, key in pairs
        ]
        apart = [verdict for verdict in verdicts if verdict != SEEDS_AGREE]
        return f"{len(apart)} of {len(pairs)}"

    def paper_augmentation(self, classifier: str, row: str) -> str:
        """Return the accuracy with augmentation that the paper prints."""
        return published(classifier, row).split(" / ")[0]

    def judged_value(self, name: str, row: str, key: str) -> str:
        """Return the mean of one measure of a generator over sites and seeds."""
        return number(self._judged_means(name)[row][key])

    def audit(self, name: str) -> str:
        """Return the table of an audit: AUC of every attack and shares of people found, by generator."""
        rows = self._studies(name)["rows"]
        generators = list(dict.fromkeys(row["release"] for row in rows))
        found = {(row["release"], row["attack"]): row for row in rows}
        attacks = list(dict.fromkeys(row["attack"] for row in rows))
        lines = []
        for generator in generators:
            cells = [with_interval(*found[generator, a]["auc"]) for a in attacks]
            caught = found[generator, "shadow models"]["tpr"]
            named = found[generator, "fingerprint"]["identified"]
            lines.append([generator, *cells, number(caught[0]), number(named[0])])
        heads = [f"{attack}, AUC [95 %]" for attack in attacks]
        last = ["TPR at 1 % FPR (shadow models)", "identified by another scan"]
        return markdown(["generator", *heads, *last], lines)

    def audited(self, name: str, generator: str) -> str:
        """Return the AUC of the strongest attack on a generator, e.g. ".97"."""
        rows = self._studies(name)["rows"]
        auc = max(row["auc"][0] for row in rows if row["release"] == generator)
        return number(auc, 2).removeprefix("0")

    def picture(self, name: str) -> bool:
        """Return whether typical FC matrices of a table of generators are stored."""
        return self.have(f"{name}{PORTRAITS}")

    # -- rendering -----------------------------------------------------------------------------
    def pages(self) -> dict[str, Path]:
        """Return the file of every page whose tables exist, by template."""
        results = {}
        for path in sorted(TEMPLATES.glob("[!_]*.md.j2")):
            needs = NEEDS.search(path.read_text())
            if needs is None or self.have(*needs[1].split()):
                stem = path.name.removesuffix(".md.j2")
                to = ROOT / "docs" / "results" / f"{stem}.md"
                results[path.name] = DESTINATIONS.get(stem, to)
        return results

    def exists(self, page: str) -> bool:
        """Return whether all tables of a page exist, by the name of its template."""
        return f"{page}.md.j2" in self.pages()

    def render(self, template: str) -> str:
        """Return the text of a page."""
        loader = jinja2.FileSystemLoader(TEMPLATES)
        env = jinja2.Environment(
            loader=loader,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        names = [n for n in dir(self) if not n.startswith("_") and n not in HIDDEN]
        env.globals |= {name: getattr(self, name) for name in names}
        env.globals["printed"] = printed()
        env.tests["paper_title"] = lambda title: title.endswith(", paper")
        return env.get_template(template).render().strip() + "\n"


def printed() -> dict[str, dict[str, list[float]]]:
    """Return the AAA and FOR that the paper prints, by table and learner."""
    return tomllib.loads(Path(__file__).with_name("printed.toml").read_text())


def in_sentence(learner: str) -> str:
    """Return a learner's name as a word inside a sentence: "fine-tuning", but "ER"."""
    return learner[0].lower() + learner[1:] if learner[1:].islower() else learner


def _cells(gap: Comparison | None) -> list[str]:
    return ["", ""] if gap is None else [difference_text(gap), p_text(gap)]
