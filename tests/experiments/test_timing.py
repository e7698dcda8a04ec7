"""Estimates of a dry run: time of the right size, disk as it is then used."""

import tempfile
import time
from dataclasses import replace

import pytest

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec
from fcforge.experiments import timing
from fcforge.experiments.config import load_experiment
from fcforge.experiments.cost import Cost
from fcforge.experiments.run import Prepared, open_store, prepare
from fcforge.experiments.store import Store
from fcforge.experiments.timing import estimate
from fcforge.experiments.trainer import Trainer
from fcforge.experiments.work import Work
from fcforge.generators import make_generator
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


def test_a_slow_generator_is_tried_briefly(tmp_path, monkeypatch):
    """Of the hundred epochs of FCM-VAE five are trained; each further one costs as much."""
    lengths = []

    def clocked(call, spec):
        generator = make_generator(spec.learner.generator)
        lengths.append((generator.variant, generator.epochs))
        return 0.5 + 0.1 * generator.epochs

    monkeypatch.setattr(timing, "_clocked", clocked)
    prepared = prepare(load_experiment(small_config()))
    generator = Component("fcm_vae", {"variant": "paper"})
    learner = LearnerSpec(Component("forge"), Component("gcn"), generator)
    spec = replace(next(iter(prepared.plan.nodes.values())).spec, learner=learner)
    trainer = Trainer(prepared.cohort, Store(tmp_path / "run"))
    assert timing._fit(trainer, spec).seconds == pytest.approx(0.5 + 0.1 * 100)
    assert lengths == [("paper", 1), ("paper", 4)]


def test_every_trial_is_reported(tmp_path):
    learners = [
        '{method="er", model="linear"}',
        '{title="Ours", method="forge", model="linear", generator="corr_gauss"}',
    ]
    settings = [f"learner=[{', '.join(learners)}]", "training.epochs=2"]
    prepared = prepare(load_experiment(small_config(), settings))
    steps = []
    estimate(prepared, Store(tmp_path / "run"), 1, lambda *step: steps.append(step))
    assert steps[0] == (1, 3, "generator corr_gauss")
    assert [step[:2] for step in steps] == [(1, 3), (2, 3), (3, 3)]
    assert {step[2] for step in steps[1:]} == {"Ours", "er/linear"}
