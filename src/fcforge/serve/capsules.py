"""A capsule as the page shows it: plain data, or the reason why it cannot be trusted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fcforge.capsule.ledger import SMALL_CELL, canonical, learned, sha256
from fcforge.capsule.opening import STEPS, Check, open_capsule, verify
from fcforge.capsule.saliency import MOST_ROIS, Uses, what_it_uses
from fcforge.capsule.summary import summary
from fcforge.errors import CapsuleError
from fcforge.report.inspect import inspect_words
from fcforge.serve.damage import BROKEN, reason
from fcforge.serve.shelf import Item, require_inside
from fcforge.text import printable

MOST_BYTES = 256 << 20
MOST_SHOWN = 4_000  # characters of one ledger line
MOST_LINES = 400


@dataclass(frozen=True)
class Line:
    """One line of the ledger."""

    number: int
    kind: str
    site: str
    time: str
    learned: str
    own_accuracy: float | None
    flags: tuple[str, ...]
    sha256: str
    parent: str
    text: str


@dataclass(frozen=True)
class CapsuleView:
    """What is known of a capsule without keeping its arrays.

    Attributes
    ----------
    item : Item
    damage : str
        Why it must not be used; empty for a sound capsule.
    checks : list of Check
    facts : mapping
        `fcforge.capsule.words.summary`, without settings and ledger; empty when damaged.
    words : list of str
        What ``fcforge inspect`` prints.
    lines : list of Line
        The ledger.
    ancestry : tuple of (id, label)
        This capsule and all it was made from, oldest first, as its ledger says.
    sites : tuple of str
    accuracy : mapping of site to list
        Accuracy on its synthetic held-out set after every site, None before it was learned.
    audits : list of (time, result)
    """

    item: Item
    damage: str
    checks: list[Check]
    facts: dict[str, Any]
    words: list[str]
    lines: list[Line]
    ancestry: tuple[tuple[str, str], ...]
    sites: tuple[str, ...]
    accuracy: dict[str, list[float | None]]
    audits: list[tuple[str, dict[str, Any]]]


def view_capsule(root: Path, item: Item) -> CapsuleView:
    """Open and check a capsule; whatever is wrong with it becomes `damage`."""
    try:
        require_inside(root, item.path)
        capsule = open_capsule(item.path, max_bytes=MOST_BYTES)
        facts = summary(capsule)
        entries = facts.pop("ledger")
        settings = facts.pop("settings")
        facts["n_rois"], facts["learner"] = settings["n_rois"], capsule.settings.learner.title
        facts["holds_real"] = capsule.holds_real
        facts["parameters"] = sum(p.numel() for p in capsule.lane.params.values())
        facts["classes"] = tuple(map(str, capsule.settings.classes))
        return CapsuleView(
            item=item,
            damage="",
            checks=[Check(name, True) for name in STEPS],
            facts=facts,
            words=inspect_words(capsule),
            lines=[_line(entry) for entry in entries[:MOST_LINES]],
            ancestry=_ancestry(capsule.id, entries),
            sites=tuple(capsule.sites),
            accuracy=_accuracy(capsule.sites, entries),
            audits=[(e["time"], e["result"]) for e in entries if e["kind"] == "audit"],
        )
    except BROKEN as error:
        return _damaged(root, item, reason(error))


def _damaged(root: Path, item: Item, why: str) -> CapsuleView:
    try:
        require_inside(root, item.path)
        checks = verify(item.path, max_bytes=MOST_BYTES)
    except BROKEN:
        checks = []
    return CapsuleView(item, printable(why), checks, {}, [], [], (), (), {}, [])


def uses_of(root: Path, item: Item) -> Uses:
    """What the model of a sound capsule uses."""
    require_inside(root, item.path)
    capsule = open_capsule(item.path, max_bytes=MOST_BYTES)
    if capsule.settings.n_rois > MOST_ROIS:
        raise CapsuleError(f"pictures are drawn for up to {MOST_ROIS} ROIs.")
    return what_it_uses(capsule)


def _line(entry: dict[str, Any]) -> Line:
    learns = entry["kind"] == "learn"
    own = entry["metrics"]["own_test"] if learns else None
    text = json.dumps(entry, indent=1, sort_keys=True, ensure_ascii=False)
    if len(text) > MOST_SHOWN:
        text = text[:MOST_SHOWN] + "\n... (cut here)"
    return Line(
        number=entry["number"],
        kind=entry["kind"],
        site=printable(entry["site"]) if learns else "",
        time=printable(entry["time"]),
        learned=_counts(entry["counts"]["learning"]) if learns else "",
        own_accuracy=own["accuracy"] if own else None,
        flags=tuple(map(printable, entry["flags"])),
        sha256=sha256(canonical(entry)),
        parent=printable(entry["parent"]),
        text=text,
    )


def _counts(counts: dict[str, int | None]) -> str:
    shown = {k: f"< {SMALL_CELL}" if v is None else str(v) for k, v in counts.items()}
    return f"{shown['patients']} patients, {shown['controls']} controls"


def _ancestry(own: str, entries: list[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Every capsule of the chain: line k of the ledger was written into one made from line k - 1.

    The id of the capsule that ended with line k is the parent named in line k + 1.
    """
    ids = [entry["parent"] for entry in entries[1:]] + [own]
    labels = [printable(e["site"]) if e["kind"] == "learn" else "audit" for e in entries]
    return tuple((printable(i), label) for i, label in zip(ids, labels, strict=True) if i)


def _accuracy(sites: tuple[str, ...], entries: list[dict[str, Any]]) -> dict[str, list]:
    stages = [entry["metrics"]["held_out"] for entry in learned(entries)]
    return {
        printable(site): [stage[site]["accuracy"] if site in stage else None for stage in stages]
        for site in sites
    }
