"""The model card of a capsule: Markdown made from the verified file alone, for whoever gets it."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fcforge.capsule.contents import Capsule, OwnTest, own_tests
from fcforge.capsule.ledger import Entry, learned
from fcforge.capsule.sealing import Trust
from fcforge.consortium import Consortium
from fcforge.consortium.predicting import open_either
from fcforge.methods import METHODS
from fcforge.report.consortium import consortium_answers, release_table
from fcforge.report.frame import safe, templates
from fcforge.report.inspect import answers, people
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
    if isinstance(value, _Ready):
        return str(value)
    return _MARKUP.sub(r"\\\1", safe(str(value)).replace("\n", " ").replace("`", "'"))


class _Ready(str):
    """Markdown whose texts are escaped already."""


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> _Ready:
    lines = [heads, ["---"] * len(heads), *([_escaped(c) for c in row] for row in rows)]
    return _Ready("\n".join(f"| {' | '.join(line)} |" for line in lines))


def _of_chain(capsule: Capsule) -> dict[str, Any]:
    settings, learner = capsule.settings, capsule.settings.learner
    tests = {t.site: t for t in own_tests(capsule.entries)}
    rows = []
    for e in learned(capsule.entries):
        counts = (people(e["counts"][part]) for part in ("learning", "test"))
        rows.append((e["site"], e["time"], *counts, *_measured(tests.get(e["site"]))))
    heads = ("site", "learned", "learned from", "tested on", "accuracy [95 %]", "majority class")
    return {
        "name": capsule.id,
        "kind": f"chained capsule, made from {capsule.parent[:16] or 'nothing (the first)'}",
        "model": f"{METHODS[learner.method.name].title} on {learner.model.name}",
        "n_rois": settings.n_rois,
        "rois_named": bool(settings.roi_names),
        "classes": settings.classes,
        "removes": (),
        "answers": answers(capsule),
        "sites": _table(heads, rows),
        "lines": _lines(capsule.entries),
    }


def _lines(entries: Sequence[Entry]) -> _Ready:
    rows = [
        (
            f"{e['number'] + 1}: {e['kind']} {e.get('site') or e['result']['site']}",
            e["key"] or "nobody",
            ", ".join(e["flags"]) or "nothing",
            e["environment"].get("fcforge", "not said"),
        )
        for e in entries
    ]
    return _table(("line", "signed by", "accepted by a flag", "fcforge"), rows)


def _measured(test: OwnTest | None) -> tuple[str, str]:
    if test is None:
        return "not measured", "not known"
    if test.low is None or test.high is None or test.majority is None:
        return f"{number(test.accuracy)} (rounded; too few for an interval)", "not known"
    return with_interval(test.accuracy, test.low, test.high), number(test.majority)


def _of_releases(group: Consortium) -> dict[str, Any]:
    papers = group.start.papers
    releases = release_table(group)
    heads = [column.title for column in releases.columns]
    return {
        "name": group.digest,
        "kind": f"capsule of releases around start {group.start.digest[:16]}",
        "model": "a linear head, computed anew from the start and the releases by whoever opens it",
        "n_rois": papers["n_rois"],
        "rois_named": bool(papers["roi_names"]),
        "classes": papers["classes"],
        "removes": papers["removes"],
        "answers": consortium_answers(group),
        "sites": _table(heads, [[cell.line() for cell in row] for row in releases.rows]),
        "lines": _table(
            ("record", "time", "signed by", "fcforge"),
            [
                (f"{r.kind} of {r.site}", r.time, r.key or "nobody", r.fcforge)
                for r in group.records
            ],
        ),
    }
