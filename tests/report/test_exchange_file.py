"""An exchange file in words, as JSON and as a page: everything from its description."""

import json
import math

import pytest
from page_parser import EVIL, require_sound

from fcforge.exchange.description import Answer, Bar, Description, Passage, PlainTable
from fcforge.report.exchange_file import (
    as_json,
    as_text,
    brief_text,
    page_of,
    passages_text,
)


@pytest.fixture
def described() -> Description:
    bar = Bar("NYU", 0.627, 0.5, 0.74, 0.559, "guessing", "59 test subjects")
    return Description(
        kind="chain of hospitals",
        id="ab" * 32,
        model="EWC on gcn",
        sites=("UM", "NYU"),
        answers=(Answer("Does it work?", "warn", "Hardly.", ("More.",), (bar,)),),
        facts={"ROIs": "116"},
        tables=(PlainTable("Sites", ("site", "people"), ((EVIL, "41"),), "A note."),),
        passages=(Passage("All numbers", ("1 2 3",)),),
        settings={"seed": 0},
        curves={"UM": (0.9, 0.8), "NYU": (math.nan, 0.7)},
    )


def test_words(described):
    lines = as_text(described).splitlines()
    assert lines[0] == f"Exchange {'ab' * 8}: chain of hospitals"
    assert lines[1:4] == ["  hospitals: UM, NYU", "  model: EWC on gcn", "  ROIs: 116"]
    asked = lines.index("Does it work?")
    assert lines[asked + 1 : asked + 3] == ["  Hardly.", "  More."]
    assert lines[asked + 3].strip() == "NYU: 0.627 [0.500, 0.740], 59 test subjects"
    assert any(EVIL in line and "41" in line for line in lines)
    assert "All numbers" not in lines
    assert passages_text(described).splitlines() == ["All numbers", "  1 2 3"]


def test_in_short(described):
    lines = brief_text(described).splitlines()
    assert lines[1:] == ["  hospitals: UM, NYU", "  Does it work? Hardly."]
    more = brief_text(described, ["Sites"]).splitlines()
    assert more[:3] == lines
    assert (more[4], more[-1]) == ("Sites:", "A note.")


def test_no_name_adds_a_line_or_an_escape(described):
    odd = Description("k", "0" * 64, "m", ("a\nb\x1b[2J",), ())
    assert "  hospitals: a?b?[2J" in as_text(odd).splitlines()


def test_programs_read_the_same(described):
    found = json.loads(as_json(described))
    assert found["sites"] == ["UM", "NYU"]
    assert found["curves"]["NYU"] == [None, 0.7]
    assert found["answers"][0]["bars"][0]["value"] == 0.627


def test_the_page_holds_all_that_a_board_reads(described):
    found = require_sound(page_of(described, EVIL, "index.html"), ("index.html",))
    for words in (
        "Intended use",
        "not a medical device",
        "Does it work?",
        "All numbers",
        "A note.",
        "What a hospital states of itself",
        "seed",
    ):
        assert words in found.text, words
