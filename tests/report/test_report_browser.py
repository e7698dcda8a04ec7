"""The page in a real browser: Debian's chromium, headless, from a file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fake_runs import KEEPS, fake_experiment, fake_learner
from fcforge.report import write_report

pytestmark = pytest.mark.browser

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-prefers-reduced-motion",  # a click must not wait for smooth scrolling
)
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


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    for needed in (CHROMIUM, DRIVER):
        if not shutil.which(needed):
            pytest.skip(f"{needed} is not installed (Debian: chromium, chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def load(browser, page, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())


@pytest.mark.parametrize("width", [1280, 390, 320])
def test_loads_without_errors_or_sideways_scrolling(browser, page, width):
    load(browser, page, width)
    assert [e for e in browser.get_log("browser") if e["level"] != "INFO"] == []
    assert browser.execute_script("return window.innerWidth") == width
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    # Nothing outside a scrolling box sticks out of the page.
    outside = browser.execute_script(
        "return [...document.querySelectorAll('body *')].filter(e => !e.closest("
        "'.scroll, pre, nav, .skip') && e.getBoundingClientRect().right > innerWidth + 1)"
        ".map(e => e.outerHTML.slice(0, 120))"
    )
    assert outside == []


def test_requests_nothing_but_itself(browser, page):
    load(browser, page, 1280)
    names = browser.execute_script(
        "return performance.getEntriesByType('resource').map(e => e.name)"
    )
    assert [n for n in names if not n.startswith("data:")] == []


def column(browser, k):
    return browser.execute_script(
        "return [...document.querySelector('table.results').tBodies[0].rows]"
        ".map(r => r.cells[arguments[0]].dataset.value ?? r.cells[arguments[0]].textContent)",
        k,
    )


def test_table_sorts_on_click(browser, page):
    from selenium.webdriver.common.by import By

    load(browser, page, 1280)
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
    """Every visible text against its own background: at least 4.5 : 1 (WCAG AA)."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    load(browser, page, 1280)
    poor = browser.execute_script(CONTRAST)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert poor == []


CONTRAST = """
const lum = (c) => c.map(v => v / 255)
  .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
const rgb = (s) => s.match(/[\\d.]+/g).map(Number);
const back = (e) => {
  for (; e; e = e.parentElement) {
    const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c.slice(0, 3);
  }
  return [255, 255, 255];
};
const poor = [];
for (const e of document.querySelectorAll('body *')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || e.closest('script, style, .skip') || !e.getClientRects().length) continue;
  const style = getComputedStyle(e);
  const ink = lum(rgb(e.closest('svg') ? style.fill : style.color).slice(0, 3));
  const paper = lum(back(e));
  const ratio = (Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05);
  if (ratio < 4.5) poor.push([e.tagName, e.textContent.slice(0, 30), ratio]);
}
return poor;
"""
