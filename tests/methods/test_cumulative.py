"""Cumulative training: a fresh network on everybody so far, and what it keeps for that."""

from small_world import World, assert_same, order


def test_rows_are_everybody_so_far_in_the_order_of_sites():
    world, expected = World.of("cumulative"), []
    for name in order():
        site = world.view(name)
        expected += site.train.tolist()
        assert world.learner.method.rows(world.lane, site).tolist() == expected
        world.teach([name])
        assert world.lane.state["memory.row"].tolist() == expected


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
    kept = [
        k for k in world.lane.state if not k.startswith(world.learner.method.transient)
    ]
    assert kept == ["memory.row"]


def test_first_site_is_fine_tuning():
    a, b = (World.of(m).teach(order()[:1]).lane for m in ("cumulative", "finetune"))
    assert_same(a.params, b.params)
