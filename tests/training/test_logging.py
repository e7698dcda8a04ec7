"""Logs change no number, hold every term of the loss, and do not depend on the group."""

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fcforge.core.spec import Training
from fcforge.core.training_log import SiteLog
from fcforge.methods import METHODS, Method
from fcforge.methods.base import Learner, label_loss
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site
from small_world import World, assert_same, order

TRAINING = Training(epochs=4, batch_size=8)


def taught(method, *, logged, **settings):
    """Lane after all sites, and its logs by site."""
    world = World.of(method, training=TRAINING, **settings)
    return teach(world, logged=logged)


def teach(world, *, logged=True):
    logs = {}
    for name in order():
        site, world.taught = world.view(name), (*world.taught, name)
        job = Job(world.lane, site, world.seed, world.taught)
        logs[name] = SiteLog()
        (world.lane,) = learn_site(
            world.learner,
            [job],
            world.bank,
            TRAINING,
            logs=[logs[name]] if logged else None,
        )
    return world.lane, logs


def series(log):
    """Values by (name, past site) and epoch."""
    found = defaultdict(dict)
    for entry in log:
        found[entry.name, entry.past_site][entry.epoch] = entry.value
    return found


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_log_changes_no_number_and_its_terms_add_up_to_the_loss(method):
    plain, none = taught(method, logged=False)
    lane, logs = taught(method, logged=True)
    assert_same(plain.named(), lane.named())
    assert not any(list(log) for log in none.values())
    trains = METHODS[method].fits
    for log in logs.values():
        points = series(log)
        if not trains:
            assert not points
            continue
        epochs = list(range(1, TRAINING.epochs + 1))
        for name in ("loss/total", "learning rate", "training accuracy"):
            assert list(points[name, ""]) == epochs, name
        terms = [k for k, _ in points if k.startswith("loss/") and k != "loss/total"]
        assert terms
        for epoch in epochs:
            total = sum(points[name, ""][epoch] for name in terms)
            assert total == pytest.approx(points["loss/total", ""][epoch], rel=1e-4)


@pytest.mark.parametrize(
    ("method", "params", "terms"),
    [
        ("finetune", {}, {"current"}),
        ("er", {}, {"current", "replay"}),
        ("derpp", {}, {"current", "replay", "logits"}),
        ("lwf", {}, {"current", "logits"}),
        ("ewc", {}, {"current", "penalty"}),
        ("forge", {}, {"current", "replay", "logits", "readout"}),
        (
            "forge",
            {"teach_current": True},
            {
                "current",
                "replay",
                "logits",
                "readout",
                "current logits",
                "current readout",
            },
        ),
    ],
)
def test_terms_have_the_names_of_the_paper(method, params, terms):
    _, logs = taught(method, logged=True, params=params)
    names = {name for name, _ in series(logs[order()[1]])}
    assert {f"loss/{term}" for term in terms} == {
        name for name in names if name.startswith("loss/") and name != "loss/total"
    }


def test_the_penalty_is_the_one_that_the_gradient_belongs_to():
    world = World.of("ewc", training=TRAINING)
    lane, _ = teach(world)
    method = world.learner.method
    moved = lane._replace(params={k: v + 0.1 for k, v in lane.params.items()})
    leaves = {k: v.clone().requires_grad_() for k, v in moved.params.items()}
    penalty = method.penalties(moved._replace(params=leaves))["penalty"]
    by_hand = torch.autograd.grad(penalty, list(leaves.values()))
    zeros = {k: torch.zeros_like(v) for k, v in moved.params.items()}
    added = method.after_grad(None, moved, zeros, None, None)
    for grad, expected in zip(by_hand, added.values(), strict=True):
        torch.testing.assert_close(grad, expected)


def test_quotas_and_rewards_of_every_refresh_are_logged_by_past_site():
    lane, logs = taught("forge", logged=True, params={"refresh": 2})
    first, second, third = order()
    assert not [k for k in series(logs[first]) if k[0].startswith("replay/")]
    points = series(logs[third])
    quotas = {past: points["replay/quota", past] for past in (first, second)}
    for quota in quotas.values():
        assert list(quota) == [1, 3]  # refreshes before epochs 1 and 3
    for epoch in (1, 3):
        assert sum(quota[epoch] for quota in quotas.values()) == 8
    # the second site was in no choice before this site: no reward at the first refresh
    assert list(points["replay/reward", second]) == [3]
    assert list(points["replay/reward", first]) == [1, 3]
    assert {name for name, _ in points} >= {
        "replay/proxy accuracy",
        "replay/proxy forgetting",
    }
    assert lane.state.choice.quota.sum() > 0


@pytest.mark.parametrize("method", ["forge", "ewc", "packnet"])
def test_a_lane_in_a_group_logs_what_it_logs_alone(method):
    worlds = [World.of(method, training=TRAINING, seed=seed) for seed in (0, 1)]
    alone = [teach(world)[1] for world in worlds]
    grouped = [World.of(method, training=TRAINING, seed=0)]
    grouped.append(World.of(method, training=TRAINING, seed=1, bank=grouped[0].bank))
    for name in order():
        jobs = []
        for world in grouped:
            site, world.taught = world.view(name), (*world.taught, name)
            jobs.append(Job(world.lane, site, world.seed, world.taught))
        logs = [SiteLog(), SiteLog()]
        lanes = learn_site(
            grouped[0].learner, jobs, grouped[0].bank, TRAINING, logs=logs
        )
        for world, lane, log, single in zip(grouped, lanes, logs, alone, strict=True):
            world.lane = lane
            mine, theirs = series(log), series(single[name])
            assert mine.keys() == theirs.keys()
            for key, points in mine.items():
                if not key[0].startswith("replay/"):  # a tie may be dealt otherwise
                    assert points == pytest.approx(theirs[key], rel=1e-3, abs=1e-4)


@dataclass(frozen=True)
class Outsider(Method):
    """A method of others: a plain tuple at the first site, named terms later."""

    name: ClassVar[str] = "outsider"

    def loss(self, model, params, lane, batch, key):
        out = model.apply(params, lane.stats, batch.inputs, train=True, key=key)
        small = 0.01 * sum(p.square().sum() for p in params.values())
        value = label_loss(out.logits, batch.y)
        return value + small, out.stats, {"label": value, "size": small}

    def updates_at(self, epoch, epochs):
        return epoch == 2

    def observations(self, before, lane):
        return {"norm": sum(p.square().sum() for p in lane.params.values())}


@dataclass(frozen=True)
class Plain(Method):
    """A method that returns the tuple of a loss without terms."""

    name: ClassVar[str] = "plain"

    def loss(self, model, params, lane, batch, key):
        out = model.apply(params, lane.stats, batch.inputs, train=True, key=key)
        return label_loss(out.logits, batch.y), out.stats


def test_methods_of_others_are_logged_by_their_own_names():
    world = World.of("finetune", training=TRAINING)
    world.learner = Learner(Outsider(), world.learner.model)
    _, logs = teach(world)
    points = series(logs[order()[0]])
    assert list(points["replay/norm", ""]) == [3]
    assert set(points) >= {("loss/label", ""), ("loss/size", ""), ("loss/total", "")}
    world = World.of("finetune", training=TRAINING)
    world.learner = Learner(Plain(), world.learner.model)
    _, logs = teach(world)
    names = {name for name, _ in series(logs[order()[0]])}
    assert {n for n in names if n.startswith("loss/")} == {"loss/total"}


def test_a_restarted_learning_rate_is_logged():
    _, logs = taught("packnet", logged=True)
    rates = series(logs[order()[0]])["learning rate", ""]
    assert rates[TRAINING.epochs] < rates[1]
