"""A capsule in plain words: four questions, answered the same way on its page and by `inspect`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fcforge.capsule.contents import Capsule
from fcforge.capsule.ledger import SMALL_CELL, learned
from fcforge.capsule.summary import OwnTest, arrays, audited_sites, budget, own_tests
from fcforge.methods import METHODS
from fcforge.report.audits import budget_words, sentences, verdict
from fcforge.report.frame import text_lines
from fcforge.report.table import Bar, Table
from fcforge.studies.audit_result import Audit
from fcforge.text import counted, memory

KEPT = {
    "nothing": "the network only; no subject, real or synthetic",
    "statistics": "the network and summary statistics of each site's subjects",
    "synthetic subjects": "the network and synthetic subjects made by a generator",
    "real subjects": "the network and REAL SUBJECTS of earlier sites",
}
COMMONEST = "always naming the commonest class"
EXACT = ("analytic",)  # second moments without noise: leverage finds every member (docs/privacy.md)


Kind = Literal["good", "warn", "alarm", ""]


@dataclass(frozen=True)
class Answer:
    """A question, its answer in a sentence, what more there is to say, and bars from 0 to 1."""

    question: str
    kind: Kind
    say: str
    more: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()


def answers(capsule: Capsule) -> tuple[Answer, ...]:
    """Who signed it, what travels, does it work on real people, what can an attacker learn."""
    return (
        _signature(capsule),
        _contents(capsule),
        _usefulness(own_tests(capsule.entries)),
        _attack(capsule),
    )


def _signature(capsule: Capsule) -> Answer:
    question = "Who signed it?"
    if not capsule.signed_by:
        return Answer(question, "warn", "Nobody: whoever had the file could have made it.")
    say = f"The holder of key {capsule.signed_by[:16]}."
    more = ("`fcforge verify --trust KEY.pub` tells whether that is the sender's key.",)
    return Answer(question, "good", say, more)


def _contents(capsule: Capsule) -> Answer:
    n_params = sum(p.numel() for p in capsule.lane.params.values())
    real = int(capsule.remembered.real.sum())
    more = [
        f"{n_params} network parameters; method state: {_state(capsule)}.",
        f"{len(capsule.remembered) - real} synthetic and {real} real remembered subjects.",
        f"{counted(len(capsule.held_out), 'synthetic held-out subject')}, never trained on.",
    ]
    kind: Kind = "good" if capsule.keeps == "nothing" else "warn"
    if capsule.holds_real:
        kind = "alarm"
        more.append("WARNING: sealed with --allow-real-subjects: this capsule is patient data.")
    else:
        more.append("No raw scan is stored. That is not the same as private: see the audit.")
    spent = budget(capsule)
    if spent is not None:
        more.append(budget_words(*spent))
    if capsule.settings.learner.method.name in EXACT:
        kind = "alarm"
        more.append("Exact statistics give away who was added to them: treat as patient data.")
    say = KEPT[capsule.keeps]
    return Answer("What travels?", kind, f"{say[0].upper()}{say[1:]}.", tuple(more))


def _state(capsule: Capsule) -> str:
    """The arrays of the state, largest first, and whether rows of them look like scans."""
    found = [a for a in arrays(capsule) if a["name"].startswith("state/")]
    found.sort(key=lambda a: -a["bytes"])
    said = [
        f"{a['name'].removeprefix('state/')} {'x'.join(map(str, a['shape'])) or '1'}, "
        f"{memory(a['bytes'])}" + (f", {a['scan_like']} rows like scans" if a["scan_like"] else "")
        for a in found[:4]
    ]
    rest = found[4:]
    if rest:
        said.append(f"{len(rest)} more arrays, {memory(sum(a['bytes'] for a in rest))}")
    return "; ".join(said) or "none"


def _usefulness(tests: list[OwnTest]) -> Answer:
    question = "Does it work on real people?"
    if not tests:
        return Answer(question, "warn", "Not known: no hospital kept real test subjects.")
    last, useful = tests[-1], sum(t.useful for t in tests)
    say = f"Right for {_percent(last.accuracy)} of the real test subjects of {last.site}"
    if last.majority is not None:
        say += f"; always naming the commonest class gets {_percent(last.majority)}"
    more = (
        f"Surely better than the commonest class at {useful} of {counted(len(tests), 'site')}. "
        "Each hospital measured its own test subjects when it had just learned.",
    )
    return Answer(question, "good" if last.useful else "warn", f"{say}.", more, _bars(tests))


def _bars(tests: list[OwnTest]) -> tuple[Bar, ...]:
    bars = []
    for t in tests:
        small = f"{t.n} test subjects" if t.n else "fewer than 10 in a class: no interval"
        low, high = (math.nan if v is None else v for v in (t.low, t.high))
        line, named = (math.nan, "") if t.majority is None else (t.majority, COMMONEST)
        bars.append(Bar(t.site, t.accuracy, low, high, line, named, small))
    return tuple(bars)


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f} %"


def audits_of(capsule: Capsule) -> list[tuple[int, str, str, Audit]]:
    """Number in the ledger, time, site and contents of every recorded audit."""
    return [
        (entry["number"], entry["time"], str(entry["result"].get("site", "")), found)
        for entry in capsule.entries
        if entry["kind"] == "audit" and (found := Audit.from_ledger(entry["result"]))
    ]


def _attack(capsule: Capsule) -> Answer:
    """The strongest attack of all audits of what travels now."""
    question = "Can an attacker tell who took part?"
    last = max(entry["number"] for entry in learned(capsule.entries))
    audits = [a for number, _, _, a in audits_of(capsule) if number > last]
    told = [v for v in map(verdict, audits) if v is not None]
    if not told:
        say = "Not measured: no audit of this capsule is recorded."
        do = "Each hospital can, on its own data: `fcforge audit --capsule ... --record ...`."
        return Answer(question, "warn", say, (do,))
    worst = max(told, key=lambda v: (v.beats_chance, v.bar.value))
    missing = _not_audited(capsule)
    more = [worst.full]
    more += [f"Not audited as it travels now: {', '.join(missing)}."] if missing else []
    kind: Kind = "alarm" if worst.beats_chance else "good"
    return Answer(question, kind, worst.short, tuple(more), (worst.bar,))


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
