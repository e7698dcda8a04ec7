"""Every page in a real browser: Debian's chromium, headless, offline, from files."""

import base64
import io
import re
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
from fcforge.data.simulated import simulate
from fcforge.estimator import ForgeClassifier
from fcforge.evaluation.generator_quality.summary import Judgement
from fcforge.imaging.atlas import aal116
from fcforge.imaging.extract import Run, SubjectFC
from fcforge.imaging.group_quality import (
    COLUMNS,
    GroupQuality,
    Matrices,
    qc_fc,
    quality_table,
)
from fcforge.imaging.quality import RunQuality
from fcforge.report import judge, quality
from fcforge.report.explaining import explanation_page
from fcforge.report.figures import by_system
from fcforge.report.overview import write_pages
from fcforge.report.run_numbers import RunInfo, run_numbers
from fcforge.report.run_page import page_of

pytestmark = pytest.mark.browser

LONG = "a-learner-with-a-very-long-name-that-has-no-place-to-break-at-all"
FILES = ("exchange-chain-2", "exchange-releases", "exchange-damaged")
WRITTEN = ("index", "run-runs-evil", *FILES, "audit", "judged")
PAGES = ("report", *WRITTEN, "judge", "quality", "group", "why")


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
    return {
        "judge": judge.page_of(judgement),
        "quality": subject_page(fc),
        "group": group_page(),
        "why": why_page(),
    }


def subject_page(fc: np.ndarray) -> str:
    """Page of a subject with everything that a scan of fMRIPrep has."""
    rng = np.random.default_rng(0)
    atlas = aal116()
    source = SimpleNamespace(path=Path("/data") / ("y" * 80), kind="scan")
    series = rng.normal(size=(40, 116))
    measured = RunQuality(
        (*atlas.roi_names, *["White matter"] * 9),
        (*atlas.systems, *["White matter"] * 9),
        rng.random((12, 14, 12)),
        np.array([[14.0, 0, 0, -80], [0, 14, 0, -110], [0, 0, 14, -70], [0, 0, 0, 1]]),
        np.full(116, 50.0),
        np.r_[np.nan, rng.random(39)],
        rng.normal(size=(40, 116)),
        {"Global signal": rng.normal(size=40), "CSF": rng.normal(size=40)},
        np.arange(4, 40),
    )
    fd = np.full(40, 0.25)
    carpet = rng.normal(size=(125, 40))
    coverage = np.linspace(0.3, 1, 116)
    done = {"done": "z" * 90, "ButterworthHz": (None, 0.1)}
    run = Run(source, series, 2.0, coverage, fd, carpet, done, (LONG,), measured)
    return quality.subject_page(SubjectFC("01", (run,), fc, (3,), {}, (), fc), atlas)


def group_page() -> str:
    """Page of thirty subjects at two sites, one of them moving much."""
    rng = np.random.default_rng(0)
    rows, measures, stored = [], {}, []
    for k in range(30):
        fd = 0.8 if k == 7 else 0.1 + 0.01 * k
        row = {"participant_id": f"sub-{k:02d}", "site": f"Site{'y' * 40}{k % 2}"}
        row |= {"dx_group": "control", "mean_fd": f"{fd:.4g}", "tr": "2"}
        rows.append({**row, "note": "x" * 60, "file": "x.tsv"})
        values = dict.fromkeys(COLUMNS) | {"mean_fd": fd, "tsnr": 40.0 + k, "dof": 30.0}
        measures[f"sub-{k:02d}"] = values
        stored.append(Matrices(*np.tanh(rng.normal(scale=0.2, size=(2, 6670)))))
    people = pd.DataFrame(rows)
    table = quality_table(people, measures)
    found = GroupQuality(table, qc_fc(table, stored, aal116()))
    return quality.group_page(people, [("sub-99", "no scan")], "FC.", found)


def why_page() -> str:
    """Page that explains two scans of a simulated cohort."""
    cohort = simulate("easy", n_rois=116, n_sites=2, scale=0.3)
    model = ForgeClassifier("ridge").fit(cohort.fc, cohort.y)
    found = model.explain(cohort.fc[:2], atlas=aal116())
    return explanation_page(found, "0123456789abcdef")


def test_the_results_table_fits_a_laptop(browser, tmp_path):
    runs = fake_learner("FORGE/GCN", forgets=0.3) + fake_learner("fine-tuning/log")
    kept = {"FORGE/GCN": "synthetic subjects", "fine-tuning/log": "nothing"}
    about = RunInfo("T", kept, n_draws=50)
    page = tmp_path / "report.html"
    page.write_text(page_of(about, run_numbers(runs, about)))
    show(browser, page.as_uri(), 1240)
    inner, outer = browser.execute_script(
        "const box = document.querySelector('#results .scroll');"
        "return [box.scrollWidth, box.clientWidth]"
    )
    assert inner <= outer


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


def point_at(browser, element, x: int = 0, y: int = 0) -> str:
    """Text of the tip when the pointer is moved to x, y from the centre of an element."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    browser.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element
    )
    away = ActionChains(browser).move_by_offset(0, 0)
    away.move_to_element_with_offset(element, x, y).perform()
    tip = browser.find_element(By.CLASS_NAME, "tip")
    return tip.text if tip.is_displayed() else ""


def test_cells_of_a_subject_page_show_their_values(browser, pages):
    from selenium.webdriver.common.by import By

    show(browser, pages["quality"].as_uri(), 1400)
    mosaic, fd, dvars, _, carpet, spectrum, *matrices = browser.find_elements(
        By.CSS_SELECTOR, ".cells"
    )
    assert re.fullmatch(
        r"coronal, y = [+\N{MINUS SIGN}]?\d+ mm", point_at(browser, mosaic)
    )
    assert re.fullmatch(r"volume 2[01]: FD 0\.25", point_at(browser, fd))
    assert re.match(r"volume 2[01]: DVARS 0\.\d\d$", point_at(browser, dvars))
    assert re.match(
        r".* \([a-z]+\), volume 2[01]: .?\d\.\d$", point_at(browser, carpet)
    )
    assert re.match(
        r"0\.\d{3} Hz: after \d+\.\d\d, before \d", point_at(browser, spectrum)
    )
    assert len(matrices) == 2
    atlas = aal116()
    order = by_system(atlas.systems)[0]
    for matrix in matrices:  # the diagonal
        found = point_at(browser, matrix, 2, 2)
        name = atlas.roi_names[order[58]]
        assert found == f"{name} \N{EN DASH} {name} ({atlas.systems[order[58]]}): 1.00"


def test_an_roi_of_a_brain_shows_its_name_and_coverage(browser, pages):
    from selenium.webdriver.common.by import By

    show(browser, pages["quality"].as_uri(), 1400)
    dot = browser.find_elements(By.CSS_SELECTOR, ".brains circle")[-1]
    worst = aal116().roi_names[0]
    assert re.match(r".*: \d+ % covered, tSNR 50", point_at(browser, dot))
    tips = [
        d.get_attribute("data-tip")
        for d in browser.find_elements(By.CSS_SELECTOR, ".brains circle")
    ]
    assert tips.count(f"{worst}: 30 % covered, tSNR 50") == 3


def test_pointing_at_an_roi_fades_the_edges_of_others(browser, pages):
    from selenium.webdriver.common.by import By

    show(browser, pages["why"].as_uri(), 1400)
    chords = browser.find_element(By.CSS_SELECTOR, "svg.chords")
    edge = chords.find_elements(By.CSS_SELECTOR, ".edge")[-1]
    roi = edge.get_attribute("data-ends").split()[0]
    arc = chords.find_element(By.CSS_SELECTOR, f"[data-roi='{roi}']")
    text = point_at(browser, arc)
    assert text.startswith(aal116().roi_names[int(roi)])
    on = {
        e.get_attribute("data-ends")
        for e in chords.find_elements(By.CSS_SELECTOR, ".on")
    }
    assert edge.get_attribute("data-ends") in on
    assert all(roi in ends.split() for ends in on)
    assert "picked" in chords.get_attribute("class")


def test_tables_of_a_scan_are_folded(browser, pages):
    from selenium.webdriver.common.by import By

    show(browser, pages["why"].as_uri(), 1400)
    details = browser.find_element(By.TAG_NAME, "details")
    table = details.find_element(By.TAG_NAME, "table")
    assert not table.is_displayed()
    details.find_element(By.TAG_NAME, "summary").click()
    assert table.is_displayed()


def test_a_subject_is_marked_in_all_distributions_and_leads_to_its_page(browser, pages):
    from selenium.webdriver.common.by import By

    show(browser, pages["group"].as_uri(), 1400)
    dot = browser.find_element(By.CSS_SELECTOR, ".strip a.flagged")
    text = point_at(browser, dot)
    assert text.startswith("sub-07: 0.80 mm \N{EM DASH} mean FD above 0.5 mm")
    marked = browser.find_elements(By.CSS_SELECTOR, ".strip a.same")
    assert len(marked) == 3  # FD, tSNR and degrees of freedom
    dot.click()
    assert browser.current_url.endswith("sub-07.html")
    browser.get("about:blank")
    browser.get_log("browser")  # that page does not exist here


def test_the_table_of_subjects_is_sorted_by_a_click(browser, pages):
    from selenium.webdriver.common.by import By

    show(browser, pages["group"].as_uri(), 1400)
    table = next(
        t
        for t in browser.find_elements(By.CSS_SELECTOR, "table.results")
        if t.text.startswith("Subject")
    )
    heads = table.find_elements(By.CSS_SELECTOR, "thead th")
    heading = next(h for h in heads if h.text.startswith("Framewise displacement, mm"))
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", heading)
    heading.click()
    first = table.find_element(By.CSS_SELECTOR, "tbody tr")
    assert first.text.startswith("sub-07")


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
