"""A capsule of releases in words and as a page: every number, half a page, honest answers."""

from dataclasses import replace

import pytest
from page_parser import Page, require_sound
from small_consortium import empty, release_of, sites, start

from fcforge.capsule.keys import read_private, write_keys
from fcforge.consortium import Consortium, write_consortium
from fcforge.privacy.mechanisms import ceiling_of
from fcforge.report.consortium import (
    consortium_answers,
    consortium_json,
    consortium_page,
    consortium_words,
    release_words,
    start_words,
)
from fcforge.report.pages import write_pages

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
    assert f"All {len(release.numbers)} numbers that left the hospital, noise included:" in text
    assert "epsilon 1, delta 0.001 for each person in this release" in text
    assert release.commitment in text
    assert "nobody: whoever had the file could have made it" in text


def test_sixteen_axes_fit_on_half_a_page_too():
    long = replace(release_of(A), numbers=tuple(-1234.56789012 for _ in range(18)))
    lines = release_words(long)
    assert len(lines) <= 28
    assert max(map(len, lines)) <= 100


def test_exact_numbers_are_a_warning():
    exact = replace(release_of(A), mechanism="none", epsilon=0.0, delta=0.0, noise_sd=0.0)
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
    assert f"Made from {papers['people']} public people ({papers['patients']} patients)" in text
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
    bound = ceiling_of(1.0, 1e-3)  # of the largest budget
    assert 0.5 < ceiling_of(0.5, 1e-3) < bound < 1
    assert f"No attack can be right more than {100 * bound:.0f} times in 100" in attack.say
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
    assert consortium_answers(empty().joined([release_of(A).signed(key)]))[0].kind == "good"


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
