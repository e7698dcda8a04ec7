"""A consortium's pages: everything is there, nothing leads outside, damage is named."""

import re
import shutil

import pytest
from consortium_world import cohort, make_run, make_world
from page_parser import Page, require_sound

from fcforge.errors import FCForgeError
from fcforge.report.pages import write_pages

SITES = tuple(dict.fromkeys(cohort().site.tolist()))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world") / "consortium")


@pytest.fixture(scope="module")
def pages(world):
    """Text of every page by the start of its name."""
    index = write_pages(world)
    assert index == world / "pages" / "index.html"
    return {p.name: p.read_text() for p in index.parent.iterdir()}


def of(pages, start: str) -> str:
    (found,) = [text for name, text in pages.items() if name.startswith(start)]
    return found


def test_every_page_is_sound_and_links_only_to_the_others(pages):
    assert len(pages) == 11
    for text in pages.values():
        require_sound(text, tuple(pages))


def test_overview_lists_everything_and_names_the_damage(pages):
    page = Page(pages["index.html"])
    links = {a["href"] for a in page.of("a")}
    assert links >= set(pages) - {"index.html"}
    assert page.text.count("Damaged, must not be used.") == 1
    assert page.text.count("Cannot be read.") == 1
    assert page.text.count("4 of 4 runs, 2 sites") == 2
    assert "An attacker can tell who took part." in page.text
    facts = re.findall(r"<dt>([^<]+)</dt><dd>(\d+)", pages["index.html"])
    assert dict(facts) == {
        "capsules": "6",
        "signed": "3",
        "audited": "1",
        "with real subjects": "0",
        "runs": "3",
        "damaged": "2",
    }


def test_run_page_is_the_report_with_a_way_back(pages):
    text = of(pages, "run-runs-first")
    page = Page(text)
    assert "two made-up hospitals" in page.text
    assert page.of("a")[1]["href"] == "index.html"
    assert page.row("cumulative")[1].startswith("1.000")
    assert all(site in page.text for site in SITES)
    assert "Each site over time" in page.text


def test_capsule_page_answers_at_a_glance(pages):
    page = Page(of(pages, "capsule-chain-3"))
    text = page.text
    order = [
        text.index(q)
        for q in (
            "Who signed it?",
            "What travels?",
            "Does it work on real people?",
            "Can an attacker tell who took part?",
            "Each site over time",
        )
    ]
    assert order == sorted(order)
    assert "picks the right one 94 times in 100" in text
    assert page.row("loss, on network")[2] == "0.940 [0.880, 1.000]"
    assert "No raw scan is stored. That is not the same as private" in text
    assert "learned " + SITES[0] in text
    assert all(system in text for system in ("cerebellar", "default", "visual"))
    assert page.of("img")[0]["src"].startswith("data:image/png;base64,")


def test_bars_lie_on_an_axis_from_0_to_1(pages):
    text = of(pages, "capsule-chain-3")
    card = text[text.index("Can an attacker tell") :]
    assert re.search(r'class="bar" style="width:94\.00%"', card)
    assert re.search(r'class="zero" style="left:50\.00%"', card)
    assert re.search(
        r'class="whisker" style="left:88\.00%;right:calc\(100% - 100\.00%\)"', card
    )


def test_lineage_marks_here_and_what_is_not_here(pages, world, tmp_path):
    text = of(pages, "capsule-chain-2")
    assert text.count('class="here"') == 1
    assert text.count('class="gone"') == 0
    shutil.copy(world / "chain/2.capsule", tmp_path)
    index = write_pages(tmp_path, tmp_path / "out").read_text()
    assert index.count('class="gone"') == 1


def test_capsule_without_aal_and_without_held_out(pages):
    text = of(pages, "capsule-evil")
    assert "not those of AAL-116" in text
    assert "Glass brain" not in text
    page = Page(of(pages, "capsule-unpacked"))  # majority, no held-out set
    assert "the model's answer does not depend on the scan" in page.text
    assert "No synthetic held-out set travels" in page.text


def test_damaged_capsule_is_shown_as_damaged(pages):
    text = of(pages, "capsule-damaged")
    assert "This capsule is damaged and must not be used." in text
    assert '<li class="no">' in text
    assert "Who signed it?" not in text


def test_audit_file_has_a_page(pages):
    page = Page(of(pages, "audit-audits-nyu"))
    assert page.row("network")[2] == "0.940 [0.880, 1.000]"


def test_odd_file_names_are_shown_without_their_escapes(tmp_path):
    (tmp_path / "<img src=x onerror=alert(1)>.capsule").write_bytes(b"PK")
    (tmp_path / "\x1b[31m\udcff\u202e.capsule").write_bytes(b"")
    index = write_pages(tmp_path)
    names = tuple(p.name for p in index.parent.iterdir())
    page = require_sound(index.read_text(), names)
    assert page.text.count("Damaged, must not be used.") == 2
    for name in names:
        require_sound((index.parent / name).read_text(), names)


def test_pages_of_what_is_gone_are_removed_and_other_files_stay(tmp_path):
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    out = write_pages(tmp_path).parent
    (out / "notes.html").write_text("mine")
    shutil.rmtree(tmp_path / "b")
    write_pages(tmp_path)
    kept = sorted(p.name.rsplit("-", 1)[0] for p in out.iterdir())
    assert kept == ["index.html", "notes.html", "run-a"]


def test_an_empty_folder_says_how_to_begin(tmp_path):
    text = write_pages(tmp_path / ".", tmp_path / "out").read_text()
    assert "No capsule yet." in text
    assert "No run folder yet." in text
    with pytest.raises(FCForgeError, match="no such folder"):
        write_pages(tmp_path / "nothing")


def test_what_is_shown_is_said(tmp_path):
    make_run(tmp_path / "a")
    said: list[str] = []
    write_pages(tmp_path, say=said.append)
    assert said == ["run a"]
