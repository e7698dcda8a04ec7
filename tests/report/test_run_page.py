"""The page of a run is complete, self-contained, safe and honest."""

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from page_parser import EVIL, Page, require_sound
from rich.console import Console

from fake_runs import KEEPS, fake_experiment, fake_learner, run
from fcforge.core.errors import DataError
from fcforge.core.formatting import bracket, number
from fcforge.core.leaks import Leaks
from fcforge.evaluation.majority import WORDS
from fcforge.evaluation.resampling import means, per_site
from fcforge.evaluation.tables import results_rows as table_rows
from fcforge.report.results_table import print_table, results_table, rows_csv, rows_json
from fcforge.report.run_numbers import (
    RunInfo,
    change_by_site,
    curves,
    mean_matrix,
    run_numbers,
    site_curves,
)
from fcforge.report.run_page import page_of
from fcforge.report.tables import interval_cell
from fcforge.report.terminal import differences_text

BASELINE = WORDS["two classes"].own


def render(results, **about) -> str:
    said = RunInfo(**{"n_draws": 20, **about})
    return page_of(said, run_numbers(results, said))


@pytest.fixture(scope="module")
def experiment():
    return fake_experiment(seeds=(0, 1))


@pytest.fixture(scope="module")
def html(experiment):
    return render(experiment, title="A title", keeps=KEEPS, expected=300, n_draws=100)


def test_no_winner_is_named_where_every_learner_has_a_serious_warning():
    leaky = Leaks(select_on_test=True)
    runs = [
        replace(run_, spec=replace(run_.spec, leaks=leaky))
        for run_ in fake_experiment()
    ]
    page = render(runs)
    assert "Every learner has a serious warning; read no winner from this run." in page
    one = [run_ for run_ in runs if run_.spec.learner == runs[0].spec.learner]
    assert "The only learner has a serious warning; read no result from" in render(one)


def test_page_is_sound_and_has_all_parts(html):
    page = require_sound(html)
    ids = [a["id"] for _, a in page.tags if "id" in a]
    wanted = ["warnings", "results", "differences", "stages", "matrices", "sites"]
    assert [i for i in ids if i in wanted] == wanted
    assert {"settings", "methods", "cite"} <= set(ids)
    assert dict(page.tags)["html"]["lang"] == "en"
    assert len(html) < 1_500_000


def test_page_says_what_was_run_and_what_is_missing(html):
    text = Page(html).text
    for said in (
        "A title",
        "12 of 300 runs are missing",
        "majority class",
        "stuck/gcn predicts a single class",
        "24 orders",
        "60 epochs per site",
        "@article{chen2026forge",
        "only 2 seeds",
    ):
        assert said in text


def test_table_of_the_page_is_that_of_the_numbers(experiment, html):
    found = run_numbers(experiment, RunInfo(keeps=KEEPS, n_draws=100))
    page = Page(html)
    for row in found.rows:
        assert page.row(row.learner)[1] == interval_cell(row.estimates["aaa"]).line()
    means = [r.estimates["aaa"].value for r in found.learners]
    assert means == sorted(means, reverse=True)


def test_differences_from_the_learner_that_the_config_names(experiment):
    """They are minus those that the named learner would show of the other one."""
    titles = [run.spec.learner.title for run in experiment]
    first, second = list(dict.fromkeys(titles))[:2]
    forests = {}
    for title in (first, second):
        about = RunInfo(settings={"reference": title}, n_draws=100)
        found = run_numbers(experiment, about)
        forests[title] = found.forests["reference"]
        assert set(forests[title]) == set(titles) - {title}
        text = differences_text(found, title)
        assert text.startswith(f"AAA minus that of {title}")
        assert len(text.splitlines()) == len(set(titles))
    there, back = forests[first][second], forests[second][first]
    assert there.difference == pytest.approx(-back.difference) != 0
    page = render(experiment, settings={"reference": first})
    assert f"<h3>Against {first}</h3>" in page
    plain = run_numbers(experiment, RunInfo(n_draws=20))
    assert plain.forests["reference"] == {}
    assert differences_text(plain, "") == ""


def test_other_peoples_text_is_escaped():
    sites = (EVIL, "B<b>", "C\u202eC")
    runs = fake_learner(
        EVIL, sites=sites, seeds=(0, 1, 2), leaks=Leaks(context_on_test=True)
    )
    page = render(
        [replace(r, environment={EVIL: EVIL}) for r in runs],
        title=EVIL,
        keeps={EVIL: EVIL},
        settings={EVIL: {EVIL: EVIL, "list": [EVIL]}},
    )
    parsed = require_sound(page)
    assert parsed.text.count("<script>alert(1)</script>") > 10


def test_leaks_are_red_and_clean_runs_are_not(html):
    assert 'class="banner"' not in html
    clean = fake_learner("honest", skill=1.0)
    leaky = fake_learner(
        "leaky", skill=2.0, leaks=Leaks(select_on_test=True, generator_sees_test=True)
    )
    page = render([*clean, *leaky])
    text = Page(page).text
    assert 'class="banner" role="alert"' in page
    assert "leaky (select_on_test, generator_sees_test)." in text
    assert "Highest accuracy along the way: honest, AAA" in text
    known = Page(render([*clean, *leaky], keeps={"honest": "real subjects"})).text
    assert "Highest accuracy along the way: honest (keeps real subjects), AAA" in known
    assert "WARNING: test data were allowed to leak in" in text


def test_all_clear():
    text = Page(render(fake_learner("good", skill=1.5), expected=72, n_draws=50)).text
    assert "Nothing to warn about" in text


def test_one_site_one_run_one_learner():
    runs = fake_learner("x", sites=("only",), seeds=(0,))
    assert len(runs) == 1
    text = Page(render(runs)).text
    assert "n/a" in text
    assert "nan" not in text.lower()


def diverged(runs):
    return [
        replace(r, scores={s: np.full_like(v, np.nan) for s, v in r.scores.items()})
        for r in runs
    ]


def test_partial_orders_and_a_diverged_learner():
    good = fake_learner("good", skill=1.5)
    short = [
        replace(
            r, spec=r.spec.prefix(2), scores={s: v[:2] for s, v in r.scores.items()}
        )
        for r in good[:3]
    ]
    broken = diverged(fake_learner("broken", seeds=(0,)))
    text = Page(render([*good, *short, *broken])).text
    assert "24 of 24 runs diverged" in text
    assert "24 diverged" in text


def test_only_diverged_runs_still_give_a_page():
    broken = diverged(fake_learner("broken", seeds=(0,)))
    assert "No learner has usable scores" in Page(render(broken)).text


def test_no_runs_is_one_clear_error():
    with pytest.raises(DataError, match="no finished run"):
        run_numbers([], RunInfo())


def test_a_page_needs_no_torch():
    code = "import sys, fcforge.report.run_page, fcforge.report.terminal; print('torch' in sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "False"


# -- the numbers behind the page, by hand, and the table -------------------------------------------
def test_the_baseline_is_the_harder_one():
    """A site with two thirds of patients among others without any: naming patients gets 2/3."""
    y = {"A": [1, 1, 0], "B": [0, 0, 0]}
    train = {"A": 2 / 3, "B": 0.0}
    stuck = [0.9, 0.9, 0.9]  # calls everybody a patient
    one = run({"A": [stuck, stuck], "B": [stuck, stuck]}, y, train_mean=train)
    found = run_numbers([one], RunInfo(expected=1, n_draws=20))
    there = per_site(found.groups[BASELINE], "accuracy")
    assert there["A"].value == pytest.approx(2 / 3)
    assert there["B"].value == pytest.approx(1.0)
    (difference,) = found.forests["baseline"].values()
    assert difference.difference < 0
    (text,) = [f.text for f in found.warnings if "commonest" in f.text]
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
    return table_rows(fake_experiment(seeds=(0,)), keeps=KEEPS, n_draws=50)


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
    rows = table_rows(fake_learner("[red]x[/red]", seeds=(0,)), n_draws=20)
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
    from_csv = list(csv.DictReader(io.StringIO(rows_csv(rows))))
    from_json = json.loads(rows_json(rows))
    assert [r["learner"] for r in from_csv] == [r["learner"] for r in from_json]
    for a, b in zip(from_csv, from_json, strict=True):
        assert float(a["aaa"]) == b["aaa"]
        assert b["aaa_low"] <= b["aaa"] <= b["aaa_high"]


def test_csv_gives_a_spreadsheet_no_formula():
    rows = table_rows(fake_learner("=1+1", seeds=(0,)), n_draws=20)
    assert "'=1+1" in rows_csv(rows)


def test_a_learner_with_a_serious_warning_is_flagged(rows):
    table = results_table(rows, {"stuck/gcn": "serious"}, ("fm",))
    by_name = {row[0].text: row for row in table.rows}
    assert by_name["stuck/gcn"][0].look == "flag-serious"
    assert table.quiet == {0, 1}  # the majority class, and that of each site


def test_columns_are_those_asked_for(rows):
    table = results_table(rows, shown=("fm", "aaa"))
    titles = [c.title for c in table.columns]
    assert titles == ["Learner", "AAA", "FM"]
    everything = [c.title for c in results_table(rows).columns]
    assert everything[-3:] == ["FWT", "Keeps", "Time"]
    assert table.rows[-1][1].below[-1].startswith("±")


# -- hospital by hospital, further metrics ---------------------------------------------------------
def test_who_forgot_what_by_hand():
    """Two sites in both orders: each forgets one of four test subjects when the other comes."""
    y = {"A": [1, 1, 0, 0], "B": [1, 1, 0, 0]}
    right, wrong = [0.9, 0.9, 0.1, 0.1], [0.9, 0.1, 0.1, 0.1]
    forth = run({"A": [right, wrong], "B": [wrong, right]}, y, order=("A", "B"))
    back = run({"A": [wrong, right], "B": [right, right]}, y, order=("B", "A"))
    np.testing.assert_allclose(
        change_by_site([forth, back]), [[np.nan, -0.25], [0.0, np.nan]]
    )
    curves = site_curves([forth, back], n_draws=20)
    np.testing.assert_allclose(curves["A"].mean, [0.75, 1.0, 0.75])
    np.testing.assert_allclose(curves["B"].mean, [0.75, 1.0, 1.0])
    assert (curves["A"].low <= curves["A"].mean).all()


def test_further_metrics_are_on_the_page_and_in_the_csv():
    runs = fake_learner("mine", seeds=(0,))
    info = RunInfo(n_draws=20)
    numbers = run_numbers(runs, info)
    expected = means(runs, "sensitivity", ("aaa",))["aaa"]
    assert numbers.further["mine"]["sensitivity"] == expected
    table = pd.read_csv(io.StringIO(rows_csv(numbers.rows, numbers.further)))
    row = table.set_index("learner").loc["mine"]
    assert row["sensitivity"] == pytest.approx(expected, abs=1e-6)
    for name in ("specificity", "precision", "f1", "brier", "ece"):
        assert np.isfinite(row[name])
    page = Page(page_of(info, numbers))
    heads = next(row for row in page.rows if "sensitivity high is good" in row)
    assert {"ECE low is good", "Brier score low is good"} <= set(heads)
