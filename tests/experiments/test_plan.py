"""The prefix tree: how much is shared, and that nothing is shared that must not be."""

import json
import subprocess
import sys
from itertools import permutations

import pytest

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError
from fcforge.core.spec import LearnerSpec, RunSpec
from fcforge.experiments.config import Experiment
from fcforge.experiments.plan import (
    Node,
    Plan,
    Traits,
    Work,
    canonical,
    list_orders,
    make_plan,
    missing_nodes,
    read_traits,
    stored_traits,
    traits_of,
)
from fcforge.experiments.store import Store
from fcforge.methods import METHODS
from real_runs import finished

SITES = ("B", "A", "D", "C", "E")


FOUR = ("A", "B", "C", "D")


def test_orders():
    assert len(set(list_orders("all", FOUR))) == 24
    assert list_orders((("C", "A"), ("B",)), FOUR) == [("C", "A"), ("B",)]
    some = list_orders(5, FOUR)
    assert len(set(some)) == 5
    assert some == list_orders(5, FOUR)  # the same on every machine
    assert all(sorted(o) == list(FOUR) for o in some)
    assert list_orders(24, FOUR) == list_orders("all", FOUR)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (0, "Give 1 to 24"),
        (25, "Give 1 to 24"),
        ((("A", "X"),), r"unknown site in order .* 'X'.*Known: A, B, C, D"),
        ((("A", "B", "A"),), "repeats a site"),
        (((),), "is empty"),
        ((), "orders is empty"),
        ((("A",), ("A",)), "lists an order twice"),
    ],
)
def test_orders_that_cannot_be(value, says):
    with pytest.raises(ConfigError, match=says):
        list_orders(value, FOUR)


def test_many_sites_are_not_enumerated():
    """25 sites of REST-meta-MDD have 10^25 orders."""
    sites = tuple(f"S{i}" for i in range(25))
    some = list_orders(7, sites)
    assert len(set(some)) == 7
    assert all(sorted(o) == sorted(sites) for o in some)
    assert some[:3] == list_orders(3, sites)
    with pytest.raises(ConfigError, match=r"25 sites.*5040"):
        list_orders("all", sites)


def plan_for(*methods: str, sites: int = 4, seeds: tuple[int, ...] = (0,)) -> Plan:
    specs = [
        RunSpec(
            Component("simulated"),
            LearnerSpec(Component(m), Component("linear")),
            order,
            seed,
        )
        for m in methods
        for seed in seeds
        for order in permutations(SITES[:sites])
    ]
    return make_plan(specs, SITES[:sites])


@pytest.mark.parametrize(
    ("method", "sites", "shared"),
    [
        ("finetune", 4, 64),
        ("finetune", 5, 325),
        ("ewc", 4, 64),
        ("cumulative", 4, 15),
        ("cumulative", 5, 31),
        ("independent", 4, 4),
        ("joint", 4, 1),
        ("finetune", 1, 1),
    ],
)
def test_counts(method, sites, shared):
    plan = plan_for(method, sites=sites)
    assert plan.trainings == shared
    assert len(plan.nodes) == shared + 1  # and the untrained network


def test_prefixes_that_nobody_asks_for_are_left_out():
    """One order of a method of sets: its sorted prefixes are not those of the order.

    C, BC and ABC are asked for; B, A and AB are trained for nobody, and left out.
    """
    plan = plan_of_sets("CBA")
    assert plan.trainings == 3
    nodes = ["".join(node.spec.order) for node in plan.nodes.values()]
    assert nodes == ["", "C", "BC", "ABC"]
    assert [(n.parent, n.shown) for n in plan.nodes.values()][1:] == [
        (None, n) for n in (1, 2, 3)
    ]


def test_sets_that_several_nodes_begin_with_are_trained_for_them():
    """DAB and DAC ask for D, AD, ABD and ACD: ABD begins with AB, nobody else does; A is shared."""
    plan = plan_of_sets("DAB", "DAC")
    nodes = {"".join(node.spec.order): node for node in plan.nodes.values()}
    assert list(nodes) == ["", "D", "A", "AD", "ABD", "ACD"]
    assert nodes["A"].continued
    assert [nodes[n].parent for n in ("AD", "ABD", "ACD")] == [nodes["A"].key] * 3
    assert [nodes[n].shown for n in ("AD", "ABD", "ACD")] == [1, 2, 2]


def plan_of_sets(*orders: str) -> Plan:
    learner = LearnerSpec(Component("analytic"), Component("linear"))
    specs = [
        RunSpec(Component("simulated"), learner, tuple(order), 0) for order in orders
    ]
    return make_plan(specs, SITES)


def test_learners_and_seeds_share_nothing():
    assert plan_for("finetune", "si", seeds=(0, 1)).trainings == 4 * 64


def test_parents_come_first_and_are_one_site_shorter():
    plan = plan_for("finetune", "cumulative", "independent", "joint")
    place = {key: i for i, key in enumerate(plan.nodes)}
    for key, node in plan.nodes.items():
        assert node.key == key
        if node.parent is not None:
            parent = plan.nodes[node.parent]
            assert place[node.parent] < place[key]
            assert parent.spec.order == node.spec.order[:-1]
            assert parent.spec.seed == node.spec.seed
            assert parent.spec.learner == node.spec.learner


def test_stages_end_where_the_run_ends():
    plan = plan_for("finetune", "cumulative", "independent", "joint")
    for spec, keys in plan.stages:
        assert len(keys) == len(spec.order) + 1
        assert plan.nodes[keys[0]].depth == 0
        for t, key in enumerate(keys[1:], 1):
            node = plan.nodes[key]
            how = {
                "cumulative": set(spec.order[:t]),
                "independent": {spec.order[t - 1]},
            }
            method = spec.learner.method.name
            seen = {"joint": set(SITES[:4])}.get(method) or how.get(
                method, set(spec.order[:t])
            )
            assert set(node.spec.order) == seen
            if method == "finetune":
                assert node.spec.order == spec.order[:t]
            assert node.shown == (
                node.depth if method in ("cumulative", "joint") else 1
            )


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("order", ("B", "A")),
        ("set", ("A", "B")),
        ("site", ("A",)),
        ("all", ("A", "B", "C", "D", "E")),
    ],
)
def test_canonical(how, expected):
    assert canonical(("B", "A"), how, SITES) == expected
    assert canonical((), how, SITES) == ()


def test_partial_orders_share_too():
    spec = RunSpec(
        Component("simulated"),
        LearnerSpec(Component("finetune"), Component("gcn")),
        ("A", "B"),
        0,
    )
    plan = make_plan([spec, spec.prefix(1)], SITES)
    assert plan.trainings == 2
    assert [len(keys) for _, keys in plan.stages] == [3, 2]


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


def test_only_nodes_that_are_continued_are_stored_with_their_state():
    """The end of one order is on the way of another."""
    made = plan("AB", "ABC")
    said = {"".join(n.spec.order): n.continued for n in made.nodes.values()}
    assert said == {"": False, "A": True, "AB": True, "ABC": False}


PIPELINE = {"estimator": "sklearn.svm:SVC", "keeps": "cumulative", "folder": ""}


def learner(name: str, **params) -> LearnerSpec:
    return LearnerSpec(Component(name, params), Component("linear"))


def test_every_method_has_the_traits_of_its_class():
    for name, method in METHODS.items():
        found = traits_of(learner(name))
        assert (found.depends_on, found.keeps) == (method.depends_on, method.keeps)
        assert found.grows is not method.from_scratch


def test_what_is_known_is_not_looked_up():
    known = {"mine": Traits("set", "statistics", grows=True)}
    assert traits_of(learner("mine"), known) == known["mine"]


def test_stored_as_they_are_read():
    both = (learner("ewc"), learner("joint"))
    stored = json.loads(json.dumps(stored_traits(both)))
    assert read_traits(stored) == {name: traits_of(learner(name)) for name in stored}
    assert set(stored) == {"ewc", "joint"}


WITHOUT_TORCH = """
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(name, name="torch")
sys.meta_path.insert(0, NoTorch())
from fcforge.cli import main
main(sys.argv[1:])
"""


def test_a_run_folder_is_reported_without_torch(tmp_path):
    folder = str(finished().folder)
    for command in (
        ("report", folder, "--out", str(tmp_path / "page.html")),
        ("status", folder),
        ("pages", folder, "--out", str(tmp_path / "pages")),
    ):
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_TORCH, *command],
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").stat().st_size > 10_000
