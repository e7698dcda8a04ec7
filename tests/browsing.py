"""Checks of any page in a real browser (fixture `browser`): width, console, contrast."""

import time
from typing import Any


def show(browser: Any, url: str, width: int = 1280) -> None:
    """Load a page in a window of that many pixels, a phone's below 600."""
    metrics = {
        "width": width,
        "height": 900,
        "deviceScaleFactor": 1,
        "mobile": width < 600,
    }
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(
        "about:blank"
    )  # on a busy machine the last page was asked, not this one
    browser.get(url)
    ready = (
        "return document.readyState === 'complete' && location.href !== 'about:blank'"
    )
    until = time.monotonic() + 20
    while not browser.execute_script(ready) and time.monotonic() < until:
        time.sleep(0.05)


def complaints(browser: Any) -> list[Any]:
    """Return warnings and errors of the console since the last call."""
    return [e for e in browser.get_log("browser") if e["level"] != "INFO"]


def resources(browser: Any) -> list[str]:
    """Addresses of what the page has loaded."""
    return browser.execute_script(
        "return performance.getEntriesByType('resource').map(e => e.name)"
    )


def sticking_out(browser: Any) -> list[str]:
    """Elements outside a scrolling box that reach over the right edge of the page."""
    return browser.execute_script(
        "return [...document.querySelectorAll('body *')].filter(e => !e.closest("
        "'.scroll, pre, nav, .skip') && e.getBoundingClientRect().right > innerWidth + 1)"
        ".map(e => e.outerHTML.slice(0, 120))"
    )


def small_text(browser: Any, least: float = 12.0) -> list[Any]:
    """(tag, text, px) of visible text that is drawn smaller than `least` pixels."""
    return browser.execute_script(SMALL, least)


def poor_contrast(browser: Any, url: str, scheme: str) -> list[Any]:
    """(tag, text, ratio) of visible text below 4.5 : 1 (WCAG AA) in a light or dark scheme."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    show(browser, url)
    poor = browser.execute_script(CONTRAST)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    return poor


SMALL = """
const small = [];
for (const e of document.querySelectorAll('body *')) {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || e.closest('script, style, .skip') || !e.getClientRects().length) continue;
  const at = e.ownerSVGElement ? e.getScreenCTM() : null;
  const px = parseFloat(getComputedStyle(e).fontSize) * (at ? Math.hypot(at.a, at.b) : 1);
  if (px < arguments[0] - 0.05) small.push([e.tagName, e.textContent.slice(0, 30), px]);
}
return small;
"""

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
