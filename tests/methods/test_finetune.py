"""The majority class: counts over the sites so far, the same answer for everybody."""

import torch

from small_world import World, order


def test_answer_is_the_share_of_patients_seen_so_far():
    world, patients, n = World.of("majority"), 0, 0
    for name in order():
        y = world.view(name).y
        patients, n = patients + int(y.sum()), n + len(y)
        world.teach([name])
        model = world.learner.model
        inputs = model.prepare(world.bank.fc(torch.arange(3)))
        p = torch.softmax(world.learner.method.logits(model, world.lane, inputs), -1)[
            :, 1
        ]
        torch.testing.assert_close(p, torch.full((3,), (patients + 0.5) / (n + 1.0)))


def test_before_any_site_it_does_not_know():
    world = World.of("majority")
    logits = world.learner.method.logits(
        world.learner.model, world.lane, {"x": torch.zeros(2, 1)}
    )
    assert torch.softmax(logits, -1).tolist() == [[0.5, 0.5], [0.5, 0.5]]
