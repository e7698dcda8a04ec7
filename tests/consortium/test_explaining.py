"""Explanations of scans in files, with either kind of capsule."""

import numpy as np
import pytest
from small_consortium import R, empty, people, release_of, sites

from fcforge.consortium.predicting import explain_file, explain_group, judge, predict
from fcforge.errors import DataError

NEW = people().select_sites([sites()[-1]])


@pytest.fixture(scope="module")
def group():
    return empty().joined([release_of(s) for s in sites()[2:4]])


def test_the_head_is_explained_to_rounding(group):
    found = explain_group(group, NEW.fc[:4], {})
    np.testing.assert_allclose(found.score, judge(group, NEW.fc[:4], {}).odds, atol=1e-9)
    assert np.abs(found.gap).max() < 1e-9
    assert found.positive == "patient"


def test_covariates_are_part_of_the_base():
    removes = ("age", "sex")
    group = empty(removes)
    values = {name: NEW.covariates[name][:3] for name in removes}
    found = explain_group(group, NEW.fc[:3], values)
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
