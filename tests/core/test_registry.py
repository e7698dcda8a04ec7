"""Methods, models and generators are found in packages and in installed plug-ins."""

from importlib.metadata import EntryPoint

import pytest

from fcforge.core import registry
from fcforge.core.errors import ConfigError
from fcforge.core.registry import registered
from fcforge.methods.base import Method


def test_classes_of_a_package_are_found_by_their_own_names():
    found = registered("fcforge.methods", Method)
    assert list(found) == sorted(found)
    assert {"er", "derpp", "joint", "forge_ridge"} <= set(found)
    assert all(
        cls.name == name and issubclass(cls, Method) for name, cls in found.items()
    )
    # what only serves others has no name of its own
    assert not {"Rehearsal", "TwoBatches", "SyntheticMemory"} & {
        c.__name__ for c in found.values()
    }
    assert found["finetune"] is not Method


def plugged(monkeypatch, value):
    entry = EntryPoint("mine", value, "fcforge.methods")
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])


def test_a_plug_in_is_registered(monkeypatch):
    plugged(monkeypatch, "fcforge_consortium.learners.method:ForgeRelease")
    assert "forge_release" in registered("fcforge.methods", Method)
    assert "public_head" not in registered("fcforge.methods", Method)


def test_a_plug_in_of_another_kind_is_refused(monkeypatch):
    plugged(monkeypatch, "fcforge.models.edge:Linear")
    with pytest.raises(
        ConfigError, match=r"entry point 'mine'.*not a subclass of Method"
    ):
        registered("fcforge.methods", Method)


def test_a_plug_in_cannot_take_a_name(monkeypatch, tmp_path):
    (tmp_path / "stranger.py").write_text(
        "from fcforge.methods.base import Method\n"
        "class Mine(Method):\n    name = 'ewc'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plugged(monkeypatch, "stranger:Mine")
    with pytest.raises(
        ConfigError, match=r"'ewc' is already taken by fcforge.methods.ewc"
    ):
        registered("fcforge.methods", Method)
