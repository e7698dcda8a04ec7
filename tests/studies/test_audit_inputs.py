"""What an audit of generators reads: generators by name, halves of runs, sites."""

import numpy as np
import pytest
import torch

from fcforge.errors import ConfigError, DataError
from fcforge.graphs import edges
from fcforge.sites import load_people
from fcforge.sites.simulated import simulate
from fcforge.studies.audit_inputs import audit_site, parse_generator, read_halves
from fcforge.studies.audit_result import AuditPlan


@pytest.fixture(scope="module")
def cohort():
    return simulate(n_rois=10, n_sites=1, scale=0.6, seed=2)


def write_halves(path, ids, first, second):
    np.savez(path, subject_id=np.array(ids), fc_first=first, fc_second=second)
    return path


def flat(fc: np.ndarray) -> np.ndarray:
    return edges(torch.from_numpy(fc)).numpy()


@pytest.mark.parametrize(
    ("text", "name", "params"),
    [
        ("corr_gauss", "corr_gauss", {}),
        (
            "corr_gauss:rank=8,mean_match=false",
            "corr_gauss",
            {"rank": 8, "mean_match": False},
        ),
        (
            "fcm_vae:preset=authors, epochs=3",
            "fcm_vae",
            {"preset": "authors", "epochs": 3},
        ),
    ],
)
def test_a_generator_is_spelled_with_its_settings(text, name, params) -> None:
    found = parse_generator(text)
    assert (found.name, dict(found.params)) == (name, params)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("corr_gaus", "Did you mean 'corr_gauss'"),
        ("corr_gauss:rnk=3", "Did you mean 'rank'"),
        ("corr_gauss:rank=many", "rank = 'many' is not a whole number"),
    ],
)
def test_a_generator_that_does_not_exist_is_refused(text, words) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_generator(text)


def test_halves_are_read_by_subject(cohort, tmp_path) -> None:
    ids = cohort.subject_id[:4].tolist()
    rows = flat(cohort.fc[:4])
    first, second = read_halves(write_halves(tmp_path / "h.npz", ids, rows, 0.5 * rows))
    assert list(first) == ids
    torch.testing.assert_close(first[ids[2]], torch.from_numpy(cohort.fc[2]).float())
    torch.testing.assert_close(
        edges(second[ids[2]]), torch.from_numpy(0.5 * rows[2]).float()
    )


def test_halves_of_another_shape_are_refused(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", subject_id=np.array(["x"]), fc_first=np.zeros((1, 3)))
    with pytest.raises(DataError, match="no fc_second"):
        read_halves(tmp_path / "a.npz")
    path = write_halves(tmp_path / "b.npz", ["x"], np.zeros((2, 3)), np.zeros((2, 3)))
    with pytest.raises(DataError, match="One row of edges per subject"):
        read_halves(path)


def test_only_subjects_with_both_halves_are_audited(cohort, tmp_path) -> None:
    n = 60
    ids, rows = cohort.subject_id[:n].tolist(), flat(cohort.fc[:n])
    path = write_halves(tmp_path / "h.npz", ids, rows, rows)
    plan = AuditPlan(worlds=1, multiple=6, n_draws=5)
    audit = audit_site(cohort, ["edge_gauss"], plan, halves=path)
    assert audit.about["people"] + audit.about["reference_people"] == n
    assert audit.about["halves"] is True
    assert audit.about["site"] == cohort.site_names[0]
    # the attacker holds the very scan that was copied
    assert audit.row("bootstrap", "fingerprint").auc.value > 0.9
    stranger = write_halves(tmp_path / "s.npz", ["nobody"], rows[:1], rows[:1])
    with pytest.raises(DataError, match="has none of the site's subjects"):
        audit_site(cohort, ["edge_gauss"], plan, halves=stranger)


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
