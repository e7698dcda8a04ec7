"""Settings of the command line (``--set``) in the tables of a config."""

from typing import Any

import pytest

from fcforge.core.errors import ConfigError
from fcforge.core.overrides import override, override_only


def config() -> dict[str, Any]:
    return {
        "dataset": {"name": "simulated", "n_rois": 12},
        "learner": [{"method": "finetune", "model": "gcn"}],
    }


@pytest.mark.parametrize(
    ("setting", "where", "value"),
    [
        ("training.epochs=5", ("training", "epochs"), 5),
        ("training.lr=1e-3", ("training", "lr"), 1e-3),
        ("training.selection=inner_val", ("training", "selection"), "inner_val"),
        ("experiment.seeds=[1, 2]", ("experiment", "seeds"), [1, 2]),
        ('experiment.orders=[["A","B"]]', ("experiment", "orders"), [["A", "B"]]),
        ("leaks.select_on_test=true", ("leaks", "select_on_test"), True),
        ("method.ewc.strength=10", ("method", "ewc", "strength"), 10),
        ('experiment.title="a = b"', ("experiment", "title"), "a = b"),
        ("experiment.title=two words", ("experiment", "title"), "two words"),
        ('dataset.merge={ UM = ["a", "b"] }', ("dataset", "merge"), {"UM": ["a", "b"]}),
        ("dataset.path=a=b.npz", ("dataset", "path"), "a=b.npz"),
    ],
)
def test_overrides(setting, where, value):
    found: Any = override(config(), [setting])
    for step in where:
        found = found[step]
    assert found == value


@pytest.mark.parametrize(
    ("setting", "named"),
    [("training.epochs=5", "training"), ("dataset=5", "dataset"), ("path=5", "path")],
)
def test_only_the_tables_that_are_there(setting, named):
    assert override_only({"dataset": {}}, ["dataset.a=1"]) == {"dataset": {"a": 1}}
    with pytest.raises(ConfigError, match=rf"--set {named}: only dataset\.\* can"):
        override_only({"dataset": {}}, ["dataset.a=1", setting])


def test_later_overrides_win():
    data = override(config(), ["training.epochs=5", "training.epochs=6"])
    assert data["training"]["epochs"] == 6


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("training.epochs", "not of the form a.b=c"),
        ("=3", "not of the form a.b=c"),
        ("learner.0.method=ewc", "learner = [{'method': 'finetune', 'model': 'gcn'}]"),
        ("dataset.name.more=1", "name = 'simulated' is not a table"),
        ("dataset.n_rois.a.b=1", "n_rois = 12 is not a table"),
    ],
)
def test_overrides_that_cannot_be(setting, says):
    with pytest.raises(ConfigError, match="--set") as caught:
        override(config(), [setting])
    assert says in str(caught.value)
