"""Sets of releases: any tree of merges, withdrawals, and what does not fit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_consortium import empty, people, release_of, sites, start

from fcforge.consortium import Consortium, Home
from fcforge.consortium import few_vector as vector
from fcforge.consortium.learning import Budget, learn
from fcforge.errors import CapsuleError

HOSPITALS = sites()[2:]


def same(a: Consortium, b: Consortium) -> bool:
    return a.digest == b.digest and np.array_equal(a.beta, b.beta)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_tree_of_merges_is_one_chain(data):
    """Leaves are single releases; they are merged in pairs drawn at random, some twice."""
    chain = empty()
    for site in HOSPITALS:
        chain = chain.joined([release_of(site)])
    branches = [
        empty().joined([release_of(s)]) for s in data.draw(st.permutations(HOSPITALS))
    ]
    while len(branches) > 1:
        i = data.draw(st.integers(0, len(branches) - 1))
        one = branches.pop(i)
        j = data.draw(st.integers(0, len(branches) - 1))
        branches[j] = (
            branches[j].merged(one)
            if data.draw(st.booleans())
            else one.merged(branches[j])
        )
        if data.draw(st.booleans()):
            branches[j] = branches[j].merged(
                one, branches[j]
            )  # the same release twice is one
    assert same(branches[0], chain)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_withdrawing_is_never_having_learned(data):
    order = data.draw(st.permutations(HOSPITALS))
    gone = data.draw(st.sampled_from(HOSPITALS))
    group = empty()
    for site in order:
        group = group.joined([release_of(site)])
    without = empty().joined([release_of(s) for s in HOSPITALS if s != gone])
    withdrawn = group.withdrawn(gone)
    assert np.array_equal(withdrawn.beta, without.beta)
    assert withdrawn.releases == without.releases
    # an old branch that still has the release does not bring it back
    assert np.array_equal(withdrawn.merged(group).beta, without.beta)
    assert np.array_equal(group.merged(withdrawn).beta, without.beta)
    assert [w.site for w in withdrawn.withdrawals] == [gone]


def test_the_head_is_the_solve_of_the_sum():
    group = empty().joined([release_of(s) for s in HOSPITALS])
    total = np.sum([r.numbers for r in group.releases], axis=0)
    variance = len(HOSPITALS) * vector.noise_sd(start().arrays, 1.0, 1e-6) ** 2
    beta = vector.solve(start().arrays, total, variance, len(HOSPITALS))
    np.testing.assert_allclose(group.beta, beta)


def test_no_hospital_is_the_public_head():
    assert np.array_equal(empty().head.weight, start().arrays.weight)


def test_another_start_is_refused():
    other = Consortium(start(("age",)))
    with pytest.raises(CapsuleError, match=r"different starts .* release again"):
        empty().merged(other)
    with pytest.raises(CapsuleError, match=r"was made for start .* release again"):
        other.joined([release_of(HOSPITALS[0])])


def test_the_same_site_with_other_numbers_is_refused():
    group = empty().joined([release_of(HOSPITALS[0])])
    again = learn(empty(), people(), HOSPITALS[0], Home(), Budget()).release
    with pytest.raises(CapsuleError, match=r"two different releases with number 1"):
        group.joined([again])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 30.0, "spent": 30.0}, "states noise"),
        ({"noise_sd": 1e-3}, "states noise"),
        ({"numbers": (1.0, 2.0)}, "has 2 numbers, the start asks for 6"),
        ({"numbers": (float("nan"),) * 6}, "an entry that is not a number"),
        ({"mechanism": "none"}, "is not a budget"),
        ({"mechanism": "laplace"}, "is unknown"),
        ({"delta": 0.0}, "is not a budget"),
        ({"spent": 0.5}, "is not a budget"),
        ({"wave": 0}, "is not the number of a release"),
        ({"commitment": "abc"}, "commitment = 'abc' is not a SHA-256"),
        ({"site": ""}, "is not a printable name"),
        ({"site": "A\x1b[31m"}, "is not a printable name"),
        ({"start": "x"}, "is not a SHA-256"),
        ({"time": "now"}, "is not a time"),
        ({"fcforge": "\x1b[2J"}, "is not a version"),
        ({"numbers": (0.0,) * 4 + (1e6, 1.0)}, "larger than .* people can give"),
        ({"numbers": (0.0,) * 5 + (1e12,)}, "larger than .* people can give"),
        ({"signature": "00"}, "stripped"),
    ],
)
def test_a_release_that_cannot_be_meant_is_refused(change, words):
    with pytest.raises(CapsuleError, match=words):
        empty().joined([replace(release_of(HOSPITALS[0]), **change)])


def test_a_site_without_release_is_named():
    with pytest.raises(CapsuleError, match=r"no release of site 'X'. Sites here: none"):
        empty().withdrawn("X")
