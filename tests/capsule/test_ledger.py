"""What is published about people: no count that was suppressed can be worked out."""

from itertools import product

import pytest

from fcforge.capsule.ledger import SMALL_CELL, STEPS_OF_SHARES, published_share, suppressed


def test_the_share_of_the_issue_does_not_tell_the_count():
    """13 controls, fewer than 10 patients, 13 of 20 right: 7 follows from 0.6500."""
    exact = {n for n in range(14, 23) if any(round(k / n, 4) == 0.65 for k in range(n + 1))}
    assert exact == {20}
    said = published_share(13 / 20, (13, None))
    assert said == 0.6
    possible = {n for n in range(14, 23) if any(round(k / n / 0.1) == 6 for k in range(n + 1))}
    assert possible == set(range(14, 23))


@pytest.mark.parametrize("known", [0, 10, 13, 40])
def test_every_suppressed_count_stays_possible(known):
    """For every number of patients below ten and every accuracy: all nine counts still fit."""
    for few in range(1, SMALL_CELL):
        n = known + few
        counts = (known, suppressed(few))
        for right in range(n + 1):
            said = published_share(right / n, counts)
            if said is None:
                continue
            fits = [
                m
                for m in range(known + 1, known + SMALL_CELL)
                for step in STEPS_OF_SHARES
                if any(round(round(k / m / step) * step, 2) == said for k in range(m + 1))
            ]
            assert set(fits) == set(range(known + 1, known + SMALL_CELL))


def test_without_a_suppressed_count_a_percent_is_published():
    for right, n in product((0, 7, 50, 101), (101, 200)):
        assert published_share(right / n, (n - 60, 60)) == pytest.approx(right / n, abs=0.00501)
