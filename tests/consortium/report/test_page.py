"""The page of a consortium file: everything from its description."""

from dataclasses import replace

import pytest
from page_parser import EVIL, require_sound
from report_world import chain, releases

from fcforge_consortium.report.describe import describe
from fcforge_consortium.report.page import page_of, pictures
from fcforge_consortium.report.terminal import described_text


@pytest.fixture(scope="module")
def described():
    return describe(chain())


def test_the_page_holds_all_that_a_board_reads(described):
    evil = replace(described.tables[0], note=EVIL)
    shown = replace(described, tables=(evil, *described.tables[1:]))
    found = require_sound(page_of(shown, EVIL, "index.html"), ("index.html",))
    for words in (
        "Intended use",
        "not a medical device",
        "Does it work on real people?",
        EVIL,
        "What a hospital states of itself",
        "seed",
    ):
        assert words in found.text, words


def test_what_an_epsilon_would_buy_is_drawn_where_it_is_known():
    told = releases().root.expected_gain
    assert told is not None
    first = pictures(releases())[0]
    assert first.title == "Expected gain over the base model, by epsilon"
    drawn = str(first.html)
    for words in ("round", "local", "pooled", ">exact<", ">8<"):
        assert words in drawn, words
    (only,) = pictures(chain())  # a chain plans no sums
    assert only.title == "What the model uses"


def test_releases_show_their_budgets():
    found = describe(releases())
    assert "epsilon 1, delta 1e-06" in described_text(found)
