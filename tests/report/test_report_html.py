"""The page is complete, self-contained, safe and honest."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from markupsafe import Markup

from fake_runs import KEEPS, SITES, fake_experiment, fake_learner
from fcforge.errors import DataError
from fcforge.report import Section, write_report
from fcforge.report.figures import heat, span, ticks
from fcforge.report.html import render
from fcforge.types import Leaks

EVIL = "<script>alert(1)</script>\"'&"


class Page(HTMLParser):
    """Tags with attributes, visible text, and whether every element was closed."""

    VOID = frozenset({"meta", "link", "br", "wbr", "img", "input", "hr"})

    def __init__(self, html):
        super().__init__()
        self.tags, self.open, self.texts = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.texts.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", "".join(self.texts))


@pytest.fixture(scope="module")
def html():
    return render(
        fake_experiment(seeds=(0, 1)), title="A title", keeps=KEEPS, expected=300, n_draws=100
    )


def test_page_is_well_formed_and_has_all_parts(html):
    page = Page(html)
    assert page.open == []
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    wanted = ["warnings", "results", "differences", "stages", "matrices", "sites"]
    assert [i for i in ids if i in wanted] == wanted
    assert {"settings", "methods", "cite"} <= set(ids)
    for link in (a["href"] for t, a in page.tags if t == "a"):
        assert link.startswith("data:text/csv") or link[1:] in ids
    assert dict(page.tags)["html"]["lang"] == "en"


def test_page_says_what_was_run_and_what_is_missing(html):
    text = Page(html).text
    assert "A title" in text
    assert "288 of 300" in text
    assert "12 of 300 runs are missing" in text
    assert "majority class" in text
    assert "stuck/gcn calls everybody the same" in text
    assert "24 orders" in text
    assert "60 epochs per site" in text
    assert "@article{chen2026forge" in text
    assert "only 2 seeds" in text


def test_page_loads_nothing(html):
    assert "http" not in html
    assert "@import" not in html
    assert "url(" not in html
    for tag, attrs in Page(html).tags:
        for name in ("src", "href", "srcset", "action", "data"):
            if attrs.get(name):
                assert attrs[name].startswith(("#", "data:")), (tag, attrs)
    assert len(html) < 1_000_000


def test_other_peoples_text_is_escaped():
    sites = (EVIL, "B<b>", "C&C")
    runs = fake_learner(EVIL, sites=sites, seeds=(0, 1, 2), leaks=Leaks(context_on_test=True))
    page = render(
        runs,
        title=EVIL,
        keeps={EVIL: EVIL},
        settings={EVIL: {EVIL: EVIL, "list": [EVIL]}},
        environment={EVIL: EVIL},
        extra_sections=[(EVIL, EVIL)],
        n_draws=20,
    )
    assert "<script>alert" not in page
    assert "<b>B" not in page
    assert page.count("<script>") == 1
    parsed = Page(page)
    assert parsed.open == []
    assert parsed.text.count("<script>alert(1)</script>") > 10
    for _, attrs in parsed.tags:
        assert not any(name.startswith("on") for name in attrs)


def test_leaks_are_red_and_clean_runs_are_not(html):
    assert 'class="banner"' not in html
    clean = fake_learner("honest", skill=1.0)
    leaky = fake_learner(
        "leaky", skill=2.0, leaks=Leaks(select_on_test=True, generator_sees_test=True)
    )
    page = render([*clean, *leaky], n_draws=20)
    text = Page(page).text
    assert 'class="banner" role="alert"' in page
    assert "leaky (select_on_test, generator_sees_test)." in text
    assert "Highest accuracy along the way: honest" in text
    assert "WARNING: test data were allowed to leak in" in text


def test_all_clear():
    text = Page(render(fake_learner("good", skill=1.5), expected=72, n_draws=50)).text
    assert "Nothing to warn about" in text


def test_extra_sections():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2))
    figure.subplots().plot([0, 1], [0, 1])
    sections = [
        Section("Privacy audit", Markup("<p id='mine'>fine</p>")),
        Section("Plot", figure, alt="a line"),
    ]
    page = render(fake_learner("x", seeds=(0,)), extra_sections=sections, n_draws=20)
    assert "<p id='mine'>fine</p>" in page
    assert 'aria-label="a line"' in page
    assert "http" not in page
    assert "<path" in page
    assert Page(page).open == []
    assert 'href="#extra-1"' in page


def test_one_site_one_run_one_learner():
    runs = fake_learner("x", sites=("only",), seeds=(0,))
    assert len(runs) == 1
    text = Page(render(runs, n_draws=20)).text
    assert "n/a" in text
    assert "nan" not in text.lower()


def diverged(runs):
    nothing = {s: np.full_like(v, np.nan) for s, v in runs[0].scores.items()}
    return [replace(r, scores=nothing) for r in runs]


def test_partial_orders_and_a_diverged_learner():
    good = fake_learner("good", skill=1.5)
    short = [
        replace(r, spec=r.spec.prefix(2), scores={s: v[:2] for s, v in r.scores.items()})
        for r in good[:3]
    ]
    broken = fake_learner("broken", seeds=(0,))
    broken = [
        replace(r, scores={s: np.full_like(v, np.nan) for s, v in r.scores.items()}) for r in broken
    ]
    text = Page(render([*good, *short, *broken], n_draws=20)).text
    assert "24 of 24 runs diverged" in text
    assert "24 diverged" in text


def test_only_diverged_runs_still_give_a_page():
    broken = fake_learner("broken", seeds=(0,))
    broken = [
        replace(r, scores={s: np.full_like(v, np.nan) for s, v in r.scores.items()}) for r in broken
    ]
    assert "No learner has usable scores" in Page(render(broken, n_draws=20)).text


def test_written_whole_or_not_at_all(tmp_path, monkeypatch):
    runs = fake_learner("x", seeds=(0,), orders=[SITES])
    out = write_report(runs, tmp_path / "new" / "report.html", n_draws=20)
    before = out.read_text()
    assert before.rstrip().endswith("</html>")

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_report(runs, out, title="other", n_draws=20)
    assert out.read_text() == before
    assert [p.name for p in out.parent.iterdir()] == ["report.html"]


def test_no_runs_is_one_clear_error(tmp_path):
    with pytest.raises(DataError, match="no finished run"):
        write_report([], tmp_path / "r.html")
    assert list(tmp_path.iterdir()) == []


def luminance(colour):
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def test_heatmap_text_is_readable():
    for v in np.linspace(0, 1, 41):
        a, b = sorted(luminance(c) for c in heat(v, 0, 1))
        assert (b + 0.05) / (a + 0.05) >= 4.5, v
    assert heat(np.nan, 0, 1) == ("transparent", "inherit")


def test_axis_helpers():
    assert span([np.array([0.61, np.nan]), np.array([0.88])]) == pytest.approx((0.60, 0.90))
    assert span([np.array([np.nan])]) == (0.0, 1.0)
    assert ticks(0.6, 0.9) == pytest.approx([0.6, 0.7, 0.8, 0.9])
    assert 3 <= len(ticks(-0.05, 0.25)) <= 6
