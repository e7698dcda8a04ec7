"""Pages: what is printed is escaped, nothing is loaded."""

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from markupsafe import Markup
from page_parser import EVIL, Page, require_own_script, require_sound

from fcforge.report import figures
from fcforge.report.figures import new_figure
from fcforge.report.html import (
    PHONE,
    Section,
    flattened,
    picture,
    position_percent,
    render,
    shortened,
    with_code,
)
from fcforge.report.tables import Table


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


def test_no_script_but_our_own_may_run():
    html = page(Section("a", "b"))
    policy = next(m["content"] for m in Page(html).of("meta") if "http-equiv" in m)
    assert policy.startswith("default-src 'none'")
    assert re.findall("script-src ([^;]+)", policy)[0].startswith("'sha256-")
    assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")
    require_own_script(html)


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
    assert (
        with_code("run `fcforge <x>` now") == "run <code>fcforge &lt;x&gt;</code> now"
    )


def test_settings_become_dotted_names():
    tables = [{"name": "x"}, {"name": "y", "on": True}]
    nested = {"a": {"b": 1, "c": {}}, "d": "text", "e": [1, None], "f": tables}
    assert flattened(nested) == [
        ("a.b", "1"),
        ("a.c", "not set"),
        ("d", "text"),
        ("e", "1, not set"),
        ("f.1.name", "x"),
        ("f.2.name", "y"),
        ("f.2.on", "yes"),
    ]


def test_places_on_an_axis():
    assert [position_percent(v, 0.4, 0.9) for v in (0.4, 0.65, 0.9, 2.0)] == [
        "0.00",
        "50.00",
        "100.00",
        "100.00",
    ]
    assert shortened("abcdef", 4) == "abc…"
    assert shortened("abcd", 4) == "abcd"


@pytest.mark.parametrize("inches", [3.5, 5.1, 6.6])
def test_text_of_a_picture_has_12_px_on_a_phone(inches):
    figure = new_figure(inches, 2)
    text = float(re.search(r"--text:([\d.]+)px", picture(figure, "a picture"))[1])
    shown = (
        min(1, PHONE / (96 * inches)) * 96 / 72
    )  # px of a point, no larger than drawn
    assert text * shown >= 12


# -- pictures --------------------------------------------------------------------------------------
@pytest.fixture
def figure():
    mean = np.array([np.nan, 0.5, 0.7])
    own = (mean, mean - 0.1, mean + 0.1)
    made = figures.stage_figure(own, np.full(3, 0.6), (0, 1))
    made.axes[0].set_title("Zürich \u202e<b>")
    return made


def test_a_learner_stands_beside_its_baseline(figure):
    (axes,) = figure.axes
    lines = [(line.get_color(), line.get_linestyle()) for line in axes.lines]
    assert lines == [(figures.MUTED, "--"), (figures.ACCENT, "-")]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["1", "2", "3"]
    low, high = axes.get_ylim()  # lines at 0 and at 1 are drawn whole
    assert -0.05 < low < -0.02
    assert 1.02 < high < 1.05


def test_axis_helpers():
    assert figures.common_axis(
        [np.array([0.61, np.nan]), np.array([0.88])]
    ) == pytest.approx((0.60, 0.90))
    assert figures.common_axis([np.array([np.nan])]) == (0.0, 1.0)
    assert figures.common_axis([]) == (0.0, 1.0)
    assert figures.common_axis([np.array([0.5])]) == pytest.approx((0.5, 0.55))


def test_svg_takes_its_inks_from_the_page_and_points_nowhere(figure):
    svg = str(figures.svg_markup(figure))
    assert "var(--accent)" in svg
    assert "var(--muted)" in svg
    assert not re.search("#0[12]0[12]0", svg)  # no stand-in is left
    assert "http" not in svg
    assert "?&lt;b&gt;" in svg  # the name, escaped and without its direction mark
    assert Page(svg).open == []


def test_two_pictures_in_a_page_share_no_id(figure):
    other = figures.stage_figure([np.ones(2)] * 3, np.ones(2), (0, 2))
    ids = re.findall(
        r'\sid="([^"]+)"',
        str(figures.svg_markup(figure)) + str(figures.svg_markup(other)),
    )
    assert len(ids) == len(set(ids))


def test_text_of_a_picture_is_at_least_12_px(figure):
    sizes = re.findall(
        r"font(?:-size)?: (?:bold )?([\d.]+)px", str(figures.svg_markup(figure))
    )
    assert sizes
    assert min(map(float, sizes)) * 96 / 72 >= 12  # user units are points


def test_a_picture_says_what_it_shows(figure):
    box = Page(str(picture(figure, 'accuracy "of" NYU'))).of("div")[0]
    assert (box["role"], box["aria-label"]) == ("img", 'accuracy "of" NYU')


def test_the_users_settings_of_matplotlib_stay(figure):
    assert figure.axes
    assert mpl.rcParams["svg.fonttype"] == mpl.rcParamsDefault["svg.fonttype"]
    assert mpl.rcParams["text.color"] == mpl.rcParamsDefault["text.color"]


def test_rois_are_grouped_by_system_in_order_of_appearance():
    order, starts = figures.by_system(["b", "a", "b", "c", "a"])
    assert order.tolist() == [0, 2, 1, 4, 3]
    assert starts == {"b": 0, "a": 2, "c": 4}


def test_a_matrix_is_drawn_in_that_order():
    values = np.arange(9.0).reshape(3, 3)
    axes = figures.new_figure(3, 3).subplots()
    image = figures.matrix(axes, values, ["x", "y", "x"])
    assert image.get_array().tolist() == [[0, 2, 1], [6, 8, 7], [3, 5, 4]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y"]
    assert axes.get_yticks().tolist() == [0.5, 2.0]


def test_a_line_for_those_who_cannot_see_it():
    assert figures.describe(np.array([0.5, np.nan, 0.25])) == "0.500, 0.250"


def test_text_of_a_page_is_at_least_12_px_on_screen_and_on_paper():
    style = (Path(figures.__file__).parent / "templates" / "style.css").read_text()
    root = min(16.0, *map(float, re.findall(r"html \{ font-size: ([\d.]+)px", style)))
    sizes = re.findall(r"font-size: ([^v;}][^;}]*)", style)  # pictures: test_rendering
    assert len(sizes) > 20
    for size in sizes:
        number, unit = re.match(
            r"(?:max\(|clamp\()?([\d.]+)(px|rem|em)\b", size
        ).groups()
        assert float(number) * (1 if unit == "px" else root) >= 12, size


def test_colours_are_those_of_the_style_and_of_the_pictures():
    room = Path(figures.__file__).parent
    for path in {*room.rglob("*.py"), *room.rglob("*.j2")} - {Path(figures.__file__)}:
        assert not re.search(r"[\"':]#[0-9a-fA-F]{3,6}\b|RdBu", path.read_text()), (
            path.name
        )


def test_names_in_any_script_are_drawn_without_a_word_about_fonts(figure):
    figure.axes[0].set_xlabel("北京大学")
    assert "北京" in figures.svg_markup(figure)
