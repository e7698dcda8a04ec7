"""The prefix tree: how much is shared, and that nothing is shared that must not be."""

import subprocess
import sys
from itertools import permutations

import pytest

from fcforge.core.component import Component
from fcforge.core.spec import LearnerSpec, RunSpec
from fcforge.experiments.plan import Plan, canonical, make_plan
from real_runs import finished

SITES = ("B", "A", "D", "C", "E")


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


def test_only_nodes_that_are_continued_are_stored_with_their_state():
    """The end of one order is on the way of another."""
    learner = LearnerSpec(Component("finetune"), Component("linear"))
    both = [
        RunSpec(Component("simulated"), learner, tuple(o), 0) for o in ("AB", "ABC")
    ]
    made = make_plan(both, SITES)
    said = {"".join(n.spec.order): n.continued for n in made.nodes.values()}
    assert said == {"": False, "A": True, "AB": True, "ABC": False}


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
