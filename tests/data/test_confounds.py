"""Confounds: hand-computed designs, what is removed, who is refused."""

import numpy as np
import pytest
import torch

from fcforge.base_model.features import log_features
from fcforge.core.errors import ConfigError, DataError
from fcforge.data.confounds import (
    Confounds,
    design,
    fit_on_training,
    require_covariates,
    terms,
)
from fcforge.data.simulated import simulate
from fcforge.data.splits import make_sites


def people(n=60, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.uniform(8, 40, n)
    series = rng.normal(size=(n, 100, 6)) + age[:, None, None] * 0.05 * rng.normal(
        size=(1, 100, 1)
    )
    fc = np.stack([np.corrcoef(s.T) for s in series]).astype(np.float32)
    covariates = {
        "age": age,
        "mean_fd": rng.uniform(0.05, 1, n),
        "sex": rng.integers(1, 3, n),
    }
    return fc, covariates


def test_terms_by_hand():
    assert terms("age", np.array([0.0])) == [-2.0, 4.0]
    assert terms("mean_fd", np.array([0.0])) == [pytest.approx(np.log(1e-3))]
    assert terms("iq", np.array([100.0])) == [100.0]


def test_design_has_one_column_per_term():
    _, covariates = people()
    assert design(covariates, ["age", "mean_fd", "sex"]).shape == (60, 4)
    with pytest.raises(DataError, match=r"'agee'.*Known: age, mean_fd, sex"):
        require_covariates(covariates, ["agee"], [], "here")


def test_what_is_left_is_uncorrelated_with_what_was_removed():
    fc, covariates = people()
    step = Confounds.fit(log_features(fc), covariates, ["age", "mean_fd", "sex"])
    left = log_features(step.remove(fc.astype(float), covariates))
    d = design(covariates, ["age", "mean_fd", "sex"])
    before = log_features(fc)

    def worst(x):
        a, b = d - d.mean(0), x - x.mean(0)
        return np.abs(
            (a.T @ b) / np.outer(np.linalg.norm(a, axis=0), np.linalg.norm(b, axis=0))
        ).max()

    assert worst(before) > 0.5
    assert worst(left) < 1e-6
    # exactly the residuals of least squares, means kept
    np.testing.assert_allclose(left.mean(0), before.mean(0), atol=1e-8)


def test_removing_needs_no_other_subject():
    fc, covariates = people()
    step = Confounds.fit(log_features(fc), covariates, ["age"])
    whole = step.remove(fc, covariates)
    one = step.remove(fc[3:4], {"age": covariates["age"][3:4]})
    np.testing.assert_allclose(whole[3:4], one, atol=1e-6)
    assert step.remove(fc[:0], {"age": covariates["age"][:0]}).shape == (0, 6, 6)


def test_a_constant_covariate_changes_nothing():
    fc, _covariates = people()
    step = Confounds.fit(log_features(fc), {"sex": np.ones(60)}, ["sex"])
    np.testing.assert_allclose(step.remove(fc, {"sex": np.ones(60)}), fc, atol=1e-5)


def test_too_few_people_are_refused():
    fc, covariates = people()
    few = {k: v[:4] for k, v in covariates.items()}
    with pytest.raises(ConfigError, match=r"4 subjects .* 4 confound"):
        Confounds.fit(log_features(fc[:4]), few, ["age", "mean_fd", "sex"])


def test_missing_values_are_found():
    values = {"age": np.array([1.0, np.nan]), "sex": np.array([np.nan, 1.0])}
    with pytest.raises(DataError, match=r"here: b have no age"):
        require_covariates(values, ["age"], ["a", "b"], "here")
    with pytest.raises(DataError, match=r"here: a have no sex"):
        require_covariates(values, ["sex", "age"], ["a", "b"], "here")
    require_covariates(values, [], ["a", "b"], "here")
    values["sex"] = np.array([1.0, 2.0])
    with pytest.raises(DataError, match=r"here: b have no age\. .*dataset\.leave_out"):
        require_covariates(values, ["sex", "age"], ["a", "b"], "here")


def test_a_site_is_cleaned_whole_and_only_by_its_training_part():
    cohort = simulate("easy", n_rois=6, n_sites=2, scale=0.2)
    sites = make_sites(cohort, 0)
    step = fit_on_training(sites.values(), ["mean_fd"])
    poisoned = {
        name: type(s)(**{**s.__dict__, "test": s.test.select(slice(0, 0))})
        for name, s in sites.items()
    }
    again = fit_on_training(poisoned.values(), ["mean_fd"])
    np.testing.assert_array_equal(step.coefficients, again.coefficients)
    _name, site = next(iter(sites.items()))
    clean = step.apply(site)
    assert clean.test.fc.shape == site.test.fc.shape
    assert not torch.equal(clean.test.fc, site.test.fc)
    assert torch.equal(clean.test.y, site.test.y)


def test_a_subject_without_the_covariate_is_named():
    cohort = simulate("easy", n_rois=6, n_sites=1, scale=0.2)
    cohort.covariates["mean_fd"][0] = np.nan
    site = next(iter(make_sites(cohort, 0).values()))
    with pytest.raises(
        DataError, match=rf"{cohort.subject_id[0]} have no mean_fd.*leave these"
    ):
        fit_on_training([site], ["mean_fd"]).apply(site)
