"""Pages of results, rendered from paper/pages/*.md.j2 and the scores in paper/results.

A template states first which tables it needs (``{# needs: main_gcn_529 #}``);
without them its page is not written, so that a page never shows a part of a table. Other tables it
shows if they exist (``{% if have("...") %}``). Everything a template may call is a public method
of `Pages`: numbers,
differences with intervals, sentences about them, and tables.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from paper_tables import KEYS, Finished, Runs, differences, markdown, numbers
from scores import read_table

from fcforge.core.formatting import number, p_value
from fcforge.core.result import RunResult
from fcforge.evaluation.comparison import Comparer, Comparison
from fcforge.evaluation.forgetting import finite

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "paper" / "pages"
DESTINATIONS = {"RESULTS": ROOT / "paper" / "RESULTS.md"}
NEEDS = re.compile(r"\{# needs:(.*?)#\}")
MAJORITY = ("majority class", "majority class of each site")
HIDDEN = ("render", "pages", "results", "n_draws")
OWN = "AAA, own threshold"


def with_own_threshold(run: RunResult) -> RunResult:
    """Return a run whose scores are cut at each site's own threshold instead of one half.

    The threshold of a site and stage is the one at which the share of subjects called patients
    equals the share of patients among the site's training subjects. It uses no test label. The
    order of scores, and so AUROC, stays.
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
    def _differences(self) -> dict[tuple[str, str, str], Comparison]:
        return {}

    def have(self, *names: str) -> bool:
        """Return whether all these tables exist."""
        return all(
            any((self.results / f"{name}{end}").is_file() for end in (".npz", ".json"))
            for name in names
        )

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

    def learners(self, name: str) -> list[str]:
        """Return the learners of a table in the order of its config."""
        return list(self.table_of(name).groups)

    # -- numbers -------------------------------------------------------------------------------
    def value(self, name: str, learner: str, column: str = "AAA") -> str:
        """Return one number of a learner."""
        table = self._with_own(name) if column == OWN else self.table_of(name)
        key = "aaa" if column == OWN else KEYS[column]
        return number(table.rows[learner].estimates[key].value)

    def best(self, name: str, *without: str) -> str:
        """Return the learner with the highest AAA, majority classes and some others left out."""
        rows = self.table_of(name).rows
        asked = [k for k in rows if k not in (*MAJORITY, *without)]
        return max(asked, key=lambda k: rows[k].estimates["aaa"].value)

    def _compared(
        self, name: str, one: str, other: str, metric: str = "accuracy"
    ) -> Comparison:
        key = (name, f"{one} minus {other}", metric)
        if key not in self._differences:
            table = self._with_own(name) if metric == "own" else self.table_of(name)
            runs = [[r for r in table.groups[k] if finite(r)] for k in (one, other)]
            comparer = Comparer("accuracy" if metric == "own" else metric)
            self._differences[key] = comparer.compare(*runs)
        return self._differences[key]

    def difference(
        self, name: str, one: str, other: str, metric: str = "accuracy"
    ) -> str:
        """Return a paired difference with its interval; metric "accuracy", "auroc" or "own"."""
        return _interval(self._compared(name, one, other, metric))

    def verdict(self, name: str, one: str, other: str, metric: str = "accuracy") -> str:
        """Return "is above", "is below" or "cannot be told from"."""
        results = self._compared(name, one, other, metric)
        if results.low > 0:
            return "is above"
        return "is below" if results.high < 0 else "cannot be told from"

    def compare(self, name: str, one: str, other: str, metric: str = "accuracy") -> str:
        """Return a sentence part: the verdict and the difference."""
        verdict = self.verdict(name, one, other, metric)
        return f"{one} {verdict} {in_sentence(other)} ({self.difference(name, one, other, metric)})"

    def count_apart(self, name: str, reference: str, learners: Sequence[str]) -> str:
        """Return how many of some learners differ from a reference, e.g. "0 of 11"."""
        apart = [
            k
            for k in learners
            if self.verdict(name, k, reference) != "cannot be told from"
        ]
        return f"{len(apart)} of {len(learners)}"

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
        """Return AAA of learners minus some references, with p-values after Holm's correction."""
        groups = self.table_of(name).groups
        asked = list(learners) or [k for k in groups if k not in references]
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
            lines.append([learner, *(_interval(results[m][learner]) for m in metrics)])
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
                _interval(changes[h][learner]) if learner in changes[h] else ""
                for h in changes
            ]
            lines.append([learner, *cells])
        heads = [
            f"AAA, {next(iter(tables))}",
            *(f"change with {h} [95 %]" for h in changes),
        ]
        return markdown(["learner", *heads], lines)

    def about(self, name: str) -> str:
        """Return where a table comes from: config, orders, seeds, machine and commit."""
        table, about = self._read(name)
        return f"Config `paper/experiments/{name}.toml`; {table.about()}; commit {about['commit'][:10]}."

    # -- generators ----------------------------------------------------------------------------
    def judged_about(self, name: str) -> str:
        """Return where a table of generators comes from."""
        about = json.loads((self.results / f"{name}.json").read_text())
        return f"Config `paper/experiments/{name}.toml`; {about['machine']}; commit {about['commit'][:10]}."

    def judged(self, name: str, columns: Mapping[str, str]) -> str:
        """Return means over sites and seeds of some measures, by generator."""
        means = self._judged_means(name)
        lines = [
            [
                row,
                *(
                    number(results[key]) if key in results else ""
                    for key in columns.values()
                ),
            ]
            for row, results in means.items()
        ]
        return markdown(["generator", *columns], lines)

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


def _interval(results: Comparison) -> str:
    low, high = number(results.low, sign=True), number(results.high, sign=True)
    return f"{number(results.difference, sign=True)} [{low}, {high}]"


def _cells(results: Comparison | None) -> list[str]:
    return (
        ["", ""]
        if results is None
        else [_interval(results), p_value(results.p_holm, results.holm_at_floor)]
    )
