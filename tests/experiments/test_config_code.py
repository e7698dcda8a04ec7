"""Code that a config names: imported by the user's own commands, refused where it came along."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, StoreError
from fcforge.core.spec import LearnerSpec
from fcforge.experiments.collect import collect
from fcforge.experiments.config import load_experiment
from fcforge.experiments.config_code import code_files
from fcforge.experiments.run import open_store, prepare, run_experiment
from fcforge.experiments.run_keys import learner_identity
from fcforge.methods import METHODS
from fcforge.models import MODELS

CONFIG = """\
[experiment]
orders = 1

[dataset]
name = "simulated"
n_sites = 2
n_rois = 8
scale = 0.1

[training]
epochs = 1
batch_size = 8

[[learner]]
model = "linear"
method = "my_own_method:{name}"
"""
METHOD = """\
from dataclasses import dataclass
from fcforge.methods.base import Method

@dataclass(frozen=True)
class Mine(Method):
    \"\"\"A method of my own.\"\"\"

    strength: float = 1.0

class Odd:
    pass
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A config that names a method in a file beside it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_own_method.py").write_text(METHOD)
    path = tmp_path / "a.toml"
    path.write_text(CONFIG.format(name="Mine"))
    learner_identity.cache_clear()
    yield path
    restart_python()


def restart_python(*modules: str) -> None:
    """Forget imported code, as a new process would not know it."""
    METHODS.pop("my_own_method:Mine", None)
    for name in ("my_own_method", *modules):
        sys.modules.pop(name, None)
    learner_identity.cache_clear()


def test_code_beside_the_config_is_refused_unless_it_is_allowed(config):
    with pytest.raises(ConfigError, match=r"my_own_method\.py.*--allow-code"):
        load_experiment(config, allow_code=False)
    assert "my_own_method" not in sys.modules
    assert load_experiment(config).learners[0].method.name == "my_own_method:Mine"


def test_installed_modules_are_allowed(config):
    config.write_text(
        CONFIG.format(name="Mine").replace(
            "my_own_method:Mine", "fcforge.methods.ewc:EWC"
        )
    )
    (learner,) = load_experiment(config, allow_code=False).learners
    assert learner.method.name == "fcforge.methods.ewc:EWC"
    METHODS.pop("fcforge.methods.ewc:EWC")


def test_a_method_of_ones_own_is_trained_in_worker_processes(config, tmp_path):
    prepared = prepare(load_experiment(config))
    store = open_store(prepared, tmp_path / "run")
    run_experiment(prepared, store, jobs=2)
    (result,), asked = collect(store)
    assert asked == 1
    assert result.spec.learner.method.name == "my_own_method:Mine"


def test_mas_of_the_documentation_is_trained(tmp_path, monkeypatch):
    """Its anchor is the network itself, which the stored lane holds twice."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    source = Path(__file__).parents[2] / "examples" / "mas.py"
    (tmp_path / "mas_beside.py").write_text(source.read_text())
    path = tmp_path / "a.toml"
    path.write_text(CONFIG.replace("my_own_method:{name}", "mas_beside:MAS"))
    try:
        prepared = prepare(load_experiment(path))
        store = open_store(prepared, tmp_path / "run")
        run_experiment(prepared, store, jobs=1)
        (result,), _ = collect(store)
        assert len(result.spec.order) == 2
    finally:
        METHODS.pop("mas_beside:MAS", None)
        sys.modules.pop("mas_beside", None)


def test_another_source_is_another_learner(config):
    (learner,) = load_experiment(config).learners
    first = learner_identity(learner)
    (config.parent / "my_own_method.py").write_text(METHOD + "# changed\n")
    restart_python()
    assert learner_identity(learner) != first


def test_code_that_changed_after_its_import_is_refused(config, tmp_path):
    """Python still runs the old code, whose results would be stored as those of the new one."""
    prepare(load_experiment(config))
    prepare(load_experiment(config, ["training.epochs=2"]))
    (config.parent / "my_own_method.py").write_text(METHOD + "# changed\n")
    for changes in ([], ["training.epochs=3"]):
        with pytest.raises(ConfigError, match="'my_own_method:Mine' has changed since"):
            prepare(load_experiment(config, changes))
    restart_python()
    prepare(load_experiment(config))


def test_the_file_that_defines_a_class_counts_wherever_it_is_named(config):
    """``my_own_method`` may import the class, or a base of it, from another file."""
    helper, names = config.parent / "my_helper.py", ("my_helper",)
    named = config.parent / "my_own_method.py"
    named.write_text("from my_helper import Mine\n")
    found = []
    try:
        for more in ("", "# changed\n"):
            helper.write_text(METHOD + more)
            restart_python(*names)
            (learner,) = load_experiment(config).learners
            found.append(learner_identity(learner)["method"])
        assert code_files(learner) == ["my_helper.py", "my_own_method.py"]
        base = METHOD.replace("class Mine", "class Base")
        named.write_text("from my_helper import Base\nclass Mine(Base):\n    pass\n")
        for more in ("", "# changed\n"):
            helper.write_text(base + more)
            restart_python(*names)
            found.append(learner_identity(learner)["method"])
    finally:
        restart_python(*names)
    assert len({repr(identity) for identity in found}) == 4


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([], "other code (my_own_method.py) of learner 'my_own_method:Mine/linear'."),
        (["training.epochs=2"], "other data, settings or code (my_own_method.py) for"),
    ],
)
def test_changed_code_is_named_where_a_folder_is_refused(
    config, tmp_path, changes, says
):
    open_store(prepare(load_experiment(config)), tmp_path / "run")
    (config.parent / "my_own_method.py").write_text(METHOD + "# changed\n")
    restart_python()
    with pytest.raises(StoreError, match=re.escape(says)):
        open_store(prepare(load_experiment(config, changes)), tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("my_own_method:Odd", "not a subclass of Method"),
        ("my_own_method:Minne", r"has no 'Minne'. Did you mean 'my_own_method:Mine'"),
        ("no_such_module:Mine", "cannot be imported.*put no_such_module.py beside"),
    ],
)
def test_what_cannot_be_imported_is_one_clear_error(name, says, config):
    text = CONFIG.format(name="Mine").replace("my_own_method:Mine", name)
    config.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_experiment(config)


def test_a_look_up_imports_nothing(config):
    """Files of others name methods, too: only a config imports one."""
    from fcforge.methods import build_learner

    spec = LearnerSpec(Component("my_own_method:Mine"), Component("linear"))
    sys.path.append(str(config.parent))
    with pytest.raises(ConfigError, match="unknown method"):
        build_learner(spec, 8)
    assert "my_own_method" not in sys.modules


def test_a_broken_plug_in_is_reported_and_the_other_commands_work(tmp_path):
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(
        "[fcforge.commands]\nbad = no_module:register\n"
    )
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from fcforge.cli import main\n"
        "main(['list', 'datasets'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "simulated" in done.stdout
    assert "entry point 'bad' of group fcforge.commands" in done.stderr


NETWORK = """\
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.out = nn.Linear(8, width), nn.Linear(width, 2)

    def forward(self, x, adjacency):
        return self.out(self.conv(adjacency @ x).relu().mean(1))
"""


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A config with a network that fits 8 ROIs alone, takes two inputs and needs an argument."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_own_network.py").write_text(NETWORK)
    path = tmp_path / "a.toml"
    path.write_text(
        CONFIG.replace('"my_own_method:{name}"', '"finetune"').replace(
            'model = "linear"',
            'model = { name = "my_own_network:Net", inputs = "dense", settings = { width = 3 } }',
        )
    )
    yield path
    MODELS.pop("my_own_network:Net", None)
    sys.modules.pop("my_own_network", None)


def test_a_network_is_tried_with_its_own_settings_on_the_size_of_the_data(network):
    prepared = prepare(load_experiment(network))
    (learner,) = prepared.experiment.learners
    assert learner.model.params["inputs"] == "dense"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ('inputs = "raw"', "inputs = 'raw' is unknown"),
        ("width = 3", "unknown setting 'width'"),
    ],
)
def test_wrong_settings_of_a_network_are_refused_before_data_are_read(
    given, says, network
):
    network.write_text(network.read_text().replace('inputs = "dense"', given))
    with pytest.raises(ConfigError, match=says):
        load_experiment(network)


def test_a_network_for_other_data_is_refused_before_training(network):
    network.write_text(network.read_text().replace("n_rois = 8", "n_rois = 9"))
    with pytest.raises(ConfigError, match=r"model 'Net'.*FC of 9 ROIs"):
        prepare(load_experiment(network))
