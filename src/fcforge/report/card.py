"""The model card of a capsule: Markdown made from the verified file alone, for whoever gets it."""

import re
from pathlib import Path
from typing import Any

from fcforge.capsule.contents import Capsule, OwnTest, own_tests
from fcforge.capsule.ledger import learned
from fcforge.capsule.sealing import Trust
from fcforge.consortium import Consortium
from fcforge.consortium.predicting import open_either
from fcforge.methods import METHODS
from fcforge.report.consortium import consortium_answers, release_table
from fcforge.report.inspect import answers, people
from fcforge.report.rendering import safe, templates
from fcforge.report.table import Table
from fcforge.text import number, with_interval
from fcforge.writing import write_text

SUFFIX = ".card.md"
_MARKUP = re.compile(r"([\\*_{}\[\]<>#|~])")


def card_of(path: str | Path, trust: Trust | None = None) -> str:
    """The card of a capsule file, which is opened by it: no check passed, no card."""
    opened = open_either(path, trust or Trust.of(()))
    facts = _of_chain(opened) if isinstance(opened, Capsule) else _of_releases(opened)
    # Names of sites and classes are other people's text: none may set a link or a heading.
    plain = templates().overlay(autoescape=False, finalize=_escaped)
    return plain.get_template("card.md.j2").render(facts) + "\n"


def write_card(path: str | Path) -> Path:
    """Write the card beside a capsule that was just made: ``NAME.capsule.card.md``."""
    out = Path(f"{path}{SUFFIX}")
    write_text(out, card_of(path))
    return out


def _escaped(value: Any) -> Any:
    if isinstance(value, Table):
        return value.markdown(_escaped).rstrip()
    return _MARKUP.sub(r"\\\1", safe(str(value)).replace("\n", " ").replace("`", "'"))


def _of_chain(capsule: Capsule) -> dict[str, Any]:
    learner, tests = (
        capsule.settings.learner,
        {t.site: t for t in own_tests(capsule.entries)},
    )
    rows = []
    for e in learned(capsule.entries):
        counts = (people(e["counts"][part]) for part in ("learning", "test"))
        rows.append((e["site"], e["time"], *counts, *_measured(tests.get(e["site"]))))
    lines = []
    for e in capsule.entries:
        line = f"{e['number'] + 1}: {e['kind']} {e.get('site') or e['result']['site']}"
        flags, made_by = (
            ", ".join(e["flags"]),
            e["environment"].get("fcforge", "not said"),
        )
        lines.append((line, e["key"] or "nobody", flags or "nothing", made_by))
    heads = (
        "site",
        "learned",
        "learned from",
        "tested on",
        "accuracy [95 %]",
        "majority class",
    )
    return {
        "name": capsule.id,
        "kind": f"chained capsule, made from {capsule.parent[:16] or 'nothing (the first)'}",
        "model": f"{METHODS[learner.method.name].title} on {learner.model.name}",
        "contract": capsule.settings,
        "answers": answers(capsule),
        "sites": Table.of(heads, rows),
        "lines": Table.of(
            ("line", "signed by", "accepted by a flag", "fcforge"), lines
        ),
    }


def _measured(test: OwnTest | None) -> tuple[str, str]:
    if test is None:
        return "not measured", "not known"
    if test.low is None or test.high is None or test.majority is None:
        return (
            f"{number(test.accuracy)} (rounded; too few for an interval)",
            "not known",
        )
    return with_interval(test.accuracy, test.low, test.high), number(test.majority)


def _of_releases(group: Consortium) -> dict[str, Any]:
    heads = ("record", "time", "signed by", "fcforge")
    lines = [
        (f"{r.kind} of {r.site}", r.time, r.key or "nobody", r.fcforge)
        for r in group.records
    ]
    return {
        "name": group.digest,
        "kind": f"capsule of releases around start {group.start.digest[:16]}",
        "model": "a linear head, computed anew from the start and the releases by whoever opens it",
        "contract": group.start.papers,
        "answers": consortium_answers(group),
        "sites": release_table(group),
        "lines": Table.of(heads, lines),
    }
