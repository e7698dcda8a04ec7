"""Every page in a real browser: Debian's chromium, headless, offline, from files."""

import base64
import io
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from report_world import make_world, portraits

from browsing import (
    complaints,
    poor_contrast,
    resources,
    show,
    small_text,
    sticking_out,
)
from fake_runs import KEEPS, fake_experiment, fake_learner
from fcforge.evaluation.generator_quality.summary import Judgement
from fcforge.imaging.atlas import aal116
from fcforge.imaging.extract import Run, SubjectFC
from fcforge.report import judge, quality
from fcforge.report.overview import write_pages
from fcforge.report.run_numbers import RunInfo, run_numbers
from fcforge.report.run_page import page_of

pytestmark = pytest.mark.browser

LONG = "a-learner-with-a-very-long-name-that-has-no-place-to-break-at-all"
FILES = ("exchange-chain-2", "exchange-releases", "exchange-damaged")
WRITTEN = ("index", "run-runs-evil", *FILES, "audit", "judged")
PAGES = ("report", *WRITTEN, "judge", "quality", "group")


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """The pages of a folder, and a report with a long learner name."""
    folder = tmp_path_factory.mktemp("browser")
    runs = fake_experiment(seeds=(0,)) + fake_learner(LONG, skill=0.7, seeds=(0,))
    settings = {"path": "/a/very/long/path/" + "x" * 120}
    about = RunInfo(f"T {'y' * 90}", KEEPS, settings=settings, n_draws=50)
    report = folder / "report.html"
    report.write_text(page_of(about, run_numbers(runs, about)))
    out = write_pages(make_world(folder / "world")).parent
    for name, text in other_pages().items():
        (folder / f"{name}.html").write_text(text)
    found = {p: next(out.glob(f"{p}*.html")) for p in WRITTEN}
    made = {name: folder / f"{name}.html" for name in other_pages()}
    return {"report": report, **found, **made}


@cache
def other_pages() -> dict[str, str]:
    """Pages of judged generators and scans, from made-up numbers."""
    rng = np.random.default_rng(0)
    fc = np.corrcoef(rng.normal(size=(116, 200)))
    numbers = {"psd_share": 1.0, "warnings": []}
    about = {"row": LONG, "seed": 0, "diagnostics": {}, "numbers": numbers}
    judgement = Judgement("Judged", [about], portraits(("real", LONG), 116))
    rows = [
        {
            "participant_id": f"sub-{k}",
            "site": "NYU",
            "dx_group": "control",
            "mean_fd": 0.1,
            "n_volumes": 180,
            "tr": 2,
            "note": "x" * 60,
            "file": "x.tsv",
        }
        for k in range(9)
    ]
    source = SimpleNamespace(path=Path("/data") / ("y" * 80), kind="scan")
    series = rng.normal(size=(40, 116))
    run = Run(
        source,
        series,
        2.0,
        np.ones(116),
        np.ones(40),
        series.T,
        {"done": "z" * 90},
        (LONG,),
    )
    return {
        "judge": judge.page_of(judgement),
        "quality": quality.subject_page(
            SubjectFC("01", (run,), fc, (3,), {}, ()), aal116()
        ),
        "group": quality.group_page(
            pd.DataFrame(rows).astype(str), [("sub-99", "no scan")], "FC."
        ),
    }


@pytest.mark.parametrize("width", [1400, 400, 320])
@pytest.mark.parametrize("name", PAGES)
def test_no_error_no_sideways_scrolling_no_small_text(browser, pages, name, width):
    show(browser, pages[name].as_uri(), width)
    assert complaints(browser) == []
    assert (
        browser.execute_script("return document.documentElement.scrollWidth") <= width
    )
    assert sticking_out(browser) == []
    assert small_text(browser) == []
    assert [n for n in resources(browser) if not n.startswith("data:")] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_text_has_contrast(browser, pages, name, scheme):
    """Every visible text against its own background."""
    assert poor_contrast(browser, pages[name].as_uri(), scheme) == []


def test_no_script_of_a_file_ever_runs(browser, pages):
    """The evil names call alert: an open alert would make the next command raise."""
    for name in ("index", "run-runs-evil", "exchange-chain-2"):
        show(browser, pages[name].as_uri())
        assert browser.execute_script("return document.scripts.length") == 1  # our own
        assert (
            browser.execute_script(
                "return document.querySelectorAll('[onerror]').length"
            )
            == 0
        )


def test_a_script_smuggled_into_a_page_stays_dead(browser, pages, tmp_path):
    text = pages["index"].read_text()
    evil = (
        "<script>document.title = 'loud'</script><img src='http://evil.example/x.png'>"
    )
    (tmp_path / "x.html").write_text(text.replace("</main>", f"{evil}</main>"))
    show(browser, (tmp_path / "x.html").as_uri())
    assert browser.title != "loud"
    refused = [e["message"] for e in browser.get_log("browser")]
    assert len([m for m in refused if "Content Security Policy" in m]) == 2


def test_a_click_on_a_heading_sorts_the_table(browser, pages):
    from selenium.webdriver.common.by import By

    show(browser, pages["report"].as_uri(), 1400)
    table = browser.find_element(By.CSS_SELECTOR, "#results table.results")
    heading = next(
        th for th in table.find_elements(By.TAG_NAME, "th") if th.text.startswith("FM")
    )

    def column():
        rows = table.find_elements(By.CSS_SELECTOR, "tbody tr:not(.quiet)")
        cells = [row.find_elements(By.TAG_NAME, "td")[4] for row in rows]
        texts = [cell.find_element(By.TAG_NAME, "span").text for cell in cells]
        return [float(text.replace("\N{MINUS SIGN}", "-")) for text in texts]

    heading.click()
    assert column() == sorted(column(), reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    heading.click()
    assert column() == sorted(column())
    first = table.find_elements(By.CSS_SELECTOR, "tbody tr")[0]
    assert "quiet" in first.get_attribute("class")  # references stay on top


def test_values_show_at_the_pointer(browser, pages):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    show(browser, pages["report"].as_uri(), 1400)
    for place, text in {
        "#stages .hit": "after 1 site: 0.",
        "#forgotten .hit": "3 sites before: 0.",
        "#matrices td.just": "just learned",
        "#differences .track": "[",
        "#results thead th:nth-child(2)": "accuracy averaged over all stages",
    }.items():
        element = browser.find_element(By.CSS_SELECTOR, place)
        browser.execute_script(
            "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})",
            element,
        )
        away = ActionChains(browser).move_to_element_with_offset(element, 0, 90)
        away.move_to_element(element).perform()
        assert text in browser.find_element(By.CLASS_NAME, "tip").text, place


def test_contents_stay_in_view_and_name_the_section(browser, pages):
    from selenium.webdriver.common.by import By

    show(browser, pages["report"].as_uri(), 1400)
    browser.find_element(By.LINK_TEXT, "Sites").click()
    until = time.monotonic() + 10
    found = None
    while found != "Sites" and time.monotonic() < until:
        time.sleep(0.1)
        current = browser.find_elements(By.CSS_SELECTOR, "nav.toc [aria-current]")
        found = current[0].text if current else None
    assert found == "Sites"
    assert browser.execute_script(
        "return document.querySelector('nav.toc').getBoundingClientRect().top"
    ) == pytest.approx(0, abs=1)


def test_the_table_can_be_downloaded(browser, pages):
    from selenium.webdriver.common.by import By

    show(browser, pages["report"].as_uri(), 1400)
    link = browser.find_element(By.LINK_TEXT, "Download CSV")
    assert link.get_attribute("download") == "table.csv"
    data = base64.b64decode(link.get_attribute("href").partition("base64,")[2])
    table = pd.read_csv(io.BytesIO(data))
    assert {"learner", "aaa", "sensitivity", "ece"} <= set(table.columns)


def test_one_can_walk_from_page_to_page(browser, pages):
    from selenium.webdriver.common.by import By

    show(browser, pages["index"].as_uri())
    browser.find_element(By.LINK_TEXT, "chain/2.fcx").click()
    assert "2.fcx" in browser.title
    browser.find_element(By.LINK_TEXT, "Overview").click()
    browser.find_element(By.LINK_TEXT, "runs/first").click()
    assert browser.title == "two made-up hospitals"
    browser.find_element(By.LINK_TEXT, "Overview").click()
    assert "world" in browser.title


def test_the_checks_see_a_bad_page(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><body style='background:#fff'><p style='width:3000px;color:#999'>pale</p>"
        "<small style='font-size:9px'>tiny</small><svg viewBox='0 0 200 20' width='100'>"
        "<text y='10' font-size='14px'>shrunk</text></svg><script>console.error('oops')</script>"
    )
    show(browser, bad.as_uri(), 390)
    assert ["oops" in c["message"] for c in complaints(browser)] == [True]
    assert len(sticking_out(browser)) == 1
    assert [t[:2] for t in small_text(browser)] == [
        ["SMALL", "tiny"],
        ["text", "shrunk"],
    ]
    assert [p[:2] for p in poor_contrast(browser, bad.as_uri(), "light")] == [
        ["P", "pale"]
    ]
    browser.get_log("browser")
