"""FORGE in closed form: the objective's gradient, what is recalled, and what it keeps."""

from dataclasses import replace

import pytest
import torch
from forge_world import N_ROIS, SITES, World

import small_world
from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.randomness import torch_rng
from fcforge.experiments.public_subjects import fit_public
from fcforge.methods.base import Lane, Learner
from fcforge.methods.forge_ridge import ForgeRidge
from fcforge.methods.shared.synthetic_memory import eval_by_row
from fcforge.models.edge import n_features
from fcforge.replay.bank import PoolName, PublicView
from fcforge.replay.hcts import Choice
from fcforge.replay.memory import empty_memory
from fcforge.replay.state import named
from small_world import make_model

SIZES = {"memory": 12, "candidates": 10, "dev": 6, "rounds": 3}


def learner(features: str = "log", **settings) -> Learner:
    model = make_model(Component("linear", {"features": features}), N_ROIS)
    return Learner(ForgeRidge(**{**SIZES, **settings}), model)


# -- the objective -------------------------------------------------------------------------
def objective(chosen: Learner, lane: Lane, solution, x, y, world) -> torch.Tensor:
    """FORGE's objective written out with logits, tuples and means, at one choice of the memory."""
    s = chosen.method
    params = {"head.0.weight": torch.stack([-solution[:-1], solution[:-1]])}
    params["head.0.bias"] = torch.stack([-solution[-1], solution[-1]])
    now = chosen.model.apply(params, {}, {"edges": x})

    def to_label(logits, label):
        t = 2.0 * label.double() - 1.0
        return 0.5 * (logits - torch.stack([-t, t], -1)).square().sum(-1)

    total = to_label(now.logits, y).mean()
    l1, l2, l3 = s.weights
    state = lane.state
    sites = len(state.choice.quota)
    part = torch.zeros((), dtype=torch.float64)
    for site in range(sites):
        active = state.choice.active
        slots = active[state.memory.site[active] == site]
        inputs = world.bank.inputs(chosen.model)["edges"][
            state.memory.rows[slots]
        ].double()
        then = chosen.model.apply(params, {}, {"edges": inputs})
        logits = (then.logits - state.memory.logits[slots].double()).square()
        readout = (then.embedding - inputs).square()  # r is x: not kept
        each = l1 * to_label(then.logits, state.memory.y[slots])
        each = each + l2 * logits.mean(-1)
        each = each + l3 * readout.mean(-1)
        part = part + each.mean() / sites
    total = total + part * (sites if s.sum_sites else 1)
    return total + s.penalty * x.shape[1] / len(y) * solution[:-1].square().sum()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sum_sites": True, "l1": 0.5, "l2": 0.5},
        {"sampler": "authors", "l1": 0.7, "l2": 0.1},
        {"sampler": "paper", "l1": 0.0},
        {"sampling": "reservoir"},
    ],
)
def test_solution_is_where_the_objective_is_flat(settings):
    """Gradient zero of the whole objective, readout term included, at the one choice made."""
    world, chosen = World(), learner(rounds=1, **settings)
    before = world.learn(chosen, SITES[:2])[-1]
    site = world.view(SITES[2], 2)
    site.rng = torch.Generator().manual_seed(0)
    lane = chosen.method._solve(chosen.model, before, site)
    x = site.inputs(chosen.model)["edges"].double()
    weight, bias = lane.params["head.0.weight"], lane.params["head.0.bias"]
    solution = torch.cat([weight[1], bias[1:]]).double().requires_grad_()
    (slope,) = torch.autograd.grad(
        objective(chosen, lane, solution, x, site.y, world), solution
    )
    nothing = torch.zeros_like(solution).requires_grad_()
    (start,) = torch.autograd.grad(
        objective(chosen, lane, nothing, x, site.y, world), nothing
    )
    assert float(slope.abs().max()) < 1e-5 * float(start.abs().max())  # float32 head
    assert float(bias.sum()) == 0.0
    assert torch.equal(weight[0], -weight[1])


def test_recall_by_hand():
    """Two past sites, quotas 1 and 2, a site of 6 subjects, l1 = 0.2 and l2 = 0.6."""
    choice = Choice(torch.tensor([1, 2, 3]), torch.tensor([1, 2]))
    memory = empty_memory(4, 0, "cpu")._replace(
        site=torch.tensor([0, 0, 1, 1]),
        y=torch.tensor([0, 1, 0, 1]),
        logits=torch.tensor([[9.0, 9.0], [-0.5, 0.5], [0.0, 1.0], [0.25, 0.25]]),
    )
    slot, target, mass = ForgeRidge(l1=0.2, l2=0.6).targets(memory, choice, 6)
    assert slot.tolist() == [1, 2, 3]
    # (0.2 * 1 + 0.6 * 0.5) / 0.8, (0.2 * -1 + 0.6 * 0.5) / 0.8, (0.2 * 1 + 0) / 0.8
    assert target[:, 0].tolist() == pytest.approx([0.625, 0.125, 0.25])
    # the past counts 0.8 * 6 subjects, half of them at each site
    assert mass.tolist() == pytest.approx([2.4, 1.2, 1.2])
    summed = ForgeRidge(l1=0.2, l2=0.6, sum_sites=True)
    assert summed.targets(memory, choice, 6)[2].tolist() == pytest.approx(
        [4.8, 2.4, 2.4]
    )


def test_balance_in_recall_by_hand():
    """Site 0 has one control, site 1 two controls and a patient: only the latter are moved."""
    choice = Choice(torch.tensor([0, 1, 2, 3]), torch.tensor([1, 3]))
    memory = empty_memory(4, 0, "cpu")._replace(
        site=torch.tensor([0, 1, 1, 1]), y=torch.tensor([0, 0, 0, 1])
    )
    plain = ForgeRidge(l1=0.5, l2=0.5, sum_sites=True)
    _, target, mass = plain.targets(memory, choice, 6)
    assert mass.tolist() == pytest.approx([6, 2, 2, 2])
    _, same, even = replace(plain, balance=1.0).targets(memory, choice, 6)
    assert even.tolist() == pytest.approx([6, 1.5, 1.5, 3])
    assert same.tolist() == target.tolist()


# -- in the engine -------------------------------------------------------------------------
@pytest.mark.parametrize("l3", [0.0, 0.15])
def test_zero_strength_is_the_ridge_of_the_last_site_bitwise(l3):
    """A convex problem does not remember its start: exact fine-tuning is the site alone."""
    world = World()
    after = world.learn(learner(l1=0.0, l2=0.0, l3=l3), SITES)[-1]
    alone = world.learn(learner(), SITES[2:])[-1]
    with_past = world.learn(learner(), SITES)[-1]
    for key, value in after.params.items():
        assert torch.equal(value, alone.params[key])
        assert not torch.equal(value, with_past.params[key])


def test_l3_changes_nothing_since_the_readout_is_fixed():
    world = World()
    a, b = (
        world.learn(learner(l3=l3, sampling="uniform"), SITES)[-1] for l3 in (0.0, 5.0)
    )
    assert all(torch.equal(a.params[k], b.params[k]) for k in a.params)


def test_rounds_average_what_single_choices_give():
    """With room for every candidate each round is the same problem: one round is enough."""
    world = World()
    whole = {"memory": 20, "candidates": 10, "sampling": "uniform"}
    one, many = (world.learn(learner(**whole, rounds=r), SITES)[-1] for r in (1, 4))
    for key, value in one.params.items():
        torch.testing.assert_close(value, many.params[key], rtol=1e-5, atol=1e-6)
    small = [
        world.learn(learner(rounds=r), SITES)[-1].params["head.0.weight"]
        for r in (1, 4)
    ]
    assert not torch.allclose(*small, rtol=1e-3)


def test_what_readouts_say_of_past_sites_is_computed_once_and_dropped_with_the_site():
    """A choice with known closeness and distances is the one from scratch, and none are stored."""
    world, chosen = World(), learner()
    lane = world.learn(chosen, SITES)[-1]
    assert not lane.state.geometry
    forward = eval_by_row(chosen.model, lane, world.bank.inputs(chosen.model))
    known = chosen.method.begin_site(chosen.model, lane, world.view(SITES[0], 3))
    assert known.state.geometry.distance.shape == (
        len(SITES),
        *2 * (SIZES["candidates"],),
    )
    key = torch.tensor(5, dtype=torch.int32)
    scratch, quick = (
        named(chosen.method.choose(forward, at, key).state) for at in (lane, known)
    )
    for name, value in scratch.items():
        torch.testing.assert_close(quick[name], value, msg=name)


def test_hcts_chooses_within_its_budget_and_learns():
    world = World()
    state = world.learn(learner(), SITES)[-1].state
    assert len(state.choice.active) == SIZES["memory"] == int(state.choice.quota.sum())
    assert bool((state.hcts.sites.s[:2] != 0).any())  # two past sites earned rewards
    assert not world.bank.real_rows(state.memory.rows).numel()


def test_second_choice_learns_keeps_nobody_and_differs_from_the_first():
    world = World()
    lane = world.learn(learner("log+diagonal", balance=0.5), SITES)[-1]
    assert not world.bank.real_rows(lane.state.memory.rows).numel()
    assert lane.params["head.0.weight"].shape == (2, n_features(N_ROIS, "log+diagonal"))
    plain = world.learn(learner("log+diagonal"), SITES)[-1]
    assert not torch.equal(lane.params["head.0.weight"], plain.params["head.0.weight"])


@pytest.mark.parametrize(
    "bad", [{"balance": 1.5}, {"penalty": 0.0}, {"rounds": 0}, {"l1": -1.0}]
)
def test_settings_that_cannot_be(bad):
    with pytest.raises(ConfigError):
        ForgeRidge(**bad)


def test_with_public_people_heads_are_pulled_to_theirs():
    """A start: min sum (t - s)^2 + alpha |w - w0|^2, checked against the primal solution."""
    world = small_world.World.of("forge_ridge", {"penalty": 0.7})
    found = fit_public(small_world.PUBLIC, ())
    rows = world.bank.add(PoolName("public", "(public)", 0, ""), found.batch)
    view = PublicView(found.subjects, world.bank, rows)
    method, model = world.learner.method, world.learner.model
    world.lane = method.start(model, world.lane, view)
    head = world.lane.state.public_head[:, 0].clone()
    site = world.view(small_world.order()[0])
    x, t = site.inputs(model)["edges"].double(), 2.0 * site.y.double() - 1.0
    site.rng = torch_rng(0)
    lane = method._solve(model, world.lane, site)
    design = torch.cat([x, torch.ones(len(x), 1).double()], 1)
    alpha = 0.7 * x.shape[1] * torch.eye(x.shape[1] + 1).double()
    alpha[-1, -1] = 0.0
    step = torch.linalg.solve(design.T @ design + alpha, design.T @ (t - design @ head))
    wanted = (head + step)[:-1]
    found_weight = lane.params["head.0.weight"][1].double()
    torch.testing.assert_close(found_weight, wanted, rtol=1e-3, atol=1e-6)
