"""FORGE in the engine: its loss by hand, its settings, and that lanes do not feel each other."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from forge_world import N_ROIS, SITES, TRAINING, VARIANTS, World, learner

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.identity import digest, settings_identity
from fcforge.methods import make_method
from fcforge.methods.base import Batch, Learner, Replay
from fcforge.methods.forge import Forge
from fcforge.replay.bandit import PaperBandit
from fcforge.replay.hcts import HCTS, SAMPLERS, AuthorsHCTS, PaperHCTS
from fcforge.replay.state import named
from fcforge.training.initial_lanes import start_lane
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site
from small_world import make_model


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


# -- the objective -----------------------------------------------------------------------
def by_hand(settings: dict, n_past: int) -> tuple[float, float]:
    """Loss of the engine's method and the same number written out term by term."""
    world, chosen = World(), learner("linear", **settings)
    lane = world.learn(chosen, SITES[:n_past])[-1]
    x = world.bank.inputs(chosen.model)
    rng = torch.Generator().manual_seed(3)
    d = x["edges"].shape[1]
    u, r = torch.randn(4, 2, generator=rng), torch.randn(4, d, generator=rng)
    rows, old = torch.arange(5), torch.tensor([60, 61, 70, 71])
    weight = torch.tensor([0.4, 0.1, 0.3, 0.2])
    batch = Batch({k: v[rows] for k, v in x.items()}, world.bank.y[rows])
    replay = Replay({k: v[old] for k, v in x.items()}, world.bank.y[old], u, r, weight)
    loss, _ = chosen.method.loss(
        chosen.model,
        lane.params,
        lane,
        batch._replace(replay=replay),
        torch.tensor(0, dtype=torch.int32),
    )
    w, b = lane.params["head.0.weight"], lane.params["head.0.bias"]
    z, edges = x["edges"] @ w.T + b, x["edges"]
    mean = chosen.method.loss_form == "mean"
    l1, l2, l3 = chosen.method.weights
    remembered = torch.tensor(0.0)
    for i, j in enumerate(old.tolist()):
        ce = -F.log_softmax(z[j], 0)[world.bank.y[j]]
        logits = ((z[j] - u[i]) ** 2).sum() / (2 if mean else 1)
        readout = ((edges[j] - r[i]) ** 2).sum() / (d if mean else 1)
        remembered = remembered + weight[i] * (l1 * ce + l2 * logits + l3 * readout)
    factor = 1 if mean else n_past
    expected = F.cross_entropy(z[rows], world.bank.y[rows]) + factor * remembered
    return float(loss), float(expected)


@pytest.mark.parametrize("variant", ["stable", "paper"])
@pytest.mark.parametrize("n_past", [1, 2])
def test_loss_by_hand(variant, n_past):
    loss, expected = by_hand(
        {"variant": variant, "l1": 0.5, "l2": 0.25, "l3": 0.125}, n_past
    )
    assert loss == pytest.approx(expected, rel=1e-5)


def test_joint_forward_lets_batch_norm_see_both():
    world = World()
    moments = {}
    for forward in ("joint", "separate"):
        chosen = learner("gcn", forward=forward)
        lane = start_lane(chosen, 0)
        x = world.bank.inputs(chosen.model)
        batch = Batch({k: v[:6] for k, v in x.items()}, world.bank.y[:6])
        teacher = (
            torch.zeros(6, 2),
            torch.zeros(6, lane.state.memory.embedding.shape[1]),
        )
        replay = Replay(
            {k: v[20:26] for k, v in x.items()},
            world.bank.y[20:26],
            *teacher,
            torch.full((6,), 1 / 6),
        )
        key = torch.tensor(0, dtype=torch.int32)
        _, moments[forward] = chosen.method.loss(
            chosen.model, lane.params, lane, batch._replace(replay=replay), key
        )
        both = {k: torch.cat([v[:6], v[20:26]]) for k, v in x.items()}
        together = chosen.model.apply(
            lane.params, lane.stats, both, train=True, key=key
        ).stats
        assert same(moments[forward], together) == (forward == "joint")


@pytest.mark.parametrize("model", ["mlp", "gcn"])
def test_zero_weights_are_fine_tuning_bitwise(model):
    zero = World().learn(learner(model, l1=0, l2=0, l3=0), SITES)
    plain = Learner(
        make_method(Component("finetune")), make_model(Component(model), N_ROIS)
    )
    for a, b in zip(zero, World().learn(plain, SITES), strict=True):
        assert same(a.params, b.params)
        assert same(a.stats, b.stats)


def test_the_last_network_teaches_on_current_subjects_by_hand():
    """Appendix A: l2 |h - h_T|^2 + l3 |rho - rho_T|^2 over the batch, on top of the rest."""
    world, plain = World(), learner("mlp", variant="paper")
    asked = Learner(replace(plain.method, teach_current=True), plain.model)
    lane = world.learn(plain, SITES[:1])[-1]
    begun = asked.method.begin_site(asked.model, lane, world.view("B", 1))
    moved = {k: v + 0.1 for k, v in lane.params.items()}
    x, rows = world.bank.inputs(asked.model), torch.arange(5)
    inputs = {k: v[rows] for k, v in x.items()}
    key = torch.tensor(0, dtype=torch.int32)
    batch = Batch(inputs, world.bank.y[rows], asked.method.recall(lane, x, key))
    taught, _ = asked.method.loss(asked.model, moved, begun, batch, key)
    untaught, _ = plain.method.loss(plain.model, moved, lane, batch, key)
    now = plain.model.apply(moved, lane.stats, inputs, train=True, key=key)
    then = plain.model.apply(lane.params, lane.stats, inputs)
    _, l2, l3 = plain.method.weights
    logits = (now.logits - then.logits).square().sum(-1).mean()
    readout = (now.embedding - then.embedding).square().sum(-1).mean()
    expected = float(l2 * logits + l3 * readout)
    assert float(taught - untaught) == pytest.approx(expected, rel=1e-4)


def test_the_teacher_does_not_travel():
    lanes = World().learn(learner(teach_current=True), SITES[:2])
    plain = World().learn(learner(), SITES[:2])
    assert named(lanes[1].state).keys() == named(plain[1].state).keys()
    assert same(lanes[0].params, plain[0].params)
    assert not same(lanes[1].params, plain[1].params)


def test_each_weight_matters():
    full = World().learn(learner(), SITES[:2])[-1].params
    for off in ("l1", "l2", "l3"):
        assert not same(full, World().learn(learner(**{off: 0}), SITES[:2])[-1].params)


# -- lanes -------------------------------------------------------------------------------
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("model", ["mlp", "gcn"])
def test_a_lane_equals_the_same_run_alone(model, variant):
    """In float64: Adam turns the last bit of a vanishing gradient into a visible step."""
    world, chosen = World(dtype=torch.float64), learner(model, **VARIANTS[variant])
    alone = world.learn(chosen, ("A", "B", "C"))
    other = world.learn(chosen, ("B", "A"), seed=1)
    jobs = [
        Job(alone[1], world.view("C", 2), 0, ("A", "B", "C")),
        Job(other[1], world.view("C", 2), 1, ("B", "A", "C")),
    ]
    together = learn_site(chosen, jobs, world.bank, TRAINING)[0]
    for k, v in alone[2].params.items():
        assert torch.allclose(together.params[k], v, rtol=0, atol=1e-10)
    a, b = named(together.state), named(alone[2].state)
    for k in ("memory.rows", "choice.active", "choice.quota"):
        assert torch.equal(a[k], b[k])


def test_lanes_with_weights_of_their_own_train_side_by_side():
    """Each ends as the learner with those weights alone, and the weights do not travel."""
    world = World(dtype=torch.float64)
    weights = ((0.2, 0.15), (0.4, 0.0))
    learners = [learner("gcn", l1=l1, l3=l3) for l1, l3 in weights]
    assert len({chosen.method.without_factors() for chosen in learners}) == 1
    zero = learner("gcn", l1=0, l2=0, l3=0)
    assert zero.method.without_factors() != learners[0].method.without_factors()
    alone = [world.learn(chosen, ("A", "B"))[-1] for chosen in learners]
    jobs = []
    for chosen in learners:
        lane = world.learn(chosen, ("A",))[-1]
        view = world.view("B", 1)
        jobs.append(Job(lane, view, 0, ("A", "B"), method=chosen.method))
    together = learn_site(learners[0], jobs, world.bank, TRAINING)
    for one, other in zip(together, alone, strict=True):
        assert named(one.state).keys() == named(other.state).keys()
        for k, v in other.params.items():
            assert torch.allclose(one.params[k], v, rtol=0, atol=1e-9)
    assert not same(together[0].params, together[1].params)


# -- settings ----------------------------------------------------------------------------
def test_the_papers_values():
    """Equation and appendix; where they are silent, the authors' code."""
    paper = Forge(variant="paper")
    assert (paper.replay, paper.forward, paper.refresh) == (64, "separate", 1)
    assert (paper.loss_form, paper.sum_sites) == ("sum", True)
    sampler = paper.hcts
    assert (sampler.temperature, sampler.floor, sampler.reward_scale) == (
        1.0,
        0.0,
        0.05,
    )
    assert type(sampler) is PaperHCTS
    assert sampler.sites == PaperBandit(10.0, 0.1, 0.98, pooled=False)
    assert sampler.subjects == PaperBandit(5.0, 0.15, 0.98, pooled=False)
    assert (sampler.prototype_weight, paper.dev) == (0.2, 16)
    assert Forge(lambdas="mdd").weights == (0.30, 0.30, 0.20)
    assert Forge(lambdas="bsnip", l3=0).weights == (0.25, 0.30, 0)


def test_the_authors_code(monkeypatch):
    code = Forge(variant="authors")
    assert code.weights == (0.10, 0.40, 0.30)
    assert (code.loss_form, code.sum_sites, code.sampler) == ("mean", False, "authors")
    assert (code.replay, code.forward, code.refresh, code.dev) == (
        64,
        "separate",
        80,
        16,
    )
    monkeypatch.setattr(AuthorsHCTS, "LIMITS", (3, 8))
    lanes = World().learn(learner(variant="authors"), SITES)
    for t, lane in enumerate(lanes, start=1):
        state = lane.state
        assert (
            state.hcts.seen.tolist() == [True] * t
        )  # chosen, and credited, at the end
        assert (
            int(state.choice.quota.sum()) == len(state.choice.active) == min(12, 8 * t)
        )
        assert int(state.choice.quota.min()) >= 3
        assert int(state.choice.quota.max()) <= 8
        assert float(state.choice.share.sum()) == pytest.approx(1.0, abs=1e-5)


def test_a_preset_and_what_is_set_by_hand():
    changed = {"variant": "paper", "refresh": 7, "sampler": "stable"}
    method = make_method(Component("forge", changed))
    paper = Forge(variant="paper")
    assert method == replace(paper, refresh=7, sampler="stable")
    own = {"variant": "stable", "sampler": "paper"}
    assert make_method(Component("forge", own)) == Forge(sampler="paper")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"sampler": {"temperature": 0.5}}, HCTS(temperature=0.5)),
        (
            {"sampler": {"variant": "paper", "sites": {"prior": 1.0}}},
            PaperHCTS(sites=PaperBandit(prior=1.0)),
        ),
        # a table without a variant changes the sampler of the method's own variant
        (
            {"variant": "paper", "sampler": {"prototype_weight": 0.3}},
            PaperHCTS(prototype_weight=0.3),
        ),
        (
            {"variant": "paper", "sampler": {"variant": "authors", "shortlist": 5}},
            AuthorsHCTS(shortlist=5),
        ),
    ],
)
def test_single_settings_of_the_sampler(params, expected):
    method = make_method(Component("forge", params))
    assert method.hcts == expected
    assert type(method.hcts) is type(expected)
    assert type(method.hcts.sites) is type(expected.sites)
    given = {k: v for k, v in params.items() if k == "variant"}
    assert method == Forge(**given, sampler=expected)
    assert hash(method) == hash(Forge(**given, sampler=expected))


def test_samplers_of_other_settings_have_other_keys():
    words = [*SAMPLERS, *({"variant": word} for word in SAMPLERS)]
    settings = [*words, {"temperature": 0.5}, {"subjects": {"noise": 0.2}}]
    keys = [
        digest(settings_identity(Forge, {"sampler": sampler}, "here"))
        for sampler in settings
    ]
    assert len({*keys}) == len(keys)


def test_single_settings_of_the_sampler_are_used():
    chosen = []
    for temperature in (0.1, 50.0):
        sampler = {"temperature": temperature, "floor": 0.0}
        lanes = World().learn(learner(sampler=sampler), SITES)
        chosen.append(lanes[-1].params)
    assert not same(*chosen)


@pytest.mark.parametrize(
    "bad",
    [
        {"sampler": {"temperature": 0.0}},
        {"sampler": {"sites": {"gamma": 1.5}}},
        {"sampler": {"prototype_weight": 0.2}},  # the stable sampler has no averages
        {"sampler": {"variant": "papre"}},
        {"variant": "papre"},
        {"sampling": "greedy"},
        {"sampler": "papre"},
        {"memory": 0},
        {"dev": 1},
        {"l2": -0.1},
        {"refresh": 0},
    ],
)
def test_impossible_settings_are_refused(bad):
    with pytest.raises(ConfigError, match=f"^method 'forge': .*{[*bad][-1]}"):
        make_method(Component("forge", bad))
