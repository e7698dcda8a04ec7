"""An exchange file in words, as JSON and as a page: everything from its description."""

import json
import math
from dataclasses import replace

import pytest
from page_parser import EVIL, require_sound
from report_world import audited_chain, chain, releases

from fcforge.report.exchange_file import as_json, as_text, brief_text, page_of, pictures


@pytest.fixture(scope="module")
def described():
    return audited_chain().model.describe()


def test_words(described):
    lines = as_text(described).splitlines()
    assert lines[0] == f"Exchange {described.id[:16]}: chain of hospitals"
    assert lines[1] == f"  hospitals: {', '.join(described.sites)}"
    assert "  ROIs: 116" in lines
    answer = described.answers[2]
    asked = lines.index(answer.question)
    assert lines[asked + 1 : asked + 3] == [f"  {answer.say}", f"  {answer.more[0]}"]
    assert lines[asked + 3].startswith(f"    {answer.bars[0].name}: ")
    (audit,) = described.passages
    assert audit.title.startswith("Audit by")
    assert audit.title not in lines


def test_in_short(described):
    lines = brief_text(described).splitlines()
    assert len(lines) == 2 + len(described.answers)
    table = described.tables[0]
    more = brief_text(described, [table.title]).splitlines()
    assert more[: len(lines)] == lines
    assert more[len(lines) + 1] == f"{table.title}:"


def test_no_name_adds_a_line_or_an_escape(described):
    odd = replace(described, sites=("a\nb\x1b[2J",))
    assert "  hospitals: a?b?[2J" in as_text(odd).splitlines()


def test_programs_read_the_same(described):
    bar = described.answers[2].bars[0]
    unknown = replace(bar, low=math.nan)
    odd = replace(described, answers=(replace(described.answers[2], bars=(unknown,)),))
    found = json.loads(as_json(odd))
    assert found["sites"] == list(described.sites)
    assert found["answers"][0]["bars"][0]["value"] == bar.value
    assert found["answers"][0]["bars"][0]["low"] is None


def test_the_page_holds_all_that_a_board_reads(described):
    evil = replace(described.tables[0], note=EVIL)
    shown = replace(described, tables=(evil, *described.tables[1:]))
    found = require_sound(page_of(shown, EVIL, "index.html"), ("index.html",))
    for words in (
        "Intended use",
        "not a medical device",
        "Does it work on real people?",
        "Audit by",
        EVIL,
        "What a hospital states of itself",
        "seed",
    ):
        assert words in found.text, words


def test_what_an_epsilon_would_buy_is_drawn_where_it_is_known():
    told = releases().root.worth
    assert told is not None
    first = pictures(releases().model)[0]
    assert first.title == "What each epsilon would add to the public head"
    drawn = str(first.html)
    for words in ("keepers", "local", "pooled", ">exact<", ">8<"):
        assert words in drawn, words
    (only,) = pictures(chain().model)  # a chain plans no sums
    assert only.title == "What the model uses"


def test_releases_show_their_numbers_and_budgets():
    found = releases().model.describe()
    assert found.passages[0].title.startswith("Numbers of")
    assert "epsilon 1, delta 1e-06" in as_text(found)
