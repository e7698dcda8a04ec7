"""The whole system on hospitals that disagree: fine-tuning forgets, FORGE does not.

The demo's own config in the world ``systems``, with stronger disagreement, larger test parts, and
fewer epochs than the demo. Measured in four orders: fine-tuning has FM .24 to .39 and FORGE .05 to
.09 on the GCN, .16 to .35 and -.01 to .02 on the linear model; FORGE's AAA is .04 to .11 higher.
"""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from fcforge.core.result import RunResult
from fcforge.evaluation.forgetting import summary
from fcforge.experiments.collect import collect
from fcforge.experiments.config import load_experiment
from fcforge.experiments.run import open_store, prepare, run_experiment

SETTINGS = (
    'experiment.orders=[["Sim-1", "Sim-2", "Sim-3", "Sim-4"]]',
    "experiment.test_fraction=0.5",
    "dataset.subjects_per_site=100",
    "dataset.site_effect=0.5",
    "training.epochs=30",
    "generator.fcm_vae.epochs=40",
)
MODELS = ("GCN", "log")


def run_demo(folder: Path, learners: list[str], *settings: str) -> dict[str, RunResult]:
    """Train some of the demo's learners in one order; results by title."""
    config = files("fcforge.cli").joinpath("demo.toml")
    overrides = [*SETTINGS, f"learners={learners}", *settings]
    prepared = prepare(load_experiment(config, overrides))
    store = open_store(prepared, folder)
    run_experiment(prepared, store, group=1)
    results, _ = collect(store)
    return {result.spec.learner.title: result for result in results}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, RunResult]:
    learners = [
        f"{name}/{model}" for model in MODELS for name in ("fine-tuning", "FORGE")
    ]
    return run_demo(tmp_path_factory.mktemp("acceptance") / "run", learners)


def assert_forge_prevents_forgetting(
    results: Mapping[str, RunResult], model: str
) -> None:
    """FORGE forgets less than half of what fine-tuning forgets, and is more accurate."""
    finetuning = summary(results[f"fine-tuning/{model}"])
    forge = summary(results[f"FORGE/{model}"])
    assert finetuning["fm"] > 0.1
    assert forge["fm"] < finetuning["fm"] / 2
    assert forge["aaa"] > finetuning["aaa"] + 0.02


@pytest.mark.parametrize("model", MODELS)
def test_fine_tuning_forgets_and_forge_does_not(results, model):
    assert_forge_prevents_forgetting(results, model)


def test_without_replay_the_same_assertion_fails(results, tmp_path):
    """With all three loss weights at 0 FORGE is fine-tuning, to the last bit.

    The generator trains for one epoch: none of its subjects is replayed.
    """
    silent = run_demo(
        tmp_path / "run",
        [f"FORGE/{model}" for model in MODELS],
        *[f"method.forge.{weight}=0" for weight in ("l1", "l2", "l3")],
        "generator.fcm_vae.epochs=1",
    )
    for model in MODELS:
        with pytest.raises(AssertionError):
            assert_forge_prevents_forgetting({**results, **silent}, model)
        expected = results[f"fine-tuning/{model}"].scores
        for site, scores in silent[f"FORGE/{model}"].scores.items():
            np.testing.assert_array_equal(scores, expected[site])
