"""What a chain says of itself: own tests by hand, what travels counted from the arrays."""

import math

import pytest
import torch
from small_chains import SITES, chained, cohort, first_state

from fcforge.exchange.chains.chain_description import (
    mean_patterns,
    own_tests,
    people,
    rows_like,
    wilson,
)
from fcforge.exchange.records import Accuracy, SplitCounts, StepCounts, StepMetrics
from fcforge.graphs import edges


def with_test(step, accuracy, patients, controls):
    """The step with another result on its own test subjects."""
    own = None
    if accuracy is not None:
        own = Accuracy(accuracy=accuracy, balanced_accuracy=None)
    test = SplitCounts(controls=controls, patients=patients)
    counts = StepCounts(learning=step.counts.learning, test=test)
    metrics = StepMetrics(held_out={}, own_test=own)
    return step.changed(counts=counts, metrics=metrics)


@pytest.fixture(scope="module")
def chain():
    return chained("majority", SITES[:2])[-1].model


def test_own_tests_by_hand(chain):
    """37 of 59 right where 33 are patients: 62.7 % against 55.9 %."""
    step = chain.steps[0]
    found = own_tests([with_test(step, 0.6271, 33, 26), with_test(step, None, 10, 10)])
    assert len(found) == 1
    bar = found[0]
    assert bar.name == SITES[0]
    assert bar.line == pytest.approx(33 / 59)
    assert bar.low == pytest.approx(0.4998, abs=1e-3)
    assert bar.high == pytest.approx(0.739, abs=1e-3)
    assert not bar.beyond
    assert own_tests([with_test(step, 0.95, 50, 50)])[0].beyond


def test_small_counts_have_no_interval(chain):
    (bar,) = own_tests([with_test(chain.steps[0], 0.5, None, 30)])
    assert math.isnan(bar.low)
    assert not bar.beyond
    assert people(SplitCounts(controls=30, patients=None)) == (
        "fewer than 10 patients, 30 controls"
    )


def test_wilson_is_scipys():
    from scipy.stats import binomtest

    for k, n in ((0, 12), (5, 12), (12, 12), (370, 590)):
        exact = binomtest(k, n).proportion_ci(method="wilson")
        assert wilson(k / n, n) == pytest.approx((exact.low, exact.high), abs=1e-6)


def test_scans_among_the_arrays_are_counted():
    state = first_state("ewc")
    patterns = mean_patterns(state.held_out)
    scans = edges(torch.from_numpy(cohort().fc[:5]))
    assert rows_like(scans, patterns) == 5
    assert rows_like(state.held_out.upper, patterns) == len(state.held_out)
    assert rows_like(state.lane.params["head.0.weight"], patterns) == 0


def test_what_is_said(chain):
    found = chain.describe()
    assert found.sites == SITES[:2]
    assert not found.real_subjects
    assert len(found.answers) == 4
    assert math.isnan(found.curves[SITES[1]][0])
    assert 0 <= found.curves[SITES[0]][1] <= 1
    hospitals, held_out, parts, records = found.tables
    assert [row[0] for row in hospitals.rows] == [*SITES[:2]]
    assert held_out.rows[1][1] == "-"
    assert len(records.rows) == 3
    # counted from the file: only the last step's arrays travel
    numbers = {row[0]: int(row[3]) for row in parts.rows}
    assert numbers[SITES[0]] == 0
    held = sum(value.numel() for value in chain.state.named().values())
    assert numbers[SITES[1]] == held


@pytest.mark.parametrize(
    ("method", "kind"), [("analytic", "alarm"), ("majority", "warn")]
)
def test_exact_statistics_alarm(method, kind):
    assert chained(method)[0].model.describe().answers[1].kind == kind


def test_real_subjects_alarm():
    found = chained("cumulative")[0].model.describe()
    assert found.real_subjects
    assert found.answers[1].kind == "alarm"
    assert any("patient data" in line for line in found.answers[1].more)
