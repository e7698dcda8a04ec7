"""A capsule of releases in words and as a page, and what a hospital reads at its own turn."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fcforge.capsule.contents import Capsule, budget, summary
from fcforge.capsule.keys import read_keyring
from fcforge.consortium import Consortium, PublicStart, Release
from fcforge.consortium import few_vector as vector
from fcforge.consortium.files import signer
from fcforge.consortium.learning import Budget, Learned
from fcforge.consortium.predicting import Evaluation
from fcforge.consortium.records import Record
from fcforge.errors import ConfigError
from fcforge.exchange import description
from fcforge.exchange.description import Answer
from fcforge.metrics import METRICS
from fcforge.privacy.accounting import ceiling_of
from fcforge.report.inspect import inspect_words
from fcforge.report.rendering import render, spoken, text_lines
from fcforge.report.table import Table
from fcforge.requests import LearnRequest
from fcforge.studies.audit_result import Audit
from fcforge.text import number, with_interval

PER_ROW = 5  # numbers of a release on one line


def start_words(start: PublicStart) -> list[str]:
    """What a start is made of, in words."""
    return text_lines(
        "start.txt.j2", start=start, most=vector.sensitivity(start.arrays)
    )


def release_words(release: Release) -> list[str]:
    """Everything that left a hospital: at most half a printed page."""
    shown = [f"{v:.9g}" for v in release.numbers]
    rows = [shown[k : k + PER_ROW] for k in range(0, len(shown), PER_ROW)]
    return text_lines("release.txt.j2", release=release, rows=rows)


def record_words(record: Record) -> list[str]:
    """A ``.release`` file: a release, or the withdrawal of some."""
    if isinstance(record, Release):
        return release_words(record)
    return spoken("record", record=record, signed=signer(record)).splitlines()


def consortium_words(group: Consortium) -> list[str]:
    """Who gave what around which start, and what follows for trust."""
    shown = {"answers": consortium_answers(group), "releases": release_table(group)}
    return text_lines(
        "consortium.txt.j2", group=group, **shown, start=start_words(group.start)
    )


def consortium_page(group: Consortium, name: str, home: str = "") -> str:
    """The page of a capsule of releases as text."""
    shown = {"answers": consortium_answers(group), "releases": release_table(group)}
    each = [(r, "\n".join(release_words(r))) for r in group.releases]
    about = {
        "group": group,
        "name": name,
        "home": home,
        "words": consortium_words(group),
    }
    return render("consortium.html.j2", **about, **shown, each=each)


def release_table(group: Consortium) -> Table:
    """One row per release."""
    rows = []
    for r in group.releases:
        signed = f"key {r.key[:12]}" if r.key else "not signed"
        budget = f"{r.epsilon:g}" if r.mechanism == "gaussian" else "none: exact"
        spent = f"{r.spent:g}" if r.mechanism == "gaussian" else "all"
        rows.append(
            (r.site, str(r.wave), r.time, str(len(r.numbers)), budget, spent, signed)
        )
    heads = (
        "site",
        "release",
        "time",
        "numbers",
        "epsilon",
        "spent per person",
        "signature",
    )
    return Table.of(heads, rows)


def consortium_answers(group: Consortium) -> tuple[Answer, ...]:
    """The four questions of every capsule, for a capsule of releases."""
    exact = sorted({r.site for r in group.releases if r.mechanism == "none"})
    withdrawn = sorted({w.site for w in group.withdrawals})
    n_numbers = group.start.arrays.n_axes + 2
    n_public = group.start.papers["people"]
    travels = (n_numbers, len(group.releases), n_public, exact, withdrawn)
    return (
        description.who_signed(group.records),
        description.releases_travel(*travels),
        _works(group.start),
        _attacked(group, exact),
    )


def _works(start: PublicStart) -> Answer:
    found = start.papers["unseen_site"]
    accuracy = found["accuracy"]
    if accuracy is None:
        return description.works_at_unseen_sites(None, None, 0)
    people = int(found["people"])
    half = 1.96 * math.sqrt(accuracy * (1 - accuracy) / max(people, 1))
    interval = (accuracy, accuracy - half, accuracy + half)
    return description.works_at_unseen_sites(interval, found["majority"], people)


def audit_words(group: Consortium) -> list[str]:
    """What the hospitals found when they attacked their own releases."""
    lines = []
    for record in group.audits:
        found = Audit.from_ledger(record.result)
        worst = found.strongest() if found is not None else None
        if worst is not None:
            by = f"Audited by {record.site} on {record.time}"
            lines.append(f"{by}: {worst.short} {worst.full}")
    return lines


def _attacked(group: Consortium, exact: Sequence[str]) -> Answer:
    """What differential privacy promises, whatever the attack; nothing where it was not used."""
    if not group.releases:
        return description.nobody_took_part()
    audits = audit_words(group)
    if exact:
        return description.exact_numbers(exact, audits)
    worst = max(group.releases, key=lambda release: release.spent)
    bound = ceiling_of(worst.spent, worst.delta)
    return description.promised_privacy(
        worst.site, worst.spent, worst.delta, bound, audits
    )


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
            json.dumps(summary(opened), indent=1)
            if as_json
            else "\n".join(inspect_words(opened))
        )
    shown = opened.only(site) if site is not None else opened
    if as_json:
        return json.dumps(consortium_json(shown), indent=1)
    if site is None:
        return "\n".join(consortium_words(opened))
    return "\n\n".join("\n".join(release_words(r)) for r in shown.releases)


# -- the turn of a hospital ------------------------------------------------------------------------
def found_words(done: Learned) -> list[str]:
    """What was found at the site and what its release spends, before anything is written."""
    return spoken("found", release=done.release, before=done.before).splitlines()


def continued_chain(capsule: Capsule) -> list[str]:
    """What a hospital is about to continue: a chained capsule."""
    signers = [(e.get("site", e["kind"]), e["key"]) for e in capsule.entries]
    return _continued(signers, budget(capsule), capsule=capsule)


def continued_group(group: Consortium, asked: LearnRequest) -> list[str]:
    """What a hospital is about to add its release to."""
    keys = ("mechanism", "epsilon", "delta")
    given = Budget(**{k: v for k, v in asked.release.items() if k in keys})
    spends = None if given.limit is None else (given.epsilon, given.delta)
    return _continued([(r.site, r.key) for r in group.releases], spends, group=group)


def _continued(signers: list[Any], spends: Any, **what: Any) -> list[str]:
    keyring, both = read_keyring(), {"group": None, "capsule": None, **what}
    known = [(who, keyring.said(key) if key else "") for who, key in signers]
    return spoken("continued", **both, signers=known, budget=spends).splitlines()


def evaluation_text(found: Evaluation) -> str:
    """Metrics with intervals, one row per model, and the majority class."""
    names = tuple(METRICS[m].title for m in next(iter(found.rows.values())))
    rows = [
        (title, *(with_interval(v.value, v.low, v.high) for v in row.values()))
        for title, row in found.rows.items()
    ]
    rows.append(("majority class", number(found.majority), "0.500", "0.500", "", ""))
    table = Table.of(("model", *names), rows).text()
    return "\n".join([spoken("evaluated", found=found), table, *found.notes])
