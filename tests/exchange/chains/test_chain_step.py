"""A hospital's step: bitwise that of a run, and no suppressed count can be worked out."""

from itertools import product

import pytest
import torch
from small_chains import SITES, cohort, first_state, settings

from fcforge.exchange.chains.chain_step import (
    SiteStep,
    counts_of,
    published_share,
    suppressed,
)
from fcforge.sites import split_site
from fcforge.types import TWO_CLASSES


def possible(said: float, step: float, known: int) -> set[int]:
    """Totals of which some share is rounded to what was said."""
    totals = range(known + 1, known + 10)
    return {
        n
        for n in totals
        if any(round(k / n / step) == round(said / step) for k in range(n + 1))
    }


def test_the_share_does_not_tell_a_count():
    """13 controls, fewer than 10 patients, 13 of 20 right: 7 follows from 0.6500."""
    assert possible(0.65, 0.0001, 13) == {20}
    said = published_share(13 / 20, (13, None))
    assert said == 0.6
    assert possible(said, 0.1, 13) == set(range(14, 23))


@pytest.mark.parametrize("known", [0, 10, 13, 40])
def test_every_suppressed_count_stays_possible(known):
    for hidden, right in product(range(1, 10), range(known + 1)):
        said = published_share(right / (known + hidden), (known, None))
        if said is not None:
            steps = (0.01, 0.02, 0.05, 0.1, 0.2)
            fits = [possible(said, step, known) for step in steps]
            assert set(range(known + 1, known + 10)) in fits


def test_small_counts_are_never_written():
    assert [suppressed(n) for n in (0, 1, 9, 10)] == [0, None, None, 10]
    site = split_site(cohort(), SITES[0], 0)
    counts = counts_of(site, TWO_CLASSES)
    for part, batch in (
        (counts.learning, site.learning(with_val=True)),
        (counts.test, site.test),
    ):
        patients = int(batch.y.sum())
        assert part.patients == suppressed(patients)
        assert part.controls == suppressed(len(batch) - patients)


def test_what_is_measured_is_of_every_site():
    state = first_state("analytic")
    site = split_site(cohort(), SITES[1], 0)
    second = SiteStep(settings("analytic"), (SITES[0],), state, site)
    lane = second.train(with_val=True, tick=lambda: None)
    after = second.finished(lane)
    found = second.measured(lane, after.held_out)
    assert set(found["held_out"]) == set(SITES[:2])
    assert 0.2 <= found["temperature"] <= 20
    assert found["reference"].inside > 0
    assert after.held_out.site.tolist() == [0] * 16 + [1] * 16
    # the first site's held-out set is bitwise what it was
    assert torch.equal(after.held_out.upper[:16], state.held_out.upper)
