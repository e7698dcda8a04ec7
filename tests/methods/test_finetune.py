"""References: the majority class of the sites so far; a fresh network on everybody so far."""

import torch

from fcforge.replay.state import counted, leaves
from small_world import World, assert_same, order


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


def test_rows_are_everybody_so_far_in_the_order_of_sites():
    world, expected = World.of("cumulative"), []
    for name in order():
        site = world.view(name)
        expected += site.train.tolist()
        assert world.learner.method.rows(world.lane, site).tolist() == expected
        world.teach([name])
        assert world.lane.state.rows.tolist() == expected


def test_every_site_begins_with_the_untrained_network():
    world = World.of("cumulative")
    before = world.lane
    world.teach(order()[:1])
    begun = world.learner.method.begin_site(
        world.learner.model, world.lane, world.view(order()[1])
    )
    assert_same(begun.params, before.params)
    assert_same(begun.stats, before.stats)


def test_a_site_before_need_only_be_shown():
    trained, shown = World.of("cumulative").teach(order()[:2]), World.of("cumulative")
    site = shown.view(order()[0])
    shown.lane = shown.learner.method.end_site(shown.learner.model, shown.lane, site)
    shown.taught = order()[:1]
    assert_same(shown.teach(order()[1:2]).lane.params, trained.lane.params)


def test_the_untrained_network_is_not_counted_as_memory():
    world = World.of("cumulative")
    kept = [leaf.name for leaf in leaves(world.lane.state)]
    assert "rows" in kept
    assert all(name == "rows" or name.startswith("fresh.") for name in kept)
    assert counted(world.lane.state) == []


def test_first_site_is_fine_tuning():
    a, b = (World.of(m).teach(order()[:1]).lane for m in ("cumulative", "finetune"))
    assert_same(a.params, b.params)
