"""The contract tests for methods of others: they pass for good methods and name what is wrong."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from fcforge.methods import METHODS, Method
from fcforge.testing import World, check_method, subjects

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from agem import AGEM

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


def test_a_method_from_outside_passes_in_forty_lines():
    check_method(AGEM)
    check_method(AGEM, {"memory": 6, "replay": 4}, "mlp")
    text = (Path(__file__).parents[1] / "examples" / "agem.py").read_text()
    assert len(text.splitlines()) <= 40


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
        from fcforge.graphs import edges

        return lane._replace(state=Kept(3.0 * edges(site.fc)[0] + 1.0))


@dataclass(frozen=True)
class Archivist(Hoarder):
    """Keeps whole matrices and says that these are statistics."""

    name = "archivist"

    def end_site(self, model, lane, site):
        return lane._replace(state=Kept(site.fc.clone()))


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
