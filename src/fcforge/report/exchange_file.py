"""The page of an exchange file, for an ethics board; its words in a terminal are `terminal`'s.

Everything comes from `Model.describe`: the same words for every model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fcforge.exchange.description import Description
from fcforge.exchange.explanation import explain_model
from fcforge.files import write_text
from fcforge.report.discovery import BROKEN, reason
from fcforge.report.explaining import uses
from fcforge.report.rendering import Section, macro, sections_page
from fcforge.report.terminal import plain_table

if TYPE_CHECKING:
    from fcforge.exchange.exchange import Exchange
    from fcforge.exchange.model import Model

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
    "Made from the file itself, after every check of `fcforge verify` had passed. What a hospital "
    "states of itself (people, accuracy, audits) is shown as it stands in the file: verifying "
    "proves who signed it and that nobody changed it since, not that the hospital measured well."
)


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
        A picture of the model (`uses_section`), and the files beside it.
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
    said: Any = {"answers": found.answers, "sites": found.sites, "facts": facts}
    said["real_subjects"] = found.real_subjects
    return sections_page(name, found.kind, sections, home=home, **said)


def write_page(exchange: Exchange, name: str, path: Path, *first: Section) -> None:
    """Write the page of an exchange file called `name`, with `first` before the rest."""
    model = exchange.model
    shown = page_of(model.describe(), name, more=[uses_section(model)], first=first)
    write_text(path, shown)


def uses_section(model: Model) -> Section:
    """What the model uses, in pictures; never a reason not to show the page."""
    title = "What the model uses"
    if model.n_rois > MOST_ROIS:
        return Section(title, f"Pictures are drawn for up to {MOST_ROIS} ROIs.")
    try:
        scan, who = model.reference()
        covariates = {name: np.zeros(1) for name in model.needs}
        found = explain_model(model, scan[None], covariates)
    except BROKEN as error:
        return Section(title, f"Cannot be shown: {reason(error)}")
    if not found.strength.any():
        return Section(title, "The model's answer does not depend on the scan.")
    note = (
        f"How far a small change of each edge moves the answer, at {who} (for a linear model: "
        "its weights). It says what this model looks at, not what the illness is."
    )
    return Section(title, uses(found), note)
