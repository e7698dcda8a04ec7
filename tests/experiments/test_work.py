"""Which nodes may start, and which states are kept."""

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec
from fcforge.experiments.config import Experiment
from fcforge.experiments.plan import Node, Plan, make_plan
from fcforge.experiments.store import Store
from fcforge.experiments.work import Work, missing_nodes

THREE = ("A", "B", "C")


def plan(*orders: str) -> Plan:
    learner = LearnerSpec(Component("finetune"), Component("linear"))
    experiment = Experiment(
        Component("simulated"), (learner,), orders=tuple(map(tuple, orders or ("ABC",)))
    )
    return make_plan(experiment.specs(THREE), THREE)


def names(nodes: list[Node]) -> list[str]:
    return ["".join(node.spec.order) for node in nodes]


def taken(work: Work) -> list[Node]:
    """All that may start now."""
    found = []
    while (node := work.take()) is not None:
        found.append(node)
    return found


def test_a_child_waits_for_its_parent(tmp_path):
    work = Work(plan(), Store(tmp_path), lambda *step: None)
    first = taken(work)
    assert names(first) == ["A", ""]  # deepest first; neither has a parent
    work.done(first[1:], "")
    assert taken(work) == []
    work.done(first[:1], "")
    second = taken(work)
    assert names(second) == ["AB"]
    assert taken(work) == []
    work.done(second, "")
    assert names(taken(work)) == ["ABC"]


def test_a_chain_is_ended_before_another_is_begun(tmp_path):
    work, order = Work(plan("ABC", "CBA"), Store(tmp_path), lambda *step: None), []
    while (node := work.take()) is not None:  # one worker
        order.append(node)
        work.done([node], "")
    assert names(order) == ["A", "AB", "ABC", "C", "CB", "CBA", ""]


def test_a_resumed_plan_starts_below_what_is_stored(tmp_path):
    made = plan("ABC", "ACB")
    root, a, ab, *_ = made.nodes.values()
    work = Work(made, store_with(tmp_path, [root, a, ab]), lambda *step: None)
    assert names(taken(work)) == ["ABC", "AC"]


def store_with(folder, nodes: list[Node]) -> Store:
    store = Store(folder)
    for node in nodes:
        store.write_node(node.key, {}, {}, {})
    return store


def test_only_states_that_a_missing_node_starts_from_are_kept(tmp_path):
    made = plan("ABC", "ACB")
    _, a, ab, ac, abc, acb = made.nodes.values()
    store = store_with(tmp_path, [a, ab, ac, abc])
    assert missing_nodes(made, store) == [made.nodes[next(iter(made.nodes))], acb]
    work = Work(made, store, lambda *step: None)
    assert [store.has_lane(n.key) for n in (a, ab, ac, abc)] == [
        False,
        False,
        True,
        False,
    ]
    work.done([acb], "")
    assert not store.has_lane(ac.key)
