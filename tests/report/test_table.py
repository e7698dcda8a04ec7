"""One table, three readers: hand-made cells in Markdown, on a terminal, in HTML."""

import csv
import io
import json
import re

import pytest
from page_parser import EVIL, Page
from rich.console import Console

from fake_runs import KEEPS, fake_experiment, fake_learner
from fcforge import stats
from fcforge.messages import bracket, number
from fcforge.report.rendering import Section
from fcforge.report.table import (
    Cell,
    Heading,
    Table,
    as_csv,
    as_json,
    best_of,
    interval_cell,
    interval_table,
    print_table,
    results_table,
)
from fcforge.stats import Estimate
from fcforge.stats.table import columns_of
from fcforge.studies.stored_runs import Study


@pytest.fixture
def table() -> Table:
    return Table(
        (Heading("Learner", words=True), Heading("AAA", "mean", "high is good")),
        (
            (Cell("ridge"), Cell("0.700", ("[0.650, 0.750]", "± 0.010"), "best")),
            (Cell("majority"), Cell("0.550")),
        ),
        quiet=frozenset({1}),
    )


def test_markdown(table):
    assert table.markdown().splitlines() == [
        "| Learner | AAA |",
        "|---|---|",
        "| ridge | 0.700 [0.650, 0.750] ± 0.010 |",
        "| majority | 0.550 |",
    ]


def test_title_and_note_stand_around_the_markdown():
    lines = Table.of(["a"], [["1"]], title="T", note="N").markdown().splitlines()
    assert lines[0] == "T"
    assert lines[-1] == "N"


def test_text_is_aligned_and_has_every_line_of_a_cell(table):
    lines = table.text(60).splitlines()
    assert lines[0].split() == ["Learner", "AAA"]
    ends = {
        len(line)
        for line in lines
        if line.endswith(("0.700", "0.750]", "0.010", "0.550"))
    }
    assert len(ends) == 1  # numbers are flush right
    assert [line.split()[0] for line in lines[2:]] == [
        "ridge",
        "[0.650,",
        "±",
        "majority",
    ]


def test_html_has_the_same_cells(table):
    page = Page(str(Section("x", table).html()))
    assert page.row("ridge") == ["ridge", "0.700 [0.650, 0.750] ± 0.010"]
    assert page.rows[0] == ["Learner", "AAA high is good"]
    assert [r.get("class") for r in page.of("tr")] == [None, None, "quiet"]
    assert page.of("span")[1] == {"class": "best"}


def test_a_bar_or_a_line_break_does_not_end_a_cell():
    told = Table.of(["<b>"], [["< 0.01 </b>"]]).markdown()
    assert told.split("\n")[::2] == ["| \\<b> |", "| < 0.01 \\</b> |"]
    text = Table.of(["a|b"], [["c|d\ne\\"]]).markdown().splitlines()
    assert text == ["| a\\|b |", "|---|", "| c\\|d?e\\\\ |"]


def test_foreign_text_is_neither_markup_nor_rich_markup():
    odd = Table.of(["[b]x"], [["[red]y[/red]\x1b[2J"], [EVIL]])
    shown = odd.text(200)
    assert "[red]y[/red]?[2J" in shown
    assert "[b]x" in shown
    html = str(Section("x", odd).html())
    assert "<script" not in html
    assert "\x1b" not in html


def test_the_best_is_bold_on_a_terminal(table):
    out = io.StringIO()
    table.print(
        Console(file=out, width=60, force_terminal=True, color_system="standard")
    )
    assert re.search(r"\x1b\[1m\s*0\.700", out.getvalue())
    assert not re.search(r"\x1b\[1m\s*0\.550", out.getvalue())


def test_an_interval_without_width_is_left_out():
    assert interval_cell(Estimate(0.5, 0.4996, 0.5004)).below == ()
    assert interval_cell(Estimate(0.5, 0.4, 0.6)).line() == "0.500 [0.400, 0.600]"
    assert interval_cell(Estimate(0.5, float("nan"), float("nan"))).line() == "0.500"


def test_interval_table_leaves_unknown_cells_empty():
    e = Estimate(0.6, 0.5, 0.7)
    study = Study("At unseen sites", {"ridge": {"1": e}, "x": {"2": e}})
    found = interval_table(study)
    assert found.markdown().splitlines()[2:] == [
        "| learner | 1 | 2 |",
        "|---|---|---|",
        "| ridge | 0.600 [0.500, 0.700] |  |",
        "| x |  | 0.600 [0.500, 0.700] |",
    ]


# -- the results of a run -----------------------------------------------------------------------
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
            cell = interval_cell(row.estimates[key])
            for part in (cell.text, *cell.below):
                assert part in text


def test_labels_are_not_read_as_markup():
    rows = stats.rows(fake_learner("[red]x[/red]", seeds=(0,)), n_draws=20)
    assert "[red]x[/red]" in shown(rows)


def test_markdown_is_one_table(rows):
    lines = results_table(rows).markdown().splitlines()
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


def test_best_of_passes_over_the_majority(rows):
    columns = {c.key: c for c in columns_of("two classes")}
    assert best_of(rows, columns["aaa"]) == {"analytic ridge"}
    # forgets nothing because it learned nothing
    assert best_of(rows, columns["fm"]) == {"stuck/gcn"}


def test_a_serious_warning_takes_a_learner_out_of_the_contest(rows):
    table = results_table(rows, {"stuck/gcn": "serious"}, ("fm",))
    by_name = {row[0].text: row for row in table.rows}
    assert by_name["stuck/gcn"][0].look == "flag-serious"
    assert by_name["stuck/gcn"][1].look == ""
    assert sum(row[1].look == "best" for row in table.rows) == 1
    assert table.quiet == {0, 1}  # the majority class, and that of each site


def test_columns_are_those_asked_for(rows):
    table = results_table(rows, shown=("fm", "aaa"))
    titles = [c.title for c in table.columns]
    assert titles == ["Learner", "AAA", "FM"]
    everything = [c.title for c in results_table(rows).columns]
    assert everything[-3:] == ["INT", "Keeps", "Time"]
    assert table.rows[-1][1].below[-1].startswith("±")
