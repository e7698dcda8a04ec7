"""Papers of a start: whatever is not exactly a fact about public people is refused."""

import copy
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_consortium import start

from fcforge.consortium.records import PAPERS as FIELDS
from fcforge.consortium.records import checked_papers
from fcforge.errors import CapsuleError

PAPERS = dict(start(("age", "sex")).papers)
NAMES = sorted(FIELDS)
ODD = (
    10**400,
    None,
    True,
    -1.5,
    1e308,
    "",
    "a\x1b[2J",
    "x" * 300,
    [],
    {},
    [[]],
    {"a": {}},
    [None],
)


def test_what_make_public_writes_is_accepted():
    assert checked_papers(copy.deepcopy(PAPERS)) == PAPERS


FINE = {
    "fcforge": ("",),
    "dataset": ("",),
    "people_sha256": ("",),
    "left_out": ([],),
    "roi_names": ([],),
    "patients": (10**400,),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_odd_values_are_refused(name, odd):
    papers = {**PAPERS, name: odd}
    if odd in FINE.get(name, ()):
        checked_papers(papers)
    else:
        with pytest.raises(CapsuleError, match="start's description"):
            checked_papers(papers)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ranges": {"age": [1.0, 2.0]}}, "do not fit what is removed"),
        (
            {"ranges": {"age": [3.0, 2.0], "sex": [1.0, 2.0]}},
            "do not fit what is removed",
        ),
        ({"people": 3}, "do not add up"),
        ({"n_rois": 9}, "'n_rois' and 'roi_names'"),
        (
            {"limits": {"size": 0.0, "likeness": 0.2, "site": 0.5}},
            "let every scan pass",
        ),
        (
            {"limits": {"size": 1.0, "likeness": 1.0, "site": 0.5}},
            "let every scan pass",
        ),
    ],
)
def test_facts_that_contradict_each_other(change, words):
    with pytest.raises(CapsuleError, match=words):
        checked_papers({**PAPERS, **change})


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inside: (
        st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside)
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(NAMES), value=JSON)
def test_no_value_crashes(name, value):
    papers = {**PAPERS, name: value}
    with suppress(CapsuleError):
        assert checked_papers(papers) is papers
