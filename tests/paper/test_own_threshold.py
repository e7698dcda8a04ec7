"""The config of the benchmark of own thresholds is one that fcforge runs."""

from pathlib import Path

from own_threshold import LEARNERS, config

from fcforge.experiments.config import parse_experiment


def test_the_config_is_read():
    table = config("abide1_aal116.npz", 2, ["50602"]) | {"learner": list(LEARNERS)}
    experiment = parse_experiment(table, Path("experiment"))
    assert experiment.own_threshold
    assert experiment.base_model is not None
    has_base_model = {each.title: each.base_model for each in experiment.learners}
    assert has_base_model == {
        "base model alone": True,
        "ridge on a base model": True,
        "ridge": False,
        "ridge on plain edges": False,
    }
