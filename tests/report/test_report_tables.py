"""Tables for terminal, Markdown, CSV and JSON say the same and survive odd labels."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from fake_runs import KEEPS, fake_experiment, fake_learner
from fcforge import stats
from fcforge.report import as_csv, as_json, as_markdown, print_findings, print_table
from fcforge.report.tables import best_of
from fcforge.text import bracket, duration, memory, number, p_value


@pytest.fixture(scope="module")
def rows():
    return stats.rows(fake_experiment(seeds=(0,)), keeps=KEEPS, n_draws=50)


def shown(rows, width=200):
    from rich.console import Console

    out = io.StringIO()
    print_table(rows, Console(file=out, width=width))
    return out.getvalue()


def test_terminal_table_has_every_learner_and_the_majority(rows):
    text = shown(rows)
    for title in [*KEEPS, "majority class"]:
        assert title in text
    assert number(rows[1].estimates["aaa"].mean) in text


@pytest.mark.parametrize("width", [80, 100, 130, 150, 170, 200])
def test_terminal_table_cuts_no_number(rows, width):
    text = shown(rows, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for row in rows:
        for key in ("aaa", "fm"):
            e = row.estimates[key]
            assert number(e.mean) in text
            assert bracket(e.low, e.high) in text


def test_labels_are_not_read_as_markup():
    rows = stats.rows(fake_learner("[red]x[/red]", seeds=(0,)), n_draws=20)
    assert "[red]x[/red]" in shown(rows)


def test_findings_are_printed():
    from rich.console import Console

    out = io.StringIO()
    found = stats.findings(fake_learner("[b]x", seeds=(0,), constant=True))
    print_findings(found, Console(file=out, width=200))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("serious: [b]x calls everybody the same")
    assert lines[1].startswith("caution: only 1 seed")


def test_markdown_is_one_table(rows):
    lines = as_markdown(rows).splitlines()
    assert len(lines) == 2 + 7
    assert len({line.count("|") for line in lines}) == 1
    odd = stats.rows(fake_learner("a|b\nc", seeds=(0,)), n_draws=20)
    line = as_markdown(odd).splitlines()[-1]
    assert "a\\|b c" in line


def test_csv_and_json_agree(rows):
    from_csv = list(csv.DictReader(io.StringIO(as_csv(rows))))
    from_json = json.loads(as_json(rows))
    assert [r["learner"] for r in from_csv] == [r["learner"] for r in from_json]
    for a, b in zip(from_csv, from_json, strict=True):
        assert float(a["aaa"]) == b["aaa"]
        assert b["aaa_low"] <= b["aaa"] <= b["aaa_high"]
    majority = from_json[0]
    assert majority["intransigence"] is None
    assert from_csv[0]["intransigence"] == ""


def test_csv_gives_a_spreadsheet_no_formula():
    rows = stats.rows(fake_learner("=1+1", seeds=(0,)), n_draws=20)
    assert "'=1+1" in as_csv(rows)


def test_best_of_passes_over_majority_and_excluded(rows):
    best = best_of(rows)
    assert best["aaa"] == {"analytic ridge"}
    assert best["fm"] == {"stuck/gcn"}  # forgets nothing because it learned nothing
    assert best_of(rows, but={"stuck/gcn"})["fm"] != {"stuck/gcn"}


def test_numbers():
    assert number(-0.0004) == "0.000"
    assert number(-0.25, 2) == "\N{MINUS SIGN}0.25"
    assert number(0.5, 1, sign=True) == "+0.5"
    assert number(np.nan) == "n/a"
    assert bracket(np.nan, 1.0) == ""
    assert p_value(1 / 1001) == "≤ 0.001"
    assert [memory(x) for x in (0, 16, 178_000, 18_800_000, 2e9)] == [
        "0",
        "16 B",
        "178 kB",
        "18.8 MB",
        "2 GB",
    ]
    assert [duration(x) for x in (0, 4, 600, 9000)] == ["0", "4 s", "10 min", "2.5 h"]
