"""A capsule in plain words: four questions, answered the same way on its page and by `inspect`."""

import math
from dataclasses import dataclass
from typing import Any

from fcforge.capsule.contents import Capsule, OwnTest, arrays, audited_sites, budget, own_tests
from fcforge.capsule.ledger import SMALL_CELL, learned
from fcforge.methods import METHODS
from fcforge.report.audits import budget_words, sentences, verdict
from fcforge.report.frame import spoken, text_lines
from fcforge.report.table import Bar, Table
from fcforge.studies.audit_result import Audit

COMMONEST = "always naming the commonest class"
EXACT = ("analytic",)  # second moments without noise: leverage finds every member (docs/privacy.md)


@dataclass(frozen=True)
class Answer:
    """A question, its answer in a sentence, what more there is to say, and bars from 0 to 1."""

    question: str
    kind: str  # "good", "warn", "alarm", or "" where nothing follows
    say: str
    more: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()


def answer(what: str, *bars: Bar, **facts: Any) -> Answer:
    """One question, answered by a macro of ``answers.txt.j2``."""
    question, kind, say, *more = spoken(what, "answers.txt.j2", **facts).splitlines()
    return Answer(question, "" if kind == "none" else kind, say, tuple(more), bars)


def answers(capsule: Capsule) -> tuple[Answer, ...]:
    """Who signed it, what travels, does it work on real people, what can an attacker learn."""
    tests = own_tests(capsule.entries)
    return (
        answer("chain_signed", key=capsule.signed_by),
        _travels(capsule),
        answer("chain_works", *_bars(tests), tests=tests, commonest=COMMONEST),
        _attacked(capsule),
    )


def _travels(capsule: Capsule) -> Answer:
    """The arrays of the state come largest first, with those whose rows look like scans."""
    state = [a for a in arrays(capsule) if a["name"].startswith(("state/", "harmony/"))]
    spent = budget(capsule)
    return answer(
        "chain_travels",
        capsule=capsule,
        n_params=sum(p.numel() for p in capsule.lane.params.values()),
        state=sorted(state, key=lambda a: -a["bytes"]),
        real=int(capsule.remembered.real.sum()),
        budget=budget_words(*spent) if spent is not None else "",
        exact=capsule.settings.learner.method.name in EXACT or capsule.harmony is not None,
    )


def _bars(tests: list[OwnTest]) -> list[Bar]:
    bars = []
    for t in tests:
        small = f"{t.n} test subjects" if t.n else "rounded, fewer than 10 in a class: no interval"
        low, high = (math.nan if v is None else v for v in (t.low, t.high))
        line, named = (math.nan, "") if t.majority is None else (t.majority, COMMONEST)
        bars.append(Bar(t.site, t.accuracy, low, high, line, named, small))
    return bars


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


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
    audits = [a for number, _, _, a in audits_of(capsule) if number > last]
    told = [v for v in map(verdict, audits) if v is not None]
    worst = max(told, key=lambda v: (v.beats_chance, v.bar.value), default=None)
    bars = [worst.bar] if worst else []
    return answer("chain_attacked", *bars, worst=worst, missing=_not_audited(capsule))


def inspect_words(capsule: Capsule) -> list[str]:
    """Lines that say who contributed, when, what is kept, and how well it works."""
    stages, learner = learned(capsule.entries), capsule.settings.learner
    return text_lines(
        "inspect.txt.j2",
        capsule=capsule,
        method=METHODS[learner.method.name].title,
        learner=learner,
        answers=answers(capsule),
        stages=stages,
        people=people,
        held_out=held_out_table(capsule),
        abstains=any(e["reference"]["inside"] is not None for e in stages),
        audits=[_audit_words(capsule, *found) for found in audits_of(capsule)],
        missing=_not_audited(capsule),
    )


def people(counts: dict[str, int | None]) -> str:
    """Patients and controls, small counts as they were written: not at all."""
    shown = [f"fewer than {SMALL_CELL}" if v is None else str(v) for v in counts.values()]
    return ", ".join(f"{n} {who}" for n, who in zip(shown, counts, strict=True))


def held_out_table(capsule: Capsule) -> Table | None:
    """Accuracy of every site's synthetic held-out set after every site, from the ledger."""
    stages = learned(capsule.entries)
    if not stages[-1]["metrics"]["held_out"]:
        return None
    found = [entry["metrics"]["held_out"] for entry in stages]
    rows = [
        (site, *(_percent(stage[site]["accuracy"]) if site in stage else "-" for stage in found))
        for site in capsule.sites
    ]
    return Table.of(["tested on", *(f"after {entry['site']}" for entry in stages)], rows)


def _audit_words(
    capsule: Capsule, number: int, time: str, site: str, audit: Audit
) -> tuple[str, str, list[str]]:
    """When, of which site and state of the capsule, and what was found."""
    later = [e["site"] for e in learned(capsule.entries[number:])]
    about = f"site {site}" if site else "no site named"
    about += f"; {', '.join(later)} came after it" if later else ""
    return time, about, sentences(audit)


def _not_audited(capsule: Capsule) -> list[str]:
    done = audited_sites(capsule)
    return [site for site in capsule.sites if site not in done]
