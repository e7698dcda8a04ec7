"""A capsule of releases in words and as a page: the start, every release, what was withdrawn."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from fcforge.consortium import Consortium, PublicStart, Release
from fcforge.consortium.audit import ceiling_of
from fcforge.consortium.records import AuditRecord, Record
from fcforge.consortium.trusting import signer
from fcforge.releases import vector
from fcforge.report.audits import verdict
from fcforge.report.frame import render, text_lines
from fcforge.report.inspect import COMMONEST, Answer, Kind
from fcforge.report.table import Bar, Table
from fcforge.studies.audit_result import Audit
from fcforge.text import counted, number

PER_ROW = 5  # numbers of a release on one line


def start_words(start: PublicStart) -> list[str]:
    """What a start is made of, in words."""
    return text_lines("start.txt.j2", **start_facts(start))


def release_words(release: Release) -> list[str]:
    """Everything that left a hospital: at most half a printed page."""
    shown = [f"{v:.9g}" for v in release.numbers]
    rows = [shown[k : k + PER_ROW] for k in range(0, len(shown), PER_ROW)]
    return text_lines("release.txt.j2", release=release, rows=rows)


def record_words(record: Record) -> list[str]:
    """A ``.release`` file: a release, or the withdrawal of some."""
    if isinstance(record, Release):
        return release_words(record)
    if isinstance(record, AuditRecord):
        return [f"Audit by {record.site}, {record.time}, {signer(record)}, of {record.release}"]
    names = [f"  {digest}" for digest in asdict(record).get("releases", ())]
    return [f"Withdrawal by {record.site}, {record.time}, {signer(record)}, of", *names]


def consortium_words(group: Consortium) -> list[str]:
    """Who gave what around which start, and what follows for trust."""
    return text_lines(
        "consortium.txt.j2",
        group=group,
        answers=consortium_answers(group),
        releases=release_table(group),
        start=start_words(group.start),
    )


def consortium_page(group: Consortium, name: str, home: str = "") -> str:
    """The page of a capsule of releases as text."""
    return render(
        "consortium.html.j2",
        group=group,
        name=name,
        home=home,
        answers=consortium_answers(group),
        releases=release_table(group),
        each=[(r, "\n".join(release_words(r))) for r in group.releases],
        words=consortium_words(group),
        **start_facts(group.start),
    )


def start_facts(start: PublicStart) -> dict[str, Any]:
    """Papers, arrays and settings of a start, for the templates."""
    return {
        "start": start,
        "papers": start.papers,
        "settings": start.papers["settings"],
        "arrays": {name: tuple(a.shape) for name, a in start.tensors().items()},
        "clip": float(start.arrays.clip),
        "most": vector.sensitivity(start.arrays),
        "temperature": float(start.arrays.temperature),
        "spreads": {
            "persons of a site": start.arrays.persons.tolist(),
            "sites": start.arrays.sites.tolist(),
        },
    }


def release_table(group: Consortium) -> Table:
    """One row per release."""
    rows = []
    for r in group.releases:
        signed = f"key {r.key[:12]}" if r.key else "not signed"
        budget = f"{r.epsilon:g}" if r.mechanism == "gaussian" else "none: exact"
        spent = f"{r.spent:g}" if r.mechanism == "gaussian" else "all"
        rows.append((r.site, str(r.wave), r.time, str(len(r.numbers)), budget, spent, signed))
    heads = ("site", "wave", "time", "numbers", "epsilon", "spent per person", "signature")
    return Table.of(heads, rows)


def consortium_answers(group: Consortium) -> tuple[Answer, ...]:
    """The four questions of every capsule, for a capsule of releases."""
    return (_signatures(group), _contents(group), _usefulness(group.start), _attack(group))


def _signatures(group: Consortium) -> Answer:
    question, records = "Who signed it?", group.records
    unsigned = sorted({r.site for r in records if not r.key})
    if not records:
        return Answer(question, "", "No hospital has given anything yet.")
    if unsigned:
        say = f"Not everybody: {', '.join(unsigned)} did not sign."
        return Answer(question, "warn", say, ("Whoever had the file could have made those.",))
    say = f"Every hospital signed its own numbers ({counted(len(group.sites), 'hospital')})."
    return Answer(question, "good", say, ("Nobody can change another's release.",))


def _contents(group: Consortium) -> Answer:
    n = group.start.arrays.n_axes + 2
    exact = sorted({r.site for r in group.releases if r.mechanism == "none"})
    public = group.start.papers["people"]
    more = [
        f"The start was made from {public} public people; no hospital is in it.",
        "The head is not in the file: whoever opens it computes it from the releases.",
    ]
    kind: Kind = "good"
    if exact:
        kind = "alarm"
        more.append(f"WARNING: exact numbers without noise from {', '.join(exact)}.")
    if group.withdrawals:
        names = ", ".join(sorted({w.site for w in group.withdrawals}))
        more.append(f"Withdrawn, and no longer in the model: {names}.")
    say = f"A public start and {n} numbers for each of {counted(len(group.releases), 'release')}."
    return Answer("What travels?", kind, say, tuple(more))


def _usefulness(start: PublicStart) -> Answer:
    question, found = "Does it work on real people?", start.papers["unseen_site"]
    if not isinstance(found.get("accuracy"), float) or not isinstance(found.get("majority"), float):
        return Answer(question, "warn", "Not known: the public people are too few to tell.")
    accuracy, majority, n = found["accuracy"], found["majority"], int(found["people"])
    say = (
        f"The public start alone is right for {100 * accuracy:.1f} %; {COMMONEST} gets "
        f"{100 * majority:.1f} %."
    )
    half = 1.96 * math.sqrt(accuracy * (1 - accuracy) / max(n, 1))
    bar = Bar("public start", accuracy, accuracy - half, accuracy + half, majority, COMMONEST)
    more = (
        f"Measured on {n} people at public sites it has not seen. What the hospitals add is "
        "measured at home: `fcforge evaluate`."
    )
    return Answer(question, "good" if bar.low > majority else "warn", say, (more,), (bar,))


def audit_words(group: Consortium) -> list[str]:
    """What the hospitals found when they attacked their own releases."""
    lines = []
    for record in group.audits:
        found = Audit.from_ledger(record.result)
        told = verdict(found) if found is not None else None
        if told is not None:
            lines.append(f"Audited by {record.site} on {record.time}: {told.short} {told.full}")
    return lines


def _attack(group: Consortium) -> Answer:
    """What differential privacy promises, whatever the attack; nothing where it was not used."""
    question, releases = "Can an attacker tell who took part?", group.releases
    if not releases:
        return Answer(question, "", "Nobody took part yet.")
    exact = sorted({r.site for r in releases if r.mechanism == "none"})
    if exact:
        say = f"Nothing is promised at {', '.join(exact)}: the numbers are exact."
        more = ("Treat this capsule as patient data.", *audit_words(group))
        return Answer(question, "alarm", say, more)
    worst = max(releases, key=lambda r: r.spent)
    bound = ceiling_of(worst.spent, worst.delta)
    say = f"No attack can be right more than {100 * bound:.0f} times in 100; guessing gets 50."
    more = (
        "That is for one person who took part and one who did not, whatever else the attacker "
        f"knows: differential privacy, epsilon {worst.spent:g} (delta {worst.delta:g}) per person, "
        f"largest at {worst.site}.",
        *audit_words(group),
    )
    name = f"bound for epsilon {number(worst.spent, 2)}"
    bar = Bar(name, bound, line=0.5, line_is="guessing")
    return Answer(question, "good" if worst.spent <= 1 else "warn", say, more, (bar,))


def consortium_json(group: Consortium) -> dict[str, Any]:
    """The same for programs: every number that left every hospital."""
    return {
        "digest": group.digest,
        "start": {"digest": group.start.digest, **group.start.papers},
        "head_step": group.beta.tolist(),
        "releases": [asdict(r) for r in group.releases],
        "withdrawals": [asdict(w) for w in group.withdrawals],
        "audits": [asdict(a) for a in group.audits],
    }
