"""A module of PyTorch or PyTorch Geometric as the model of an estimator."""

import io
import runpy
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch import nn
from torch_geometric.nn import GCNConv, global_mean_pool

from fcforge import ForgeClassifier, TorchModule
from fcforge.core.errors import ConfigError
from fcforge.estimator import InputError
from fcforge_consortium.estimator import ConsortiumClassifier

SMALL = {"memory": 16, "candidates": 16, "dev": 8, "replay": 8}
EXAMPLE = Path(__file__).parents[2] / "examples" / "plot_own_network.py"


class Sparse(nn.Module):
    """A network of PyTorch Geometric."""

    def __init__(self, width=8):
        super().__init__()
        self.conv = GCNConv(10, width)
        self.out = nn.Linear(width, 2)

    def forward(self, x, edge_index, edge_weight, batch):
        h = self.conv(x, edge_index, edge_weight).relu()
        return self.out(global_mean_pool(h, batch))


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Linear(10, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, x, adjacency):
        return self.out(self.conv(adjacency @ x).relu().mean(1))


def flat(width=8):
    layers = nn.Flatten(), nn.Linear(100, width), nn.ReLU(), nn.Linear(width, 2)
    return nn.Sequential(*layers)


def learner(model, inputs, **given):
    settings = {"epochs": 2, "method_params": SMALL, **given}
    settings = {"generator": "corr_gauss", **settings}
    return ForgeClassifier(model=model, model_params={"inputs": inputs}, **settings)


@pytest.mark.parametrize(
    ("module", "inputs"),
    [(Sparse(), "sparse"), (Dense(), "dense"), (flat(), "fc"), (flat(), "log")],
)
def test_a_module_learns_predicts_and_explains(subjects, module, inputs) -> None:
    fc, y, site = subjects
    before = [p.clone() for p in module.parameters()]
    model = learner(module, inputs).fit(fc, y, site)
    again = clone(model).fit(fc, y, site)
    np.testing.assert_array_equal(model.predict_proba(fc), again.predict_proba(fc))
    assert model.get_params()["model__inputs"] == inputs
    for one, other in zip(before, module.parameters(), strict=True):
        assert torch.equal(one, other)
    trained = model.model_.trained_lane.params
    assert not any(
        torch.equal(p, trained[k]) for k, p in module.named_parameters() if p.ndim > 1
    )
    assert abs(model.explain(fc[:2]).gap).max() < 1e-3


def test_a_torch_module_brings_its_settings(subjects) -> None:
    fc, y, site = subjects
    own = TorchModule(flat(), readout="1", inputs="log", n_rois=10)
    quick = {"generator": "corr_gauss", "epochs": 2, "method_params": SMALL}
    model = ForgeClassifier(model=own, **quick).fit(fc, y, site)
    assert model.model_.learner.model.readout_size == 8
    assert model.get_params()["model__inputs"] == "log"
    by_params = ForgeClassifier(model=own.module, **quick)
    by_params.set_params(model__readout="1", model__inputs="log").fit(fc, y, site)
    np.testing.assert_array_equal(
        model.decision_function(fc), by_params.decision_function(fc)
    )


def test_a_copy_of_a_fitted_estimator_goes_on(subjects) -> None:
    fc, y, site = subjects
    names = list(dict.fromkeys(site))
    here = site == names[0]
    model = learner(Sparse(), "sparse").fit(fc[here], y[here], site[here])
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    copy = joblib.load(file)
    for each in (model, copy):
        each.partial_fit(fc[~here], y[~here], site=site[~here])
    np.testing.assert_array_equal(
        model.decision_function(fc), copy.decision_function(fc)
    )
    model.set_params(model=Sparse())
    shrunk = 0.9 * fc[here] + 0.1 * np.eye(10)
    with pytest.raises(InputError, match="changed after the first site"):
        model.partial_fit(shrunk, y[here], site="third")


def test_a_search_over_modules(subjects) -> None:
    fc, y, _site = subjects
    grid = {"model": [flat(4), flat(8)], "lr": [1e-3, 1e-2]}
    search = GridSearchCV(ForgeClassifier("finetune", epochs=2), grid, cv=2)
    search.fit(fc, y, site=np.arange(len(y)) % 2)
    assert len(search.cv_results_["params"]) == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": Sparse}, "Give an object, model=Sparse"),
        ({"model": 3}, "model=3 is not a name"),
        ({"model": nn.Identity()}, "model 'Identity'.*no trainable parameters"),
        ({"model": flat(), "method": "ridge"}, "'analytic' works on model linear"),
        ({"model": flat(), "method": "twp"}, "works on model gcn"),
        ({"model": flat(), "model_params": {"readout": "9"}}, "readout layer '9'"),
        ({"model": flat(), "model_params": {"width": 9}}, "unknown setting 'width'"),
        ({"model": "no_such:Net"}, "'no_such:Net' cannot be imported"),
        ({"model": Sparse(8)}, r"called as forward\(fc\).*'sparse' forward\(x, edge_i"),
    ],
)
def test_what_cannot_work_is_refused_by_name(subjects, given, message) -> None:
    fc, y, site = subjects
    with pytest.raises(InputError, match=message):
        ForgeClassifier(epochs=1, **given).fit(fc, y, site)


def test_files_cannot_hold_a_module(subjects, tmp_path) -> None:
    fc, y, site = subjects
    model = learner(flat(), "fc").fit(fc, y, site)
    with pytest.raises(ConfigError, match="which a file cannot hold"):
        model.save(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="code of yours, which no file can hold"):
        ConsortiumClassifier("finetune", model=flat(), epochs=1).fit(fc, y, site)


def test_the_example_needs_fifteen_lines() -> None:
    text = EXAMPLE.read_text()
    code = text.partition("# start of the network\n")[2]
    code = code.partition("# end of the network")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15


def test_the_example_shows_that_forge_forgets_less(capsys) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")
    results = runpy.run_path(str(EXAMPLE))["results"]
    plt.close("all")
    assert results["forge"]["Sim-1"] > results["finetune"]["Sim-1"] + 0.1
