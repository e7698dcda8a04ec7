"""bfloat16 on a CPU that cannot do it is refused before a worker dies of it."""

import pytest

from fcforge.errors import ConfigError
from fcforge.runner import run
from fcforge.runner.experiment import Experiment
from fcforge.types import Component, LearnerSpec, Training


def _experiment(**training: str) -> Experiment:
    learner = LearnerSpec(Component("finetune"), Component("linear"), training=training)
    return Experiment(Component("simulated"), (learner,))


def test_a_cpu_that_cannot_is_refused(monkeypatch):
    monkeypatch.setattr(run, "bfloat16_works", lambda: False)
    with pytest.raises(ConfigError, match="float32"):
        run.check_precision(_experiment(precision="bfloat16"), "cpu")


@pytest.mark.parametrize(
    ("training", "device", "works"),
    [({}, "cpu", False), ({"precision": "bfloat16"}, "cuda", False)],
)
def test_others_go_on(monkeypatch, training, device, works):
    monkeypatch.setattr(run, "bfloat16_works", lambda: works)
    run.check_precision(_experiment(**training), device)


def test_the_experiments_own_precision_counts(monkeypatch):
    monkeypatch.setattr(run, "bfloat16_works", lambda: False)
    low = Experiment(
        Component("simulated"), _experiment().learners, training=Training(precision="bfloat16")
    )
    with pytest.raises(ConfigError):
        run.check_precision(low, "cpu")
