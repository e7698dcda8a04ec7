"""What a dry run promises: time of the right size, disk as it is then used."""

import tempfile
import time

import pytest

from fcforge.runner.config import load_experiment
from fcforge.runner.plan import Work, make_plan
from fcforge.runner.run import Cost, Prepared, estimate, open_store, prepare
from fcforge.runner.store import Store
from fcforge.runner.timing import Rate, Stage, most_at_once
from fcforge.runner.workshop import Workshop
from fcforge.types import Component, LearnerSpec, RunSpec
from real_runs import finished, small_config


def train_and_weigh(prepared: Prepared, store: Store) -> tuple[float, int]:
    """Seconds of a run with one worker in this process, and bytes of its folder at most."""
    work, most = Work(prepared.plan, store, lambda *step: None), 0
    shop, started = Workshop(prepared.cohort, store), time.perf_counter()
    while (node := work.take()) is not None:
        shop.run([node])
        most = max(most, store.size())
        work.done([node], "")
    return time.perf_counter() - started, most


@pytest.mark.parametrize("learner", ["forge", "er", "cumulative", "joint", "independent"])
def test_what_is_promised_is_what_is_used(learner, tmp_path):
    """FORGE stores candidates of every site: the last states of an order are the largest."""
    generator = ', generator="corr_gauss"' if learner == "forge" else ""
    settings = [f'learner=[{{method="{learner}", model="linear"{generator}}}]']
    prepared = prepare(load_experiment(small_config(), [*settings, "training.epochs=8"]))
    store = open_store(prepared, tmp_path / "run")
    before = store.size()
    asked = estimate(prepared, store, 1)
    assert asked.todo == asked.trainings == prepared.plan.trainings
    seconds, most = train_and_weigh(prepared, store)
    # the states are most before the last scores are written; a kilobyte that describes the input
    # weighs a tenth of a run this small
    assert 0.8 * (most - before) < asked.disk < 1.5 * (most - before)
    assert seconds / 10 < asked.seconds < 10 * seconds  # other programs may be running


def test_an_estimate_writes_nothing_and_a_finished_run_costs_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    prepared = prepare(load_experiment(small_config()))
    one, two = (estimate(prepared, Store(tmp_path / "none"), jobs) for jobs in (1, 2))
    assert one.trainings == one.todo == 60
    assert 0 < two.seconds < one.seconds * 1.5
    assert list(tmp_path.iterdir()) == []
    assert estimate(prepared, Store(finished().folder), 1) == Cost(60, 0, 0.0, 0)


def plan(*orders: str):
    learner = LearnerSpec(Component("finetune"), Component("linear"))
    return make_plan([RunSpec(Component("x"), learner, tuple(o), 0) for o in orders], ("A", "B"))


def test_states_at_once_by_hand():
    """A, AB, ABC, then C, CB, CBA: a state is dropped when its child is stored."""
    nodes = [n for n in plan("ABC", "CBA").nodes.values() if n.continued and n.depth]
    states = [(node, 10 * node.depth) for node in nodes]
    assert most_at_once(states, jobs=1) == 10 + 20
    assert most_at_once(states, jobs=2) == most_at_once(states, jobs=9) == 2 * (10 + 20)
    assert most_at_once([(node, 10) for node in nodes], jobs=1) == 10 + 10
    assert most_at_once([], jobs=1) == 0


def test_what_is_not_epochs_grows_with_the_state():
    """By hand: 100 bytes, 150 after two sites, 250 after four; the rest of the time with them."""
    rate = Rate(Stage(0.5, 1.0, 100, 7), Stage(0.25, 3.0, 150, 7), 0.0, 0)
    assert [rate.state(d) for d in (1, 2, 4)] == [100, 150, 250]
    _, a, ab, *_, last = plan("ABCD").nodes.values()
    assert rate.seconds(a, 4.0) == 1.0 + 0.5 * 4
    assert rate.seconds(ab, 4.0) == 3.0 + 0.25 * 4
    assert rate.seconds(last, 4.0) == pytest.approx(3.0 * 250 / 150 + 0.25 * 4)
    flat = Rate(Stage(0.0, 1.0, 100, 7), Stage(0.0, 2.0, 90, 7), 0.0, 0)
    assert flat.seconds(last, 4.0) == 2.0
