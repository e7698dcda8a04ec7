"""The page of a capsule: what can be trusted of it, or why it must not be used."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup

from fcforge.capsule.contents import Capsule, summary
from fcforge.capsule.ledger import Entry, canonical, learned, sha256
from fcforge.capsule.sealing import STEPS, Check, Trust, open_capsule, verify
from fcforge.consortium.predicting import explain_model
from fcforge.report import figures
from fcforge.report.audits import section as audit_section
from fcforge.report.explaining import average_parts
from fcforge.report.frame import picture, render, short
from fcforge.report.inspect import Answer, answers, audits_of, inspect_words, people
from fcforge.report.shelf import BROKEN, Chain, Item, reason

MOST_BYTES = 256 << 20
MOST_SUBJECTS, MOST_ROIS = 16, 500  # of a picture of what the model uses
MOST_SHOWN, MOST_LINES = 4_000, 400  # characters of one ledger line; lines


@dataclass(frozen=True)
class CapsuleView:
    """What is shown of a capsule, without its arrays.

    Attributes
    ----------
    item : Item
    damage : str
        Why it must not be used; empty for a sound capsule.
    checks : sequence of Check
    facts : mapping
        `fcforge.capsule.contents.summary` and the learner; empty when damaged.
    answers : tuple of Answer
    words : list of str
        What ``fcforge inspect`` prints.
    ancestry : tuple of (id, label)
        This capsule and all it was made from, oldest first, as its ledger says.
    """

    item: Item
    damage: str = ""
    checks: Sequence[Check] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    answers: tuple[Answer, ...] = ()
    words: Sequence[str] = ()
    ancestry: tuple[tuple[str, str], ...] = ()


def view_capsule(item: Item) -> CapsuleView:
    """Open and check a capsule; whatever is wrong with it becomes `damage`."""
    try:
        capsule = open_capsule(item.path, trusted=Trust.of(()), max_bytes=MOST_BYTES)
        return CapsuleView(
            item,
            checks=[Check(name, True) for name in STEPS],
            facts={
                **summary(capsule),
                "learner": capsule.settings.learner.title,
                "holds_real": capsule.holds_real,
            },
            answers=answers(capsule),
            words=inspect_words(capsule),
            ancestry=ancestry_of(capsule.id, capsule.entries),
        )
    except BROKEN as error:
        return CapsuleView(item, reason(error), _checks(item))


def _checks(item: Item) -> Sequence[Check]:
    try:
        return verify(item.path, trusted=Trust.of(()), max_bytes=MOST_BYTES)
    except BROKEN:
        return ()


def ancestry_of(own: str, entries: Sequence[Entry]) -> tuple[tuple[str, str], ...]:
    """Every capsule of the chain: line k of the ledger was written into one made from line k - 1.

    The id of the capsule that ended with line k is the parent named in line k + 1.
    """
    ids = [str(entry["parent"]) for entry in entries[1:]] + [own]
    labels = [str(e["site"]) if e["kind"] == "learn" else "audit" for e in entries]
    return tuple((i, label) for i, label in zip(ids, labels, strict=True) if i)


def capsule_page(view: CapsuleView, chains: Sequence[Chain], home: str) -> str:
    """The page of a capsule as text."""
    values: dict[str, Any] = {"view": view, "home": home, "chains": chains}
    if view.damage:
        return render("damaged.html.j2", **values)
    capsule = open_capsule(view.item.path, max_bytes=MOST_BYTES)
    return render(
        "capsule.html.j2",
        **values,
        held_out=_held_out(capsule),
        audits=[
            audit_section(found, ", ".join(filter(None, (short(site, 60), time))))
            for _, time, site, found in audits_of(capsule)
        ],
        uses=_uses(capsule),
        ledger=[(e, sha256(canonical(e)), _written(e)) for e in capsule.entries[:MOST_LINES]],
        people=people,
    )


def _held_out(capsule: Capsule) -> Markup | str:
    """Accuracy on the synthetic held-out sets over the chain, on an axis from 0 to 1."""
    stages = [entry["metrics"]["held_out"] for entry in learned(capsule.entries)]
    if not stages[-1]:
        return ""
    found = {
        site: np.array([(s.get(site) or {}).get("accuracy") for s in stages], dtype=float)
        for site in capsule.sites
    }
    lines = figures.named_lines(found)
    figure = figures.stage_lines(lines, capsule.sites, "after learning", (0.0, 1.02))
    return picture(figure, "accuracy on each site's synthetic held-out set after every site")


def _written(entry: Entry) -> str:
    text = json.dumps(entry, indent=1, sort_keys=True)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}\n... (cut here)"


def _uses(capsule: Capsule) -> dict[str, Any]:
    """What the model uses, in pictures; never a reason not to show the page."""
    if capsule.settings.n_rois > MOST_ROIS:
        return {"problem": f"pictures are drawn for up to {MOST_ROIS} ROIs."}
    fc = capsule.held_out.batch().fc.numpy()
    # evenly, so that every site is among them; without any, the weights at no connectivity
    some = np.linspace(0, len(fc) - 1, min(len(fc), MOST_SUBJECTS)).round().astype(int)
    fc = fc[some] if len(fc) else np.eye(capsule.settings.n_rois)[None]
    try:
        found = explain_model(capsule, fc)
    except BROKEN as error:
        return {"problem": reason(error)}
    if not found.strength.any():
        return {"problem": "the model's answer does not depend on the scan."}
    return average_parts(found)
