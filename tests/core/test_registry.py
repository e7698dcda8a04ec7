"""Methods, models and generators are found in packages and in installed plug-ins."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from fcforge.core import registry
from fcforge.core.errors import ConfigError
from fcforge.core.names import look_up
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
    plugged(monkeypatch, "fcforge_consortium.learners.method:Contributions")
    assert "contributions" in registered("fcforge.methods", Method)
    assert "base_model_alone" not in registered("fcforge.methods", Method)


def test_a_former_name_is_refused_with_the_present_one(monkeypatch):
    plugged(monkeypatch, "fcforge_consortium.learners.method:Contributions")
    methods = registered("fcforge.methods", Method)
    assert methods.former_names == {"forge_release": "contributions"}
    with pytest.raises(ConfigError) as error:
        look_up("method", "forge_release", methods, where="a.toml")
    text = "a.toml: method 'forge_release' is now called 'contributions'. Write 'contributions'."
    assert str(error.value) == text
    with pytest.raises(ConfigError, match="unknown method 'forge_releases'"):
        look_up("method", "forge_releases", methods)


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


PLUGIN = {
    "methods": """
from fcforge.methods.base import Method

class OwnMethod(Method):
    "A method of a plug-in."
    name = "own_method"
""",
    "models": """
from fcforge.models.edge import Linear

class OwnModel(Linear):
    "A model of a plug-in."
    name = "own_model"
""",
    "generators": """
from fcforge.generators.bootstrap import Bootstrap

class OwnGenerator(Bootstrap):
    "A generator of a plug-in."
    name = "own_generator"
""",
    "datasets": """
from fcforge.data.simulated import simulate

def load_own(n_rois: int = 8):
    "A dataset of a plug-in."
    return simulate(n_rois=n_rois, n_sites=2, scale=0.1)
""",
    "commands": """
def register(app):
    @app.command("own-command")
    def own_command() -> None:
        "A command of a plug-in."
        print("own command ran")
""",
}
ENTRY_POINTS = """
[fcforge.methods]
own_method = own_plugin.methods:OwnMethod
[fcforge.models]
own_model = own_plugin.models:OwnModel
[fcforge.generators]
own_generator = own_plugin.generators:OwnGenerator
[fcforge.datasets]
own_dataset = own_plugin.datasets:load_own
[fcforge.commands]
own = own_plugin.commands:register
"""
CONFIG = """
[experiment]
orders = 1
[dataset]
name = "own_dataset"
n_rois = 8
[training]
epochs = 1
[[learner]]
method = "own_method"
model = "own_model"
[[learner]]
method = { name = "forge", memory = 4, candidates = 4, dev = 2, replay = 4 }
model = "own_model"
generator = "own_generator"
"""


def test_an_installed_plug_in_serves_every_group(tmp_path):
    """Methods, models, generators, datasets and commands of one package, as pip installs it."""
    info = tmp_path / "own_plugin-1.0.dist-info"
    info.mkdir()
    about = "Metadata-Version: 2.1\nName: own-plugin\nVersion: 1.0\n"
    (info / "METADATA").write_text(about)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "own_plugin").mkdir()
    for name, text in PLUGIN.items():
        (tmp_path / "own_plugin" / f"{name}.py").write_text(text)
    (tmp_path / "own.toml").write_text(CONFIG)

    def fcforge(*arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(tmp_path), *sys.path])
        return subprocess.run(
            [sys.executable, "-m", "fcforge.cli", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
        )

    for kind in ("methods", "models", "generators", "datasets"):
        answer = fcforge("list", kind)
        assert answer.returncode == 0, answer.stderr
        listed = answer.stdout
        assert f"own_{kind.removesuffix('s')}" in listed
        assert f"A {kind.removesuffix('s')} of a plug-in." in listed
    assert fcforge("own-command").stdout == "own command ran\n"
    trained = fcforge("run", "own.toml", "--jobs", "1", "--device", "cpu")
    assert trained.returncode == 0, trained.stderr
    assert "own_method/own_model" in trained.stdout
