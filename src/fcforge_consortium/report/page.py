"""The page of a consortium file, for an ethics board.

The text comes from `report.describe`, so that page and terminal show the same words.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fcforge.core.errors import FCForgeError
from fcforge.core.files import write_text
from fcforge.core.formatting import counted, people
from fcforge.evaluation.explanation import explain_model
from fcforge.report import figures
from fcforge.report.explaining import uses
from fcforge.report.html import Section, macro, picture, sections_page
from fcforge.report.tables import Table, interval_text
from fcforge_consortium.model import Model
from fcforge_consortium.operations.demo import DemoRound
from fcforge_consortium.records.exchange import Exchange
from fcforge_consortium.records.kinds import ExpectedGain
from fcforge_consortium.report.describe import describe
from fcforge_consortium.report.description import Description
from fcforge_consortium.report.terminal import plain_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROIS = 500  # for pictures of the features that the model uses
USE = (
    "Research: to study how well a diagnosis, or a number such as age, can be predicted from "
    "resting-state FC across hospitals, and to continue learning at the next one. A scan gets an "
    "answer, or none where it is unlike the scans that were learned.",
)
NOT_FOR = (
    "Diagnosing, screening or treating anybody. It is not a medical device.",
    "Scans of another atlas, another preprocessing, task fMRI, or people unlike those described "
    "here.",
    "Deciding about one person: the accuracies are of groups, and modest.",
)
STATED = (
    "Made from the file itself, after every check of `fcforge consortium verify` had passed. What "
    "a hospital states of itself (people, accuracy) is shown as it stands in the file: verifying "
    "proves who signed it and that nobody changed it since, not that the hospital measured well."
)
GAIN_TITLE = "Expected gain over the base model, by epsilon"
GAIN_NOTE = (
    "AUROC above the base model alone (0), estimated from the public people alone; bars are one "
    "standard error. Round: two aggregators add noise once. Local: noise by each hospital. "
    "Pooled: everybody's scans in one place."
)
# Label of a way to contribute, its colour, and whether two aggregators take part.
WAYS = (("round", figures.SERIES[0], True), ("local", figures.SERIES[1], False))


def page_of(
    description: Description,
    name: str,
    home: str = "",
    more: Sequence[Section] = (),
    first: Sequence[Section] = (),
) -> str:
    """Return the page of a consortium file as HTML.

    Parameters
    ----------
    description : Description
    name : str
        Name of the file.
    home : str
        Address of the overview; empty without one.
    more : sequence of Section
        Pictures of the model (`pictures`).
    first : sequence of Section
        Sections to show before the others.
    """
    sections = [
        *first,
        Section("Intended use", (*USE, STATED)),
        Section("Not for", macro("listed", NOT_FOR)),
    ]
    for table in description.tables:
        if table.rows:
            sections.append(Section(table.title, plain_table(table), table.note))
    sections += more
    shared = Section("Settings that all hospitals share", description.settings)
    facts = [(key, value, "") for key, value in description.facts.items()]
    return sections_page(
        name,
        description.kind,
        [*sections, shared],
        home=home,
        answers=description.answers,
        sites=description.sites,
        facts=facts,
        real_subjects=description.real_subjects,
    )


def write_page(exchange: Exchange, name: str, path: Path, *first: Section) -> None:
    """Write the page of a consortium file.

    Parameters
    ----------
    exchange : Exchange
    name : str
        Name of the file.
    path : Path
        Page to write.
    *first : Section
        Sections to show before the others.
    """
    text = page_of(describe(exchange), name, more=pictures(exchange), first=first)
    write_text(path, text)


def pictures(exchange: Exchange) -> list[Section]:
    """Return pictures of the expected gain, where it is known, and of the features in use."""
    expected = getattr(exchange.root, "expected_gain", None)  # a chain has none
    used = uses_section(exchange.model)
    if expected is None:
        return [used]
    drawn = picture(_gain_figure(expected), GAIN_TITLE)
    return [Section(GAIN_TITLE, drawn, GAIN_NOTE), used]


@figures.in_page_style
def _gain_figure(expected: ExpectedGain) -> "Figure":
    """Draw the expected gain by epsilon, with two aggregators and without.

    The legend stands beside the axes, where it covers no point. Its lines and the axis have room for
    the larger letters of a phone.
    """
    figure = figures.new_figure(6.4, 3.0, left=0.1, right=0.78, top=0.96, bottom=0.26)
    axes = figure.subplots()
    for way, colour, together in WAYS:
        rows = [row for row in expected.rows[::-1] if row.aggregators == together]
        names = [f"{row.epsilon:g}" if row.epsilon else "exact" for row in rows]
        gains = [row.gain for row in rows]
        errors = [row.error for row in rows]
        axes.errorbar(names, gains, errors, color=colour, marker="o", label=way)
    axes.axhline(expected.pooled, ls="--", color=figures.MUTED, label="pooled")
    axes.axhline(0, color=figures.FAINT)
    axes.set_xlabel("epsilon of every person", labelpad=14)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), labelspacing=1.6)
    return figure


def uses_section(model: Model) -> Section:
    """Return pictures of the edges on which the model's answer depends."""
    title = "What the model uses"
    if model.n_rois > MOST_ROIS:
        return Section(title, f"Pictures are drawn for up to {MOST_ROIS} ROIs.")
    try:
        scan, who = model.reference()
        covariates = {name: np.zeros(1) for name in model.needs}
        explanation = explain_model(model, scan[None], covariates)
    except (FCForgeError, ImportError) as error:  # a chain's network needs torch
        return Section(title, f"Cannot be shown: {error}")
    if not explanation.strength.any():
        return Section(title, "The model's answer does not depend on the scan.")
    note = (
        f"How far a small change of each edge moves the answer, at {who} (for a linear model: "
        "its weights). This shows what this model looks at, not what the illness is."
    )
    return Section(title, uses(explanation), note)


def round_section(played: DemoRound) -> Section:
    """Return an introduction to a round for somebody who has not heard of one.

    Parameters
    ----------
    played : DemoRound
    """
    hospitals = len(played.exchange.model.sites)
    rows = [(title, interval_text(value)) for title, value in played.auroc.items()]
    heads = ("model", f"AUROC of {people(played.tested)} [95 %]")
    text = (
        f"{counted(hospitals, 'simulated hospital')} contributed one sum over "
        f"{people(played.people)} and no scan.",
        "Each hospital split its sum into two encrypted shares, one for each of two aggregators. "
        "Neither aggregator can read a share; each adds noise to the sum of its shares.",
        Table.of(heads, rows),
        "Simulated people prove nothing about patients; results on real ones are in "
        "docs/results/sums.md.",
    )
    return Section("What this round gained", text)
