"""ER, DER and DER++ against numbers worked out by hand."""

import pytest
import torch
import torch.nn.functional as F
from tiny_models import KEY, loss_of, tiny

from fcforge.core.component import Component
from fcforge.core.spec import Training
from fcforge.methods import Replay, make_method
from small_world import World, order


def test_der_loss_by_hand():
    got, batch, replay, z = loss_of("der", {"alpha": 0.4})
    expected = F.cross_entropy(z["now"], batch.y) + 0.4 * F.mse_loss(
        z["then"], replay.logits
    )
    assert got == pytest.approx(float(expected), rel=1e-6)


def test_derpp_uses_its_first_draw_for_labels_and_its_second_for_logits():
    model, params, lane, batch, replay, z = tiny()
    twice = Replay(
        {
            "edges": torch.cat(
                [replay.inputs["edges"], batch.inputs["edges"], z["now"].new_ones(1, 3)]
            )
        },
        torch.cat([replay.y, torch.tensor([0, 0, 0])]),
        torch.cat([replay.logits, torch.zeros(3, 2)]),
        torch.zeros(6, 0),
        torch.full((6,), 1 / 6),
    )
    method = make_method(Component("derpp", {"alpha": 0.3, "beta": 0.7, "replay": 3}))
    got = float(method.loss(model, params, lane, batch._replace(replay=twice), KEY)[0])
    all_z = twice.inputs["edges"] @ params["head.0.weight"].T
    expected = (
        F.cross_entropy(z["now"], batch.y)
        + 0.7 * F.cross_entropy(all_z[:3], twice.y[:3])
        + 0.3 * F.mse_loss(all_z[3:], twice.logits[3:])
    )
    assert got == pytest.approx(float(expected), rel=1e-6)


def test_derpp_draws_twice_and_independently():
    world = World.of("derpp", {"memory": 16}).teach(order()[:1])
    slots, weight = world.learner.method.draw(world.lane, KEY)
    assert slots.shape == weight.shape == (64,)
    assert float(weight.sum()) == pytest.approx(1.0)
    assert not torch.equal(slots[:32], slots[32:])


def test_derpp_without_logits_by_hand():
    settings = {"alpha": 0.0, "beta": 0.6, "replay": 3}
    got, batch, replay, z = loss_of("derpp", settings)
    now, then = F.cross_entropy(z["now"], batch.y), F.cross_entropy(z["then"], replay.y)
    assert got == pytest.approx(float(now + 0.6 * then), rel=1e-6)


def test_er_loss_by_hand():
    got, batch, replay, z = loss_of("er", {"strength": 0.5})
    now, then = F.cross_entropy(z["now"], batch.y), F.cross_entropy(z["then"], replay.y)
    assert got == pytest.approx(float(now + 0.5 * then) / 1.5, rel=1e-6)


def accuracy(world: World) -> float:
    model, lane = world.learner.model, world.lane
    inputs, y = world.bank.inputs(model), world.bank.y
    with torch.no_grad():
        logits = model.apply(lane.params, lane.stats, inputs).logits
    return float((logits.argmax(-1) == y).float().mean())


def test_er_with_room_for_everybody_comes_out_near_cumulative():
    """On all training subjects seen: as good as training on the union, unlike fine-tuning."""
    training = Training(epochs=40, batch_size=8, lr=3e-3)
    names = order()
    got = {
        name: accuracy(
            World.of(name, settings, "linear", training=training).teach(names)
        )
        for name, settings in (
            ("er", {"memory": 500}),
            ("cumulative", {}),
            ("finetune", {}),
        )
    }
    assert abs(got["er"] - got["cumulative"]) < 0.06, got
    assert got["er"] > got["finetune"] + 0.05, got
