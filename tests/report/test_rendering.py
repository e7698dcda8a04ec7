"""Pages: what is printed is escaped, nothing is loaded."""

import re

import pytest
from markupsafe import Markup
from page_parser import EVIL, Page, require_sound

from fcforge.report.figures import canvas
from fcforge.report.rendering import (
    PHONE,
    Section,
    coded,
    flat,
    picture,
    render,
    share,
    short,
)
from fcforge.report.terminal import Table


def page(*sections: Section, **values) -> str:
    about = {"title": "T", "home": "", "kind": "k", "lead": "", **values}
    return render("sections.html.j2", sections=sections, **about)


def test_a_page_of_evil_text_is_sound():
    odd = f"{EVIL}\x1b[2J\u202e\u200b\ud800"
    body = (odd, {odd: {odd: [odd]}}, Table.of([odd], [[odd]], title=odd, note=odd))
    html = page(
        Section(odd, body, odd), title=odd, lead=odd, warnings=[("caution", odd)]
    )
    found = require_sound(html)
    assert found.text.count("<script>alert(1)</script>") > 8
    assert html.encode()  # no lone surrogate is left


def test_no_script_may_run():
    html = page(Section("a", "b"))
    policy = next(m["content"] for m in Page(html).of("meta") if "http-equiv" in m)
    assert policy.startswith("default-src 'none'")
    assert "script-src" not in policy


def test_sections_are_listed_and_can_be_reached():
    found = Page(page(Section("One", "x"), Section("Two", "y", note="small print")))
    assert [a["href"] for a in found.of("a")] == ["#main", "#section-1", "#section-2"]
    assert "small print" in found.text


def test_a_single_section_needs_no_contents():
    assert len(Page(page(Section("T", "x"))).of("nav")) == 0


def test_bodies_of_every_kind():
    section = Section("x", (Markup("<b>mine</b>"), "1 < 2", {"a": {"b": 1}}))
    html = str(section.html())
    assert "<b>mine</b>" in html
    assert "1 &lt; 2" in html
    assert Page(html).row("a.b") == ["a.b", "1"]


def test_commands_in_a_text_are_set_as_code():
    assert coded("run `fcforge <x>` now") == "run <code>fcforge &lt;x&gt;</code> now"


def test_settings_become_dotted_names():
    tables = [{"name": "x"}, {"name": "y", "on": True}]
    nested = {"a": {"b": 1, "c": {}}, "d": "text", "e": [1, None], "f": tables}
    assert flat(nested) == [
        ("a.b", "1"),
        ("a.c", "not set"),
        ("d", "text"),
        ("e", "1, None"),
        ("f.1.name", "x"),
        ("f.2.name", "y"),
        ("f.2.on", "yes"),
    ]


def test_places_on_an_axis():
    assert [share(v, 0.4, 0.9) for v in (0.4, 0.65, 0.9, 2.0)] == [
        "0.00",
        "50.00",
        "100.00",
        "100.00",
    ]
    assert short("abcdef", 4) == "abc…"
    assert short("abcd", 4) == "abcd"


@pytest.mark.parametrize("inches", [3.5, 5.1, 6.6])
def test_text_of_a_picture_has_12_px_on_a_phone(inches):
    figure = canvas(inches, 2)
    text = float(re.search(r"--text:([\d.]+)px", picture(figure, "a picture"))[1])
    shown = (
        min(1, PHONE / (96 * inches)) * 96 / 72
    )  # px of a point, no larger than drawn
    assert text * shown >= 12
