"""The page in a real browser: Debian's chromium, headless."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from served_world import item_id, make_world, serving

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
    # offline: every name but the served address fails to resolve
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
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
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


def load(browser, server, path, width=1280):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(server.url.rstrip("/") + path)


@pytest.mark.parametrize("width", [1280, 390, 320])
@pytest.mark.parametrize("name", PAGES)
def test_no_console_error_and_no_sideways_scrolling(browser, server, name, width):
    load(browser, server, PAGES[name], width)
    assert [e for e in browser.get_log("browser") if e["level"] != "INFO"] == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    outside = browser.execute_script(
        "return [...document.querySelectorAll('body *')].filter(e => !e.closest("
        "'.scroll, pre, nav, .skip') && e.getBoundingClientRect().right > innerWidth + 1)"
        ".map(e => e.outerHTML.slice(0, 120))"
    )
    assert outside == []


def test_loads_only_from_itself(browser, server):
    load(browser, server, PAGES["capsule"])
    pictures = browser.execute_async_script(
        "const done = arguments[0], p = document.querySelector('img.glass');"
        "p.loading = 'eager'; p.decode().then(() => done(p.naturalWidth), e => done(String(e)))"
    )
    assert pictures == 1152
    names = browser.execute_script(
        "return performance.getEntriesByType('resource').map(e => e.name)"
    )
    files = {n.rsplit("/", 1)[-1] for n in names} - {"icon.svg"}  # not always listed
    assert files == {"style.css", "fc.png", "uses.png", "glass.png"}
    assert all(n.startswith(server.url) for n in names)
    assert [e for e in browser.get_log("browser") if e["level"] != "INFO"] == []


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


def contrast_script() -> str:
    """The one that checks the report page, whose folder is not on the path of this one."""
    path = Path(__file__).parents[1] / "report" / "test_report_browser.py"
    spec = importlib.util.spec_from_file_location("report_browser", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CONTRAST


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["overview", "run", "capsule", "damaged"])
def test_text_has_contrast(browser, server, name, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    load(browser, server, PAGES[name])
    poor = browser.execute_script(contrast_script())
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    # cells of the heatmap lie on their own rectangles, which the check does not see
    assert [p for p in poor if p[0] != "text" or not p[1].replace(".", "").isdigit()] == []
