"""Tables of learners say what the stored runs say."""

import json

import paper_tables
from paper_tables import Finished

import fake_runs
from fcforge.core.estimate import Estimate
from fcforge.evaluation.comparison import Comparison


def finished(**groups: tuple[float, str]) -> Finished:
    runs = {
        title: fake_runs.fake_learner(title, seeds=(0,), skill=skill, method=method)
        for title, (skill, method) in groups.items()
    }
    return Finished(runs, dict.fromkeys(runs, "nothing"), n_draws=30)


def cells(text: str, first: str) -> list[str]:
    line = next(x for x in text.splitlines() if x.startswith(f"| {first} |"))
    return [c.strip() for c in line.strip("|").split("|")]


def test_p_values_are_corrected_for_all_learners_of_a_table():
    groups = finished(a=(0.4, "finetune"), b=(0.5, "er"), c=(0.9, "er")).groups
    pairs = {k: (groups[k], groups["a"]) for k in ("b", "c")}
    expected = {k: d.p_holm for k, d in paper_tables.differences(pairs).items()}
    family = paper_tables.corrected(groups, "a")
    assert {k: c.p_holm for k, c in family.items()} == expected


def test_the_sign_of_a_bound_near_zero_can_be_read():
    def text(*gap):
        return paper_tables.difference_text(Estimate(*gap))

    assert text(0.01, -0.00032, 0.0194) == "+0.010 [\N{MINUS SIGN}0.0003, +0.019]"
    assert text(0.01, 0.00001, 0.0194) == "+0.010 [+0.00001, +0.019]"
    assert text(0.0, 0.0, 0.0) == "0.000 [0.000, 0.000]"
    compared = Comparison(0.01, -0.00032, 0.0194, p_value=0.5)
    assert paper_tables.difference_text(compared) == text(0.01, -0.00032, 0.0194)


def test_a_missing_learner_is_named():
    groups = finished(Base=(1.0, "finetune")).groups
    text = Finished(groups, {}, missing=("ER",)).about()
    assert text.startswith("24 orders, seeds 0, 60 epochs, float32")
    assert text.endswith("not finished: ER")


def test_the_grid_names_the_place_of_the_papers_choice():
    runs = {
        f"l1 {a} l2 0.35 l3 {c}": fake_runs.fake_learner(
            f"l1 {a} l2 0.35 l3 {c}", seeds=(0,), skill=a + c
        )
        for a in (0.2, 0.9)
        for c in (0.1, 0.7)
    }
    known = {"grid": Finished(runs, dict.fromkeys(runs, "nothing"), n_draws=20)}
    text = paper_tables.grid("grid", "0.2 0.35 0.1", known)
    assert "4 points" in text
    assert text.endswith("place 4.")
    assert len(cells(text, "0.2")) == 4


def test_studies_are_shown_as_they_are_stored(tmp_path):
    sites = {"mean": 4.0, "low": None, "high": None}
    share = {"mean": 0.61, "low": 0.5, "high": 0.7}
    nobody = {"mean": None, "low": None, "high": None}
    rows = {"ridge": {"sites": sites, "share": share, "nobody": nobody}}
    (tmp_path / "p.json").write_text(json.dumps({"found": {"a / b": rows}}))
    text = paper_tables.studies(tmp_path / "p.json", "a / b")
    assert cells(text, "ridge")[1:] == ["4", "0.610 [0.500, 0.700]", "–"]
