"""The page of a run: opens offline, on a phone, on paper, in the dark."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fcforge.files import write_text
from fcforge.metrics import METRICS
from fcforge.report import figures
from fcforge.report.contents import About, Contents, Curve, Difference, contents
from fcforge.report.explaining import stability_section
from fcforge.report.rendering import Section, listed, picture, render
from fcforge.report.run_words import Finding, headline, methods_paragraphs
from fcforge.report.table import Cell, Table, as_csv, results_table
from fcforge.runner.collect import collect_some, edge_weights, kept_by
from fcforge.runner.store import Store
from fcforge.stats import Row
from fcforge.text import number
from fcforge.types import Kind, RunResult, RunResults


# -- a run folder ----------------------------------------------------------------------------------
def report_folder(
    folder: Path, page: Path, sections: Sequence[Section] = ()
) -> tuple[list[Row], list[Finding]]:
    """Write the page, table.csv and table.md of a run folder; returns the table and its cautions.

    `sections` are shown before the settings.
    """
    results, about = read_folder(folder, sections)
    found = contents(results, about)
    # the majority class first
    ranking = sorted(found.rows, key=lambda row: not row.is_majority)
    write_text(page, page_of(results, about, found))
    write_text(folder / "table.csv", as_csv(ranking))
    write_text(folder / "table.md", results_table(ranking).markdown())
    return ranking, found.findings


def read_folder(
    folder: Path, sections: Sequence[Section] = (), home: str = ""
) -> tuple[list[RunResult], About]:
    """Results of a run folder and what its page says besides them."""
    store = Store(folder)
    results, expected = collect_some(store)
    stored = store.read_experiment()
    if weights := edge_weights(store):
        edges = stability_section(weights, tuple(stored.get("roi_names", ())))
        sections = [edges, *sections]
    settings = stored["experiment"]
    about = About(
        settings["title"], kept_by(store), expected, settings, sections, home=home
    )
    return results, about


# -- the page --------------------------------------------------------------------------------------
def write_report(
    results: RunResults, out_html: str | Path, about: About | None = None
) -> Path:
    """Write the page of some runs, whole or not at all; returns the file written.

    The majority rows are added where no majority learner is among the results.
    """
    out = Path(out_html)
    about = about or About()
    write_text(out, page_of(results, about, contents(results, about)))
    return out


def page_of(results: RunResults, about: About, c: Contents) -> str:
    """The page as text."""
    accuracy = {k: found for k, (found, _) in c.curves.items()}
    forgetting = {k: found for k, (_, found) in c.curves.items()}
    return render(
        "run.html.j2",
        about=about,
        c=c,
        lead=headline(c),
        facts=_facts(results, about),
        shown=results_table(c.rows, c.levels),
        more=_more_table(c),
        csv=base64.b64encode(as_csv(c.rows).encode()).decode(),
        forests=[_forest(c, against) for against in c.forests],
        accuracy=_curve_panels(accuracy, c, c.words.metric),
        forgetting=_curve_panels(forgetting, c, "forgetting"),
        heat=figures.span(list(c.matrices.values())),
        sites={name: _mix(results, name, c.kind) for name in results[0].sites},
        site_axis=_site_axis(c),
        settings=about.settings or results[0].spec.to_json(),
        environment=results[0].environment,
        methods=methods_paragraphs(results, about.n_draws),
    )


def _facts(results: RunResults, about: About) -> list[tuple[str, Any, str]]:
    specs = [r.spec for r in results]
    asked = max(about.expected or 0, len(results))
    return [
        ("runs finished", len(results), f"of {asked}"),
        ("learners", len({s.learner.title for s in specs}), ""),
        ("sites", len(results[0].sites), ""),
        ("site orders", len({s.order for s in specs}), ""),
        ("seeds", len({s.seed for s in specs}), ""),
        ("protocol", listed(sorted({s.protocol for s in specs})), ""),
    ]


def _mix(results: RunResults, site: str, kind: Kind) -> str:
    """Test people of a site; their classes, or mean and spread of a number."""
    y = results[0].y[site]
    tested = {i for r in results for i in r.subject_ids[site]}
    about = f"{len(y)} test subjects per seed, {len(tested)} over all seeds"
    if kind == "number":
        return f"{about}, mean {y.mean():.1f} ± {y.std():.1f}"
    if kind == "two classes":
        return f"{about}, {100 * float(y.mean()):.0f} % patients"
    shares = 100 * np.bincount(y) / len(y)
    return f"{about}, classes {' / '.join(f'{share:.0f}' for share in shares)} %"


def _site_axis(c: Contents) -> tuple[float, float]:
    """Common axis of the sites: shares of 1, or all there is of a number."""
    if c.kind != "number":
        return 0.0, 1.0
    ends = [(e.low, e.high, e.value) for at in c.sites.values() for e in at.values()]
    return figures.span([np.zeros(1), np.array(ends)])


# -- tables ----------------------------------------------------------------------------------------
class Forest(NamedTuple):
    """Differences from one reference on a common axis."""

    title: str
    note: str
    low: float
    high: float
    with_p: bool
    rows: list[tuple[Difference, str, str]]  # difference, small print, look


FORESTS = {
    "baseline": ("Against {own}", "Is a learner better than {naive}?"),
    "finetune": (
        "Against fine-tuning",
        "What does a method add to plain fine-tuning of the same model?",
    ),
}


def _forest(c: Contents, against: str) -> Forest:
    title, note = (text.format(**c.words._asdict()) for text in FORESTS[against])
    rows = []
    for d in c.forests[against]:
        small = f"vs {d.reference}" if against == "finetune" else ""
        look = "unclear"
        if d.found.low > 0:
            look = "clear-up"
        elif d.found.high < 0:
            look = "clear-down"
        rows.append((d, small, look))
    # the permutation test is conservative against a constant, see fcforge.stats.compare
    with_p = against != "baseline"
    ends = [(d.found.low, d.found.high, 0.0) for d in c.forests[against]]
    return Forest(title, note, *figures.span([np.array(ends)]), with_p, rows)


def _more_table(c: Contents) -> Table:
    names = list(next(iter(c.more.values()), ()))
    rows = []
    for learner, metrics in c.more.items():
        cells = [Cell(learner)]
        for found in metrics.values():
            below = (f"final {number(found['acc'])}", f"FM {number(found['fm'])}")
            cells.append(Cell(number(found["aaa"]), below, found["aaa"]))
        rows.append(cells)
    heads = ("Learner", *(METRICS[name].title for name in names))
    return Table.of(heads, rows, sortable=True)


# -- pictures --------------------------------------------------------------------------------------
def _curve_panels(
    found: Mapping[str, Curve], c: Contents, what: str
) -> list[tuple[str, Markup]]:
    """A learner with its band, the others faint behind it, the baseline dashed."""
    limits = figures.span([x for curve in found.values() for x in curve])
    panels = []
    for title in c.matrices:
        own = found[title]
        stages = [str(t + 1) for t in range(len(own.mean))]
        lines = []
        for other in (*c.matrices, c.words.own):
            mean = found[other].mean
            if other != title and len(mean) == len(stages):
                dashed = other == c.words.own
                colour = figures.MUTED if dashed else figures.FAINT
                lines.append(
                    figures.StageLine(mean, colour, thin=not dashed, dashed=dashed)
                )
        lines.append(figures.StageLine(own.mean, band=(own.low, own.high)))
        figure = figures.stage_lines(lines, stages, "sites learned", limits)
        alt = f"{what} of {title} over the stages: {figures.describe(own.mean)}"
        panels.append((title, picture(figure, alt)))
    return panels
