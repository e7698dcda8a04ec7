"""What a dry run promises: time of the right size, disk as it is then used."""

import tempfile
import time

import pytest

from fcforge.runner.config import load_experiment
from fcforge.runner.plan import Work, make_plan
from fcforge.runner.run import Prepared, open_store, prepare
from fcforge.runner.store import Store
from fcforge.runner.timing import Cost, estimate, most_at_once
from fcforge.runner.trainer import Trainer
from fcforge.types import Component, LearnerSpec, RunSpec
from real_runs import finished, small_config


def train_and_weigh(prepared: Prepared, store: Store) -> tuple[float, int]:
    """Seconds of a run with one worker in this process, and bytes of its folder at most."""
    work, most = Work(prepared.plan, store, lambda *step: None), 0
    trainer, started = Trainer(prepared.cohort, store), time.perf_counter()
    while (node := work.take()) is not None:
        trainer.run([node])
        most = max(most, store.size())
        work.done([node], "")
    return time.perf_counter() - started, most


@pytest.mark.parametrize(
    "learner", ["forge", "er", "cumulative", "joint", "independent"]
)
def test_what_is_promised_is_what_is_used(learner, tmp_path):
    """FORGE stores candidates of every site: the last states of an order are the largest."""
    generator = ', generator="corr_gauss"' if learner == "forge" else ""
    settings = [f'learner=[{{method="{learner}", model="linear"{generator}}}]']
    prepared = prepare(
        load_experiment(small_config(), [*settings, "training.epochs=8"])
    )
    store = open_store(prepared, tmp_path / "run")
    before = store.size()
    asked = estimate(prepared, store, 1)
    assert asked.todo == prepared.plan.trainings
    seconds, most = train_and_weigh(prepared, store)
    assert (most - before) / 2 < asked.disk < 2 * (most - before)
    assert seconds / 10 < asked.seconds < 10 * seconds  # other programs may be running


def test_an_estimate_writes_nothing_and_a_finished_run_costs_nothing(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    prepared = prepare(load_experiment(small_config()))
    one, two = (estimate(prepared, Store(tmp_path / "none"), jobs) for jobs in (1, 2))
    assert one.todo == 60
    assert 0 < two.seconds < one.seconds * 1.5
    assert list(tmp_path.iterdir()) == []
    assert estimate(prepared, Store(finished().folder), 1) == Cost(0)


def plan(*orders: str):
    learner = LearnerSpec(Component("finetune"), Component("linear"))
    return make_plan(
        [RunSpec(Component("x"), learner, tuple(o), 0) for o in orders], ("A", "B")
    )


def test_states_at_once_by_hand(tmp_path):
    """A, AB, ABC, then C, CB, CBA: a state is dropped when its child is stored."""
    both = plan("ABC", "CBA")

    def most(jobs: int, each: int = 10) -> float:
        return most_at_once(both, Store(tmp_path), lambda node: each * node.depth, jobs)

    assert most(jobs=1) == 10 + 20  # AB is there before A is dropped
    assert most(jobs=2) == most(jobs=9) == 20 + 20 + 10  # AB and C, then CB
    assert most(jobs=1, each=0) == 0


def test_a_chain_of_many_sites_holds_two_states_at_a_time(tmp_path):
    chain = plan("ABCDEFGH")
    assert most_at_once(chain, Store(tmp_path), lambda node: 1.0, jobs=4) == 2.0
