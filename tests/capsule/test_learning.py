"""Learning through capsules is the run, bitwise, site by site; what is refused before it."""

from dataclasses import replace

import pytest
import torch
from capsule_chains import SITES, chain, cohort, quick, settings

from fcforge.capsule import learn, open_capsule
from fcforge.capsule.ledger import published_share
from fcforge.capsule.turn import Turn
from fcforge.errors import CapsuleError
from fcforge.methods import METHODS
from fcforge.runner.plan import make_plan
from fcforge.runner.store import Store
from fcforge.runner.trainer import Trainer
from fcforge.types import Component, RunSpec, Training


def run_of(name: str, order: tuple[str, ...], store: Store, training: Training):
    """Train one order as `fcforge run` does and return (trainer, its node keys by depth)."""
    spec = RunSpec(
        Component("simulated"), quick(name), order, 0, "x", training=training
    )
    plan = make_plan([spec], cohort().site_names)
    for node in plan.nodes.values():
        # a new trainer each time, as after an interruption: memory comes back from the store
        Trainer(cohort(), store).run([replace(node, continued=True)])
    return plan.nodes, plan.stages[0][1]


CASES = [
    (n, "fixed", 2)
    for n, c in METHODS.items()
    if c.depends_on != "all" and not c.needs_start
]
CASES += [
    ("finetune", "inner_val", 3),
    ("forge", "inner_val", 2),
    ("forge", "fixed", 3),
]


@pytest.mark.rounding
@pytest.mark.parametrize(("name", "selection", "n_sites"), CASES)
def test_every_stage_is_bitwise_the_run(name, selection, n_sites, tmp_path) -> None:
    # where only the set of sites matters, a run trains them in sorted order
    order = (
        SITES if METHODS[name].depends_on != "order" else (SITES[2], SITES[0], SITES[1])
    )
    order = order[:n_sites]
    training = Training(epochs=3, selection=selection)
    store = Store(tmp_path / "run")
    _, keys = run_of(name, order, store, training)
    for i, path in enumerate(chain(name, order, tmp_path, training=training)):
        capsule = open_capsule(path)
        run = store.read_lane(keys[i + 1])
        rows = METHODS[name].row_keys
        mine = {
            f"{p}/{k}": v
            for p, d in capsule.lane._asdict().items()
            for k, v in d.items()
        }
        kept = {k for k in run if not k.endswith(("@pool", "@item"))}
        assert kept == set(mine) - {f"state/{k}" for k in rows}
        for key in kept:
            assert torch.equal(run[key], mine[key]), key


def test_remembered_subjects_are_the_run_s_bit_by_bit(tmp_path) -> None:
    order = SITES[:2]
    store = Store(tmp_path / "run")
    nodes, _ = run_of("forge", order, store, Training(epochs=3))
    trainer = Trainer(cohort(), store)
    child = next(n for n in nodes.values() if n.depth == 2)
    lane = trainer.load_lane(child)  # rows of site one, in the run's bank
    capsule = open_capsule(chain("forge", order, tmp_path)[0])
    for key in METHODS["forge"].row_keys:
        rows, places = lane.state[key], capsule.lane.state[key]
        assert bool((rows >= 0).any())
        assert torch.equal(rows >= 0, places >= 0)
        there = rows >= 0
        kept = capsule.remembered.batch().select(places[there])
        assert torch.equal(trainer.loader.bank.fc(rows[there]), kept.fc)
        assert torch.equal(trainer.loader.bank.y[rows[there]], kept.y)


def test_seal_and_open_changes_nothing(tmp_path) -> None:
    """A method's memory survives two hops with its sites."""
    first, second = (open_capsule(p) for p in chain("forge", SITES[:2], tmp_path))
    from fcforge.sites import split_site

    turn = Turn(second, split_site(cohort(), SITES[2], 0))
    lane, again = turn.packed(turn.lane)
    assert torch.equal(again.upper, second.remembered.upper)
    assert torch.equal(again.site, second.remembered.site)
    assert set(again.site.tolist()) == {0, 1}
    assert set(first.remembered.site.tolist()) == {0}
    for key in METHODS["forge"].row_keys:
        assert torch.equal(lane.state[key], second.lane.state[key])


def test_held_out_numbers_are_those_of_the_run_s_network(tmp_path) -> None:
    """What `inspect` prints of site A after B: the run's lane on the same synthetic subjects."""
    store = Store(tmp_path / "run")
    nodes, keys = run_of("finetune", SITES[:2], store, Training(epochs=3))
    path = chain("finetune", SITES[:2], tmp_path)[1]
    capsule = open_capsule(path)
    trainer = Trainer(cohort(), store)
    tensors = store.read_lane(keys[2])
    params = {
        k.split("/", 1)[1]: v for k, v in tensors.items() if k.startswith("params/")
    }
    stats = {
        k.split("/", 1)[1]: v for k, v in tensors.items() if k.startswith("stats/")
    }
    model = trainer.learner(nodes[keys[2]].spec).model
    batch = capsule.held_out.of_site(0)
    right = (
        model.apply(params, stats, model.prepare(batch.fc)).logits.argmax(-1) == batch.y
    )
    told = capsule.entries[-1]["metrics"]["held_out"][SITES[0]]["accuracy"]
    assert told == round(float(right.double().mean()), 4)
    # and the accuracy on the own real test split is the run's score, as coarse as small counts ask
    p = store.read_scores(keys[2])[SITES[1]]
    y = trainer.sites(nodes[keys[2]].spec)[SITES[1]].test.y.numpy()
    own = capsule.entries[-1]["metrics"]["own_test"]["accuracy"]
    counts = tuple(capsule.entries[-1]["counts"]["test"].values())
    assert own == published_share(float(((p > 0.5) == y).mean()), counts)


def test_a_site_is_learned_once_and_on_one_atlas(tmp_path) -> None:
    path = chain("majority", SITES[:1], tmp_path)[0]
    with pytest.raises(CapsuleError, match="learned already"):
        learn(path, SITES[0], cohort(), tmp_path / "b.capsule")
    from fcforge.sites.simulated import simulate

    with pytest.raises(CapsuleError, match="12 ROIs, the capsule 10"):
        learn(path, SITES[1], simulate(n_rois=12, scale=0.3), tmp_path / "b.capsule")
    assert sorted(p.name for p in tmp_path.glob("*.capsule")) == [path.name]


def test_a_place_that_cannot_be_written_is_refused_before_training(
    tmp_path, monkeypatch
) -> None:
    from fcforge.capsule import learning

    trained = []
    monkeypatch.setattr(learning, "learn_next", lambda *a, **k: trained.append(a))
    taken = tmp_path / "file"
    taken.write_text("")
    for out, said in (
        (taken / "x.capsule", "cannot be written"),
        (taken, "exists already"),
    ):
        with pytest.raises(CapsuleError, match=said):
            learn(None, SITES[0], cohort(), out, settings=settings("majority"))
    assert not trained
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
