"""A chained capsule in plain words and as a page: four questions, answered the same way on both."""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fcforge.capsule.contents import (
    Capsule,
    OwnTest,
    arrays,
    audited_sites,
    budget,
    own_tests,
)
from fcforge.capsule.contents import summary as summary_of
from fcforge.capsule.ledger import SMALL_CELL, Entry, canonical, learned, sha256
from fcforge.capsule.sealing import STEPS, Check, Trust, open_capsule, verify
from fcforge.consortium.predicting import explain_model
from fcforge.exchange import description
from fcforge.exchange.audit import attack_rows
from fcforge.exchange.description import Answer, Bar
from fcforge.methods import METHODS
from fcforge.report import figures
from fcforge.report.audits import budget_words, section, sentences
from fcforge.report.discovery import BROKEN, Chain, Item, reason
from fcforge.report.explaining import average_parts
from fcforge.report.rendering import picture, render, short, text_lines
from fcforge.report.table import Table
from fcforge.studies.audit_result import Audit
from fcforge.text import counted, memory, percent

MOST_BYTES = 256 << 20
MOST_SUBJECTS = 16  # of a picture of what the model uses
MOST_ROIS = 500
MOST_SHOWN = 4_000  # characters of one ledger line
MOST_LINES = 400
MOST_ARRAYS = 4  # that are named one by one
EXACT = (
    "analytic",
)  # second moments without noise: leverage finds every member (docs/privacy.md)


def answers(capsule: Capsule) -> tuple[Answer, ...]:
    """Who signed it, what travels, does it work on real people, what can an attacker learn."""
    keys = [Signed("the sender", capsule.signed_by)]
    tests = [_bar(test) for test in own_tests(capsule.entries)]
    return (
        description.who_signed(keys),
        _travels(capsule),
        description.works_at_home(tests),
        _attacked(capsule),
    )


class Signed(NamedTuple):
    """Who signed and with which key."""

    site: str
    key: str


def _travels(capsule: Capsule) -> Answer:
    n_params = sum(p.numel() for p in capsule.lane.params.values())
    real = int(capsule.remembered.real.sum())
    held_out = counted(len(capsule.held_out), "synthetic held-out subject")
    lines = [
        f"{n_params} network parameters; method state: {_state_words(capsule)}.",
        f"{len(capsule.remembered) - real} synthetic and {real} real remembered subjects.",
        f"{held_out}, never trained on.",
    ]
    spent = budget(capsule)
    if spent is not None:
        lines.append(budget_words(*spent))
    method = capsule.settings.learner.method.name
    exact = method in EXACT or capsule.harmony is not None
    return description.chain_travels(
        capsule.settings.keeps, lines, exact=exact, real_subjects=capsule.holds_real
    )


def _state_words(capsule: Capsule) -> str:
    """The state's arrays, largest first, and how many of their rows look like scans."""
    state = [a for a in arrays(capsule) if a["name"].startswith(("state/", "harmony/"))]
    state.sort(key=lambda a: -a["bytes"])
    words = []
    for a in state[:MOST_ARRAYS]:
        shape = "x".join(map(str, a["shape"])) or "1"
        alike = f", {a['scan_like']} rows like scans" if a["scan_like"] else ""
        name = a["name"].removeprefix("state/")
        words.append(f"{name} {shape}, {memory(a['bytes'])}{alike}")
    if rest := state[MOST_ARRAYS:]:
        size = memory(sum(a["bytes"] for a in rest))
        words.append(f"{len(rest)} more arrays, {size}")
    return "; ".join(words) or "none"


def _bar(t: OwnTest) -> Bar:
    small = "rounded, fewer than 10 in a class: no interval"
    if t.n:
        small = f"{t.n} test subjects"
    low, high, majority = (
        math.nan if v is None else v for v in (t.low, t.high, t.majority)
    )
    named = "" if t.majority is None else description.COMMONEST
    return Bar(t.site, t.accuracy, low, high, majority, named, small)


def audits_of(capsule: Capsule) -> list[tuple[int, str, str, Audit]]:
    """Number in the ledger, time, site and contents of every recorded audit."""
    return [
        (entry["number"], entry["time"], str(entry["result"].get("site", "")), found)
        for entry in capsule.entries
        if entry["kind"] == "audit" and (found := Audit.from_ledger(entry["result"]))
    ]


def _attacked(capsule: Capsule) -> Answer:
    """The strongest attack of all audits of what travels now."""
    last = max(entry["number"] for entry in learned(capsule.entries))
    found = [audit for number, _, _, audit in audits_of(capsule) if number > last]
    rows = [row for audit in found for row in attack_rows(audit)]
    return description.strongest_attack(rows, _not_audited(capsule))


def inspect_words(capsule: Capsule) -> list[str]:
    """Lines that say who contributed, when, what is kept, and how well it works."""
    stages, audits = learned(capsule.entries), []
    for number, time, site, audit in audits_of(capsule):
        later = ", ".join(e["site"] for e in learned(capsule.entries[number:]))
        about = f"site {site}" if site else "no site named"
        about += f"; {later} came after it" if later else ""
        audits.append((time, about, sentences(audit)))
    method = METHODS[capsule.settings.learner.method.name].title
    facts = {"capsule": capsule, "method": method, "stages": stages, "people": people}
    found = {
        "answers": answers(capsule),
        "held_out": held_out_table(capsule),
        "audits": audits,
    }
    return text_lines("inspect.txt.j2", **facts, **found, missing=_not_audited(capsule))


def people(counts: dict[str, int | None]) -> str:
    """Patients and controls, small counts as they were written: not at all."""
    shown = [
        f"fewer than {SMALL_CELL}" if v is None else str(v) for v in counts.values()
    ]
    return ", ".join(f"{n} {who}" for n, who in zip(shown, counts, strict=True))


def held_out_table(capsule: Capsule) -> Table | None:
    """Accuracy of every site's synthetic held-out set after every site, from the ledger."""
    stages = learned(capsule.entries)
    if not stages[-1]["metrics"]["held_out"]:
        return None
    found = [entry["metrics"]["held_out"] for entry in stages]
    rows = [
        (
            site,
            *(
                percent(stage[site]["accuracy"]) if site in stage else "-"
                for stage in found
            ),
        )
        for site in capsule.sites
    ]
    return Table.of(
        ["tested on", *(f"after {entry['site']}" for entry in stages)], rows
    )


def _not_audited(capsule: Capsule) -> list[str]:
    done = audited_sites(capsule)
    return [site for site in capsule.sites if site not in done]


# -- its page --------------------------------------------------------------------------------------
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
        capsule = open_capsule(item.path, trust=Trust.of(()), max_bytes=MOST_BYTES)
        # Line k of the ledger was written into a capsule made from that of line k - 1, whose id
        # is the parent that line k names.
        ids = [str(entry["parent"]) for entry in capsule.entries[1:]] + [capsule.id]
        labels = [
            str(e["site"]) if e["kind"] == "learn" else "audit" for e in capsule.entries
        ]
        line = tuple((i, label) for i, label in zip(ids, labels, strict=True) if i)
        said = {
            "learner": capsule.settings.learner.title,
            "holds_real": capsule.holds_real,
        }
        facts, passed = (
            {**summary_of(capsule), **said},
            [Check(name, True) for name in STEPS],
        )
        words = answers(capsule), inspect_words(capsule)
        return CapsuleView(item, "", passed, facts, *words, line)
    except BROKEN as error:
        checks: Sequence[Check] = ()
        with suppress(*BROKEN):
            checks = verify(item.path, trust=Trust.of(()), max_bytes=MOST_BYTES)
        return CapsuleView(item, reason(error), checks)


def capsule_page(view: CapsuleView, chains: Sequence[Chain], home: str) -> str:
    """The page of a capsule as text."""
    values: dict[str, Any] = {"view": view, "home": home, "chains": chains}
    if view.damage:
        return render("damaged.html.j2", **values)
    capsule = open_capsule(view.item.path, max_bytes=MOST_BYTES)
    ledger = [
        (e, sha256(canonical(e)), _written(e)) for e in capsule.entries[:MOST_LINES]
    ]
    audits = []
    for _, time, site, found in audits_of(capsule):
        audits.append(section(found, ", ".join(filter(None, (short(site, 60), time)))))
    shown = {"held_out": _held_out(capsule), "uses": _uses(capsule), "audits": audits}
    return render("capsule.html.j2", **values, **shown, ledger=ledger, people=people)


def _held_out(capsule: Capsule) -> Markup | str:
    """Accuracy on the synthetic held-out sets over the chain, on an axis from 0 to 1."""
    stages = [entry["metrics"]["held_out"] for entry in learned(capsule.entries)]
    if not stages[-1]:
        return ""
    found = {
        site: np.array(
            [(s.get(site) or {}).get("accuracy") for s in stages], dtype=float
        )
        for site in capsule.sites
    }
    lines = figures.named_lines(found)
    figure = figures.stage_lines(lines, capsule.sites, "after learning", (0.0, 1.02))
    return picture(
        figure, "accuracy on each site's synthetic held-out set after every site"
    )


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
