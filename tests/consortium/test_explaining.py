"""Explanations of scans in files, with either kind of capsule."""

import numpy as np
import pytest
from capsule_chains import N_ROIS, SITES, chain, cohort
from small_consortium import R, empty, people, release_of, sites

from fcforge.capsule import open_capsule
from fcforge.capsule.judging import probability
from fcforge.capsule.prediction import predict_scans
from fcforge.consortium.predicting import explain_file, explain_model, judge, predict, predictor
from fcforge.errors import DataError

NEW = people().select_sites([sites()[-1]])


@pytest.fixture(scope="module")
def group():
    return empty().joined([release_of(s) for s in sites()[2:4]])


def test_the_head_is_explained_to_rounding(group):
    found = explain_model(group, NEW.fc[:4], {})
    np.testing.assert_allclose(found.score, judge(group, NEW.fc[:4], {}).odds, atol=1e-9)
    assert np.abs(found.gap).max() < 1e-9
    assert found.positive == "patient"


def test_covariates_are_part_of_the_base():
    removes = ("age", "sex")
    group = empty(removes)
    values = {name: NEW.covariates[name][:3] for name in removes}
    found = explain_model(group, NEW.fc[:3], values)
    np.testing.assert_allclose(found.score, judge(group, NEW.fc[:3], values).odds, atol=1e-9)
    assert np.abs(found.gap).max() < 1e-9
    assert len(set(found.base.tolist())) == 3


def test_only_scans_with_an_answer_are_explained(group, tmp_path):
    for name, fc in {"a-eye": np.eye(R), "b-good": NEW.fc[0], "c-small": np.eye(R - 1)}.items():
        np.save(tmp_path / f"{name}.npy", fc)
    files = sorted(tmp_path.glob("*.npy"))
    rows = predict(group, files)
    found = explain_file(group, files, rows)
    assert found.subjects == ("b-good.npy",)
    with pytest.raises(DataError, match="nothing to explain"):
        explain_file(group, files[:1], rows[:1])


def test_an_estimated_effect_is_explained_as_it_was_answered(tmp_path):
    """Strange scans count in the effect that is estimated, though they get no answer."""
    path = chain("analytic", SITES[:1], tmp_path, harmonise="site_demean", held_out=48)[-1]
    capsule, new = open_capsule(path), cohort().select_sites([SITES[2]])
    odd = np.where(np.eye(N_ROIS) > 0, 1.0, 0.97)
    np.savez(tmp_path / "d.npz", fc=np.concatenate([new.fc[:8], [odd] * 4]))
    asked = (SITES[2], "estimate")
    rows = predict_scans(predictor(capsule, *asked), tmp_path / "d.npz")
    answered = [row.probability for row in rows if row.status == "ok"]
    assert 0 < len(answered) < len(rows)
    found = explain_file(capsule, [tmp_path / "d.npz"], rows, "auto", None, *asked)
    np.testing.assert_allclose(probability(found.score), answered, atol=1e-4)
