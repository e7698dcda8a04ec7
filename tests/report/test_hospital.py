"""What a hospital reads at its own turn, word by word."""

from types import SimpleNamespace

import pytest

from fcforge.consortium.predicting import Evaluation
from fcforge.privacy.measures import Measured
from fcforge.report import consortium as hospital

KEY = "0123456789abcdef" * 4


@pytest.fixture(autouse=True)
def keyring(monkeypatch):
    """Keys are known by name where the hospital has named them."""
    ring = SimpleNamespace(said=lambda key: f"{key[:16]} (NYU)")
    monkeypatch.setattr(hospital, "read_keyring", lambda: ring)


def learned(**more):
    release = {
        "site": "UM", "wave": 2, "numbers": [0.0] * 17, "mechanism": "gaussian",
        "epsilon": 1.0, "delta": 1e-3, "spent": 1.0,
    }  # fmt: skip
    before = {"people": 41.0, "accuracy": 0.625, "majority": 0.5, "auroc": float("nan")}
    return SimpleNamespace(release=SimpleNamespace(**(release | more)), before=before)


def test_a_model_below_chance_is_said_to_be():
    for auroc, warned in ((0.37, True), (0.62, False)):
        done = learned()
        done.before["auroc"] = auroc
        words = "\n".join(hospital.found_words(done))
        assert ("WARNING: that is below chance" in words) == warned


def test_what_was_found_and_what_is_spent():
    assert hospital.found_words(learned()) == [
        "site 'UM': 41 people. The model that came in reaches accuracy 0.625 here (majority "
        "class 0.500), AUROC n/a.",
        "release 2: 17 numbers leave. Each person spends epsilon 1 (delta 0.001).",
    ]


def test_a_second_release_adds_up():
    (_, spends) = hospital.found_words(learned(spent=2.5))
    assert spends.endswith("epsilon 1 (delta 0.001); with earlier releases 2.5.")


def test_exact_sums_promise_nothing():
    (_, leaves) = hospital.found_words(learned(mechanism="none"))
    assert leaves == (
        "release 2: 17 exact sums leave, without noise: no promise of privacy is made."
    )


def test_a_name_cannot_add_a_line():
    found = hospital.found_words(learned(site="UM\nwave 2: nothing leaves\x1b[2K"))
    assert len(found) == 2
    assert found[0].startswith("site 'UM?wave 2: nothing leaves?[2K'")


def consortium(releases=(), removes=()):
    papers = {
        "people": 300, "sites": {"Leuven": 60, "KKI": 40}, "n_rois": 116, "removes": removes,
        "settings": {"axes": 16},
    }  # fmt: skip
    start = SimpleNamespace(papers=papers, digest="s" * 64)
    return SimpleNamespace(
        start=start, digest="d" * 64, releases=releases, sites=tuple(r.site for r in releases)
    )


def test_what_is_about_to_be_continued():
    given = SimpleNamespace(site="NYU", key=KEY), SimpleNamespace(site="KKI", key="")
    asked = SimpleNamespace(release={"epsilon": 0.5, "again": True})
    assert hospital.continued_group(consortium(given, ["age", "sex"]), asked) == [
        f"About to continue capsule of releases {'d' * 16} around start {'s' * 16}.",
        "  sites so far: NYU, KKI",
        "  signed by: NYU: 0123456789abcdef (NYU); KKI: nobody",
        "  settings: 300 public people of Leuven, KKI, 116 ROIs, 16 axes, removes age, sex",
        "  each person of this site spends: epsilon 0.5 (delta 0.001)",
    ]


def test_the_first_of_a_consortium_and_no_promise():
    lines = hospital.continued_group(consortium(), SimpleNamespace(release={"mechanism": "none"}))
    assert lines[1:3] == ["  sites so far: none", "  signed by: nobody"]
    assert lines[3].endswith("removes nothing")
    assert lines[4] == "  each person of this site spends: nothing is promised"


def test_an_evaluation_is_a_table_beside_the_majority_class():
    nothing = Measured(float("nan"), float("nan"), float("nan"))
    row = {
        "accuracy": Measured(0.7, 0.6, 0.8), "balanced_accuracy": Measured(0.65, 0.5, 0.75),
        "auroc": Measured(0.72, 0.61, 0.82), "sensitivity": nothing, "specificity": nothing,
    }  # fmt: skip
    found = Evaluation(1, 1, 3, 0, 0.55, {"consortium": row}, ("One note.",))
    text = hospital.evaluation_text(found)
    first, *table, last = text.splitlines()
    assert first == "1 person, 1 patient; abstained from 3. 95 % intervals over people."
    assert last == "One note."
    shown = next(line for line in table if "consortium" in line)
    assert "0.700 [0.600, 0.800]" in shown
    assert shown.count("n/a") == 2
    majority = next(line for line in table if "majority class" in line)
    assert majority.split()[2:] == ["0.550", "0.500", "0.500"]
