"""The page of an exchange file, for an ethics board; its words in a terminal are `terminal`'s.

Everything comes from `Model.describe`: the same words for every model.
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
from fcforge_consortium.report.description import Description
from fcforge_consortium.report.terminal import plain_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fcforge_consortium.model import Model
    from fcforge_consortium.operations.demo import DemoRound
    from fcforge_consortium.records.exchange import Exchange
    from fcforge_consortium.records.kinds import Worth

MOST_ROIS = 500  # of a picture of what the model uses
USE = (
    "Research: to study how well a diagnosis, or a number such as age, can be told from "
    "resting-state FC across hospitals, and to go on learning at the next one. A scan gets an "
    "answer, or none where it is unlike what was learned.",
)
NOT_FOR = (
    "Diagnosing, screening or treating anybody. It is not a medical device.",
    "Scans of another atlas, another preprocessing, task fMRI, or people unlike those described "
    "here.",
    "Deciding about one person: the accuracies are of groups, and modest.",
)
STATED = (
    "Made from the file itself, after every check of `fcforge consortium verify` had passed. What a hospital "
    "states of itself (people, accuracy, audits) is shown as it stands in the file: verifying "
    "proves who signed it and that nobody changed it since, not that the hospital measured well."
)


IN_A_PICTURE = "What each epsilon would add to the public head"
WORTH_NOTE = (
    "AUROC above the public head (0), estimated from the public people alone; bars are one "
    "standard error. Local: noise by each hospital. Pooled: everybody's scans in one place."
)
WAYS = (("keepers", figures.SERIES[0], True), ("local", figures.SERIES[1], False))


def page_of(
    found: Description,
    name: str,
    home: str = "",
    more: Sequence[Section] = (),
    first: Sequence[Section] = (),
) -> str:
    """The page of an exchange file as text.

    Parameters
    ----------
    found : Description
    name : str
        Of the file.
    home : str
        Address of the overview; empty without one.
    more : sequence of Section
        Pictures of the model (`pictures`), and the files beside it.
    first : sequence of Section
        What is to be read before the rest.
    """
    sections = [
        *first,
        Section("Intended use", (*USE, STATED)),
        Section("Not for", macro("listed", NOT_FOR)),
    ]
    for table in found.tables:
        if table.rows:
            sections.append(Section(table.title, plain_table(table), table.note))
    sections += more
    sections.append(Section("Settings that all hospitals share", found.settings))
    facts = [(key, value, "") for key, value in found.facts.items()]
    return sections_page(
        name,
        found.kind,
        sections,
        home=home,
        answers=found.answers,
        sites=found.sites,
        facts=facts,
        real_subjects=found.real_subjects,
    )


def write_page(exchange: "Exchange", name: str, path: Path, *first: Section) -> None:
    """Write the page of an exchange file called `name`, with `first` before the rest."""
    model = exchange.model
    shown = page_of(model.describe(), name, more=pictures(model), first=first)
    write_text(path, shown)


def pictures(model: "Model") -> list[Section]:
    """What sums would add, where that is known, and what the model uses."""
    told = getattr(model.exchange.root, "worth", None)  # a chain has none
    used = uses_section(model)
    if told is None:
        return [used]
    drawn = picture(_worth_figure(told), IN_A_PICTURE)
    return [Section(IN_A_PICTURE, drawn, WORTH_NOTE), used]


@figures.in_page_style
def _worth_figure(told: "Worth") -> "Figure":
    """What an epsilon would buy, with two keepers and without."""
    figure = figures.new_figure(6.4, 2.8, left=0.1, right=0.98, top=0.96, bottom=0.19)
    axes = figure.subplots()
    for way, colour, keepers in WAYS:
        rows = [row for row in told.rows[::-1] if row.keepers == keepers]
        names = [f"{row.epsilon:g}" if row.epsilon else "exact" for row in rows]
        gains = [row.gain for row in rows]
        errors = [row.error for row in rows]
        axes.errorbar(names, gains, errors, color=colour, marker="o", label=way)
    axes.axhline(told.pooled, ls="--", color=figures.MUTED, label="pooled")
    axes.axhline(0, color=figures.FAINT)
    axes.set(xlabel="epsilon of every person")
    axes.legend()
    return figure


def uses_section(model: "Model") -> Section:
    """What the model uses, in pictures."""
    title = "What the model uses"
    if model.n_rois > MOST_ROIS:
        return Section(title, f"Pictures are drawn for up to {MOST_ROIS} ROIs.")
    try:
        scan, who = model.reference()
        covariates = {name: np.zeros(1) for name in model.needs}
        found = explain_model(model, scan[None], covariates)
    except (FCForgeError, ImportError) as error:  # a chain's network needs torch
        return Section(title, f"Cannot be shown: {error}")
    if not found.strength.any():
        return Section(title, "The model's answer does not depend on the scan.")
    note = (
        f"How far a small change of each edge moves the answer, at {who} (for a linear model: "
        "its weights). It says what this model looks at, not what the illness is."
    )
    return Section(title, uses(found), note)


def round_section(played: "DemoRound") -> Section:
    """A round that was played, for somebody who has not heard of one."""
    hospitals = len(played.exchange.model.sites)
    rows = [(title, interval_text(found)) for title, found in played.auroc.items()]
    heads = ("model", f"AUROC of {people(played.tested)} [95 %]")
    said = (
        f"{counted(hospitals, 'simulated hospital')} gave what {people(played.people)} "
        "add up to, and no scan.",
        "Each split its sum into two encrypted shares, one for either of two keepers. Neither "
        "keeper can read what it adds; each adds noise.",
        Table.of(heads, rows),
        "Simulated people prove nothing about patients; real ones are in "
        "docs/results/sums.md.",
    )
    return Section("What this round gained", said)
