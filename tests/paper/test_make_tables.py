"""Pages follow from paper/results/: its scores give the spreadsheets, these give the pages."""

import csv
import re
from functools import cache

import make_tables
import pytest
from make_tables import MARKED, RESULTS, VIEWS
from paper_tables import KEYS, WITH_INTERVAL

from fcforge.core.formatting import number, with_interval
from fcforge.evaluation.forgetting import finite
from fcforge.evaluation.resampling import means

NAMES = sorted(p.stem for p in RESULTS.glob("*.npz"))
ASKED = [
    (page, *match.groups()[1:4])
    for page in make_tables.pages()
    for match in MARKED.finditer(page.read_text())
]
# One commit, or several with what each of them ran.
COMMIT = r"[0-9a-f]{40}\+?|[0-9a-f]{10,40} \([^)]+\)(, [0-9a-f]{10} \([^)]+\))+"
BESIDE = {"AAA": 2, "FM": 3, "FM unb.": 4, "FOR": 5, "AUROC": 6}


@cache
def sheet(name: str) -> dict[str, dict[str, str]]:
    with (RESULTS / f"{name}.csv").open(newline="") as stream:
        return {row["learner"].lstrip("'"): row for row in csv.DictReader(stream)}


def numbers_in(text: str) -> list[float]:
    plain = text.replace("\N{MINUS SIGN}", "-")
    return [float(found) for found in re.findall(r"-?\d+\.\d+", plain)]


def test_results_are_small():
    sizes = {name: (RESULTS / f"{name}.npz").stat().st_size for name in NAMES}
    assert max(sizes.values()) < 2e6
    assert sum(sizes.values()) < 17e6


@pytest.mark.parametrize("name", NAMES)
def test_spreadsheets_follow_from_the_scores(name):
    table, about = make_tables.read(name)
    assert re.fullmatch(COMMIT, about["commit"])
    assert about["machines"].keys() >= table.groups.keys()
    assert set(table.groups) <= set(sheet(name))
    for learner in list(table.groups)[::4]:
        runs = [r for r in table.groups[learner] if finite(r)]
        found = means(runs, "accuracy", ("aaa", "fm"))
        assert float(sheet(name)[learner]["aaa"]) == pytest.approx(
            found["aaa"], abs=1e-6
        )
        assert float(sheet(name)[learner]["fm"]) == pytest.approx(found["fm"], abs=1e-6)


@pytest.mark.parametrize(("page", "name", "view", "text"), ASKED)
def test_pages_follow_from_the_spreadsheets(page, name, view, text):
    kind, _, rest = view.partition(" ")
    assert kind in VIEWS
    kept = name in NAMES or (RESULTS / f"{name}.json").is_file()
    assert kept, "asked for, but not in paper/results/"
    assert text.strip(), "run `make tables`"
    if kind == "studies":
        assert text.strip() == make_tables.view_of((name, view))
    if kind not in ("plain", "beside"):
        return
    places = BESIDE
    if kind == "plain":
        places = {head.strip(): k + 1 for k, head in enumerate(rest.split(","))}
    seen = 0
    for line in text.strip().splitlines()[2:]:
        cells = [c.strip() for c in line.strip("|").split("|")]
        row = sheet(name).get(cells[0])
        if row is None:  # run with leaks alone
            continue
        seen += 1
        for head, k in places.items():
            key = KEYS[head]
            value = float(row[key])
            expected = number(value)
            if key in WITH_INTERVAL:
                expected = with_interval(
                    value, *(float(row[f"{key}_{x}"]) for x in ("low", "high"))
                )
            # a spreadsheet's six digits may end in the 5 that decides the third
            near = pytest.approx(numbers_in(expected), abs=0.0011)
            assert numbers_in(cells[k]) == near, (cells[0], head)
    assert seen >= len(make_tables.read(name)[0].groups)


def test_a_marker_is_filled_and_only_that(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table NAME plain AAA -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setitem(
        make_tables.VIEWS, "plain", lambda name, rest: f"{name}: {rest}"
    )
    asked = "NAME", "plain AAA"
    made = {asked: make_tables.view_of(asked)}
    text = make_tables.filled(page, made)
    assert (
        text
        == "before\n<!-- table NAME plain AAA -->\nNAME: AAA\n<!-- end -->\nafter\n"
    )
    page.write_text(text)
    assert make_tables.filled(page, made) == text


QUOTED = re.compile(r"([-+]?\d*\.\d+) \[([-+]?\d*\.\d+), ([-+]?\d*\.\d+)\]")
# Some numbers of these are records of runs whose scores were not kept.
UNKEPT = {"history.md", "generators.md", "abide.md", "privacy.md"}


def intervals(text: str) -> set[tuple[str, ...]]:
    plain = text.replace("\N{MINUS SIGN}", "-")
    return {
        tuple(f"{float(x):.3f}" for x in m.groups()) for m in QUOTED.finditer(plain)
    }


KEPT = [page for page in make_tables.pages() if page.name not in UNKEPT]


@pytest.mark.parametrize("page", KEPT, ids=lambda page: page.name)
def test_an_interval_in_a_sentence_stands_in_a_table(page):
    texts = [other.read_text() for other in make_tables.pages()]
    made = "".join(match[4] for text in texts for match in MARKED.finditer(text))
    quoted = intervals(MARKED.sub("", page.read_text()))
    assert quoted <= intervals(made), "typed, and no table says so any more"
