"""Any torch module as a model: numbers, randomness, buffers, what is refused, and training."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from simulated_site import simulate
from torch import nn

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.randomness import torch_rng
from fcforge.core.settings import build
from fcforge.models import MODELS
from fcforge.models.torch_module import TorchModule

R = 8


class Net(nn.Module):
    """Batch norm, dropout, and a hidden layer as readout."""

    def __init__(self, n_rois: int = R, n_outputs: int = 2, width: int = 6) -> None:
        super().__init__()
        self.hidden = nn.Linear(n_rois * n_rois, width)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(width, n_outputs)

    def forward(self, fc):
        h = torch.relu(self.norm(self.hidden(fc.flatten(1))))
        return self.out(self.drop(h))


class Dense(nn.Module):
    """A graph convolution on node features and adjacency."""

    def __init__(self, n_rois: int = R) -> None:
        super().__init__()
        self.conv = nn.Linear(n_rois, 5)
        self.out = nn.Linear(5, 2)

    def forward(self, x, adjacency):
        return self.out(torch.relu(self.conv(adjacency @ x)).mean(1))


def key(n):
    return torch.tensor(n, dtype=torch.int32)


def fc():
    return simulate(10, rois=R).fc


def test_scores_are_those_of_the_module() -> None:
    net = Net().eval()
    model = TorchModule(net, readout="hidden", n_rois=R)
    assert model.readout_size == 6
    params = {k: v.detach() for k, v in net.named_parameters()}
    out = model.apply(params, model.init_stats(), model.prepare(fc()))
    torch.testing.assert_close(out.logits, net(fc()))
    torch.testing.assert_close(out.embedding, net.hidden(fc().flatten(1)))
    dense = TorchModule(Dense(), inputs="dense", n_rois=R)
    assert dense.readout_size == 2  # the logits
    inputs = dense.prepare(fc())
    params = {k: v.detach() for k, v in dense.module.named_parameters()}
    expected = dense.module(inputs["features"], inputs["adjacency"])
    torch.testing.assert_close(dense.apply(params, {}, inputs).logits, expected)


def test_parameters_and_dropout_follow_their_seeds_alone() -> None:
    net = Net()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    model = TorchModule(net, n_rois=R)
    one, two = (model.init(torch_rng(0)) for _ in range(2))
    assert all(torch.equal(one[k], two[k]) for k in one)
    assert not torch.equal(
        one["hidden.weight"], model.init(torch_rng(1))["hidden.weight"]
    )
    inputs, stats = model.prepare(fc()), model.init_stats()

    def logits(n):
        torch.rand(3)  # the global generator does not matter
        return model.apply(one, stats, inputs, train=True, key=key(n)).logits

    assert torch.equal(logits(1), logits(1))
    assert not torch.equal(logits(1), logits(2))
    state = torch.get_rng_state()
    logits(3)
    model.init(torch_rng(0))
    torch.rand(0)
    assert torch.equal(torch.get_rng_state()[:8], state[:8])
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


def test_layers_keep_their_mode() -> None:
    net = Net()
    net.norm.eval()  # one layer in another mode than the rest
    before = [layer.training for layer in net.modules()]
    model = TorchModule(net, n_rois=R)
    model.apply(model.init(torch_rng(0)), model.init_stats(), model.prepare(fc()))
    assert [layer.training for layer in net.modules()] == before


def test_running_statistics_go_in_and_come_out() -> None:
    model = TorchModule(Net(), n_rois=R)
    params, stats = model.init(torch_rng(0)), model.init_stats()
    inputs = model.prepare(fc())
    out = model.apply(params, stats, inputs, train=True)
    assert torch.equal(stats["norm.running_mean"], torch.zeros(6))
    assert not torch.equal(out.stats["norm.running_mean"], stats["norm.running_mean"])
    still = model.apply(params, out.stats, inputs).stats
    assert all(torch.equal(still[k], out.stats[k]) for k in still)


def test_a_pyg_network_gets_edges_weights_and_batch() -> None:
    geometric = pytest.importorskip("torch_geometric.nn")

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = geometric.GCNConv(R, 5)
            self.out = nn.Linear(5, 2)

        def forward(self, x, edge_index, edge_weight, batch):
            h = torch.relu(self.conv(x, edge_index, edge_weight))
            return self.out(geometric.global_mean_pool(h, batch))

    model = TorchModule(Graph(), readout="out", inputs="sparse", tau=0.2, n_rois=R)
    inputs = model.prepare(fc())
    params = model.init(torch_rng(0))
    out = model.apply(params, {}, inputs).logits
    looped = inputs["adjacency"] + torch.eye(R)
    scale = looped.sum(-1).rsqrt()
    propagation = scale[:, :, None] * looped * scale[:, None, :]
    h = propagation @ inputs["features"] @ params["conv.lin.weight"].T
    h = torch.relu(h + params["conv.bias"]).mean(1)
    expected = h @ params["out.weight"].T + params["out.bias"]
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)


class InForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 2)

    def forward(self, fc):
        return self.out(nn.Linear(R * R, 4)(fc.flatten(1)))


class Pooled(Net):
    def forward(self, fc):
        return super().forward(fc).mean(0)


class AcrossSubjects(Net):
    def forward(self, fc):
        return super().forward(fc - fc.mean(0))


class Twice(Net):
    """Returns the hidden layer beside the logits."""

    def forward(self, fc):
        return super().forward(fc), self.hidden(fc.flatten(1))


class TwiceInTraining(Twice):
    def forward(self, fc):
        both = super().forward(fc)
        return both if self.training else both[0]


class Infinite(Net):
    def forward(self, fc):
        return super().forward(fc) / 0.0


class Detached(Net):
    def forward(self, fc):
        return super().forward(fc).detach()


class ChangesInput(Net):
    def forward(self, fc):
        return super().forward(fc.mul_(2.0))


@pytest.mark.parametrize(
    ("module", "settings", "words"),
    [
        (Twice(), {}, "forward returns tuple for 3 subjects"),
        (TwiceInTraining(), {}, "forward returns tuple for 3 subjects"),
        (Infinite(), {}, "logits that are not finite"),
        (Detached(), {}, "its output depends on no parameter"),
        (ChangesInput(), {}, "changes its input in place"),
        (nn.Sequential(nn.Flatten(), nn.LazyLinear(2)), {}, "lazy layers"),
        (
            InForward(),
            {},
            "model 'InForward': its output changes from call to call.*__init__",
        ),
        (Pooled(), {}, r"returns shape \(2,\) for 3 subjects"),
        (AcrossSubjects(), {}, "depend on the other subjects"),
        (Net(), {"n_outputs": 3}, r"not \(3, 3\)"),
        (Net(5), {}, "forward fails on FC of 8 ROIs"),
        (Net(5), {}, "built for another number of ROIs than 8?"),
        (
            Net(),
            {"readout": "hiden"},
            "unknown readout layer 'hiden'. Did you mean 'hidden'",
        ),
        (nn.Flatten(), {}, "no trainable parameters"),
        (Net(), {"inputs": "raw"}, "inputs = 'raw' is unknown"),
        (Net(), {"inputs": "dense"}, "forward fails"),
    ],
)
def test_what_cannot_work_is_refused_by_name(module, settings, words) -> None:
    with pytest.raises(ConfigError, match=words):
        TorchModule(module, **{"n_rois": R, **settings})


class OfData(nn.Module):
    """A network with PyTorch Geometric's common form."""

    def __init__(self) -> None:
        super().__init__()
        geometric = pytest.importorskip("torch_geometric.nn")
        self.conv = geometric.GCNConv(R, 4)
        self.pool = geometric.global_mean_pool
        self.out = nn.Linear(4, 2)

    def forward(self, data):
        h = self.conv(data.x, data.edge_index, data.edge_attr).relu()
        return self.out(self.pool(h, data.batch))


def wrapped_as_documented(net):
    """Return a network in the wrapper that docs/methods.md shows."""
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
    (code,) = [
        c for c in re.findall(r"```python\n(.*?)```", page, re.S) if "Data(" in c
    ]
    names: dict = {}
    exec(code, names)
    return names["Wrapped"](net)


@pytest.mark.parametrize("inputs", ["sparse", "fc"])
def test_a_network_of_one_data_object_is_shown_the_wrapper(inputs) -> None:
    with pytest.raises(
        ConfigError, match=r"return self\.net\(Data\(x=x, edge_index"
    ) as e:
        TorchModule(OfData(), n_rois=R, inputs=inputs)
    assert "another number of ROIs" not in str(e.value)
    model = TorchModule(wrapped_as_documented(OfData()), n_rois=R, inputs="sparse")
    assert model.readout_size == 2


def test_a_network_with_arguments_that_fit_is_shown_no_wrapper() -> None:
    with pytest.raises(ConfigError) as caught:
        TorchModule(Net(5), n_rois=R)
    assert "PyTorch Geometric" not in str(caught.value)


def test_a_config_may_name_a_module(monkeypatch) -> None:
    plugin = ModuleType("my_networks")
    plugin.Net = Net
    monkeypatch.setitem(sys.modules, "my_networks", plugin)
    assert "torch_module" not in MODELS
    MODELS.import_member("my_networks:Net")
    try:
        asked = {"readout": "hidden", "settings": {"width": 4}}
        component = Component("my_networks:Net", asked)
        model = build("model", component, MODELS, n_rois=12, n_outputs=3)
        assert model.readout_size == 4
        assert model.init(torch_rng(0))["hidden.weight"].shape == (4, 144)
        first, again = (model.init(torch_rng(5))["out.bias"] for _ in range(2))
        assert torch.equal(first, again)
        wrong = Component("my_networks:Net", {"settings": {"widht": 4}})
        with pytest.raises(ConfigError, match=r"cannot be built.*widht"):
            build("model", wrong, MODELS, n_rois=12, n_outputs=2)
    finally:
        del MODELS["my_networks:Net"]
