"""Coefficients in units of the edges."""

import numpy as np
import pytest

from fcforge.estimator import ForgeClassifier


def z(x):
    return np.arctanh(np.clip(x.astype(np.float64), -0.9999, 0.9999))


@pytest.mark.parametrize("words", [(0, 1), ("TC", "ASD")])
def test_coefficients_are_the_decision(subjects, words) -> None:
    fc, y, _ = subjects
    y = np.where(y == 1, words[1], words[0])
    rows, cols = np.tril_indices(10, -1)
    for X in (fc[:, rows, cols], fc):  # matrices: edges in the order of `edges`
        model = ForgeClassifier(calibrate="inner_val").fit(X, y)
        assert model.coef_.shape == (1, 45)
        score = z(fc[:, rows, cols]) @ model.coef_[0] + model.intercept_
        np.testing.assert_allclose(score, model.decision_function(X), rtol=1e-4, atol=1e-4)
    diagonal = np.tril_indices(10)
    model = ForgeClassifier().fit(fc[:, diagonal[0], diagonal[1]], y)
    assert model.coef_.shape == (1, 55)
    assert (model.coef_[0, diagonal[0] == diagonal[1]] == 0).all()


def test_any_numbers_have_coefficients_of_their_own(subjects) -> None:
    fc, y, _ = subjects
    rows, cols = np.triu_indices(10, 1)
    X = z(fc[:, rows, cols])[:, :37]
    model = ForgeClassifier(features="any", method_params={"centre": False}).fit(X, y)
    assert model.coef_.shape == (1, 37)
    score = X @ model.coef_[0] + model.intercept_
    np.testing.assert_allclose(score, model.decision_function(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("method", "params"),
    [("finetune", {"model": "mlp"}), ("analytic", {"model_params": {"features": "log"}})],
)
def test_what_is_not_linear_in_z_has_none(subjects, method, params) -> None:
    fc, y, _ = subjects
    model = ForgeClassifier(method, epochs=1, **params).fit(fc, y)
    assert not hasattr(model, "coef_")
    assert not hasattr(ForgeClassifier(), "coef_")
