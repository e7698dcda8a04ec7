"""A chain is the run, bitwise, site by site; what is refused, what is said of scans."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from small_chains import N_ROIS, SITES, chained, cohort, joined, quick, settings

from fcforge.core.component import Component
from fcforge.core.errors import DataError, ExchangeError
from fcforge.core.spec import LearnerSpec, RunSpec, Training
from fcforge.core.target import Target
from fcforge.data.simulated import simulate
from fcforge.data.splits import split_site
from fcforge.experiments.plan import make_plan
from fcforge.experiments.store import Store
from fcforge.experiments.trainer import Trainer
from fcforge.methods import METHODS
from fcforge.replay.state import rows_of
from fcforge.training.evaluation import class_scores
from fcforge_consortium.chains.chain import REAL_FLAG, Chain, empty_chain
from fcforge_consortium.chains.counts import published_share
from fcforge_consortium.chains.step import SiteStep
from fcforge_consortium.records.canonical import sha256
from fcforge_consortium.records.exchange import Exchange


def run_of(name: str, order: tuple[str, ...], store: Store, training: Training):
    """Train one order as `fcforge run` does; its nodes, and their keys by depth."""
    spec = RunSpec(
        Component("simulated"), quick(name), order, 0, "x", training=training
    )
    plan = make_plan([spec], cohort().site_names)
    for node in plan.nodes.values():
        # a new trainer each time, as after an interruption: memory comes back from the store
        Trainer(cohort(), store).run([replace(node, continued=True)])
    return plan.nodes, plan.stages[0][1]


CASES = [
    (name, "fixed", 2)
    for name, method in METHODS.items()
    if method.depends_on != "all" and not method.needs_public
]
CASES += [
    ("finetune", "inner_val", 3),
    ("forge", "inner_val", 2),
    ("forge", "fixed", 3),
]


@pytest.mark.rounding
@pytest.mark.parametrize(("name", "selection", "n_sites"), CASES)
def test_every_stage_is_bitwise_the_run(name, selection, n_sites, tmp_path):
    # where only the set of sites matters, a run trains them in sorted order
    order = (SITES[2], SITES[0], SITES[1])
    if METHODS[name].depends_on != "order":
        order = SITES
    order = order[:n_sites]
    training = Training(epochs=3, selection=selection)
    store = Store(tmp_path / "run")
    _, keys = run_of(name, order, store, training)
    for i, exchange in enumerate(chained(name, order, training=training)):
        mine = exchange.model.state.lane.named()
        run = store.read_lane(keys[i + 1])
        rows = {f"state/{key}" for key in rows_of(exchange.model.state.lane.state)}
        kept = set(run) - rows - {"pool", "item"}
        assert kept == set(mine) - rows
        for key in kept:
            assert torch.equal(run[key], mine[key]), key


def test_remembered_subjects_are_the_run_s_bit_by_bit(tmp_path):
    store = Store(tmp_path / "run")
    nodes, _ = run_of("forge", SITES[:2], store, Training(epochs=3))
    trainer = Trainer(cohort(), store)
    child = next(node for node in nodes.values() if node.depth == 2)
    lane = trainer.load_lane(child)  # rows of site one, in the run's bank
    state = chained("forge")[0].model.state
    travelled = rows_of(state.lane.state)
    assert set(travelled) == {"memory.rows", "held_out.rows"}
    for key, rows in rows_of(lane.state).items():
        places = travelled[key]
        there = rows >= 0
        assert bool(there.any())
        assert torch.equal(there, places >= 0)
        kept = state.remembered.batch().select(places[there])
        assert torch.equal(trainer.parts.loader.bank.fc(rows[there]), kept.fc)
        assert torch.equal(trainer.parts.loader.bank.y[rows[there]], kept.y)


def test_a_memory_survives_two_hops_with_its_sites():
    first, second = (made.model.state for made in chained("forge", SITES[:2]))
    site = split_site(cohort(), SITES[2], 0)
    step = SiteStep(settings("forge"), SITES[:2], second, site)
    again = step.finished(step.training.lane)
    assert torch.equal(again.remembered.upper, second.remembered.upper)
    assert torch.equal(again.remembered.site, second.remembered.site)
    assert set(again.remembered.site.tolist()) == {0, 1}
    assert set(first.remembered.site.tolist()) == {0}
    before = rows_of(second.lane.state)
    for key, rows in rows_of(again.lane.state).items():
        assert torch.equal(rows, before[key])


def test_what_a_step_says_is_measured_on_the_run_s_network(tmp_path):
    store = Store(tmp_path / "run")
    nodes, keys = run_of("finetune", SITES[:2], store, Training(epochs=3))
    exchange = chained("finetune", SITES[:2])[1]
    step = exchange.model.steps[-1]
    trainer = Trainer(cohort(), store)
    spec = nodes[keys[2]].spec
    model = trainer.parts.learner(spec).model
    lane = exchange.model.state.lane
    batch = exchange.model.state.held_out.of_site(0)
    logits = model.apply(lane.params, lane.stats, model.prepare(batch.fc)).logits
    right = (logits.argmax(-1) == batch.y).double().mean()
    assert step.held_out[SITES[0]] == round(float(right), 4)
    # the accuracy on the own real test split is the run's score, as coarse as small counts ask
    p = store.read_scores(keys[2])[SITES[1]]
    y = trainer.parts.sites(spec)[SITES[1]].test.y.numpy()
    counts = (step.counts.test.controls, step.counts.test.patients)
    own = published_share(float(((p > 0.5) == y).mean()), counts)
    assert step.own_test == own


def test_steps_learned_in_memory_are_those_that_travel_one_by_one():
    start = empty_chain(settings("forge"), Target(classes=("TC", "ASD")), SITES[0])
    chain = Chain(start)
    for name in SITES[:2]:
        chain, _ = chain.after(split_site(cohort(), name, 0))
    made = chain.on_record()
    assert [step.payload == "" for step in made.model.steps] == [True, False]
    travelled = chained("forge", SITES[:2])[-1]
    assert made.model.state.to_bytes() == travelled.model.state.to_bytes()
    assert made.model.on_record() is made  # nothing new
    key = Ed25519PrivateKey.generate()
    signed = chain.on_record(key).everything
    assert {record.key for record in signed} == {
        key.public_key().public_bytes_raw().hex()
    }


# -- what is refused -------------------------------------------------------------------------------
def test_a_summary_does_not_call_made_up_people_subjects():
    (first,) = chained("analytic")
    assert " synthetic held-out subjects; state " in first.model.summary()


def test_a_summary_has_the_id_that_hospitals_read_to_each_other():
    (first,) = chained("finetune")
    assert first.model.summary().endswith(f"state {first.id[:16]}")


def test_a_fork_is_refused_by_name():
    first = chained("majority")[0]
    one = joined(first, SITES[1])[0]
    other = joined(first, SITES[2])[0]
    with pytest.raises(ExchangeError, match=f"forks.*{SITES[1]}.*{SITES[2]}"):
        one.merged(other)
    assert first.merged(one).id == one.id


def test_a_site_is_learned_once_and_on_one_atlas():
    chain = chained("majority")[0].model
    with pytest.raises(ExchangeError, match="learned already"):
        chain.require_next(SITES[0], N_ROIS)
    with pytest.raises(ExchangeError, match="12 ROIs, the chain 10"):
        chain.require_next(SITES[1], 12)


def test_joint_cannot_be_handed_over():
    joint = replace(
        settings("majority"),
        learner=LearnerSpec(Component("joint"), Component("linear")),
    )
    chain = empty_chain(joint, Target(classes=("TC", "ASD")), SITES[0]).model
    with pytest.raises(ExchangeError, match="all sites at once"):
        chain.require_next(SITES[0], N_ROIS)


def test_real_subjects_need_the_flag_of_every_hospital():
    chain = empty_chain(
        settings("cumulative"), Target(classes=("TC", "ASD")), SITES[0]
    ).model
    after, _ = chain.after(split_site(cohort(), SITES[0], 0))
    with pytest.raises(ExchangeError, match="real subjects"):
        after.on_record()
    made = after.on_record(allow_real_subjects=True)
    assert made.model.steps[-1].flags == (REAL_FLAG,)
    again, _ = made.model.after(split_site(cohort(), SITES[1], 0))
    with pytest.raises(ExchangeError, match="--allow-real-subjects"):
        again.on_record()


def forged(exchange: Exchange, data: bytes | None = None, **said) -> Exchange:
    """The exchange with another last step or other arrays."""
    *before, last = exchange.records
    data = data or exchange.payloads[last.payload]
    digest = sha256(data)
    step = last.changed(payload=digest, **said)
    return Exchange(exchange.root, (*before, step), {digest: data})


@pytest.mark.parametrize(
    ("said", "named"), [({"number": 3}, "place"), ({"payload_of": "nobody"}, "arrays")]
)
def test_a_step_of_another_chain_is_refused(said, named):
    exchange = chained("majority", SITES[:2])[1]
    if "payload_of" in said:
        *before, last = exchange.records
        odd = Exchange(exchange.root, (*before, last.changed(payload="")))
    else:
        odd = forged(exchange, **said)
    with pytest.raises(ExchangeError, match=named):
        odd.check()


def test_real_subjects_without_the_flag_do_not_open():
    exchange = chained("cumulative")[0]
    with pytest.raises(ExchangeError, match="without the flag"):
        forged(exchange, flags=()).check()


def test_a_described_network_cannot_eat_memory():
    """Settings that describe a network of 10^10 numbers cost nothing to refuse."""
    exchange = chained("independent")[0]
    learner = LearnerSpec(
        Component("independent"), Component("mlp", {"hidden": 90_000})
    )
    big = replace(exchange.model.settings, learner=learner)
    root = exchange.root.changed(settings=big.to_json())
    step = exchange.records[0].changed(parents=(root.id,))
    odd = Exchange(root, (step,), exchange.payloads)
    with pytest.raises(ExchangeError, match="array 'params/"):
        odd.check()


def test_a_step_names_no_subject():
    exchange = chained("forge", SITES[:2])[-1]
    lines = b"".join(record.line for record in exchange.everything)
    for subject in cohort().subject_id:
        assert str(subject).encode() not in lines


# -- answers ---------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def chain():
    return chained("analytic", SITES[:2], held_out=48)[-1].model


def test_temperature_divides_log_odds(chain):
    site = split_site(cohort(), SITES[0], 0)
    found = chain.score(site.test.fc.numpy(), {})
    here = np.isfinite(found.odds)
    assert here.sum() > 10
    raw = class_scores(chain.learner, chain.state.lane, site.test.fc)
    np.testing.assert_allclose(
        found.odds[here], raw[here] / chain.temperature, rtol=1e-5, atol=1e-6
    )
    each = [step.temperature for step in chain.steps]
    assert chain.temperature == pytest.approx(np.sqrt(np.prod(each)))


def test_silent_on_strange_scans_not_on_new_patients(chain):
    ordinary = np.concatenate(
        [split_site(cohort(), site, 0).test.fc.numpy() for site in SITES[:2]]
    )
    # subjects nobody trained on
    assert (chain.score(ordinary, {}).strangeness > 1).mean() <= 0.1
    rng = np.random.default_rng(0)
    noise = np.stack([np.corrcoef(rng.standard_normal((10, 15))) for _ in range(20)])
    found = chain.score(noise, {})
    assert (found.strangeness > 1).all()
    assert np.isnan(found.odds).all()
    assert all(why.startswith("nearest site") for why in found.why)
    same = np.full((1, 10, 10), 0.95)
    same[:, range(10), range(10)] = 1
    alike = np.concatenate([same, np.eye(10)[None]])
    assert (chain.score(alike, {}).strangeness > 1).all()
    order = rng.permutation(10)  # an atlas whose ROIs come in another order
    shuffled = ordinary[:, order][:, :, order]
    assert (chain.score(shuffled, {}).strangeness > 1).mean() >= 0.8


def test_without_held_out_sets_it_cannot_abstain():
    bare = chained("analytic", held_out=0, calibrate="none")[0].model
    assert bare.temperature == 1.0
    found = bare.score(np.eye(10)[None], {})
    assert np.isfinite(found.odds).all()
    assert np.isnan(found.strangeness).all()
    assert "without any connectivity" in bare.reference()[1]


# -- scans and diagnoses that cannot be right ------------------------------------------------------
def found_odd(chain: Chain, data, site: str, accept=()) -> list[str]:
    return chain._checked(split_site(data, site, 0), accept)[1]


def test_diagnoses_that_are_turned_round_are_refused_unless_accepted():
    data = simulate("easy", n_rois=20, n_sites=2, scale=1.0, seed=1)
    one, two = data.site_names
    own = replace(settings("analytic", held_out=0), n_rois=20)
    first = empty_chain(own, Target(classes=("TC", "ASD")), one)
    chain = joined(first, one, data=data)[0].model
    turned = replace(data, y=1 - data.y)
    with pytest.raises(DataError, match="--accept-labels"):
        found_odd(chain, turned, two)
    assert found_odd(chain, turned, two, ["accept_labels"]) == ["accept_labels"]
    assert found_odd(chain, data, two) == []


def test_shuffled_rois_are_noticed_without_their_names():
    chain = chained("majority", held_out=48)[0].model
    order = [3, 8, 0, 5, 9, 2, 7, 1, 6, 4]
    shuffled = replace(cohort(), fc=cohort().fc[:, order][:, :, order])
    with pytest.raises(DataError, match="--accept-scans"):
        found_odd(chain, shuffled, SITES[1])
    assert found_odd(chain, shuffled, SITES[1], ["accept_scans"]) == ["accept_scans"]
