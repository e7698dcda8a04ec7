"""The page of a run is complete, self-contained, safe and honest."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from page_parser import EVIL, Page, require_sound

from fake_runs import KEEPS, SITES, fake_experiment, fake_learner
from fcforge.messages import DataError
from fcforge.report.contents import About, contents
from fcforge.report.run import page_of, write_report
from fcforge.report.terminal import interval_cell
from fcforge.types import Leaks


def render(results, **about) -> str:
    said = About(**{"n_draws": 20, **about})
    return page_of(said, contents(results, said))


@pytest.fixture(scope="module")
def experiment():
    return fake_experiment(seeds=(0, 1))


@pytest.fixture(scope="module")
def html(experiment):
    return render(experiment, title="A title", keeps=KEEPS, expected=300, n_draws=100)


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
        "288 of 300",
        "12 of 300 runs are missing",
        "majority class",
        "stuck/gcn calls everybody the same",
        "24 orders",
        "60 epochs per site",
        "@article{chen2026forge",
        "only 2 seeds",
    ):
        assert said in text


def test_table_of_the_page_is_that_of_the_numbers(experiment, html):
    found = contents(experiment, About(keeps=KEEPS, n_draws=100))
    page = Page(html)
    for row in found.rows:
        assert page.row(row.learner)[1] == interval_cell(row.estimates["aaa"]).line()
    means = [r.estimates["aaa"].value for r in found.learners]
    assert means == sorted(means, reverse=True)


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
    assert "Highest accuracy along the way: honest" in text
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


def test_written_whole_or_not_at_all(tmp_path, monkeypatch):
    runs = fake_learner("x", seeds=(0,), orders=[SITES])
    out = write_report(runs, tmp_path / "new" / "report.html", About(n_draws=20))
    before = out.read_text()
    assert before.rstrip().endswith("</html>")

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_report(runs, out, About("other", n_draws=20))
    assert out.read_text() == before
    assert [p.name for p in out.parent.iterdir()] == ["report.html"]


def test_no_runs_is_one_clear_error(tmp_path):
    with pytest.raises(DataError, match="no finished run"):
        write_report([], tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


def test_a_page_needs_no_torch():
    code = "import sys, fcforge.report.run, fcforge.report.terminal; print('torch' in sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "False"
