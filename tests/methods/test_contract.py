"""Every registered method, by a contract it did not write (found through the table)."""

import tomllib
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

import fcforge.methods
import small_world
from fcforge import graphs
from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, SealedError
from fcforge.core.spec import BaseModelSpec, Training
from fcforge.data.datasets import load_dataset
from fcforge.data.simulated import simulate
from fcforge.data.splits import make_sites
from fcforge.evaluation.metrics import cell_values
from fcforge.experiments import trainer as trainer_module
from fcforge.experiments.plan import make_plan
from fcforge.experiments.store import Store
from fcforge.experiments.trainer import Trainer
from fcforge.methods import METHODS, Lane, build_learner
from fcforge.replay.bank import Bank
from fcforge.replay.state import named, rows_of
from fcforge.training.lanes import Job
from fcforge.training.loop import learn_site
from small_world import (
    QUICK_METHODS,
    QUICK_MODELS,
    R,
    World,
    assert_same,
    cohort,
    default_model,
    learner_spec,
    order,
    plan_of,
    run_plan,
    run_spec,
    stored_lanes,
)
from subject_scanner import closest, kept_subjects

METHODS = dict(sorted(METHODS.items()))
every_method = pytest.mark.parametrize("method", METHODS)
# Settings at which a method must be plain fine-tuning, bit for bit.
ZERO: dict[str, dict] = {
    "er": {"strength": 0.0},
    "der": {"alpha": 0.0},
    "derpp": {"alpha": 0.0, "beta": 0.0},
    "ewc": {"strength": 0.0},
    "si": {"strength": 0.0},
    "lwf": {"strength": 0.0},
    "twp": {"loss_strength": 0.0, "topology_strength": 0.0},
    "ugcl": {
        "rehearsal": 0.0,
        "logits_weight": 0.0,
        "global_weight": 0.0,
        "local_weight": 0.0,
    },
    "forge": {"l1": 0.0, "l2": 0.0, "l3": 0.0},
}
# pruning cannot be turned off, and PDGNN's loss is balanced without a memory, too
WITHOUT_ZERO = {"finetune", "packnet", "pdgnn"}
SEQUENTIAL = [
    m for m in METHODS if METHODS[m].depends_on == "order" and METHODS[m].fits
]
CONTINUING = [m for m in METHODS if METHODS[m].depends_on != "all"]
KEEPS_NOBODY = [m for m in METHODS if METHODS[m].keeps != "real subjects"]
WITH_MEMORY = [
    m
    for m in METHODS
    if METHODS[m].keeps == "real subjects"
    and "memory" in {f.name for f in fields(METHODS[m])}
]
PAIRS = [
    (method, model)
    for method in METHODS
    for model in sorted({*QUICK_MODELS, "linear"})
    if not METHODS[method].models or model in METHODS[method].models
]


def nodes_of(method: str, params=None, model=None, sites: int = 3, **spec):
    return plan_of(run_spec(learner_spec(method, params, model), sites, **spec))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder and trainer of a method's three sites, which several tests look at."""

    @cache
    def once(method: str, model: str) -> tuple[Path, Trainer]:
        folder = tmp_path_factory.mktemp(method)
        return folder, run_plan(nodes_of(method, model=model), folder)

    return lambda method, model=None: once(method, model or default_model(method))


@every_method
def test_runs_is_finite_and_repeats(method, trained, tmp_path):
    plan = nodes_of(method)
    folder, _ = trained(method)
    run_plan(plan, tmp_path)
    first, again = (stored_lanes(plan, x) for x in (folder, tmp_path))
    assert first
    for key, tensors in first.items():
        assert_same(tensors, again[key])
        for name, value in tensors.items():
            if isinstance(value, torch.Tensor):
                assert torch.isfinite(value).all(), name
        scores = Store(folder).read_scores(key)
        assert all(((s >= 0) & (s <= 1)).all() for s in scores.values())


@pytest.mark.parametrize(("method", "model"), PAIRS)
def test_works_on_every_model_it_names(method, model, tmp_path):
    plan = nodes_of(
        method, model=model, sites=2, training=Training(epochs=1, batch_size=16)
    )
    run_plan(plan, tmp_path)
    for tensors in stored_lanes(plan, tmp_path).values():
        assert all(
            torch.isfinite(v).all()
            for k, v in tensors.items()
            if k.startswith("params")
        )


@pytest.mark.rounding
@pytest.mark.parametrize("method", SEQUENTIAL)
def test_a_lane_in_a_group_is_the_lane_alone(method):
    """In double precision, where products that round differently cannot change who is chosen."""
    bank = Bank()
    alone = [World.of(method, seed=s, dtype=torch.float64, bank=bank) for s in (0, 1)]
    lanes = [world.lane for world in alone]
    for i, name in enumerate(order()):
        sites = [world.view(name) for world in alone]
        jobs = [Job(lanes[s], sites[s], s, order()[: i + 1]) for s in (0, 1)]
        lanes = learn_site(alone[0].learner, jobs, bank, alone[0].training)
        for world, lane in zip(alone, lanes, strict=True):
            assert_close(world.teach([name]).lane, lane)
    assert not torch.equal(*(next(iter(lane.params.values())) for lane in lanes))


def assert_close(a: Lane, b: Lane) -> None:
    """Equal to rounding; rows, masks and choices exactly."""
    x, y = a.named(), b.named()
    assert x.keys() == y.keys()
    for k, v in x.items():
        tolerance = 1e-9 if v.is_floating_point() else 0.0
        torch.testing.assert_close(y[k], v, rtol=tolerance, atol=tolerance, msg=k)


def test_lanes_of_one_shape_are_trained_together(tmp_path, monkeypatch):
    together = []
    learn = trainer_module.learn_site
    monkeypatch.setattr(
        trainer_module,
        "learn_site",
        lambda learner, jobs, *a, **k: (
            together.append(len(jobs)) or learn(learner, jobs, *a, **k)
        ),
    )
    plan = plan_of(*(run_spec(learner_spec("finetune"), 3, seed) for seed in (0, 1)))
    for group, expected in ((1, [1] * 6), (2, [2, 2, 2])):
        run_plan(plan, tmp_path / str(group), group=group)
        assert together == expected
        together.clear()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("method", SEQUENTIAL)
def test_lanes_on_a_gpu_are_those_of_the_cpu(method, tmp_path):
    """The step of every method can be captured as a CUDA graph and gives the same numbers."""
    plan = plan_of(*(run_spec(learner_spec(method), 2, seed) for seed in (0, 1)))
    run_plan(plan, tmp_path / "cpu")
    run_plan(plan, tmp_path / "cuda", group=2, device="cuda")
    cpu, gpu = (stored_lanes(plan, tmp_path / x) for x in ("cpu", "cuda"))
    for key, tensors in cpu.items():
        for name in (n for n in tensors if n.startswith("params/")):
            torch.testing.assert_close(
                gpu[key][name], tensors[name], rtol=1e-2, atol=1e-3, msg=name
            )


@pytest.mark.rounding
@pytest.mark.parametrize("method", CONTINUING)
def test_state_survives_the_store_bitwise(method, tmp_path):
    """Reloaded into a new process's bank before every site == never written at all."""
    plan = nodes_of(method)
    run_plan(plan, tmp_path / "reloaded", fresh=True)
    straight = Trainer(cohort(), Store(tmp_path / "straight"))
    lane = None
    for node in plan.nodes.values():
        if node.depth == 0:
            continue
        if lane is None or node.parent is None:
            lane = straight.load_lane(replace(node, parent=None))
        job = straight.parts.job(node.spec, lane)
        (lane,) = trainer_module.learn_site(
            straight.parts.learner(node.spec),
            [job],
            straight.parts.loader.bank,
            node.spec.training,
        )
        straight.lanes.write(node, lane, 0.0)
    a, b = (stored_lanes(plan, tmp_path / x) for x in ("reloaded", "straight"))
    assert a.keys() == b.keys()
    for key in a:
        assert_same(a[key], b[key])


def test_the_scanner_finds_a_subject_it_is_given():
    world = World.of("finetune").teach(order()[:1])
    fc = world.bank.fc(torch.arange(4))
    hidden = torch.cat(
        [torch.randn(7), 3.0 * graphs.edges(fc)[2] + 0.5, torch.randn(9)]
    )
    columns = graphs.edges(fc).T.contiguous()
    planted = {"a": hidden, "b": torch.randn(500), "c": columns}
    lane = world.lane._replace(state=planted)
    assert kept_subjects(world.learner.model, lane, fc) == ["a", "c"]


@every_method
def test_keeps_is_true(method, trained):
    keeps = METHODS[method].keeps
    _, trainer = trained(method)
    last = list(nodes_of(method).nodes.values())[-1]
    lane = trainer.load_lane(replace(last, parent=last.key))
    if keeps == "nothing":
        assert not named(lane.state)
        return
    spec = last.spec
    real = torch.cat(
        [s.learning(with_val=True).fc for s in trainer.parts.sites(spec).values()]
    )
    if keeps != "real subjects":
        assert kept_subjects(trainer.parts.learner(spec).model, lane, real) == []
    for rows in rows_of(lane.state).values():
        held = trainer.parts.loader.bank.real_rows(rows)
        assert bool(len(held)) is (keeps == "real subjects")
        if keeps == "synthetic subjects":
            made = graphs.edges(trainer.parts.loader.bank.fc(rows[rows >= 0]))
            assert closest(made, graphs.edges(real)) < 0.999


@pytest.mark.parametrize("method", WITH_MEMORY)
def test_memory_stays_within_its_budget(method):
    world, sizes = World.of(method, {"memory": 10}), []
    for name in order():
        world.teach([name])
        sizes.append(int((world.lane.state.memory.site >= 0).sum()))
        if rows_of(world.lane.state):
            rows = world.lane.state.memory.rows
            assert len(rows) == 10
            assert len(rows[rows >= 0].unique()) == int((rows >= 0).sum()) == sizes[-1]
            assert torch.equal(world.lane.state.memory.y, world.bank.y[rows])
    assert sizes == [10, 10, 10]


@pytest.mark.parametrize("method", KEEPS_NOBODY)
def test_a_sealed_site_is_never_touched_again(method, trained, tmp_path, monkeypatch):
    """Methods that keep no real subject do not change when past sites are destroyed."""
    plan = nodes_of(method)
    untouched, _ = trained(method)
    views = []
    learn = trainer_module.learn_site

    def learn_and_burn(learner, jobs, bank, *args, **kwargs):
        lanes = learn(learner, jobs, bank, *args, **kwargs)
        for job in jobs:
            views.append(job.site)
            burn(bank, job.site.train)
        return lanes

    monkeypatch.setattr(trainer_module, "learn_site", learn_and_burn)
    run_plan(plan, tmp_path)
    clean, burnt = (stored_lanes(plan, x) for x in (untouched, tmp_path))
    for key in clean:
        assert_same(clean[key], burnt[key])
    for view in views:
        for look in (
            lambda v: v.rows,
            lambda v: v.y,
            lambda v: v.fc,
            lambda v: v.synthetic(2),
        ):
            with pytest.raises(SealedError, match="sealed"):
                look(view)


def burn(bank, rows: torch.Tensor) -> None:
    """Overwrite subjects in the bank."""
    for name in bank.address(rows)[0]:
        bank._fc[name] = torch.full_like(bank._fc[name], float("nan"))
    bank.y[rows] = 1 - bank.y[rows]
    for _, inputs in bank._prepared.values():
        for value in inputs.values():
            value[rows] = float("nan")


def test_every_sequential_method_says_where_it_is_fine_tuning():
    said = set(ZERO) | WITHOUT_ZERO
    assert set(SEQUENTIAL) == said, "put the method into ZERO (or WITHOUT_ZERO) above"


@pytest.mark.rounding
@pytest.mark.parametrize(
    ("method", "model"),
    [(m, k) for m, k in PAIRS if m in ZERO and k in (default_model(m), "mlp")],
)
def test_zero_strength_is_fine_tuning_bitwise(method, model, trained, tmp_path):
    zero = nodes_of(method, ZERO[method], model)
    base = nodes_of("finetune", model=model)
    full = nodes_of(method, None, model)
    run_plan(zero, tmp_path)
    folders = (tmp_path, trained("finetune", model)[0], trained(method, model)[0])
    stages = [
        [
            {k: v for k, v in lane.items() if not k.startswith("state/")}
            for lane in stored_lanes(plan, folder).values()
        ]
        for plan, folder in zip((zero, base, full), folders, strict=True)
    ]
    for a, b in zip(stages[0], stages[1], strict=True):
        assert_same(a, b)
    changed = [
        any(not torch.equal(v, b[k]) for k, v in f.items())
        for b, f in zip(*stages[1:], strict=True)
    ]
    assert changed[-1], "the method does nothing at its defaults"


def test_quick_settings_name_real_methods():
    assert set(QUICK_METHODS) <= set(METHODS)
    assert cohort().n_rois == R


ROOT = Path(__file__).parents[2]


def independent_modules() -> set[str]:
    """Modules that import-linter keeps from importing each other."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
        "importlinter"
    ]
    (contract,) = (c for c in config["contracts"] if c["type"] == "independence")
    return set(contract["modules"])


def test_every_file_of_a_method_is_in_the_import_contract():
    folder = Path(fcforge.methods.__file__).parent
    files = {f"fcforge.methods.{p.stem}" for p in folder.glob("[a-z]*.py")} - {
        "fcforge.methods.base"
    }
    assert independent_modules() == files


def test_every_method_is_found_by_its_own_name():
    own = {cls.__module__ for cls in METHODS.values()}
    plugged = {name for name in own if not name.startswith("fcforge.methods.")}
    assert plugged == {"fcforge_consortium.learners.method"}
    assert own - plugged <= independent_modules()
    assert all(METHODS[name].name == name for name in METHODS)


# -- more than two classes, and numbers ------------------------------------------------------------
OF_KIND: dict[str, dict] = {
    "more classes": {"disorders": 2},
    "number": {"target": "mean_fd", "limits": [0, 5]},
}


@cache
def people_of(kind):
    how = {"preset": "easy", "n_rois": R, "n_sites": 2, "scale": 0.3, "seed": 3}
    return load_dataset(Component("simulated", how | OF_KIND[kind]))


def scores_of(learner, people, folder, base_model=None):
    """Scores before and after the sites of some people."""
    spec = replace(run_spec(learner), order=people.site_names, base_model=base_model)
    plan = make_plan([spec], people.site_names)
    trainer = Trainer(people, Store(folder))
    for depth in sorted({node.depth for node in plan.nodes.values()}):
        trainer.run([node for node in plan.nodes.values() if node.depth == depth])
    ((_, keys),) = plan.runs
    return [trainer.store.read_scores(key) for key in (keys[0], keys[-1])]


@pytest.mark.parametrize("kind", OF_KIND)
@every_method
def test_every_kind_of_target_is_learned_or_refused_by_name(method, kind, tmp_path):
    on_edges = None if METHODS[method].models else "mlp"
    learner = learner_spec(method, model=on_edges if kind == "number" else None)
    target = people_of(kind).target
    if kind not in METHODS[method].learns:
        with pytest.raises(ConfigError, match=f"method '{method}' learns.*{kind}"):
            build_learner(learner, R, target=target)
        return
    base_model = None
    if METHODS[method].needs_public:
        public = small_world.PUBLIC.dataset
        base_model = BaseModelSpec(
            replace(public, params={**public.params, **OF_KIND[kind]})
        )
    before, after = scores_of(learner, people_of(kind), tmp_path, base_model)
    for site, p in after.items():
        assert np.isfinite(p).all()
        assert p.shape[1:] == ((3,) if kind == "more classes" else ())
        assert method == "base_model_alone" or not np.array_equal(p, before[site])
    if kind == "more classes":
        np.testing.assert_allclose(np.concatenate([*after.values()]).sum(1), 1, 1e-5)


def test_networks_of_the_paper_refuse_numbers_by_name():
    for model in ("gcn", "gat", "sage", "gae", "graph_transformer"):
        learner = learner_spec("finetune", model=model)
        with pytest.raises(ConfigError, match=f"model '{model}' learns.*number"):
            build_learner(learner, R, target=people_of("number").target)
    learner = replace(learner_spec("forge"), generator=Component("fcm_vae"))
    with pytest.raises(ConfigError, match="generator 'fcm_vae' learns two classes"):
        build_learner(learner, R, target=people_of("more classes").target)


@pytest.mark.parametrize("method", ["analytic", "replay_ridge", "forge_ridge"])
def test_closed_forms_find_what_is_there(method, tmp_path):
    """Sentinel: three classes far apart; a number that is the mean of all edges."""
    three = simulate("easy", n_rois=R, n_sites=2, seed=3, d_scale=8.0, disorders=2)
    level = three.fc.mean((1, 2)).astype(float)
    strong = replace(three, covariates={"level": level}).of_number("level", (0, 1))
    for people, metric, least in ((three, "auroc", 0.7), (strong, "r2", 0.5)):
        if people.target.kind not in METHODS[method].learns:
            continue
        _, after = scores_of(learner_spec(method), people, tmp_path / metric)
        values = []
        for name, site in make_sites(people, 0).items():
            y = site.test.y.numpy()
            truth = np.eye(3)[y] if metric == "auroc" else y
            values.append(cell_values(after[name], truth, metric))
        assert np.mean(values) > least
