"""Methods, models and generators are found in packages and in installed plug-ins."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points

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


def test_a_plug_in_of_another_kind_is_refused_whenever_the_table_is_read(monkeypatch):
    plugged(monkeypatch, "fcforge.models.edge:Linear")
    methods = registered("fcforge.methods", Method)
    for read in (len, list, lambda table: table["ewc"], lambda table: "ewc" in table):
        with pytest.raises(
            ConfigError, match=r"entry point 'mine'.*not a subclass of Method"
        ):
            read(methods)


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
        len(registered("fcforge.methods", Method))


def test_a_plug_in_may_read_the_table_while_it_is_imported(monkeypatch, tmp_path):
    (tmp_path / "curious.py").write_text(
        "import sys\n"
        "from fcforge.methods.base import Method\n"
        "seen = list(sys.tables[0])\n"
        "class Mine(Method):\n    name = 'mine'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plugged(monkeypatch, "curious:Mine")
    methods = registered("fcforge.methods", Method)
    monkeypatch.setattr(sys, "tables", [methods], raising=False)
    assert "mine" in methods
    assert list(methods) == sorted(methods)
    assert "ewc" in sys.modules.pop("curious").seen


PLUG_INS = [
    entry
    for group in ("methods", "models", "generators", "datasets", "commands", "pages")
    for entry in entry_points(group=f"fcforge.{group}")
    if entry.value.startswith("fcforge_consortium")
]
FIRST = """
import importlib, sys
importlib.import_module(sys.argv[1])
from fcforge.cli import app
from fcforge.generators import GENERATORS
from fcforge.methods import METHODS
print([group.name for group in app.registered_groups])
print([name for name in METHODS if name == "base_model_alone"], "contributed" in GENERATORS)
"""


@pytest.mark.parametrize("module", sorted({entry.module for entry in PLUG_INS}))
def test_the_module_of_a_plug_in_can_be_imported_first(module):
    done = subprocess.run(
        [sys.executable, "-c", FIRST, module], capture_output=True, text=True
    )
    assert done.stdout == "['analyse', 'consortium']\n['base_model_alone'] True\n"
    assert done.stderr == ""


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


ALONE = """
import sys
from importlib import metadata

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "fcforge_consortium":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
every = metadata.entry_points
metadata.entry_points = lambda **group: [
    entry for entry in every(**group) if not entry.value.startswith("fcforge_consortium")
]
import numpy as np
from fcforge import ForgeClassifier
from fcforge.cli import main
from fcforge.data.simulated import simulate

people = simulate(n_rois=8, n_sites=2, scale=0.2)
model = ForgeClassifier(epochs=1, generator="corr_gauss")
model.fit(people.fc, people.y, site=people.site)
print(model.predict(people.fc).shape == people.y.shape)
main(["list", "methods"])
"""


def test_fcforge_works_where_the_consortium_is_not_installed():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ALONE], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True\n")
    assert "ewc" in done.stdout
    assert "base_model_alone" not in done.stdout
