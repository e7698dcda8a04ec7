"""The page in a real browser: Debian's chromium, headless, from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from browsing import complaints, poor_contrast, resources, show, sticking_out
from fake_runs import KEEPS, fake_experiment, fake_learner
from fcforge.report import write_report

pytestmark = pytest.mark.browser

LONG = "a-learner-with-a-very-long-name-that-has-no-place-to-break-at-all"


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """A report with a long learner name and long site names, the worst case for width."""
    runs = fake_experiment(seeds=(0,)) + fake_learner(LONG, skill=0.7, seeds=(0,))
    out = tmp_path_factory.mktemp("report") / "report.html"
    settings = {"path": "/a/very/long/path/" + "x" * 120}
    return write_report(
        runs, out, title=f"T {'y' * 90}", keeps=KEEPS, settings=settings, n_draws=50
    )


@pytest.mark.parametrize("width", [1280, 390, 320])
def test_loads_without_errors_or_sideways_scrolling(browser, page, width):
    show(browser, page.as_uri(), width)
    assert complaints(browser) == []
    assert browser.execute_script("return window.innerWidth") == width
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert sticking_out(browser) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_site_names_of_the_matrices_are_not_cut(browser, page, width):
    """Sim-UCLA, Sim-UM and Sim-USM cut to the same "Sim-U..." cannot be told apart."""
    show(browser, page.as_uri(), width)
    cut = browser.execute_script(
        "const heads = [...document.querySelectorAll('.heat th')];"
        "heads.forEach(h => { h.textContent = 'Hospital-of-Sim-UCLA'; });"
        "return [heads.length, heads.filter(h => h.scrollWidth > h.clientWidth).length]"
    )
    assert cut[0] > 0
    assert cut[1] == 0


def test_requests_nothing_but_itself(browser, page):
    show(browser, page.as_uri(), 1280)
    assert [n for n in resources(browser) if not n.startswith("data:")] == []


def column(browser, k):
    return browser.execute_script(
        "return [...document.querySelector('table.results').tBodies[0].rows]"
        ".map(r => r.cells[arguments[0]].dataset.value ?? r.cells[arguments[0]].textContent)",
        k,
    )


def test_table_sorts_on_click(browser, page):
    from selenium.webdriver.common.by import By

    show(browser, page.as_uri(), 1280)
    heads = browser.find_elements(By.CSS_SELECTOR, "table.results thead th")
    titles = [h.find_element(By.TAG_NAME, "button").text for h in heads]
    aaa, fm, learner = titles.index("AAA"), titles.index("FM"), titles.index("Learner")
    start = [float(v) for v in column(browser, aaa)]
    assert start == sorted(start, reverse=True)
    assert heads[aaa].get_attribute("aria-sort") == "descending"

    heads[aaa].find_element(By.TAG_NAME, "button").click()
    assert [float(v) for v in column(browser, aaa)] == sorted(start)

    heads[fm].find_element(By.TAG_NAME, "button").click()  # low is good: ascending first
    values = [float(v) for v in column(browser, fm)]
    assert values == sorted(values)
    assert values != [float(v) for v in column(browser, aaa)]
    assert heads[fm].get_attribute("aria-sort") == "ascending"
    assert heads[aaa].get_attribute("aria-sort") is None

    heads[learner].find_element(By.TAG_NAME, "button").click()
    names = [n.strip(" \n⚠\ufe0e").lower() for n in column(browser, learner)]
    assert names == sorted(names)
    assert len(names) == 8

    k = titles.index("INT")  # has undefined cells: they go last both ways
    for _ in range(2):
        heads[k].find_element(By.TAG_NAME, "button").click()
        values = column(browser, k)
        known = [v for v in values if v]
        assert 0 < len(known) < len(values)
        assert values[len(known) :] == [""] * (len(values) - len(known))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(browser, page, scheme):
    """Every visible text against its own background."""
    assert poor_contrast(browser, page.as_uri(), scheme) == []


def test_the_checks_see_a_bad_page(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><body style='background:#fff'><p style='width:3000px;color:#999'>pale</p>"
        "<script>console.error('oops')</script>"
    )
    show(browser, bad.as_uri(), 390)
    assert ["oops" in c["message"] for c in complaints(browser)] == [True]
    assert len(sticking_out(browser)) == 1
    assert [p[:2] for p in poor_contrast(browser, bad.as_uri(), "light")] == [["P", "pale"]]
    browser.get_log("browser")
