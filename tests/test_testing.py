"""The contract tests for methods of others: they pass for good methods and name what is wrong."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from fcforge.graphs import edges, log_edges
from fcforge.methods import METHODS, Method
from fcforge.testing import World, check_method, subjects

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from agem import AGEM
from mas import MAS

SMALL = {
    "forge": {"memory": 12, "candidates": 10, "dev": 6, "replay": 8, "refresh": 2},
    "forge_ridge": {"memory": 12, "candidates": 10, "dev": 6},
    "joint": None,  # has a single stage
    "majority": None,  # the same score for every subject, whatever it learns
}


@pytest.mark.parametrize(
    "name", ["finetune", "ewc", "er", "derpp", "lwf", "packnet", "analytic", "forge"]
)
def test_methods_of_the_package_pass(name):
    check_method(METHODS[name], SMALL.get(name))


def test_importance_of_weights_that_resembles_a_summary_is_no_copy():
    """TEM's 16 inputs of a subject show in the gradients of its weights."""
    check_method(METHODS["si"], model="tem")


def test_a_method_from_outside_passes_in_forty_lines():
    check_method(AGEM)
    check_method(AGEM, {"memory": 6, "replay": 4}, "mlp")
    text = (Path(__file__).parents[1] / "examples" / "agem.py").read_text()
    assert len(text.splitlines()) <= 40


def test_mas_reads_every_subject_and_pulls_to_the_anchor():
    from fcforge.methods.base import Batch, Learner
    from fcforge.models import MODELS

    check_method(MAS)
    text = (Path(__file__).parents[1] / "examples" / "mas.py").read_text()
    assert len(text.split("class MAS")[1].splitlines()) <= 40
    learner = Learner(MAS(strength=2.0), MODELS["linear"](n_rois=8))
    world = World(torch.float64)
    lane = world.lane_after(learner, ("A",))
    site = world.view("A", 0)
    # the logits are z = Wx + b: the derivative of their squared length by W is 2 z x
    inputs = site.inputs(learner.model)
    z = learner.model.apply(lane.params, lane.stats, inputs).logits
    bias = next(k for k in lane.params if k.endswith("bias"))
    expected = (2 * z).abs().mean(0)
    assert torch.allclose(lane.state.weight[bias], expected)
    moved = {k: v + 1.0 for k, v in lane.params.items()}
    key = torch.tensor(3, dtype=torch.int32)
    loss = learner.method.loss(learner.model, moved, lane, Batch(inputs, site.y), key)
    pull = 2.0 * sum(float(v.sum()) for v in lane.state.weight.values())
    assert float(loss.terms["pull"]) == pytest.approx(pull)
    assert float(loss.total) == pytest.approx(sum(map(float, loss.terms.values())))


def test_agem_projects_only_against_the_memory():
    """After the projection the gradient never points against that of the memory."""
    from fcforge.methods.base import Batch, Learner, label_loss
    from fcforge.models import MODELS

    learner = Learner(AGEM(memory=8, replay=4), MODELS["linear"](n_rois=8))
    world = World(torch.float64)
    lane = world.lane_after(learner, ("A",))
    inputs = world.bank.inputs(learner.model)
    world.view("B", 1)
    inputs = world.bank.inputs(learner.model)
    key = torch.tensor(3, dtype=torch.int32)
    replay = learner.method.recall(lane, inputs, key)
    batch = Batch({k: v[20:28] for k, v in inputs.items()}, world.bank.y[20:28], replay)

    def gradient(x, y, weight=None):
        def loss(params):
            return label_loss(learner.model.apply(params, {}, x).logits, y, weight)

        return torch.func.grad(loss)(lane.params)

    past = gradient(replay.inputs, replay.y, replay.weight)
    against = {k: -2.0 * v + 0.1 for k, v in past.items()}
    along = {k: 0.5 * v for k, v in past.items()}

    def product(grads):
        return float(sum((grads[k] * past[k]).sum() for k in past))

    def changed(grads):
        return learner.method.after_grad(learner.model, lane, grads, batch, key)

    assert product(against) < 0
    assert product(changed(against)) == pytest.approx(0.0, abs=1e-9)
    assert all(torch.equal(changed(along)[k], v) for k, v in along.items())


class Kept(NamedTuple):
    fc: Tensor


@dataclass(frozen=True)
class Hoarder(Method):
    """Keeps a subject's edges as a statistic."""

    name = "hoarder"
    keeps = "statistics"
    State = Kept

    def start(self, model, lane, public=None):
        return lane._replace(state=Kept(torch.zeros(28)))

    def end_site(self, model, lane, site):
        return lane._replace(state=Kept(3.0 * edges(site.fc)[0] + 1.0))


@dataclass(frozen=True)
class Archivist(Hoarder):
    """Keeps whole matrices and says that these are statistics."""

    name = "archivist"

    def end_site(self, model, lane, site):
        return lane._replace(state=Kept(site.fc.clone()))


class Two(NamedTuple):
    first: Tensor
    second: Tensor


def hoarder(encode, state=Kept, keeps_="statistics"):
    """Return a method whose state is what `encode` makes of a site's FC (n, R, R) and rows."""

    @dataclass(frozen=True)
    class Encoder(Method):
        name = "encoder"
        keeps = keeps_
        State = state

        def start(self, model, lane, public=None):
            nobody = torch.eye(8).expand(20, 8, 8)
            return self._state_of(lane, nobody, torch.arange(20))

        def end_site(self, model, lane, site):
            return self._state_of(lane, site.fc, site.rows)

        def _state_of(self, lane, fc, rows):
            values = encode(edges(fc), fc, rows)
            values = values if isinstance(values, tuple) else (values,)
            return lane._replace(state=state(*(value.clone() for value in values)))

    return Encoder


class Pinned(NamedTuple):
    anchor: dict[str, Tensor]


@dataclass(frozen=True)
class Pinner(Method):
    """Keeps the parameters themselves, without a copy."""

    name = "pinner"
    keeps = "statistics"
    State = Pinned

    def start(self, model, lane, public=None):
        return lane._replace(state=Pinned({}))

    def end_site(self, model, lane, site):
        return lane.with_state(anchor=dict(lane.params))


def test_a_state_may_share_memory_with_the_network():
    check_method(Pinner)


@dataclass(frozen=True)
class Silent(Pinner):
    """Does not say that it keeps an anchor."""

    name = "silent"
    keeps = "nothing"


def test_a_state_of_a_method_that_keeps_nothing_is_named_with_a_remedy():
    rule = "the state has anchor/.*: declare keeps = 'statistics', or 'real subjects'"
    with pytest.raises(AssertionError, match=rule):
        check_method(Silent)


@dataclass(frozen=True)
class Exotic(Pinner):
    """Keeps numbers of a type that no file holds."""

    name = "exotic"

    def end_site(self, model, lane, site):
        anchor = {k: v.to(torch.complex128) for k, v in lane.params.items()}
        return lane.with_state(anchor=anchor)


def test_a_state_that_no_file_can_hold_is_named():
    with pytest.raises(AssertionError, match="tensors that a file can hold"):
        check_method(Exotic)


SHUFFLED = torch.randperm(28, generator=torch.Generator().manual_seed(0))
NOISE = torch.randn(28, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "encode",
    [
        lambda x, fc, rows: x[0].half(),
        lambda x, fc, rows: x[:6].reshape(2, 3, 28).movedim(2, 0).contiguous(),
        lambda x, fc, rows: x[:6].reshape(2, 3, 28).movedim(2, 1).contiguous(),
        lambda x, fc, rows: (1e4 * x[0]).round().to(torch.int16),
        lambda x, fc, rows: x[0].view(torch.int32),
        lambda x, fc, rows: x[0].double().view(torch.int64),
        lambda x, fc, rows: x[0].half().view(torch.uint8),
        lambda x, fc, rows: torch.complex(x[0], x[1]),
        lambda x, fc, rows: x[0][SHUFFLED],
        lambda x, fc, rows: x[0].sort().values,
        lambda x, fc, rows: x[0].flip(0) * (1 - 2 * (SHUFFLED % 2)),
        lambda x, fc, rows: torch.stack([x[0], NOISE], 1).flatten(),
        lambda x, fc, rows: log_edges(fc)[0],
    ],
)
def test_a_subject_in_another_form_is_found(encode):
    with pytest.raises(AssertionError, match="copy of a real subject in fc of the sta"):
        check_method(hoarder(encode))


def test_a_subject_in_two_tensors_is_found():
    with pytest.raises(AssertionError, match="in several tensors of the state"):
        check_method(hoarder(lambda x, fc, rows: (x[0, :14], x[0, 14:]), Two))


@pytest.mark.parametrize(
    "encode",
    [
        lambda x, fc, rows: rows[:3],
        lambda x, fc, rows: rows[:3].float() ** 2,
        lambda x, fc, rows: rows.sum().reshape(1),
    ],
)
def test_rows_under_the_name_of_statistics_are_found(encode):
    with pytest.raises(AssertionError, match="state/fc depends on the numbers of the"):
        check_method(hoarder(encode))


@pytest.mark.parametrize(
    "encode",
    [
        lambda x, fc, rows: x.mean(0),
        lambda x, fc, rows: x.std(0),
        lambda x, fc, rows: x.T @ x,
        lambda x, fc, rows: torch.tensor(len(rows)),
        lambda x, fc, rows: torch.arange(100),
        lambda x, fc, rows: torch.ones(200, dtype=torch.bool),
        lambda x, fc, rows: fc.mean(0),
    ],
)
def test_statistics_of_many_are_no_copy(encode):
    check_method(hoarder(encode))


@pytest.mark.parametrize(
    "encode",
    [
        lambda x, fc, rows: x[0].view(torch.int32) ^ 0x5A5A5A5A,
        lambda x, fc, rows: x[0] + 0.3 * NOISE,
        lambda x, fc, rows: x[:2].mean(0),
        lambda x, fc, rows: torch.linalg.eigh(fc[0]).eigenvectors,
        lambda x, fc, rows: 3 * x[0][SHUFFLED] + 1,
    ],
)
def test_encoded_subjects_are_beyond_the_check_as_the_documentation_says(encode):
    check_method(hoarder(encode))
    text = (Path(__file__).parents[1] / "docs/explained/pipeline.md").read_text()
    assert "cannot find a subject that is encrypted, compressed, noisy or mixed" in text


@dataclass(frozen=True)
class WritesIntoTheNetwork(Method):
    """Overwrites weights with a subject's edges."""

    name = "writes-into-the-network"

    def end_site(self, model, lane, site):
        weight = lane.params["head.0.weight"].clone()
        weight.view(-1)[:28] = edges(site.fc)[0]
        return lane._replace(params={**lane.params, "head.0.weight": weight})


@dataclass(frozen=True)
class ReadsTheBank(Method):
    """Reads subjects of the first site while it learns the second."""

    name = "reads-the-bank"

    def end_site(self, model, lane, site):
        level = edges(site.bank.fc(torch.arange(20))).mean() if site.position else 0.0
        params = {name: value + level for name, value in lane.params.items()}
        return lane._replace(params=params)


class Undecorated(AGEM):
    """Has a setting, which only the decorator would make one."""

    name = "undecorated"
    memory: int = 3


@dataclass(frozen=True)
class Restless(Method):
    """Draws from the global generator."""

    name = "restless"

    def end_site(self, model, lane, site):
        noise = {k: v + 0.1 * torch.randn(v.shape) for k, v in lane.params.items()}
        return lane._replace(params=noise)


@dataclass(frozen=True)
class Meddler(Method):
    """Changes the lane that it is given."""

    name = "meddler"

    def begin_site(self, model, lane, site):
        for value in lane.params.values():
            value += 1.0
        return lane


@dataclass(frozen=True)
class Untyped(Method):
    """Has a state of another type than it declares."""

    name = "untyped"
    keeps = "statistics"
    State = Kept


@dataclass(frozen=True)
class Nameless(Method):
    """Has no name."""


@pytest.mark.parametrize(
    ("method", "rule"),
    [
        (Hoarder, "copy of a real subject in fc"),
        (Archivist, "copy of a real subject in fc"),
        (WritesIntoTheNetwork, "copy of a real subject in params/head.0.weight of the"),
        (ReadsTheBank, "keeps is 'nothing', but what is learned at a site depends on"),
        (Undecorated, "memory would keep .* decorate the class"),
        (AGEM(), "give the class, not an object"),
        (Restless, "two equal runs"),
        (Meddler, "change none in place"),
        (Untyped, "must be a Kept"),
        (Nameless, "a name of its own"),
    ],
)
def test_a_broken_method_is_told_which_rule_it_breaks(method, rule):
    with pytest.raises(AssertionError, match=rule):
        check_method(method)


def test_the_small_world_has_a_class_effect():
    batch = subjects("A", "real")
    block = batch.fc[:, :4, :4].mean((1, 2))
    assert float(block[batch.y == 1].mean()) > float(block[batch.y == 0].mean()) + 0.1


@dataclass(frozen=True)
class Branches(Method):
    """Branches on the values of a tensor."""

    name = "branches"

    def loss(self, model, params, lane, batch, key):
        if next(iter(params.values())).sum() > 0:
            return super().loss(model, params, lane, batch, key)
        return super().loss(model, params, lane, batch, key)


@dataclass(frozen=True)
class ForgetsAnArgument(Method):
    """Has an `end_site` of another signature."""

    name = "forgets-an-argument"

    def end_site(self, model, lane):
        return lane


def test_errors_of_python_and_of_vmap_name_the_rule():
    with pytest.raises(AssertionError, match="must not branch on values of tensors"):
        check_method(Branches)
    with pytest.raises(AssertionError, match="must take the arguments"):
        check_method(ForgetsAnArgument)
