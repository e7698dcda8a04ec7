"""One table, three readers: hand-made cells in Markdown, on a terminal, in HTML."""

import io
import re

import pytest
from page_parser import EVIL, Page
from rich.console import Console

from fcforge.exchange.description import Bar
from fcforge.report.rendering import Section
from fcforge.report.table import (
    Cell,
    Heading,
    Table,
    bar_text,
    interval_cell,
    interval_table,
)
from fcforge.stats import Estimate
from fcforge.studies.unseen import Study


@pytest.fixture
def table() -> Table:
    return Table(
        (
            Heading("Learner", words=True),
            Heading("AAA", "mean", "high is good", falling=True),
        ),
        (
            (Cell("ridge"), Cell("0.700", ("[0.650, 0.750]", "± 0.010"), 0.7, "best")),
            (Cell("majority"), Cell("0.550", (), 0.55)),
        ),
        quiet=frozenset({1}),
        sortable=True,
        falling_by="AAA",
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


def test_html_has_the_same_cells_and_what_sorting_needs(table):
    page = Page(str(Section("x", table).html()))
    assert page.row("ridge") == ["ridge", "0.700 [0.650, 0.750] ± 0.010"]
    assert page.rows[0] == ["Learner", "AAA high is good"]
    heads = page.of("th")
    assert heads[0]["data-kind"] == "text"
    assert (heads[1]["data-first"], heads[1]["aria-sort"]) == (
        "descending",
        "descending",
    )
    assert [c.get("data-value") for c in page.of("td")] == ["0.700000", "0.550000"]
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
    assert interval_cell(Estimate(3.0, 2.0, 4.0), digits=1).line() == "3.0 [2.0, 4.0]"
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


def test_a_bar_as_text():
    assert bar_text(Bar("NYU", 0.627, 0.5, 0.74)) == "NYU: 0.627 [0.500, 0.740]"
    assert bar_text(Bar("NYU\n", 0.627)) == "NYU?: 0.627"
