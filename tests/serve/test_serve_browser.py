"""The page in a real browser: Debian's chromium, headless."""

from __future__ import annotations

import pytest
from served_world import item_id, make_world, serving

from browsing import complaints, poor_contrast, resources, show, sticking_out

pytestmark = pytest.mark.browser

PAGES = {
    "overview": "/",
    "run": f"/run/{item_id('runs/first')}",
    "evil run": f"/run/{item_id('runs/evil')}",
    "report": f"/run/{item_id('runs/first')}/report.html",
    "capsule": f"/capsule/{item_id('chain/3.capsule')}",
    "evil capsule": f"/capsule/{item_id('evil.capsule')}",
    "damaged": f"/capsule/{item_id('damaged.capsule')}",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(make_world(tmp_path_factory.mktemp("browser") / "world")) as running:
        yield running


def load(browser, server, path, width=1280):
    show(browser, address(server, path), width)


def address(server, path):
    return server.url.rstrip("/") + path


@pytest.mark.parametrize("width", [1280, 390, 320])
@pytest.mark.parametrize("name", PAGES)
def test_no_console_error_and_no_sideways_scrolling(browser, server, name, width):
    load(browser, server, PAGES[name], width)
    assert complaints(browser) == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert sticking_out(browser) == []


def test_loads_only_from_itself(browser, server):
    load(browser, server, PAGES["capsule"])
    pictures = browser.execute_async_script(
        "const done = arguments[0], p = document.querySelector('img.glass');"
        "p.loading = 'eager'; p.decode().then(() => done(p.naturalWidth), e => done(String(e)))"
    )
    assert pictures == 1152
    names = resources(browser)
    files = {n.rsplit("/", 1)[-1] for n in names} - {"icon.svg"}  # not always listed
    assert files == {"style.css", "fc.png", "uses.png", "glass.png"}
    assert all(n.startswith(server.url) for n in names)
    assert complaints(browser) == []


def test_no_script_of_a_file_ever_runs(browser, server):
    """The evil names call alert: an open alert would make the next command raise."""
    for name in ("overview", "evil run", "evil capsule", "capsule"):
        load(browser, server, PAGES[name])
        assert browser.execute_script("return document.scripts.length") == 0
        assert browser.execute_script("return document.querySelectorAll('[onerror]').length") == 0


def test_foreign_script_in_a_report_stays_dead(browser, server):
    """A report with a script of somebody else's, and one that would phone home."""
    folder = server.pages.root / "runs" / "first"
    kept = (folder / "report.html").read_text()
    try:
        (folder / "report.html").write_text(
            "<!doctype html><title>quiet</title><script>document.title = 'loud'</script>"
            "<img src='http://evil.example/x.png'>"
        )
        load(browser, server, PAGES["report"])
        assert browser.title == "quiet"
        refused = [e["message"] for e in browser.get_log("browser")]
        assert len([m for m in refused if "Content Security Policy" in m]) == 2
    finally:
        (folder / "report.html").write_text(kept)
        browser.get_log("browser")


def test_one_can_walk_from_page_to_page(browser, server):
    from selenium.webdriver.common.by import By

    load(browser, server, "/")
    browser.find_element(By.LINK_TEXT, "chain/3.capsule").click()
    assert "3.capsule" in browser.title
    first = browser.find_element(By.CSS_SELECTOR, "svg.lineage a")
    browser.execute_script("arguments[0].dispatchEvent(new MouseEvent('click'))", first)
    assert "1.capsule" in browser.title
    browser.find_element(By.LINK_TEXT, "Overview").click()
    browser.find_element(By.LINK_TEXT, "runs/first").click()
    browser.find_element(By.LINK_TEXT, "Full report").click()
    assert browser.title == "fcforge report"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["overview", "run", "capsule", "damaged"])
def test_text_has_contrast(browser, server, name, scheme):
    poor = poor_contrast(browser, address(server, PAGES[name]), scheme)
    # cells of the heatmap lie on their own rectangles, which the check does not see
    assert [p for p in poor if p[0] != "text" or not p[1].replace(".", "").isdigit()] == []
