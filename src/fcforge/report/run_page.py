"""A run for people: its numbers, computed once, its table for every reader, and its page.

The page opens offline, on a phone, on paper, in the dark.
"""

import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fcforge.core.estimate import Estimate
from fcforge.core.files import write_text
from fcforge.core.formatting import counted, duration, memory, no_formula, rounded
from fcforge.core.result import RunResult, RunResults
from fcforge.evaluation.comparison import Comparer, Comparison, holm
from fcforge.evaluation.forgetting import (
    accuracy_curve,
    finite,
    forgetting_curve,
    score_matrix,
)
from fcforge.evaluation.metrics import PRIMARY
from fcforge.evaluation.resampling import (
    N_DRAWS,
    bootstrap,
    interval,
    pair_of,
    per_site,
)
from fcforge.evaluation.tables import (
    WORDS,
    Row,
    Words,
    columns_of,
    group,
    is_majority,
    longest,
    records,
    rows,
    with_majority,
)
from fcforge.experiments.collect import collect, kept_by
from fcforge.experiments.store import Store
from fcforge.report import rendering
from fcforge.report.rendering import picture, render
from fcforge.report.run_words import (
    Finding,
    findings,
    headline,
    leaks_on,
    methods_paragraphs,
)
from fcforge.report.tables import PIPE_WIDTH, Cell, Heading, Table, interval_cell

if TYPE_CHECKING:
    from rich.console import Console

Groups = Mapping[str, list[RunResult]]


class Curve(NamedTuple):
    """A mean over stages with its band; each of shape (T,)."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class About:
    """What the page says besides the results.

    Attributes
    ----------
    title : str
    keeps : mapping of learner title to what its method keeps between sites
    expected : int, optional
        Number of runs that were asked for; fewer results are shown as missing.
    settings : mapping
        Shown as they are.
    n_draws : int
        Bootstrap draws and permutations.
    home : str
        Address of the overview this page belongs to; empty without one.
    """

    title: str = "fcforge report"
    keeps: Mapping[str, str] = field(default_factory=dict)
    expected: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    n_draws: int = N_DRAWS
    home: str = ""


@dataclass(frozen=True)
class Contents:
    """What the page is made from: the references first, then learners by falling AAA.

    Attributes
    ----------
    results : sequence of RunResult
    groups : mapping of learner to its runs with finite scores
    rows : list of Row
    findings : list of Finding
    forests : mapping
        Differences of learners from the ``baseline``, and from ``finetune`` of the same model.
    """

    results: RunResults
    groups: Groups
    rows: list[Row]
    findings: list[Finding]
    forests: Mapping[str, Mapping[str, Comparison]]

    @property
    def words(self) -> Words:
        """What things are called; `own` is the baseline that a learner must beat."""
        return WORDS[self.results[0].kind]

    @property
    def learners(self) -> list[Row]:
        """Learners with usable scores, the references aside."""
        return [row for row in self.rows if row.n_runs and not row.is_majority]

    @property
    def levels(self) -> dict[str, str]:
        """The worst level of the warnings about each learner."""
        return {found.learner: found.level for found in reversed(self.findings)}


def contents(results: RunResults, about: About) -> Contents:
    """The numbers of the page."""
    everything = with_majority(results, own=True)
    learner_rows = rows(everything, keeps=about.keeps, n_draws=about.n_draws)
    found = group([run for run in everything if finite(run)])
    groups = {row.learner: found[row.learner] for row in learner_rows if row.n_runs}
    forests = _forests(groups, about.n_draws)
    said = findings(
        results, expected=about.expected, against_majority=forests["baseline"]
    )
    return Contents(results, groups, learner_rows, said, forests)


def curves(runs: RunResults, n_draws: int) -> tuple[Curve, Curve]:
    """Primary metric on the sites so far, and forgetting, over the stages."""
    n = len(runs[0].spec.order)
    main = PRIMARY[runs[0].kind]

    def statistic(full: np.ndarray) -> np.ndarray:
        a = full[..., 1:, :]
        both = [accuracy_curve(a), forgetting_curve(a)]
        return np.concatenate(both, axis=-1)

    points, draws = bootstrap(runs, main, statistic, n_draws=n_draws)
    mean = points.mean(0)
    low, high = interval(mean, draws)
    accuracy = Curve(mean[:n], low[:n], high[:n])
    forgetting = Curve(mean[n:], low[n:], high[n:])
    return accuracy, forgetting


def mean_matrix(runs: RunResults) -> np.ndarray:
    """Primary metric by stage and position, mean over orders and seeds."""
    main = PRIMARY[runs[0].kind]
    return np.mean([score_matrix(run, main) for run in runs], axis=0)


def _forests(groups: Groups, n_draws: int) -> dict[str, dict[str, Comparison]]:
    """Differences against the baseline, and against fine-tuning of the same model."""
    specs = {k: v[0].spec.learner for k, v in groups.items() if not is_majority(v[0])}
    tuned = {s.model.name: k for k, s in specs.items() if s.method.name == "finetune"}
    kind = next(iter(groups.values()))[0].kind
    partners = {
        "baseline": dict.fromkeys(specs, WORDS[kind].own),
        "finetune": {k: tuned.get(s.model.name, k) for k, s in specs.items()},
    }
    comparer = Comparer(PRIMARY[kind], n_draws=n_draws)
    forests = {}
    for against, asked in partners.items():
        compared = {}
        for one, other in asked.items():
            ours = set(map(pair_of, groups[one]))
            theirs = set(map(pair_of, groups[other]))
            if one != other and ours & theirs:
                compared[one] = comparer.compare(groups[one], groups[other])
        corrected = holm(list(compared.values()))
        forests[against] = dict(zip(compared, corrected, strict=True))
    return forests


# -- the results of a run: page, terminal and Markdown; numbers as CSV and JSON -------------------
IN_TERMINAL = ("aaa", "fm", "auroc", "mae")  # as many columns as 80 characters hold
COSTS = (
    Heading(
        "Keeps",
        "what the method carries from site to site; its memory",
        "memory",
        words=True,
    ),
    Heading("Time", "training time of one run over all sites; number of runs", "runs"),
)


def results_table(
    rows: Sequence[Row],
    levels: Mapping[str, str] | None = None,
    shown: Collection[str] = (),
) -> Table:
    """One row per learner.

    Parameters
    ----------
    rows : sequence of Row
    levels : mapping of learner to {"serious", "caution"}, optional
        Learners with a warning.
    shown : collection of str
        Keys of the columns; where none is named all that are not extra, and the costs.
    """
    columns = []
    for column in columns_of(rows[0].kind):
        if column.key in shown or (not shown and column.shown == "yes"):
            columns.append(column)
    heads = [Heading(c.title, c.help, f"{c.good} is good") for c in columns]
    if not shown:
        heads += COSTS
    levels = levels or {}
    made = []
    for row in rows:
        flag = f"flag-{levels[row.learner]}" if row.learner in levels else ""
        cells = [Cell(row.learner, look=flag)]
        for column in columns:
            cells.append(interval_cell(row.estimates[column.key]))
        if not shown:
            cells += _costs(row)
        made.append(cells)
    quiet = frozenset(k for k, row in enumerate(rows) if row.is_majority)
    return Table.of(("Learner", *heads), made, quiet=quiet)


def _costs(row: Row) -> tuple[Cell, Cell]:
    """What a learner keeps, and how long its runs take."""
    look = f"keeps keeps-{row.keeps.split()[0]}"
    kept = Cell(row.keeps, (memory(row.memory_bytes),), look)
    below = [counted(row.n_runs, "run")]
    if row.n_left_out:
        below.append(f"{row.n_left_out} diverged")
    return kept, Cell(duration(row.seconds), tuple(below))


def print_table(rows: Sequence[Row], console: "Console | None" = None) -> None:
    """Print the columns that fit to stdout (or `console`); a file gets long names unbroken."""
    from rich.console import Console

    out = console or Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    results_table(rows, shown=IN_TERMINAL).print(out)
    meaning = "mean over orders and seeds, [95 % over subjects and trainings], ± SD over orders"
    out.print(meaning, style="dim")


def as_csv(rows: Sequence[Row]) -> str:
    """CSV with a mean, SD, low and high column per number; empty where undefined."""
    import pandas as pd

    table = pd.DataFrame(_plain(rows), dtype=object)
    safe = table.map(lambda v: no_formula(v) if isinstance(v, str) else v)
    return safe.to_csv(index=False, lineterminator="\n")


def as_json(rows: Sequence[Row]) -> str:
    """JSON list of records; null where undefined."""
    return json.dumps(_plain(rows), indent=2, allow_nan=False) + "\n"


def _plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found = []
    for record in records(rows):
        found.append({name: plain(value) for name, value in record.items()})
    return found


def plain(value: Any) -> Any:
    """A value every reader of CSV and JSON understands."""
    if isinstance(value, float):
        return rounded(value, 6) if math.isfinite(value) else None
    return value


def study_json(rows: Mapping[str, Mapping[str, Estimate]]) -> dict[str, dict]:
    """Plain numbers of a study of runs; null where undefined."""
    found: dict[str, dict] = {}
    for name, cells in rows.items():
        found[name] = {}
        for column, e in cells.items():
            ends = {"low": plain(e.low), "high": plain(e.high)}
            found[name][column] = {"mean": plain(e.value), **ends}
    return found


# -- a run folder ----------------------------------------------------------------------------------
def report_folder(folder: Path, page: Path) -> tuple[list[Row], list[Finding]]:
    """Write the page and table.csv of a run folder; returns the table and its cautions."""
    results, about = read_folder(folder)
    found = contents(results, about)
    write_text(page, page_of(about, found))
    write_text(folder / "table.csv", as_csv(found.rows))
    return found.rows, found.findings


def read_folder(folder: Path, home: str = "") -> tuple[list[RunResult], About]:
    """Results of a run folder and what its page says besides them."""
    store = Store(folder)
    results, expected = collect(store)
    stored = store.read_experiment()
    settings = stored["experiment"]
    about = About(settings["title"], kept_by(store), expected, settings, home=home)
    return results, about


# -- the page --------------------------------------------------------------------------------------
def page_of(about: About, c: Contents) -> str:
    """The page as text."""
    first = c.results[0]
    main = PRIMARY[first.kind]
    found = {k: per_site(runs, main) for k, runs in c.groups.items()}
    axis = (0.0, 1.0)
    if first.kind == "number":  # from the lowest R²
        ends = [(e.low, e.high) for sites in found.values() for e in sites.values()]
        axis = rendering.span([np.zeros(1), np.array(ends)])
    return render(
        "run.html.j2",
        about=about,
        c=c,
        leaks=leaks_on(c.results),
        lead=headline(c),
        shown=results_table(c.rows, c.levels),
        forests=[_forest(c, against) for against in FORESTS if c.forests[against]],
        **_over_stages(c, about.n_draws),
        at_sites=found,
        axis_of_sites=axis,
        tested={
            site: counted(len(first.y[site]), "test subject") for site in first.sites
        },
        environment=first.environment,
        methods=methods_paragraphs(c.results, about.n_draws),
    )


# -- tables ----------------------------------------------------------------------------------------
FORESTS = {
    "baseline": ("Against {own}", "Is a learner better than {naive}?"),
    "finetune": (
        "Against fine-tuning",
        "What does a method add to plain fine-tuning of the same model?",
    ),
}


def _forest(c: Contents, against: str) -> dict[str, Any]:
    """Differences from one reference on a common axis."""
    title, note = (text.format(**c.words._asdict()) for text in FORESTS[against])
    found = c.forests[against]
    rows = []  # learner, difference, look
    for learner, d in found.items():
        look = "unclear"
        if d.low > 0:
            look = "clear-up"
        elif d.high < 0:
            look = "clear-down"
        rows.append((learner, d, look))
    ends = [(d.low, d.high, 0.0) for d in found.values()]
    return {
        "title": title,
        "note": note,
        "ends": rendering.span([np.array(ends)]),
        # the permutation test is conservative against a constant, see fcforge.evaluation.comparison
        "with_p": against != "baseline",
        "rows": rows,
    }


# -- pictures --------------------------------------------------------------------------------------
def _over_stages(c: Contents, n_draws: int) -> dict[str, Any]:
    """Curves and matrices of the learners' longest orders."""
    full_orders = {k: longest(runs) for k, runs in c.groups.items()}
    both = {k: curves(runs, n_draws) for k, runs in full_orders.items()}
    accuracy = {k: found for k, (found, _) in both.items()}
    forgetting = {k: found for k, (_, found) in both.items()}
    matrices = {
        row.learner: mean_matrix(full_orders[row.learner]) for row in c.learners
    }
    return {
        "accuracy": _curve_panels(accuracy, c, c.words.metric),
        "forgetting": _curve_panels(forgetting, c, "forgetting"),
        "matrices": matrices,
        "heat": rendering.span(list(matrices.values())),
    }


def _curve_panels(
    found: Mapping[str, Curve], c: Contents, what: str
) -> list[tuple[str, Markup]]:
    """A learner with its band, the baseline dashed."""
    limits = rendering.span([x for curve in found.values() for x in curve])
    panels = []
    for row in c.learners:
        title = row.learner
        own = found[title]
        baseline = found[c.words.own].mean
        figure = rendering.stage_figure(own, baseline, limits)
        alt = f"{what} of {title} over the stages: {rendering.describe(own.mean)}"
        panels.append((title, picture(figure, alt)))
    return panels
