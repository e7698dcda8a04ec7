"""The audit as a whole: references at both ends, control in the middle, words exact."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from fcforge.core.errors import ConfigError, DataError
from fcforge.core.estimate import Estimate
from fcforge.core.subjects import FCBatch
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import load_people
from fcforge.data.simulated import simulate
from fcforge.evaluation.privacy.audit_result import (
    AuditPlan,
    AuditResult,
    AuditRow,
    read_audit,
)
from fcforge.evaluation.privacy.generator_audit import (
    audit_generators,
    in_halves,
    pseudo_members,
    split_people,
    stratified,
    world_members,
)
from fcforge.graphs import edges
from fcforge.report import audits as words
from real_runs import fcforge

PLAN = AuditPlan(worlds=5, multiple=3, n_draws=40)


@pytest.fixture(scope="module")
def people() -> Cohort:
    cohort = simulate(n_rois=14, n_sites=1, scale=1.0, seed=5)
    return cohort.select(np.arange(len(cohort)) < 120)


@pytest.fixture(scope="module")
def site(people) -> FCBatch:
    return FCBatch.from_numpy(people.fc, people.y)


@pytest.fixture(scope="module")
def audit(people, tmp_path_factory) -> AuditResult:
    path = tmp_path_factory.mktemp("same") / "halves.npz"
    rows = flat(people.fc)
    write_halves(path, people.subject_id, rows, rows)
    return audit_generators(people, ["edge_gauss"], PLAN, halves=path)


def test_copy_leaks_everything_and_untrained_nothing(audit) -> None:
    assert audit.row("bootstrap", "distance ratio").auc.value > 0.95
    assert audit.row("bootstrap", "distance ratio").tpr.value > 0.9
    assert audit.row("bootstrap", "distance ratio").identified.value > 0.9
    assert audit.row("bootstrap", "shadow models").auc.value > 0.95
    assert audit.row("bootstrap", "fingerprint").auc.value > 0.95
    for row in audit.rows:
        if row.release == "untrained":
            assert abs(row.auc.value - 0.5) < 0.12, row
        assert row.control.low < 0.55, row
        assert row.control.high > 0.45, row
        assert row.auc.low <= row.auc.value <= row.auc.high


def test_every_generator_lies_between_the_references(audit) -> None:
    best = max(r.auc.value for r in audit.rows if r.release == "edge_gauss")
    assert best < audit.row("bootstrap", "distance ratio").auc.value


def test_worlds_share_nobody_with_the_reference(site) -> None:
    who = split_people(site, None, PLAN)
    assert len(who.batch) + len(who.reference) == len(site)
    gap = (who.batch.fc[:, None] - who.reference.fc[None]).abs().amax((-1, -2))
    assert float(gap.min()) > 0
    member = world_members(who.y, PLAN)
    assert abs(member.mean() - 0.5) < 0.05
    assert len({tuple(row) for row in member}) == PLAN.worlds
    fake = pseudo_members(member, np.random.default_rng(0))
    assert ((fake == -1) == (member == 1)).all()
    assert (fake == 1).sum() > 0


def test_stratified_keeps_classes() -> None:
    y = np.array([0] * 40 + [1] * 20)
    mask = stratified(y, 0.5, np.random.default_rng(0))
    assert (mask[:40].sum(), mask[40:].sum()) == (20, 10)


def test_audit_repeats_and_survives_json(people, audit) -> None:
    again = audit_generators(people, ["edge_gauss"], PLAN)
    a, b = (x.row("edge_gauss", "DOMIAS") for x in (audit, again))
    assert a == b
    back = AuditResult.from_json(json.loads(json.dumps(audit.to_json())))
    assert back.to_json() == audit.to_json()


def test_words_are_exact(audit) -> None:
    text = words.as_text(audit)
    assert "'no raw scan is stored' does not mean 'private'" in text
    assert "is private" not in text
    assert "bootstrap (reference)" in text


def test_report_section_escapes(audit) -> None:
    evil = AuditResult(
        audit.rows, {**audit.about, "what": "x", "not_attacked": ["<script>alert(1)"]}
    )
    page = str(words.section(evil).html())
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.count('<th scope="row">') == len(audit.rows)


def test_too_few_people_is_one_clear_error(people) -> None:
    with pytest.raises(DataError, match="too few to audit"):
        audit_generators(people.select(np.arange(len(people)) < 10), [], PLAN)


@pytest.fixture(scope="module")
def files(tmp_path_factory, site):
    folder = tmp_path_factory.mktemp("data")
    upper = np.triu_indices(14, 1)
    flat = site.fc.numpy()[:, upper[0], upper[1]]
    ids = np.array([f"s{i:03d}" for i in range(len(flat))])
    data = folder / "site.npz"
    np.savez(
        data,
        fc_upper=flat,
        label=site.y.numpy(),
        site=np.array(["A"] * len(flat)),
        subject_id=ids,
    )
    noisy = flat + 0.02 * np.random.default_rng(0).standard_normal(flat.shape)
    np.savez(folder / "halves.npz", subject_id=ids, fc_first=noisy, fc_second=flat)
    return data, folder / "halves.npz"


def test_command_audits_a_generator(files, tmp_path) -> None:
    data, halves = files
    answer = fcforge(
        "audit",
        "--data",
        data,
        "--site",
        "A",
        "--generator",
        "edge_gauss",
        "--halves",
        halves,
        "--out",
        tmp_path / "out",
        "--json",
    )
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert {r["attack"] for r in found["rows"]} >= {
        "fingerprint",
        "shadow models",
        "DOMIAS",
    }
    assert (
        read_audit(tmp_path / "out" / "audit.json").to_json()["rows"] == found["rows"]
    )
    fingerprint = [
        r
        for r in found["rows"]
        if (r["release"], r["attack"]) == ("bootstrap", "fingerprint")
    ]
    assert fingerprint[0]["identified"][0] > 0.8


def test_command_says_what_is_missing(cohort, files, tmp_path) -> None:
    data, _ = files
    asked = ("audit", "--data", data, "--site", "A")
    missing = fcforge(*asked)
    assert missing.code == 2
    assert "Missing option '--generator'" in missing.err
    assert (
        "Did you mean 'corr_gauss'" in fcforge(*asked, "--generator", "corr_gaus").err
    )
    with pytest.raises(DataError, match="no fc_first, fc_second"):
        read(cohort, data)
    cut = tmp_path / "cut.npz"
    for share in (0.3, 0.9):
        cut.write_bytes(data.read_bytes()[: int(share * data.stat().st_size)])
        with pytest.raises(DataError, match=r"cut.npz: cannot be read"):
            read(cohort, cut)
    with pytest.raises(DataError, match="is not an audit"):
        read_audit(data)


def test_an_audit_of_broken_data_is_refused(files, tmp_path) -> None:
    with np.load(files[0]) as arrays:
        broken = {name: arrays[name].copy() for name in arrays.files}
    broken["fc_upper"][3, 5] = np.nan
    np.savez(tmp_path / "broken.npz", allow_pickle=False, **broken)
    path = tmp_path / "broken.npz"
    answer = fcforge(
        "audit", "--data", path, "--site", "A", "--generator", "edge_gauss"
    )
    assert answer.code == 2
    assert re.search(r"subject 's003'.*NaN or infinite", answer.err)


def test_cli_lists_audit() -> None:
    from typer.testing import CliRunner

    from fcforge.cli import app

    result = CliRunner().invoke(app, ["audit", "--help"])
    assert result.exit_code == 0
    assert "--generator" in result.output or "audit" in result.output


@pytest.mark.data
def test_real_abide_references(shared_data) -> None:
    """Bootstrap leaks, untrained does not, on the real NYU subjects (the cheap untrained row)."""
    nyu = load_people(shared_data / "abide1_aal116.npz", ["NYU"])
    found = audit_generators(nyu, [], AuditPlan(worlds=4, n_draws=20))
    assert found.row("bootstrap", "distance ratio").auc.value >= 0.95
    assert abs(found.row("untrained", "distance ratio").auc.value - 0.5) < 0.1


def test_a_leak_is_named_unless_the_untrained_row_explains_it() -> None:
    def row(release: str, value: float, low: float, high: float) -> AuditRow:
        half = Estimate(0.5, 0.4, 0.6)
        made = AuditRow(release, "DOMIAS", Estimate(value, low, high), half, None, half)
        return replace(made, is_reference=release == "untrained")

    blind = row("untrained", 0.53, 0.47, 0.59)
    about = {"what": "x", "plan": {"seed": 0}}
    for found, named in (
        (row("g", 0.60, 0.53, 0.67), True),
        (row("g", 0.58, 0.51, 0.65), False),  # the untrained row reaches that far
        (row("g", 0.62, 0.49, 0.70), False),  # guessing does
    ):
        said = words.sentences(AuditResult((blind, found), about))
        assert said[0].startswith("An attacker can tell") is named
        assert f"{100 * found.auc.value:.0f} times in 100" in said[1]  # either way


# -- what it reads: generators by name, halves of runs, sites --------------------------------------
@pytest.fixture(scope="module")
def cohort():
    return simulate(n_rois=10, n_sites=1, scale=0.6, seed=2)


def write_halves(path, ids, first, second):
    np.savez(path, subject_id=np.array(ids), fc_first=first, fc_second=second)
    return path


def flat(fc: np.ndarray) -> np.ndarray:
    return edges(torch.from_numpy(fc)).numpy()


def read(cohort, path):
    return in_halves(cohort, torch.from_numpy(cohort.y), path)


def test_halves_are_read_by_subject(cohort, tmp_path) -> None:
    ids = cohort.subject_id[3::-1]  # in another order than the people
    rows = flat(cohort.fc[:4])[::-1]
    path = write_halves(tmp_path / "h.npz", ids, rows, 0.5 * rows)
    second, first = read(cohort, path)
    assert second.y.tolist() == cohort.y[:4].tolist()
    torch.testing.assert_close(first, torch.from_numpy(cohort.fc[:4]).float())
    torch.testing.assert_close(
        edges(second.fc), torch.from_numpy(0.5 * flat(cohort.fc[:4])).float()
    )


def test_halves_of_another_shape_are_refused(cohort, tmp_path) -> None:
    np.savez(tmp_path / "a.npz", subject_id=np.array(["x"]), fc_first=np.zeros((1, 3)))
    with pytest.raises(DataError, match="no fc_second"):
        read(cohort, tmp_path / "a.npz")
    path = write_halves(tmp_path / "b.npz", ["x"], np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(DataError, match="One row"):
        read(cohort, path)


def test_only_subjects_with_both_halves_are_audited(cohort, tmp_path) -> None:
    n = 60
    ids, rows = cohort.subject_id[:n].tolist(), flat(cohort.fc[:n])
    path = write_halves(tmp_path / "h.npz", ids, rows, rows)
    plan = AuditPlan(worlds=1, multiple=6, n_draws=5)
    audit = audit_generators(cohort, ["edge_gauss"], plan, halves=path)
    assert audit.about["people"] + audit.about["reference_people"] == n
    assert audit.about["halves"] is True
    assert audit.about["site"] == cohort.site_names[0]
    # the attacker holds the very scan that was copied
    assert audit.row("bootstrap", "fingerprint").auc.value > 0.9
    stranger = write_halves(tmp_path / "s.npz", ["nobody"], rows[:1], rows[:1])
    with pytest.raises(DataError, match="none of the site"):
        audit_generators(cohort, ["edge_gauss"], plan, halves=stranger)


def test_sites_are_picked_and_checked(cohort, tmp_path) -> None:
    path = tmp_path / "data.npz"
    np.savez(
        path,
        fc=cohort.fc,
        label=cohort.y,
        site=cohort.site,
        subject_id=cohort.subject_id,
    )
    (name,) = cohort.site_names
    assert len(load_people(path, [name]).y) == len(cohort.y)
    with pytest.raises(ConfigError, match="unknown site"):
        load_people(path, ["elsewhere"])
