"""Numbers behind a run's page, by hand."""

import csv
import io
import json

import numpy as np
import pytest
from rich.console import Console

from fake_runs import KEEPS, fake_experiment, fake_learner, run
from fcforge import stats
from fcforge.messages import bracket, number
from fcforge.report.contents import (
    About,
    as_csv,
    as_json,
    best_of,
    contents,
    curves,
    mean_matrix,
    print_table,
    results_table,
)
from fcforge.report.terminal import interval_cell
from fcforge.stats.table import WORDS, columns_of

BASELINE = WORDS["two classes"].own


def test_the_baseline_is_the_harder_one():
    """A site with two thirds of patients among others without any: naming patients gets 2/3."""
    y = {"A": [1, 1, 0], "B": [0, 0, 0]}
    train = {"A": 2 / 3, "B": 0.0}
    stuck = [0.9, 0.9, 0.9]  # calls everybody a patient
    one = run({"A": [stuck, stuck], "B": [stuck, stuck]}, y, train_mean=train)
    found = contents([one], About(expected=1, n_draws=20))
    there = stats.per_site(found.groups[BASELINE], "accuracy")
    assert there["A"].value == pytest.approx(2 / 3)
    assert there["B"].value == pytest.approx(1.0)
    (difference,) = found.forests["baseline"].values()
    assert difference.difference < 0
    (text,) = [f.text for f in found.findings if "commonest" in f.text]
    assert text.startswith("is below always naming each site's")


def test_curves_by_hand():
    """A alone: all right; then half of A and all of B are, so a half of A is forgotten."""
    y = {"A": [1, 0], "B": [1, 1]}
    one = run({"A": [[0.9, 0.1], [0.9, 0.9]], "B": [[0.1, 0.1], [0.9, 0.9]]}, y)
    accuracy, forgetting = curves([one], n_draws=20)
    assert accuracy.mean == pytest.approx([1.0, 0.75])
    assert forgetting.mean == pytest.approx(
        [np.nan, 0.5], nan_ok=True
    )  # one site: nothing yet
    assert (accuracy.low <= accuracy.mean).all()
    assert (accuracy.mean <= accuracy.high).all()


def test_a_matrix_is_the_mean_over_orders():
    """Right at A, then half right there; the other way round in the turned order."""
    y = {"A": [1, 0], "B": [1, 1]}
    one = run({"A": [[0.9, 0.1], [0.9, 0.9]], "B": [[0.1, 0.1], [0.9, 0.9]]}, y)
    turned = run(
        {"A": [[0.1, 0.9], [0.9, 0.1]], "B": [[0.9, 0.9], [0.9, 0.9]]},
        y,
        order=("B", "A"),
    )
    np.testing.assert_allclose(mean_matrix([one, turned]), [[1.0, 0.0], [0.75, 1.0]])


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
