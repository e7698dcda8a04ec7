"""Numbers of the tables as text, each computed once."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from tables_read import Runs

from fcforge.metrics import finite
from fcforge.stats import Comparer, Estimate, estimate

SUMMARIES = ("aaa", "fm", "for_literal", "acc")
DRAWS = 1000
NONE = "–"


class Numbers:
    """Estimates and comparisons, each computed once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Runs, dict[str, Estimate]]] = {}
        self._comparers = {s: Comparer("accuracy", s, DRAWS) for s in ("aaa", "fm", "for_literal")}

    def of(self, runs: Runs) -> dict[str, Estimate]:
        if id(runs) not in self._known:
            good = [r for r in runs if finite(r)]
            nothing = dict.fromkeys(SUMMARIES, Estimate(*[math.nan] * 4))
            found = estimate(good, "accuracy", SUMMARIES, n_draws=DRAWS) if good else nothing
            self._known[id(runs)] = (runs, found)
        return self._known[id(runs)][1]

    def minus(self, a: Runs, b: Runs, summary: str = "aaa") -> str:
        c = self._comparers[summary].compare(
            [r for r in a if finite(r)], [r for r in b if finite(r)]
        )
        return span(Estimate(c.difference, math.nan, c.low, c.high))


def plain(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else NONE


def signed(value: float) -> str:
    return f"{value:+.3f}".replace("+0.000", "0.000").replace("-0.000", "0.000")


def cell(e: Estimate) -> str:
    return f"{plain(e.mean)} [{plain(e.low)}, {plain(e.high)}]" if math.isfinite(e.mean) else NONE


def span(e: Estimate) -> str:
    return f"{signed(e.mean)} [{signed(e.low)}, {signed(e.high)}]"


def pair(value: tuple[float, float] | None) -> str:
    return f"{value[0]:.3f} / {value[1]:.3f}" if value else NONE


def lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    out = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(out + ["| " + " | ".join(row) + " |" for row in rows])
