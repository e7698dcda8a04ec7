"""Whole chains under attack: statistics, network, synthetic subjects; members proved."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from small_chains import joined

from fcforge.core.component import Component
from fcforge.core.errors import DataError
from fcforge.core.spec import LearnerSpec, Training
from fcforge.core.target import Target
from fcforge.data.simulated import simulate
from fcforge.data.splits import split_site
from fcforge.evaluation.privacy.audit_result import AuditPlan, AuditResult
from fcforge.methods.analytic import moment_rows
from fcforge.replay.state import named
from fcforge_consortium.audit_target import AuditTarget
from fcforge_consortium.chains.audit import audit_chain
from fcforge_consortium.chains.chain import Chain, empty_chain
from fcforge_consortium.chains.settings import settings_for
from fcforge_consortium.chains.step import whole_site
from fcforge_consortium.ledger.ledger import Ledger

R = 20
SITE = "Sim-NYU"


@cache
def cohort(seed: int = 2):
    return simulate(n_rois=R, n_sites=1, scale=1.0, seed=seed)


@cache
def learned(method: str) -> tuple[Chain, Ledger]:
    settings = settings_for(
        LearnerSpec(Component(method), Component("linear")),
        R,
        training=Training(epochs=2),
        held_out=32,
        calibrate="none",
        held_out_generator=Component("edge_gauss"),
    )
    exchange = empty_chain(settings, Target(classes=("TC", "ASD")), SITE)
    made, entry = joined(exchange, SITE, data=cohort())
    return made.model, Ledger(Path("nowhere"), [entry])


def asked(method: str, **change) -> AuditTarget:
    private = learned(method)[1]
    given = AuditTarget(SITE, cohort(), private, AuditPlan(n_draws=40, multiple=2))
    return replace(given, **change)


def audited(method: str, **change) -> AuditResult:
    return audit_chain(learned(method)[0], asked(method, **change))


def test_exact_statistics_leak():
    exact = audited("analytic")
    leak = exact.row("method state", "leverage in root")
    assert leak.auc.value > 0.95  # fewer people than edges: members span the statistics
    assert exact.row("bootstrap", "distance ratio").auc.value > 0.9
    assert exact.about["parents"] == (learned("analytic")[0].steps[0].id,)


def test_every_array_is_attacked_or_named():
    found = audited("ewc")
    names = {row.attack for row in found.rows if row.release == "method state"}
    attacked = {
        name.removeprefix("alignment with ").removeprefix("leverage in ")
        for name in names
    }
    left = {name.removeprefix("state ") for name in found.about["not_attacked"]}
    assert attacked | left == set(named(learned("ewc")[0].state.lane.state))
    assert {row.release for row in found.rows} >= {"network", "synthetic subjects"}


def test_leverage_uses_the_rows_the_method_added():
    chain = learned("analytic")[0]
    learner = chain.settings.build()
    batch = split_site(cohort(), SITE, 0).learning(with_val=True)
    inputs = learner.model.prepare(batch.fc)
    rows = moment_rows(learner.model, inputs, batch.y).numpy()
    root = chain.state.lane.state.root.numpy()
    np.testing.assert_allclose(rows.T @ rows, root.T @ root, atol=1e-6, rtol=1e-6)


def test_other_people_than_those_learned_are_refused():
    with pytest.raises(DataError, match="has contributed nothing"):
        audited("ewc", site="Elsewhere")
    with pytest.raises(DataError, match="no entry"):
        audited("ewc", private=Ledger(Path("nowhere")))
    mine = cohort()
    for changed, said in (
        (replace(mine, y=1 - mine.y), "another diagnosis"),
        (replace(mine, subject_id=mine.subject_id[::-1]), "another scan"),
        (cohort(5), "scan"),
    ):
        with pytest.raises(DataError, match=said):
            audited("ewc", people=changed)


def test_too_few_people_are_refused():
    few = cohort(5).select(np.arange(len(cohort(5))) < 4)
    with pytest.raises(DataError, match="too few"):
        audited("ewc", reference=few)


def test_where_everybody_was_learned_others_are_compared():
    mine = cohort()
    settings = settings_for(
        LearnerSpec(Component("analytic"), Component("linear")), R, held_out=0
    )
    site = whole_site(mine, settings)
    assert len(site.val)  # learned, too, where nothing is chosen on it
    chain, entry = empty_chain(
        settings, Target(classes=("TC", "ASD")), SITE
    ).model.after(site)
    private = Ledger(Path("nowhere"), [entry])
    given = asked("analytic", private=private)
    with pytest.raises(DataError, match="--reference"):
        audit_chain(chain, given)
    found = audit_chain(chain, replace(given, reference=cohort(5)))
    assert found.row("method state", "leverage in root").auc.value > 0.95
    assert found.about["trained_on"] == len(mine)
