"""Whole capsules under attack: statistics, network, synthetic subjects; the ledger entry."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from fcforge.capsule import learn, open_capsule, settings_for
from fcforge.capsule.audit import audit_capsule, gather, site_as_learned
from fcforge.capsule.home import read_home, receipt_of
from fcforge.errors import CapsuleError, DataError
from fcforge.estimator import ForgeClassifier
from fcforge.sites import split_site
from fcforge.sites.harmonise import to_z
from fcforge.sites.simulated import simulate
from fcforge.studies.audit_result import Audit, AuditPlan
from fcforge.types import Component, LearnerSpec, Training
from real_runs import fcforge

R, SITE = 20, "Sim-NYU"
PLAN = AuditPlan(n_draws=40)


@pytest.fixture(scope="module")
def cohort():
    return simulate(n_rois=R, n_sites=1, scale=1.0, seed=2)


@pytest.fixture(scope="module")
def capsules(tmp_path_factory, cohort):
    folder = tmp_path_factory.mktemp("capsules")
    out = {}
    learners = {
        "analytic": LearnerSpec(Component("analytic"), Component("linear")),
        "ewc": LearnerSpec(Component("ewc"), Component("linear")),
    }
    for name, spec in learners.items():
        settings = settings_for(
            spec,
            R,
            training=Training(epochs=2),
            held_out=32,
            calibrate="none",
            judge=Component("edge_gauss"),
        )
        out[name] = folder / f"{name}.capsule"
        learn(None, SITE, cohort, out[name], settings=settings)
    return out


def site_of(cohort):
    return split_site(cohort, SITE, 0)


def audited(path, site, **rest):
    return audit_capsule(
        open_capsule(path), site, read_home(receipt_of(path)), plan=PLAN, **rest
    )


def test_exact_statistics_leak(capsules, cohort) -> None:
    exact = audited(capsules["analytic"], site_of(cohort))
    leak = exact.row("method state", "leverage in root")
    assert leak.auc.value > 0.95  # fewer people than edges: members span the statistics
    assert exact.row("bootstrap", "distance ratio").auc.value > 0.95


def test_every_array_is_attacked_or_named(capsules, cohort) -> None:
    capsule = open_capsule(capsules["ewc"])
    audit = audited(capsules["ewc"], site_of(cohort))
    names = {r.attack for r in audit.rows if r.release == "method state"}
    attacked = {
        n.removeprefix("alignment with ").removeprefix("leverage in ") for n in names
    }
    left = {n.removeprefix("state ") for n in audit.about["not_attacked"]}
    assert attacked | left == set(capsule.lane.state)
    assert {r.release for r in audit.rows} >= {"network", "synthetic subjects"}


def test_leverage_uses_the_rows_the_method_added(capsules, cohort) -> None:
    capsule, site = open_capsule(capsules["analytic"]), site_of(cohort)
    learner, batch = capsule.settings.build(), site.learning(with_val=True)
    model = learner.model
    rows = learner.method.statistics_rows(
        model, model.prepare(batch.fc), batch.y
    ).numpy()
    root = capsule.lane.state["root"].numpy()
    np.testing.assert_allclose(rows.T @ rows, root.T @ root, atol=1e-6, rtol=1e-6)


def test_command_writes_the_audit_into_the_ledger(capsules, cohort, tmp_path) -> None:
    i, j = np.triu_indices(R, 1)
    data = tmp_path / "data.npz"
    np.savez(
        data,
        fc_upper=cohort.fc[:, i, j],
        label=cohort.y,
        site=cohort.site,
        subject_id=cohort.subject_id,
    )
    out = tmp_path / "audited.capsule"
    of = ("--data", data, "--site", SITE, "--capsule", capsules["ewc"], "--multiple", 2)
    answer = fcforge("audit", *of, "--record", out)
    assert answer.code == 0, answer.err
    text = answer.out
    assert "'no raw scan is stored' does not mean 'private'" in text
    sealed = open_capsule(out)
    entry = sealed.entries[-1]
    assert entry["kind"] == "audit"
    assert entry["parent"] == open_capsule(capsules["ewc"]).id
    found = Audit.from_ledger(entry["result"])
    assert found.row("bootstrap", "distance ratio").auc.value > 0.9
    assert {(r.release, r.attack) for r in found.rows} >= {
        ("untrained", "DOMIAS"),
        ("network", "loss"),
    }
    written = json.dumps(entry["result"])
    assert "trained_on" not in written  # counts could be small cells
    from fcforge.report.inspect import inspect_words

    said = "\n".join(inspect_words(sealed))
    assert "can tell better than chance" in said


def test_a_foreign_site_and_too_few_people_are_clear_errors(capsules, cohort) -> None:
    path, site = capsules["ewc"], site_of(cohort)
    with pytest.raises(CapsuleError, match="was not learned"):
        audited(path, replace(site, name="Elsewhere"))
    with pytest.raises(DataError, match="too few"):
        audited(path, site, reference=site.test.select(slice(0, 3)))
    with pytest.raises(DataError, match="no other scan"):
        audited(path, site, other={"nobody": torch.eye(R)})


def test_a_classifier_that_learned_everybody_is_audited_against_other_people(
    cohort, tmp_path
) -> None:
    path = tmp_path / "everybody.capsule"
    ForgeClassifier().fit(cohort.fc, cohort.y, site=SITE).to_capsule(path)
    capsule = open_capsule(path)
    site = site_as_learned(capsule, cohort, SITE)
    assert len(site.train) == len(cohort)
    with pytest.raises(DataError, match="--reference"):
        audited(path, site)
    others = split_site(simulate(n_rois=R, n_sites=1, scale=1.0, seed=5), SITE, 0)
    audit = audited(path, site, reference=others.learning(with_val=True))
    assert audit.row("method state", "leverage in root").auc.value > 0.95
    assert audit.about["trained_on"] == len(cohort)


def test_a_harmonised_capsule_is_attacked_with_harmonised_people(tmp_path) -> None:
    """Means that travel are attacked, and members look as the network saw them."""
    people = simulate(n_rois=R, n_sites=2, scale=1.0, seed=2)
    settings = settings_for(
        LearnerSpec(Component("analytic"), Component("linear")),
        R,
        held_out=0,
        calibrate="none",
        harmonise="site_demean",
    )
    first, second = people.site_names
    path, state = tmp_path / "b.capsule", tmp_path / "a.capsule"
    learn(None, first, people, state, settings=settings)
    learn(state, second, people, path)
    site = split_site(people, second, 0)
    audit = audited(path, site)
    assert audit.row("method state", "leverage in root").auc.value > 0.95
    assert audit.row(
        "method state", "alignment with harmonisation"
    )  # few edges: says little
    people, member = gather(open_capsule(path), site, None, None, PLAN)
    level = open_capsule(path).harmony.level
    mean = to_z(people.batch.fc.numpy()[member[0] == 1]).mean(0)
    assert np.abs(mean - level).max() < 0.05
