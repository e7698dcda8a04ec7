"""Settings of a chain: from an experiment, and what cannot be."""

import json
from dataclasses import asdict, replace

import pytest
from small_chains import cohort, settings

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, ExchangeError
from fcforge.core.leaks import Leaks
from fcforge.core.spec import LearnerSpec, Training
from fcforge.experiments.config import Experiment
from fcforge_consortium.chains.settings import ChainSettings, first_settings
from fcforge_consortium.records.canonical import canonical

LINEAR = LearnerSpec(Component("analytic"), Component("linear"))


def told(**change) -> dict:
    """Settings as they travel, changed."""
    return json.loads(canonical(settings("majority").to_json() | change))


def test_settings_travel_as_they_are():
    assert ChainSettings.from_json(told()) == settings("majority")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"n_rois": 10**6}, "n_rois"),
        ({"training": asdict(Training(epochs=1)) | {"epochs": 0}}, "epochs"),
        ({"training": asdict(Training()) | {"selection": "t"}}, "selection"),
        ({"held_out_generator": asdict(Component("none"))}, "none"),
        ({"learner": asdict(LINEAR) | {"training": {"scan": [0.1]}}}, "training"),
        (
            {"learner": asdict(LearnerSpec(Component("pipeline"), Component("gcn")))},
            "pipeline",
        ),
        (
            {
                "learner": asdict(
                    LearnerSpec(
                        Component("forge", {"memory": 10**12}), Component("gcn")
                    )
                )
            },
            "learner",
        ),
        ({"learner": asdict(LINEAR) | {"title": "x" * 300}}, "learner"),
        *(
            ({"learner": asdict(LearnerSpec(Component("finetune"), model))}, "at most")
            for model in (
                Component("gat", {"hidden": 800, "heads": 800}),
                Component("tem", {"hops": 1000}),
                Component("gcn", {"depth": 100_000}),
            )
        ),
        ({"scans": [0.1]}, "scans"),
        ({"roi_names": ["a"]}, "1 ROIs"),
        ({"roi_names": [0.5] * 10}, "roi_names"),
        ({"val_fraction": 1}, "val_fraction"),
    ],
)
def test_settings_that_no_hospital_can_have_meant(change, named):
    with pytest.raises(ExchangeError) as refused:
        ChainSettings.from_json(told(**change))
    assert named in str(refused.value)


def test_a_setting_that_is_missing_is_named():
    data = told()
    del data["calibrate"]
    with pytest.raises(ExchangeError, match="calibrate"):
        ChainSettings.from_json(data)


def test_config_gives_the_settings():
    learners = (
        LearnerSpec(Component("finetune"), Component("gcn")),
        replace(LINEAR, training={"weight_decay": 0.5}),
    )
    experiment = Experiment(
        Component("simulated"),
        learners,
        seeds=(7,),
        training=Training(epochs=9),
        val_fraction=0.1,
    )
    with pytest.raises(ConfigError, match="2 learners"):
        first_settings(cohort(), experiment)
    with pytest.raises(ConfigError, match="unknown learner"):
        first_settings(cohort(), experiment, "forge")
    found = first_settings(cohort(), experiment, "analytic/linear")
    assert found.seed == 7
    assert found.val_fraction == 0.1
    assert found.training == Training(epochs=9, weight_decay=0.5)
    assert found.learner == LINEAR  # its own training is part of the chain's
    leaky = replace(experiment, leaks=Leaks(select_on_test=True))
    with pytest.raises(ConfigError, match="leak"):
        first_settings(cohort(), leaky, "analytic/linear")


def test_what_is_kept_of_real_people():
    assert not settings("analytic").copies_real
    assert settings("cumulative").copies_real
    copier = settings("analytic", held_out_generator=Component("bootstrap"))
    assert copier.copies_real
