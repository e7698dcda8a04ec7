"""Pages follow from paper/results: its scores give the spreadsheets and the pages."""

import csv
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import independent_check
import make_tables
import numpy as np
import pytest
from make_tables import MARKED, RESULT_PAGES, RESULTS, ROOT, VIEWS

from fcforge.evaluation.forgetting import finite
from fcforge.evaluation.resampling import means

NAMES = make_tables.table_names()
ASKED = [
    (page, *match.groups()[1:4])
    for page in make_tables.pages()
    for match in MARKED.finditer(page.read_text())
]
TEMPLATED = RESULT_PAGES.pages()
SCORED = re.compile(r"Config `paper/experiments/(\w+)\.toml`; .*?commit (\w+)\.")
# Written by other scripts and shown by pages under another name than the file's.
NAMED_ELSEWHERE = {"estimators", "explanations", "published_base_model"}


@cache
def sheet(name: str) -> dict[str, dict[str, str]]:
    with (RESULTS / f"{name}.csv").open(newline="") as stream:
        return {row["learner"].lstrip("'"): row for row in csv.DictReader(stream)}


def test_results_are_small():
    sizes = {name: (RESULTS / f"{name}.npz").stat().st_size for name in NAMES}
    assert max(sizes.values()) < 2e6
    assert sum(sizes.values()) < 25e6


@pytest.mark.parametrize("name", sorted(NAMES))
def test_spreadsheets_follow_from_the_scores(name):
    table, about = make_tables.read(name)
    assert re.fullmatch(r"[0-9a-f]{40}", about["commit"])
    assert about["machines"].keys() >= table.groups.keys()
    assert not table.missing
    assert set(table.groups) <= set(sheet(name))
    metric = "r2" if about.get("kind") == "number" else "accuracy"
    for learner in list(table.groups)[::4]:
        runs = [r for r in table.groups[learner] if finite(r)]
        found = means(runs, metric, ("aaa", "fm"))
        for key, value in found.items():
            assert float(sheet(name)[learner][key]) == pytest.approx(value, abs=1e-6)


def test_every_table_of_networks_is_of_one_commit():
    """Scores of a GPU and those of closed forms were computed from the same source."""
    commits = {make_tables.read(name)[1]["commit"] for name in NAMES}
    assert len(commits) == 1


def test_every_result_is_on_a_page():
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *TEMPLATED.values()]
    text = "".join(
        p.read_text() for p in pages if "_build" not in p.parts and p.is_file()
    )
    templates = "".join(p.read_text() for p in (ROOT / "paper" / "pages").glob("*.j2"))
    for name in NAMES:
        assert f"paper/experiments/{name}.toml" in text, name
    for path in RESULTS.glob("*.json"):
        if path.stem not in NAMED_ELSEWHERE:
            shown = f"<!-- table {path.stem} " in text or path.stem in templates
            assert shown, path.name
    for path in RESULTS.glob("*.csv"):
        assert path.stem in NAMES or f"<!-- table {path.stem} " in text, path.name


def test_pages_name_config_commit_and_machine():
    for template, page in TEMPLATED.items():
        if template in ("RESULTS.md.j2", "people.md.j2", "augmentation.md.j2"):
            continue
        found = SCORED.findall(page.read_text())
        assert found, page.name
        for name, commit in found:
            judged = RESULTS / f"{name}.json"
            stored = (
                json.loads(judged.read_text())
                if judged.is_file()
                else make_tables.read(name)[1]
            )
            assert stored["commit"].startswith(commit)


@pytest.mark.parametrize(("page", "name", "view", "text"), ASKED)
def test_marked_tables_are_filled(page, name, view, text):
    assert view.partition(" ")[0] in VIEWS
    assert text.strip(), "run `make tables`"


@pytest.mark.parametrize(
    "template", ["RESULTS", "three_classes", "age", "buffer", "tau", "generators"]
)
def test_a_sample_of_the_pages_is_not_stale(template):
    """`make_tables.py --check`, which CI runs on all pages, on those that take seconds."""
    name = f"{template}.md.j2"
    if name not in TEMPLATED:
        pytest.skip("its tables are not stored")
    assert TEMPLATED[name].read_text() == RESULT_PAGES.render(name)


def test_readme_is_not_stale():
    """Its sentences and its table follow from the stored scores."""
    readme = make_tables.ROOT / "README.md"
    asked = {m.group(2, 3) for m in make_tables.MARKED.finditer(readme.read_text())}
    assert asked
    made = {each: make_tables.view_of(each) for each in asked}
    assert make_tables.filled(readme, made) == readme.read_text()


def test_one_page_is_rendered_alone():
    """The stored spreadsheets give the tables of sums, and a template its page."""
    sums = ROOT / "docs" / "results" / "sums.md"
    buffer = ROOT / "docs" / "results" / "buffer.md"
    made = make_tables.make_some(1, ["sums", "buffer"])
    assert made == {sums: sums.read_text(), buffer: buffer.read_text()}


def test_an_unknown_page_is_named():
    with pytest.raises(ValueError, match="no page is named bufer"):
        make_tables.make_some(1, ["sums", "bufer"])


def test_a_marker_is_filled_and_only_that(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table NAME curve AAA -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setitem(
        make_tables.VIEWS, "curve", lambda name, rest: f"{name}: {rest}"
    )
    asked = "NAME", "curve AAA"
    made = {asked: make_tables.view_of(asked)}
    text = make_tables.filled(page, made)
    assert (
        text
        == "before\n<!-- table NAME curve AAA -->\nNAME: AAA\n<!-- end -->\nafter\n"
    )
    page.write_text(text)
    assert make_tables.filled(page, made) == text


QUOTED = re.compile(r"([-+]?\d*\.\d+) \[([-+]?\d*\.\d+), ([-+]?\d*\.\d+)\]")


def intervals(text: str) -> set[tuple[str, ...]]:
    plain = text.replace("\N{MINUS SIGN}", "-")
    return {
        tuple(f"{float(x):.3f}" for x in m.groups()) for m in QUOTED.finditer(plain)
    }


@pytest.mark.parametrize(
    "page",
    [page for page in make_tables.pages() if page.name != "privacy.md"],
    ids=lambda page: page.name,
)
def test_an_interval_in_a_sentence_stands_in_a_table(page):
    made = "".join(
        match[4]
        for other in make_tables.pages()
        for match in MARKED.finditer(other.read_text())
    )
    rendered = "".join(path.read_text() for path in TEMPLATED.values())
    quoted = intervals(MARKED.sub("", page.read_text()))
    assert quoted <= intervals(made + rendered), "typed, and no table says so any more"


# -- numbers recomputed by a script that shares nothing with the product ---------------------------
def test_published_numbers_come_out_of_an_independent_script():
    script = Path(independent_check.__file__)
    done = subprocess.run(
        [sys.executable, "-I", str(script), "--number", "40"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-1000:]
    assert "88 published numbers recomputed, 0 differ" in done.stdout


def test_the_independent_script_imports_nothing_of_the_product():
    text = Path(independent_check.__file__).read_text()
    imported = set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE))
    standard = {"argparse", "functools", "itertools", "json", "re", "sys", "pathlib"}
    assert imported <= {*standard, "numpy"}


def test_the_independent_measures_by_hand():
    """Two sites: .8 when learned, then .6, and .7 at the end; zero-shot .5 before."""
    a = np.array([[0.8, 0.5], [0.6, 0.7]])
    assert independent_check.average_along_the_way(a) == pytest.approx(0.725)
    assert independent_check.forgetting(a) == pytest.approx(0.2)
    assert independent_check.forgetting_of_the_paper(a) == pytest.approx(0.0)
    p, y = np.array([0.9, 0.4, 0.4]), np.array([1, 0, 1])
    assert independent_check.auroc(p, y) == pytest.approx(0.75)
    assert independent_check.accuracy(p, y) == pytest.approx(2 / 3)


def test_the_independent_script_reads_every_column_of_sums():
    page = ROOT / "docs" / "results" / "sums.md"
    found = list(independent_check.published_sums(page))
    heads = {
        head.strip()
        for path, name, view, text in ASKED
        if path == page and name == "sums" and view != "ran"
        for head in text.splitlines()[0].strip("|").split("|")
    }
    by_hospitals = {"4 hospitals", "8 hospitals", "all hospitals"}
    wanted = heads - by_hospitals - {"what leaves", "ceiling"}
    assert {column for *_, column, _ in found} == wanted
    assert {hospitals for _, _, hospitals, *_ in found} == {None, 4, 8}
    assert {public for _, public, *_ in found} == {100, 200, 400}


def test_the_independent_script_reads_every_number_of_four_hospitals():
    page = ROOT / "docs" / "results" / "sums.md"
    found = list(independent_check.published_orders(page))
    assert len(found) == 2 * 8 * 3
    assert {column for _, _, column, _ in found} == {
        "AAA",
        "AUROC",
        "above the base model alone",
    }
    assert {len(texts) for *_, texts in found} == {3}


def test_the_independent_script_says_which_number_of_four_hospitals_differs(
    tmp_path, monkeypatch, capsys
):
    page = tmp_path / "docs" / "results" / "sums.md"
    page.parent.mkdir(parents=True)
    (line,) = (
        line
        for page, name, view, text in ASKED
        if (name, view) == ("four_hospitals", "in_orders abide1_aal116.npz")
        for line in text.splitlines()
        if line.startswith("| local, epsilon 1")
    )
    aaa = line.split("|")[2].strip()
    marker = "<!-- table four_hospitals in_orders abide1_aal116.npz -->"
    table = f"{marker}\n| what leaves | AAA |\n|---|---|\n| local, epsilon 1 |"
    monkeypatch.setattr(independent_check, "ROOT", tmp_path)
    page.write_text(f"{table} {aaa} |\n<!-- end -->\n")
    assert independent_check.check_orders(1) == (3, 0)
    page.write_text(f"{table} 0.5{aaa[3:]} |\n<!-- end -->\n")
    assert independent_check.check_orders(1) == (3, 1)
    assert "DIFFERS" in capsys.readouterr().out


def test_the_independent_script_says_which_number_of_sums_differs(
    tmp_path, monkeypatch, capsys
):
    page = tmp_path / "docs" / "results" / "sums.md"
    page.parent.mkdir(parents=True)
    text = (ROOT / "docs" / "results" / "sums.md").read_text()
    line = next(x for x in text.splitlines() if x.startswith("| base model alone | 0."))
    marker = "<!-- table sums curve abide1_aal116_dparsf.npz 200 -->"
    heads = "| what leaves | AUROC |\n|---|---|"
    value = line.split("|")[2].split()[0]
    page.write_text(
        f"{marker}\n{heads}\n| base model alone | {value} |\n<!-- end -->\n"
    )
    monkeypatch.setattr(independent_check, "ROOT", tmp_path)
    assert independent_check.check_sums(1) == (1, 0)
    page.write_text(f"{marker}\n{heads}\n| base model alone | 0.500 |\n<!-- end -->\n")
    assert independent_check.check_sums(1) == (1, 1)
    assert "DIFFERS" in capsys.readouterr().out
