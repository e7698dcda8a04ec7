"""What a chain says of itself: own tests by hand, what travels counted from the arrays."""

import pytest
from small_chains import SITES, chained

from fcforge_consortium.records.kinds import SplitCounts, StepCounts
from fcforge_consortium.report.chains import own_test, people, works
from fcforge_consortium.report.describe import describe


def with_test(step, accuracy, patients, controls):
    """The step with another result on its own test subjects."""
    test = SplitCounts(controls=controls, patients=patients)
    counts = StepCounts(learning=step.counts.learning, test=test)
    return step.changed(counts=counts, own_test=accuracy)


@pytest.fixture(scope="module")
def chain():
    return chained("majority", SITES[:2])[-1].model


def test_own_tests_by_hand(chain):
    """37 of 59 right where 33 are patients: 62.7 % against 55.9 %."""
    step = chain.steps[0]
    said, beyond = own_test(with_test(step, 0.6271, 33, 26))
    assert said.startswith("62.7 % [50.0 %, 73.9 %] of 59; ")
    assert said.endswith("55.9 %")
    assert not beyond
    assert own_test(with_test(step, 0.95, 50, 50))[1]


def test_small_counts_have_no_interval(chain):
    said, beyond = own_test(with_test(chain.steps[0], 0.5, None, 30))
    assert said.startswith("50.0 % (rounded")
    assert not beyond
    assert people(SplitCounts(controls=30, patients=None)) == (
        "fewer than 10 patients, 30 controls"
    )


def test_accuracy_is_good_when_its_interval_is_above_the_commonest_class(chain):
    um = with_test(chain.steps[0], 0.9, 50, 50)
    nyu = with_test(chain.steps[1], 0.627, 33, 26)
    answer = works([um, nyu])
    assert answer.kind == "warn"  # of the last site: it reaches below 55.9 %
    assert "62.7 %" in answer.say
    assert "gets 55.9 %" in answer.say
    assert "at 1 of 2 sites" in answer.more[0]
    assert works([nyu, um]).kind == "good"
    assert works([with_test(um, 0.5, None, 30)]).kind == "warn"
    assert works([]).kind == "warn"


def test_a_chain_promises_nothing(chain):
    answer = describe(chain.exchange).answers[3]
    assert answer.kind == "warn"
    assert "Nothing is promised" in answer.say


def test_what_is_said(chain):
    found = describe(chain.exchange)
    assert found.sites == SITES[:2]
    assert not found.real_subjects
    assert len(found.answers) == 4
    hospitals, held_out, records = found.tables
    assert [row[0] for row in hospitals.rows] == [*SITES[:2]]
    assert held_out.rows[1][1] == "-"
    assert len(records.rows) == 3
    # counted from the file: only the last step's arrays travel
    held = sum(value.numel() for value in chain.state.named().values())
    assert [int(row[-1]) for row in records.rows] == [0, 0, held]


@pytest.mark.parametrize(
    ("method", "kind"), [("analytic", "alarm"), ("majority", "warn")]
)
def test_exact_statistics_alarm(method, kind):
    assert describe(chained(method)[0]).answers[1].kind == kind


def test_real_subjects_alarm():
    found = describe(chained("cumulative")[0])
    assert found.real_subjects
    travels = found.answers[1]
    assert travels.kind == "alarm"
    assert any("patient data" in line for line in travels.more)
    assert not any("No raw scan" in line for line in travels.more)


def test_held_out_subjects_are_said_to_travel():
    """The page said "no subject, real or synthetic" of a file with synthetic ones."""
    travels = describe(chained("finetune")[0]).answers[1]
    assert travels.kind == "warn"
    assert "Synthetic subjects travel" in travels.say
    alone = describe(chained("finetune", held_out=0)[0]).answers[1]
    assert (alone.kind, alone.say) == ("good", "The network alone.")
