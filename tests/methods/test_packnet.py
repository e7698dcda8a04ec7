"""PackNet: who owns which weight, and that nobody's network changes afterwards."""

import pytest
import torch

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.spec import Training
from fcforge.methods import Batch, Lane, make_method
from fcforge.methods.packnet import PackNet, PackNetState, smallest
from small_world import World, make_model, order

pytestmark = pytest.mark.rounding

TRAINING = Training(epochs=4, batch_size=8, weight_decay=0.05, lr=5e-3)


def test_smallest_by_hand():
    w = torch.tensor([[0.5, -0.1, 0.3], [0.2, -0.9, 0.0]])
    free = torch.tensor([[True, True, True], [True, True, False]])
    cut = smallest(w, free, torch.tensor(0.5, dtype=torch.float64))  # 2 of 5
    assert cut.tolist() == [[False, True, False], [True, False, False]]
    ties = smallest(torch.zeros(4), torch.ones(4, dtype=torch.bool), torch.tensor(0.75))
    assert ties.tolist() == [True, True, True, False]
    none = smallest(w, torch.zeros_like(free), torch.tensor(0.5))
    assert not none.any()


def test_shares_of_the_weights_are_exact():
    world = World.of("packnet", training=TRAINING).teach(order())
    for name, owner in world.lane.state.owner.items():
        n = owner.numel()
        free_1 = n * 50 // 100
        free_2 = free_1 * 75 // 100
        free_3 = free_2 * 75 // 100
        counts = torch.bincount(owner.reshape(-1).long(), minlength=4).tolist()
        assert counts == [free_3, n - free_1, free_1 - free_2, free_2 - free_3], name
        assert (world.lane.params[name][owner == 0] == 0).all(), (
            "free weights end at zero"
        )


@pytest.mark.parametrize("model", ["gcn", "mlp"])
def test_the_network_of_a_site_is_bitwise_stable(model):
    """Under Adam with strong weight decay, which moves weights without a gradient."""
    world = World.of("packnet", {}, model, training=TRAINING)
    method, net = world.learner.method, world.learner.model
    inputs, seen = None, []
    for name in order():
        world.teach([name])
        inputs = inputs or net.prepare(world.bank.fc(torch.arange(8)))
        networks = [method.network(world.lane, k + 1) for k in range(len(seen) + 1)]
        now = [net.apply(p, world.lane.stats, inputs).logits for p in networks]
        assert all(torch.equal(a, b) for a, b in zip(now, seen, strict=False))
        seen = now
    assert not torch.equal(seen[0], seen[2])


def test_frozen_weights_really_would_have_moved():
    """Without `after_step` the same optimiser moves them: the test above can fail."""
    world = World.of("packnet", training=TRAINING).teach(order()[:1])
    owner = world.lane.state.owner["conv0.weight"]
    kept = world.lane.params["conv0.weight"][owner == 1]
    method = world.learner.method
    cls = type(method)

    class Forgetful(cls):
        name = "packnet"

        def after_step(self, before, lane, grads):
            return lane

    world.learner = type(world.learner)(Forgetful(), world.learner.model)
    moved = world.teach(order()[1:2]).lane.params["conv0.weight"][owner == 1]
    assert not torch.equal(kept, moved)


def test_pruned_weights_stay_zero_while_the_survivors_are_trained_on():
    method = make_method(Component("packnet", {"train_share": 0.5}))
    assert [method.updates_at(e, 4) for e in range(4)] == [False, False, True, False]
    assert [method.updates_at(e, 2) for e in range(2)] == [False, True]
    assert not method.updates_at(0, 1)  # pruned at the end of the site instead
    one = World.of("packnet", training=Training(epochs=1, batch_size=8)).teach(
        order()[:1]
    )
    owner = one.lane.state.owner["conv0.weight"]
    assert int((owner == 0).sum()) == owner.numel() // 2
    assert (one.lane.params["conv0.weight"][owner == 0] == 0).all()


def test_biases_norms_and_statistics_are_fixed_after_the_first_site():
    world = World.of("packnet", training=TRAINING).teach(order()[:1])
    before = world.lane
    after = world.teach(order()[1:]).lane
    assert all(torch.equal(v, after.stats[k]) for k, v in before.stats.items())
    vectors = [k for k, v in before.params.items() if v.dim() < 2]
    assert vectors
    assert all(torch.equal(before.params[k], after.params[k]) for k in vectors)


def test_dropout_stays_on_at_later_sites_and_batch_norm_does_not_move():
    """The loss of a second site differs from key to key; its statistics are the first site's."""
    world = World.of("packnet", training=TRAINING).teach(order()[:1])
    method, net = world.learner.method, world.learner.model
    lane = method.begin_site(net, world.lane, world.view(order()[1]))
    rows = torch.arange(8)
    batch = Batch(
        {k: v[rows] for k, v in world.bank.inputs(net).items()}, world.bank.y[rows]
    )
    losses = []
    for key in (1, 2):
        key = torch.tensor(key, dtype=torch.int32)
        loss, stats = method.loss(net, lane.params, lane, batch, key)
        losses.append(float(loss))
        assert all(torch.equal(v, stats[k]) for k, v in lane.stats.items())
    assert losses[0] != losses[1]


def test_survivors_are_re_trained_at_a_tenth_of_the_rate():
    """After a restart Adam's first step moves every weight by at most the rate."""
    assert [PackNet().restart(e, 6) for e in range(6)] == [None] * 4 + [0.1, None]
    name, ends = "conv0.weight", {}
    for method, epochs in (
        ("finetune", 1),
        ("packnet", 2),
    ):  # pruned before the second epoch
        training = Training(epochs=epochs, batch_size=64, lr=5e-3, weight_decay=0.0)
        params = {"train_share": 0.5} if method == "packnet" else {}
        ends[method] = (
            World.of(method, params, training=training).teach(order()[:1]).lane
        )
    survivors = ends["packnet"].state.owner[name] == 1
    moved = (ends["packnet"].params[name] - ends["finetune"].params[name])[
        survivors
    ].abs()
    assert 0 < float(moved.max()) <= 5e-4 * (1 + 1e-3)


def three_networks():
    """A linear model on 3 edges whose three networks are very sure, unsure and wrong."""
    model = make_model(Component("linear"), 3)
    weight = torch.tensor([[0.0, 0.0, 0.0], [1.0, 3.0, -6.0]])
    owner = torch.tensor([[1, 1, 1], [1, 2, 3]], dtype=torch.int16)
    state = PackNetState(
        sites=torch.tensor([11, 22, 33]),
        pruned=torch.tensor(1),
        owner={"head.0.weight": owner},
    )
    params = {"head.0.weight": weight, "head.0.bias": torch.zeros(2)}
    # margins of the three networks: x0, x0 + 3 x1, x0 + 3 x1 - 6 x2, that is
    # (1, 1, -5), (1, 4, 0.4) and (-2, -0.5, -1.1)
    inputs = {
        "edges": torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 0.6], [-2.0, 0.5, 0.1]])
    }
    return model, Lane(params, {}, state), inputs


def test_the_least_uncertain_network_by_hand():
    model, lane, inputs = three_networks()
    logits = make_method(Component("packnet")).logits(model, lane, inputs)
    patient = torch.softmax(logits, -1)[:, 1]
    # lowest entropy is the largest absolute margin
    torch.testing.assert_close(patient, torch.sigmoid(torch.tensor([-5.0, 4.0, -2.0])))


def test_no_weight_left_is_said_clearly():
    settings = {"prune_first": 0.01, "prune_later": 0.01}
    world = World.of(
        "packnet", settings, "linear", training=Training(epochs=1, batch_size=16)
    )
    with pytest.raises(ConfigError, match="no free weight is left"):
        world.teach([*order(), *order()])
