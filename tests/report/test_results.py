"""The results of a run for terminal, Markdown, CSV and JSON say the same and survive odd labels."""

import csv
import io
import json

import pytest
from rich.console import Console

from fake_runs import KEEPS, fake_experiment, fake_learner
from fcforge import stats
from fcforge.report.results import (
    as_csv,
    as_json,
    as_markdown,
    best_of,
    print_findings,
    print_table,
    results_table,
)
from fcforge.report.run_words import findings
from fcforge.text import bracket, number


@pytest.fixture(scope="module")
def rows():
    return stats.rows(fake_experiment(seeds=(0,)), keeps=KEEPS, n_draws=50)


def shown(rows, width=200):
    out = io.StringIO()
    print_table(rows, Console(file=out, width=width))
    return out.getvalue()


def test_terminal_table_has_every_learner_and_the_majority(rows):
    text = shown(rows)
    for title in [*KEEPS, "majority class"]:
        assert title in text
    assert number(rows[1].estimates["aaa"].value) in text


@pytest.mark.parametrize("width", [80, 100, 110, 130, 150, 170, 200])
def test_terminal_table_cuts_no_number(rows, width):
    text = shown(rows, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for row in rows:
        for key in ("aaa", "fm"):
            e = row.estimates[key]
            assert number(e.value) in text
            assert bracket(e.low, e.high) in text


def test_labels_are_not_read_as_markup():
    rows = stats.rows(fake_learner("[red]x[/red]", seeds=(0,)), n_draws=20)
    assert "[red]x[/red]" in shown(rows)


def test_findings_are_printed():
    out = io.StringIO()
    found = findings(fake_learner("[b]x\x1b", seeds=(0,), constant=True))
    print_findings(found, Console(file=out, width=200))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("serious: [b]x? calls everybody the same")
    assert lines[1].startswith("caution: only 1 seed")


def test_markdown_is_one_table(rows):
    lines = as_markdown(rows).splitlines()
    assert len(lines) == 2 + 8
    assert len({line.count("|") for line in lines}) == 1
    ridge = next(line for line in lines if line.startswith("| analytic ridge"))
    e = rows[2].estimates["aaa"]
    assert (
        f"| {number(e.value)} {bracket(e.low, e.high)} ± {number(e.sd_orders)} |"
        in ridge
    )
    assert "| statistics, 178 kB | 4 s, 24 runs |" in ridge


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


def test_a_serious_warning_takes_a_learner_out_of_the_contest(rows):
    table = results_table(rows, ("fm",), levels={"stuck/gcn": "serious"})
    by_name = {row[0].text: row for row in table.rows}
    assert by_name["stuck/gcn"][0].look == "flag-serious"
    assert by_name["stuck/gcn"][1].look == ""
    assert sum(row[1].look == "best" for row in table.rows) == 1
    assert table.quiet == {0, 1}  # the majority class, and that of each site


def test_columns_are_those_asked_for(rows):
    table = results_table(
        rows, ("fm", "aaa", "intransigence"), bare=("fm",), spread=False
    )
    assert [c.title for c in table.columns] == [
        "Learner",
        "AAA",
        "FM",
        "INT",
        "Keeps",
        "Time",
    ]
    assert {len(row[2].below) for row in table.rows} == {0}
    assert {len(row[1].below) for row in table.rows} == {1}
