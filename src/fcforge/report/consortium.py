"""A capsule of releases in words and as a page: the start, every release, what was withdrawn."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fcforge.capsule.contents import Capsule, summary
from fcforge.consortium import Consortium, PublicStart, Release
from fcforge.consortium.files import signer
from fcforge.consortium.records import AuditRecord, Record
from fcforge.errors import ConfigError
from fcforge.privacy.mechanisms import ceiling_of
from fcforge.releases import vector
from fcforge.report.audits import verdict
from fcforge.report.frame import render, text_lines
from fcforge.report.inspect import COMMONEST, Answer, answer, inspect_words
from fcforge.report.table import Bar, Table
from fcforge.studies.audit_result import Audit
from fcforge.text import number

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
    unsigned = sorted({r.site for r in group.records if not r.key})
    exact = sorted({r.site for r in group.releases if r.mechanism == "none"})
    withdrawn = sorted({w.site for w in group.withdrawals})
    return (
        answer("releases_signed", group=group, unsigned=unsigned),
        answer("releases_travel", group=group, exact=exact, withdrawn=withdrawn),
        _works(group.start),
        _attacked(group, exact),
    )


def _works(start: PublicStart) -> Answer:
    found = start.papers["unseen_site"]
    accuracy, majority, n = (found.get(key) for key in ("accuracy", "majority", "people"))
    bars = []
    if isinstance(accuracy, float) and isinstance(majority, float):
        half = 1.96 * math.sqrt(accuracy * (1 - accuracy) / max(int(n), 1))
        between = (accuracy, accuracy - half, accuracy + half)
        bars.append(Bar("public start", *between, majority, COMMONEST))
    bar = bars[0] if bars else None
    return answer("releases_work", *bars, bar=bar, n=n, commonest=COMMONEST)


def audit_words(group: Consortium) -> list[str]:
    """What the hospitals found when they attacked their own releases."""
    lines = []
    for record in group.audits:
        found = Audit.from_ledger(record.result)
        told = verdict(found) if found is not None else None
        if told is not None:
            lines.append(f"Audited by {record.site} on {record.time}: {told.short} {told.full}")
    return lines


def _attacked(group: Consortium, exact: Sequence[str]) -> Answer:
    """What differential privacy promises, whatever the attack; nothing where it was not used."""
    worst = max(group.releases, key=lambda r: r.spent, default=None)
    facts = {"exact": exact, "worst": worst, "audits": audit_words(group) if worst else ()}
    if worst is None or exact:
        return answer("releases_attacked", **facts, bound=None)
    bound = ceiling_of(worst.spent, worst.delta)
    name = f"bound for epsilon {number(worst.spent, 2)}"
    bar = Bar(name, bound, line=0.5, line_is="guessing")
    return answer("releases_attacked", bar, **facts, bound=bound)


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


def either_text(opened: Capsule | Consortium, site: str | None, as_json: bool) -> str:
    """What `fcforge inspect` prints of a capsule, or of the releases of one site."""
    if isinstance(opened, Capsule):
        if site is not None:
            raise ConfigError("this is a chained capsule, which holds no releases.")
        return (
            json.dumps(summary(opened), indent=1) if as_json else "\n".join(inspect_words(opened))
        )
    shown = opened.only(site) if site is not None else opened
    if as_json:
        return json.dumps(consortium_json(shown), indent=1)
    if site is None:
        return "\n".join(consortium_words(opened))
    return "\n\n".join("\n".join(release_words(r)) for r in shown.releases)
