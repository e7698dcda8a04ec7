"""Settings of a chain: from an experiment, and what cannot be."""

import json
from dataclasses import asdict

import pytest
from capsule_chains import SITES, chain, cohort

from fcforge.capsule import open_capsule
from fcforge.capsule.ledger import canonical
from fcforge.errors import CapsuleError
from fcforge.types import Component, LearnerSpec, Training

BIG = Component("forge", {"memory": 10**12})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": (False, 1)}, "cannot be read"),
        ({"n_rois": 12}, "settings of the manifest"),
        ({"training": asdict(Training()) | {"epochs": 0}}, "epochs = 0 is too small"),
        (
            {"training": asdict(Training()) | {"selection": "t"}},
            "selection = 't' is unknown",
        ),
        ({"n_rois": 10**6}, "larger than"),
        ({"judge": asdict(Component("none"))}, "does not know 'none'"),
        ({"learner": asdict(LearnerSpec(BIG, Component("gcn")))}, "larger"),
    ],
)
def test_settings_that_disagree_or_cannot_be(tmp_path, change, message) -> None:
    from fcforge.capsule import container as box

    path = chain("majority", SITES[:1], tmp_path)[0]
    told = json.loads(canonical(open_capsule(path).settings.to_json() | change))
    parts = box.sealed(box.CHAIN, told, box.read_parts(path, box.CHAIN))
    (tmp_path / "forged").write_bytes(box.pack(parts))
    with pytest.raises(CapsuleError, match=message):
        open_capsule(tmp_path / "forged")


def test_config_gives_the_settings(tmp_path) -> None:
    from fcforge.capsule.learning import first_settings
    from fcforge.errors import ConfigError
    from fcforge.runner.experiment import Experiment
    from fcforge.types import Component, Leaks, LearnerSpec, Training

    learners = (
        LearnerSpec(Component("finetune"), Component("gcn")),
        LearnerSpec(Component("analytic"), Component("linear")),
    )
    experiment = Experiment(
        Component("simulated"),
        learners,
        seeds=(7,),
        training=Training(epochs=9),
        val_fraction=0.1,
    )
    with pytest.raises(ConfigError, match="2 learners"):
        first_settings(cohort(), experiment, {})
    settings = first_settings(cohort(), experiment, {"learner": "analytic/linear"})
    assert (settings.seed, settings.training.epochs, settings.val_fraction) == (
        7,
        9,
        0.1,
    )
    assert settings.learner == learners[1]
    from dataclasses import replace

    leaky = replace(experiment, leaks=Leaks(select_on_test=True))
    with pytest.raises(ConfigError, match="leak"):
        first_settings(cohort(), leaky, {"learner": "analytic/linear"})
