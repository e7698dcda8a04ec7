"""The pull to the pretrained network: equal to a penalty that is written into the loss."""

from dataclasses import dataclass, replace

import pytest
import torch

from fcforge.core.component import Component
from fcforge.core.spec import Training
from fcforge.core.subjects import FCBatch
from fcforge.data.splits import make_sites
from fcforge.methods.base import Lane, Learner, Loss, Method
from fcforge.methods.finetune import Finetune
from fcforge.replay.bank import Bank, PoolName, SiteView
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site
from fcforge.training.step import pull
from small_world import R, cast_lane, cohort, make_model, order

STRENGTH = 3.0
TRAINING = Training(epochs=3, batch_size=7, lr=1e-2)


@dataclass(frozen=True)
class Penalised(Finetune):
    """Fine-tuning with the penalty in its loss; the centre is the network that it begins with."""

    State = tuple
    centre = None

    def loss(self, model, params, lane, batch, key) -> Loss:
        plain, stats = super().loss(model, params, lane, batch, key)
        distance = sum(
            (params[k] - v).square().sum() for k, v in type(self).centre.items()
        )
        return plain + STRENGTH / 2 * distance, stats


def lanes(method: Method, training: Training, seeds, *, together: bool) -> list[Lane]:
    """Lanes after one site, which began at network 10 + seed and are pulled to network seed."""
    learner = Learner(method, make_model(Component("linear"), R))
    bank, name, jobs = Bank(), order()[0], []
    for seed in seeds:
        made = make_sites(cohort(), seed)[name].train
        people = FCBatch(made.fc.double(), made.y)
        rows = bank.add(PoolName("real", name, seed, "train"), people)
        view = SiteView(name, 0, bank, rows, rows[:0])
        first, centre = (
            cast_lane(start_lane(learner, s), torch.float64) for s in (10 + seed, seed)
        )
        jobs.append(Job(first, view, seed, (name,), pretrained=centre.params))
    groups = [jobs] if together else [[job] for job in jobs]
    return [lane for g in groups for lane in learn_site(learner, g, bank, training)]


def test_the_pull_is_the_gradient_of_the_penalty():
    rng = torch.Generator().manual_seed(0)
    params = {k: torch.randn(3, 2, generator=rng).requires_grad_() for k in "ab"}
    centre = {k: torch.randn(3, 2, generator=rng) for k in "ab"}
    zero = {k: torch.zeros(3, 2) for k in "ab"}
    penalty = sum((params[k] - centre[k]).square().sum() for k in "ab")
    expected = torch.autograd.grad(STRENGTH / 2 * penalty, list(params.values()))
    found = pull(zero, params, centre, STRENGTH)
    for k, value in zip("ab", expected, strict=True):
        torch.testing.assert_close(found[k].detach(), value)


def test_training_with_a_pull_is_training_on_the_penalised_loss(monkeypatch):
    (pulled,) = lanes(
        Finetune(), replace(TRAINING, public_pull=STRENGTH), [0], together=False
    )
    learner = Learner(Finetune(), make_model(Component("linear"), R))
    centre = cast_lane(start_lane(learner, 0), torch.float64).params
    monkeypatch.setattr(Penalised, "centre", centre)
    (by_hand,) = lanes(Penalised(), TRAINING, [0], together=False)
    (plain,) = lanes(Finetune(), TRAINING, [0], together=False)
    moved = 0.0
    for k, value in by_hand.params.items():
        torch.testing.assert_close(pulled.params[k], value, rtol=1e-8, atol=1e-10)
        moved = max(moved, float((plain.params[k] - value).abs().max()))
    assert moved > 1e-3


def test_a_strong_pull_leaves_the_network_where_it_was_pretrained():
    far = {}
    for strength in (0.0, 1e4):
        training = Training(
            epochs=150, batch_size=7, lr=1e-3, public_pull=strength, weight_decay=0.0
        )
        (lane,) = lanes(Finetune(), training, [0], together=False)
        learner = Learner(Finetune(), make_model(Component("linear"), R))
        centre = cast_lane(start_lane(learner, 0), torch.float64).params
        far[strength] = max(
            float((lane.params[k] - v).abs().max()) for k, v in centre.items()
        )
    assert far[1e4] < 0.02 < 0.1 < far[0.0]


@pytest.mark.rounding
def test_pulled_lanes_in_a_group_are_the_runs_alone():
    training = replace(TRAINING, public_pull=STRENGTH)
    alone, group = (
        lanes(Finetune(), training, [0, 1, 2], together=t) for t in (False, True)
    )
    for a, b in zip(alone, group, strict=True):
        for k, value in a.params.items():
            torch.testing.assert_close(b.params[k], value, rtol=1e-9, atol=1e-9)
