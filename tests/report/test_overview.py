"""Pages of a folder: everything is there, nothing leads outside, damage is named."""

import shutil

import numpy as np
import pytest
from page_parser import Page, require_sound
from report_world import cohort, make_run, make_world

from fcforge.core.errors import ConfigError, ExchangeError, FCForgeError, StoreError
from fcforge.report import overview as made
from fcforge.report import page_kinds
from fcforge.report.overview import find_items, reason, require_plain_run, write_pages

SITES = tuple(dict.fromkeys(cohort().site.tolist()))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world") / "hospitals")


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
    assert page.text.count("Damaged, must not be used.") == 2
    assert page.text.count("4 of 4 runs, 2 sites") == 2
    assert "An attacker can tell who took part." in page.text


def test_run_page_is_the_report_with_a_way_back(pages):
    text = of(pages, "run-runs-first")
    page = Page(text)
    assert "two made-up hospitals" in page.text
    assert page.of("a")[1]["href"] == "index.html"
    assert page.row("cumulative")[1].startswith("1.000")
    assert all(site in page.text for site in SITES)
    assert "Site by site" in page.text


@pytest.mark.parametrize("name", ["exchange-chain-2", "exchange-releases"])
def test_the_page_of_a_file_answers_at_a_glance(pages, name):
    page = Page(of(pages, name))
    places = [
        page.text.index(said)
        for said in (
            "Who signed it?",
            "What travels?",
            "Does it work on real people?",
            "Can an attacker tell who took part?",
            "Intended use",
        )
    ]
    assert places == sorted(places)
    for said in ("not a medical device", "What the model uses", "Settings that all"):
        assert said in page.text


def test_the_page_of_a_chain(pages):
    text = of(pages, "exchange-chain-2")
    page = Page(text)
    assert "Nothing is promised: a chain adds no noise." in page.text
    assert "No raw scan is stored. That is not the same as private" in page.text
    assert "Accuracy on synthetic held-out subjects" in page.text
    assert all(system in page.text for system in ("cerebellar", "default", "visual"))
    assert 'class="brains linked"' in text  # drawn with values on hover


def test_rois_that_are_not_of_aal_have_no_brain(pages):
    text = of(pages, "exchange-releases")
    assert "Glass brain" not in text


def test_a_damaged_file_is_shown_as_damaged(pages):
    text = of(pages, "exchange-damaged")
    assert "Damaged, must not be used. Why: is damaged" in text
    assert "Who signed it?" not in text


def test_judged_generators_have_a_page(pages):
    assert "PSD share" in of(pages, "judged-")


def test_audit_file_has_a_page(pages):
    page = Page(of(pages, "audit-audits-nyu"))
    assert page.row("network")[2] == "0.940 [0.880, 1.000]"


def test_odd_file_names_are_shown_without_their_escapes(tmp_path):
    (tmp_path / "<img src=x onerror=alert(1)>.fcx").write_bytes(b"PK")
    (tmp_path / "\x1b[31m\udcff\u202e.fcx").write_bytes(b"")
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
    assert text.count("None yet.") == 4
    with pytest.raises(FCForgeError, match="no such folder"):
        write_pages(tmp_path / "nothing")


def test_what_is_shown_is_said(tmp_path):
    make_run(tmp_path / "a")
    said: list[str] = []
    write_pages(tmp_path, say=said.append)
    assert said == ["run a"]


def test_a_missing_package_is_no_damage(world, tmp_path, monkeypatch):
    def without(path):
        raise ModuleNotFoundError("no torch", name="torch")

    monkeypatch.setattr("fcforge_consortium.report.overview.open_exchange", without)
    (tmp_path / "a.fcx").write_bytes((world / "chain/1.fcx").read_bytes())
    text = write_pages(tmp_path).read_text()
    assert "Cannot be shown here. Why: needs the package" in text
    assert "Damaged" not in text


# -- what is found below a folder ------------------------------------------------------------------
def touch(path, content=b""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_runs_exchange_files_audits_and_judgements_are_found(tmp_path):
    touch(tmp_path / "runs/a/experiment.json")
    touch(tmp_path / "runs/a/audit.json")  # belongs to the run
    touch(tmp_path / "x.fcx")
    touch(tmp_path / "judged/records.json")
    touch(tmp_path / "judged/portraits.npz")
    touch(tmp_path / "nyu/audit.json")
    touch(tmp_path / "notes.txt", b"PK\3\4 but no exchange")
    touch(tmp_path / ".hidden/y.fcx")
    items = find_items(tmp_path)
    assert [(i.kind.name, i.name) for i in items] == [
        ("judged", "judged"),
        ("audit", "nyu/audit.json"),
        ("run", "runs/a"),
        ("exchange", "x.fcx"),
    ]
    assert len({i.page for i in items}) == len(items)


class Entry:
    """An entry point of another package."""

    name = "notes"
    value = "notes:KIND"

    def __init__(self, kind):
        self.kind = kind

    def load(self):
        return self.kind


def test_another_package_adds_a_kind_of_page(tmp_path, monkeypatch):
    def notes_page(path, name, home):
        return page_kinds.Page(f"{path.read_text()} {home}", [f"note {name}"])

    kind = page_kinds.PageKind("note", "Notes", "Notes.", ("*.note",), notes_page)
    monkeypatch.setattr(page_kinds, "entry_points", lambda group: [Entry(kind)])
    (tmp_path / "a.note").write_text("hello")
    overview = write_pages(tmp_path)
    assert "note a.note" in overview.read_text()
    (page,) = overview.parent.glob("note-a-note-*.html")
    assert page.read_text() == "hello index.html"


def test_an_entry_point_that_is_no_kind_of_page_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(page_kinds, "entry_points", lambda group: [Entry("x")])
    with pytest.raises(ConfigError, match="notes:KIND is not a PageKind"):
        find_items(tmp_path)


def test_links_are_not_followed(tmp_path):
    outside = touch(tmp_path / "outside/secret.fcx")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.fcx").symlink_to(outside)
    (inside / "folder").symlink_to(outside.parent)
    assert find_items(inside) == []


def test_pages_have_plain_names_that_differ(tmp_path):
    touch(tmp_path / "a b/<img src=x>.fcx")
    touch(tmp_path / "a/b-<img src=x>.fcx")
    pages = [i.page for i in find_items(tmp_path)]
    assert len(set(pages)) == 2
    for page in pages:
        assert page.startswith("exchange-a-b-img-src-x-fcx-")
        assert set(page) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")


def test_an_odd_name_is_shown_without_its_escapes(tmp_path):
    touch(tmp_path / "\x1b[31m.fcx")
    assert find_items(tmp_path)[0].name == "?[31m.fcx"


def test_the_folder_itself_may_be_a_run(tmp_path):
    touch(tmp_path / "demo/experiment.json")
    items = find_items(tmp_path / "demo")
    assert [(i.kind.name, i.name) for i in items] == [("run", "demo")]


def test_a_run_with_links_or_huge_scores_is_refused(tmp_path, monkeypatch):
    node = tmp_path / "nodes" / "ab"
    node.mkdir(parents=True)
    np.savez_compressed(node / "scores.npz", x=np.zeros(10_000))
    require_plain_run(tmp_path)
    monkeypatch.setattr(made, "MAX_SCORE_BYTES", 10_000)
    with pytest.raises(StoreError, match="too large"):
        require_plain_run(tmp_path)
    (node / "scores.npz").unlink()
    (node / "scores.npz").symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match="links are not followed"):
        require_plain_run(tmp_path)


def test_reasons_name_no_place_on_this_machine(tmp_path):
    assert reason(ExchangeError("torn\x1b.", where="/home/me/x")) == "torn?."
    assert (
        reason(FileNotFoundError(2, "No such file", "/home/me"))
        == "cannot be read (No such file)."
    )
    assert reason(KeyError("x")) == "is not as fcforge writes it (KeyError)."
