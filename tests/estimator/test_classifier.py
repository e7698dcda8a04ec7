"""Learning, predicting, settings, searches."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from fcforge.estimator import ForgeClassifier


def split(subjects):
    fc, y, site = subjects
    names = list(dict.fromkeys(site.tolist()))
    return [(name, fc[site == name], y[site == name]) for name in names]


def test_learns_something_and_knows_its_classes(subjects) -> None:
    fc, y, _ = subjects
    words = np.where(y == 1, "patient", "control")
    model = ForgeClassifier().fit(fc, words)
    assert model.classes_.tolist() == ["control", "patient"]
    assert model.score(fc, words) > 0.75
    p = model.predict_proba(fc)
    assert np.allclose(p.sum(1), 1)
    assert np.array_equal(model.predict(fc) == "patient", p[:, 1] > 0.5)
    assert np.allclose(np.log(p[:, 1] / p[:, 0]), model.decision_function(fc), atol=1e-6)
    other = ForgeClassifier().fit(fc, np.where(y == 1, -3, 12))  # sorted: -3 is the first class
    assert other.classes_.tolist() == [-3, 12]
    assert np.allclose(other.predict_proba(fc)[:, 0], p[:, 1], atol=1e-4)
    assert cross_val_score(ForgeClassifier(), fc, y, cv=3).mean() > 0.55


def test_clone_params_and_search(subjects) -> None:
    fc, y, _ = subjects
    model = ForgeClassifier("analytic", method_params={"penalty": 3.0}, seed=9)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "capsule_")
    search = GridSearchCV(model, {"method_params": [{"penalty": 1.0}, {"penalty": 1e6}]}, cv=2).fit(
        fc, y
    )
    assert search.best_params_["method_params"]["penalty"] in (1.0, 1e6)


def test_replay_with_a_generator_and_calibration(subjects) -> None:
    sizes = {"memory": 8, "candidates": 8, "dev": 4, "replay": 4}
    model = ForgeClassifier(
        "forge", "linear", "corr_gauss", epochs=2, method_params=sizes, calibrate="inner_val"
    )
    for name, fc, y in split(subjects):
        model.partial_fit(fc, y, site=name)
    assert len(model.capsule_.remembered) > 0
    assert not bool(model.capsule_.remembered.real.any())
    assert model.capsule_.temperature != 1.0


def test_unusable_settings(subjects) -> None:
    fc, y, _ = subjects
    with pytest.raises(ValueError, match="Did you mean 'analytic'"):
        ForgeClassifier("analytics").fit(fc, y)
    with pytest.raises(ValueError, match="training setting 'epoch'"):
        ForgeClassifier(training={"epoch": 3}).fit(fc, y)
    with pytest.raises(ValueError, match="needs FC"):
        ForgeClassifier("finetune", "gcn", features="any").fit(fc[:, 0], y)
    with pytest.raises(ValueError, match="neither of"):
        ForgeClassifier().fit(fc, y).partial_fit(fc, np.where(y == 1, 5, 6))
    with pytest.raises(ValueError, match="expecting 10"):
        ForgeClassifier().fit(fc, y).partial_fit(fc[:, :9, :9], y)
