"""What a hospital reads at its own turn: what was found at its site, how good a capsule is."""

from __future__ import annotations

from fcforge.consortium.evaluating import Evaluation
from fcforge.consortium.learning import Learned
from fcforge.metrics import METRICS
from fcforge.report.table import Table
from fcforge.text import bracket, number, printable


def people(n: int) -> str:
    """1 person, 2 people."""
    return "1 person" if n == 1 else f"{n} people"


def found_words(done: Learned) -> list[str]:
    """What was found at the site and what its release spends, before anything is written."""
    release, found = done.release, done.before
    lines = [
        f"site '{release.site}': {people(int(found['people']))}. The model that came in reaches "
        f"accuracy {number(found['accuracy'])} here (majority class {number(found['majority'])}), "
        f"AUROC {number(found['auroc'])}.",
    ]
    if release.mechanism == "none":
        lines.append(
            f"wave {release.wave}: {len(release.numbers)} exact sums leave, without noise: no "
            "promise of privacy is made."
        )
    else:
        again = f"; with earlier releases {release.spent:g}"
        lines.append(
            f"wave {release.wave}: {len(release.numbers)} numbers leave. Each person spends "
            f"epsilon {release.epsilon:g} (delta {release.delta:g})"
            f"{again if release.spent > release.epsilon else ''}."
        )
    return [printable(line) for line in lines]


def evaluation_text(found: Evaluation) -> str:
    """Metrics with intervals, one row per model, and the majority class."""
    names = tuple(METRICS[m].title for m in next(iter(found.rows.values())))
    rows = [
        (title, *(f"{number(v.value)} {bracket(v.low, v.high)}".strip() for v in row.values()))
        for title, row in found.rows.items()
    ]
    rows.append(("majority class", number(found.majority), "0.500", "0.500", "", ""))
    about = (
        f"{people(found.people)}, {found.patients} patients; abstained from {found.abstained}. "
        "95 % intervals over people."
    )
    return "\n".join([about, Table.of(("model", *names), rows).text(), *found.notes])
