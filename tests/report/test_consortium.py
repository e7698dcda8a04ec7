"""A capsule of releases in words and as a page; what a hospital reads at its own turn."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from page_parser import Page, require_sound
from small_consortium import empty, release_of, sites, start

from fcforge.capsule.keys import read_private, write_keys
from fcforge.consortium import Consortium, write_consortium
from fcforge.consortium.predicting import Evaluation
from fcforge.privacy.accounting import ceiling_of
from fcforge.report import consortium as hospital
from fcforge.report.consortium import (
    consortium_answers,
    consortium_json,
    consortium_page,
    consortium_words,
    release_words,
    start_words,
)
from fcforge.report.pages import write_pages
from fcforge.types import Estimate

A, B = sites()[2:4]


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "hospital"
    write_keys(path)
    return read_private(path)


@pytest.fixture(scope="module")
def group(key) -> Consortium:
    signed = release_of(A, 1.0).signed(key)
    return empty().joined([signed, release_of(B, 0.5)])


def test_a_release_fits_on_half_a_page_and_shows_every_number():
    release = release_of(A)
    lines = release_words(release)
    assert len(lines) <= 28
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    for value in release.numbers:
        assert f"{value:.9g}" in text
    assert (
        f"All {len(release.numbers)} numbers that left the hospital, noise included:"
        in text
    )
    assert "epsilon 1, delta 1e-06 for each person in this release" in text
    assert release.commitment in text
    assert "nobody: whoever had the file could have made it" in text


def test_sixteen_axes_fit_on_half_a_page_too():
    long = replace(release_of(A), numbers=tuple(-1234.56789012 for _ in range(18)))
    lines = release_words(long)
    assert len(lines) <= 28
    assert max(map(len, lines)) <= 100


def test_exact_numbers_are_a_warning():
    exact = replace(
        release_of(A), mechanism="none", epsilon=0.0, delta=0.0, noise_sd=0.0
    )
    text = "\n".join(release_words(exact))
    assert "WARNING: none. The numbers are exact" in text
    assert "noise included" not in text
    made = Consortium(start(), (exact,))
    travels, attack = consortium_answers(made)[1], consortium_answers(made)[3]
    assert (travels.kind, attack.kind) == ("alarm", "alarm")
    assert attack.say == f"Nothing is promised at {A}: the numbers are exact."


def test_the_start_in_words():
    made = start(("mean_fd", "age"))
    text = "\n".join(start_words(made))
    papers = made.papers
    assert (
        f"Made from {papers['people']} public people ({papers['patients']} patients)"
        in text
    )
    assert "removed     mean_fd (" in text
    assert "axes        4 (principal axes)" in text
    for name in made.tensors():
        assert name in text
    for site, n in papers["sites"].items():
        assert f"{site} {n}" in text
    assert f"accuracy {papers['unseen_site']['accuracy']:.3f}" in text


def test_four_answers(group):
    signed, travels, works, attack = consortium_answers(group)
    assert (signed.kind, signed.say) == ("warn", f"Not everybody: {B} did not sign.")
    assert travels.say == "A public start and 6 numbers for each of 2 releases."
    assert travels.kind == "good"
    assert works.bars[0].line == start().papers["unseen_site"]["majority"]
    bound = ceiling_of(1.0)  # of the largest budget
    assert 0.5 < ceiling_of(0.5) < bound < 1
    assert (
        f"No attack can be right more than {100 * bound:.0f} times in 100" in attack.say
    )
    assert attack.bars[0].value == pytest.approx(bound)
    assert f"largest at {A}" in attack.more[0]


def test_a_start_alone():
    signed, travels, _, attack = consortium_answers(empty())
    assert signed.say == "No hospital has given anything yet."
    assert travels.say == "A public start and 6 numbers for each of 0 releases."
    assert attack.say == "Nobody took part yet."
    assert "hospitals: none yet" in consortium_words(empty())[1]


def test_what_was_withdrawn_is_said(group):
    less = group.withdrawn(B)
    text = "\n".join(consortium_words(less))
    assert f"Withdrawn by {B} on" in text
    assert f"Withdrawn, and no longer in the model: {B}." in text
    assert less.sites == (A,)


def test_everybody_signed(key):
    assert (
        consortium_answers(empty().joined([release_of(A).signed(key)]))[0].kind
        == "good"
    )


def test_page_is_sound_and_shows_every_number(group):
    page = require_sound(
        consortium_page(group, "sites/<b>all.capsule", "index.html"), ("index.html",)
    )
    assert page.row(A)[:2] == [A, "1"]
    assert page.row(B)[4] == "0.5"
    for release in group.releases:
        for value in release.numbers:
            assert f"{value:.9g}" in page.text
    assert start().digest in page.text


def test_programs_get_all_of_it(group):
    found = consortium_json(group)
    assert [r["site"] for r in found["releases"]] == [A, B]
    assert found["releases"][0]["numbers"] == group.releases[0].numbers
    assert found["start"]["digest"] == start().digest


def test_it_is_on_the_overview(group, tmp_path):
    write_consortium(group, tmp_path / "all.capsule")
    index = write_pages(tmp_path)
    page = Page(index.read_text())
    assert "Capsules of releases" in page.text
    assert f"{A}, {B}" in page.text
    (own,) = index.parent.glob("consortium-*.html")
    require_sound(own.read_text(), ("index.html",))


KEY = "0123456789abcdef" * 4


@pytest.fixture
def keyring(monkeypatch):
    """Keys are known by name where the hospital has named them."""
    ring = SimpleNamespace(said=lambda key: f"{key[:16]} (NYU)")
    monkeypatch.setattr(hospital, "read_keyring", lambda: ring)


def learned(**more):
    release = {
        "site": "UM",
        "wave": 2,
        "numbers": [0.0] * 17,
        "mechanism": "gaussian",
        "epsilon": 1.0,
        "delta": 1e-6,
        "spent": 1.0,
    }
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
        "release 2: 17 numbers leave. Each person spends epsilon 1 (delta 1e-06).",
    ]


def test_a_second_release_adds_up():
    (_, spends) = hospital.found_words(learned(spent=2.5))
    assert spends.endswith("epsilon 1 (delta 1e-06); with earlier releases 2.5.")


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
        "people": 300,
        "sites": {"Leuven": 60, "KKI": 40},
        "n_rois": 116,
        "removes": removes,
        "settings": {"axes": 16},
    }
    start = SimpleNamespace(papers=papers, digest="s" * 64)
    return SimpleNamespace(
        start=start,
        digest="d" * 64,
        releases=releases,
        sites=tuple(r.site for r in releases),
    )


def test_what_is_about_to_be_continued(keyring):
    given = SimpleNamespace(site="NYU", key=KEY), SimpleNamespace(site="KKI", key="")
    asked = SimpleNamespace(release={"epsilon": 0.5, "again": True})
    assert hospital.continued_group(consortium(given, ["age", "sex"]), asked) == [
        f"About to continue capsule of releases {'d' * 16} around start {'s' * 16}.",
        "  sites so far: NYU, KKI",
        "  signed by: NYU: 0123456789abcdef (NYU); KKI: nobody",
        "  settings: 300 public people of Leuven, KKI, 116 ROIs, 16 axes, removes age, sex",
        "  each person of this site spends: epsilon 0.5 (delta 1e-06)",
    ]


def test_the_first_of_a_consortium_and_no_promise(keyring):
    lines = hospital.continued_group(
        consortium(), SimpleNamespace(release={"mechanism": "none"})
    )
    assert lines[1:3] == ["  sites so far: none", "  signed by: nobody"]
    assert lines[3].endswith("removes nothing")
    assert lines[4] == "  each person of this site spends: nothing is promised"


def test_an_evaluation_is_a_table_beside_the_majority_class():
    nothing = Estimate(float("nan"), float("nan"), float("nan"))
    row = {
        "accuracy": Estimate(0.7, 0.6, 0.8),
        "balanced_accuracy": Estimate(0.65, 0.5, 0.75),
        "auroc": Estimate(0.72, 0.61, 0.82),
        "sensitivity": nothing,
        "specificity": nothing,
    }
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
