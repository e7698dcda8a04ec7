"""A hospital's step: bitwise that of a run, no suppressed count can be worked out, nothing hides.

What a method does not declare is refused.
"""

from dataclasses import replace
from itertools import product

import pytest
import torch
from small_chains import N_ROIS, SITES, cohort, first_state, settings

from fcforge.core.component import Component
from fcforge.core.errors import ExchangeError
from fcforge.core.spec import LearnerSpec
from fcforge.core.subjects import FCBatch
from fcforge.core.target import TWO_CLASSES
from fcforge.data.splits import split_site
from fcforge.graphs import edges
from fcforge.replay.state import named
from fcforge_consortium.chains.counts import counts_of, published_share, suppressed
from fcforge_consortium.chains.state import State, Subjects, read_state
from fcforge_consortium.chains.step import SiteStep


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
    lane = second.training.train(with_val=True, tick=lambda: None)
    after = second.finished(lane)
    found = second.measured(lane, after.held_out)
    assert set(found["held_out"]) == set(SITES[:2])
    assert 0.2 <= found["temperature"] <= 20
    assert found["reference"].inside > 0
    assert after.held_out.site.tolist() == [0] * 16 + [1] * 16
    # the first site's held-out set is bitwise what it was
    assert torch.equal(after.held_out.upper[:16], state.held_out.upper)


# -- what a step hands on
def read(method: str, state: State, n_sites: int = 1) -> State:
    return read_state(state.to_bytes(), settings(method), n_sites, "step")


def with_state(method: str, **changes: object) -> State:
    """What a hospital hands on, with other arrays in its state (None takes one out)."""
    state = first_state(method)
    changed = {**named(state.lane.state), **changes}
    kept = {key: value for key, value in changed.items() if value is not None}
    return state._replace(lane=state.lane._replace(state=kept))


def refusal(method: str, state: State) -> str:
    with pytest.raises(ExchangeError) as refused:
        read(method, state)
    return refused.value.what


def scans(n: int = 12) -> torch.Tensor:
    return edges(torch.from_numpy(cohort().fc[:n]))


def test_a_state_is_read_as_it_was():
    state = first_state("forge")
    again = read("forge", state)
    assert again.to_bytes() == state.to_bytes()
    assert len(again.remembered)
    assert set(again.held_out.site.tolist()) == {0}


@pytest.mark.parametrize("method", ["finetune", "ewc", "analytic", "forge"])
def test_scans_under_a_name_of_their_own_are_refused(method):
    assert "state/extra" in refusal(method, with_state(method, extra=scans()))
    state = first_state(method)
    planted = state.lane._replace(params={**state.lane.params, "extra": scans()})
    assert "params/extra" in refusal(method, state._replace(lane=planted))


def test_scans_instead_of_statistics_are_refused():
    """Rows [1, scan, label] are no root of a matrix of moments."""
    rows = scans().double()
    one = torch.ones(len(rows), 1).double()
    raw = torch.cat([one, rows, one], 1)
    assert "'state/root'" in refusal("analytic", with_state("analytic", root=raw))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda good: torch.cat([good, good]), "has shape"),
        (lambda good: good.double(), "torch.float64"),
        (lambda good: torch.full_like(good, torch.nan), "not finite numbers"),
        (lambda good: None, "is missing"),
    ],
)
def test_an_array_of_another_shape_or_type_is_refused(change, says):
    key = "importance/head.0.weight"
    good = first_state("ewc").lane.state.importance["head.0.weight"]
    assert says in refusal("ewc", with_state("ewc", **{key: change(good)}))


def test_labels_and_sites_of_a_memory_stay_in_their_bounds():
    site = torch.full_like(first_state("forge").lane.state.memory.site, 7)
    forged = with_state("forge", **{"memory.site": site})
    assert "'state/memory.site'" in refusal("forge", forged)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("upper", torch.full((16, 45), 1.5)),
        ("y", torch.full((16,), 2)),
        ("site", torch.full((16,), 1)),
        ("upper", torch.zeros(16, 44)),
        ("y", torch.zeros(16)),
    ],
)
def test_subjects_that_cannot_be_are_refused(key, value):
    state = first_state("analytic")
    assert len(state.held_out) == 16
    odd = Subjects(**{**vars(state.held_out), key: value})
    assert f"held_out/{key}" in refusal("analytic", state._replace(held_out=odd))


def test_rows_of_nobody_are_refused():
    state = first_state("forge")
    nobody = state._replace(remembered=Subjects.none(N_ROIS))
    assert ".rows' has numbers outside" in refusal("forge", nobody)


def test_a_matrix_that_would_change_on_its_way_is_refused():
    fc = torch.eye(3)[None].clone()
    fc[0, 0, 1] = 0.5  # and not fc[0, 1, 0]
    zero = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ExchangeError, match="symmetric"):
        Subjects.of(FCBatch(fc, zero), zero)


def test_a_forged_size_costs_no_memory():
    """The described network would have 10^14 numbers."""
    learner = LearnerSpec(Component("finetune"), Component("mlp", {"hidden": 10**7}))
    huge = replace(settings("finetune"), learner=learner)
    with pytest.raises(ExchangeError, match="array 'params/"):
        read_state(first_state("finetune").to_bytes(), huge, 1, "step")
