"""Matrix-log edges, confounds and sites as steps of a pipeline."""

import numpy as np
import pandas as pd
import pytest
import torch
from neuroCombat import neuroCombat
from nilearn.connectome import ConnectivityMeasure
from scipy.linalg import logm
from sklearn import config_context
from sklearn.covariance import EmpiricalCovariance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from fcforge import graphs
from fcforge.estimator import ConfoundRemover, MatrixLog, SiteHarmoniser, TangentSpace
from fcforge.graphs import LOG_SCALE


@pytest.fixture(scope="module")
def world():
    """Columns (n, p) with effects of site, age, a score and diagnosis."""
    rng = np.random.default_rng(0)
    site = np.repeat(["A", "B", "C"], [30, 25, 20])
    y = rng.integers(0, 2, 75)
    people = pd.DataFrame({"score": rng.normal(size=75), "sex": rng.integers(0, 2, 75)})
    shift, scale = rng.normal(0, 1, (3, 40)), rng.uniform(0.5, 2, (3, 40))
    place = np.unique(site, return_inverse=True)[1]
    x = rng.normal(size=(75, 40)) * scale[place] + shift[place]
    return x + np.outer(people["score"], rng.normal(size=40)), y, site, people


# -- matrix logarithm ------------------------------------------------------------------------------
def test_log_edges_by_scipy(subjects) -> None:
    fc, y, _ = subjects
    rows, cols = np.tril_indices(10, -1)
    step = MatrixLog().fit(fc)
    found = step.transform(fc[:3])
    for row, c in zip(found, fc[:3].astype(np.float64), strict=True):
        expected = logm(0.6 * c + 0.4 * np.eye(10)).real[rows, cols] / LOG_SCALE
        np.testing.assert_allclose(row, expected, atol=1e-4)
    vectors = MatrixLog().fit_transform(fc[:, rows, cols])
    np.testing.assert_allclose(vectors[:3], found, atol=1e-5)
    assert step.get_feature_names_out()[:3].tolist() == [
        "log(2, 1)",
        "log(3, 1)",
        "log(3, 2)",
    ]
    assert (
        make_pipeline(MatrixLog(), SVC(kernel="linear")).fit(fc, y).score(fc, y) > 0.7
    )


@pytest.mark.parametrize("wrong", [{"shrink": 1.0}, {"shrink": -0.1}])
def test_wrong_settings_of_the_logarithm(subjects, wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MatrixLog(**wrong).fit(subjects[0])


# -- tangent space ---------------------------------------------------------------------------------
def series(n=24, rois=12, volumes=80, seed=0):
    rng = np.random.default_rng(seed)
    shared = 0.6 * rng.normal(size=(n, volumes, 1))
    x = rng.normal(size=(n, volumes, rois)) + shared
    return (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)


def test_tangent_vectors_are_those_of_nilearn() -> None:
    x = series()
    fc = np.stack([np.corrcoef(one.T) for one in x])
    covariance = EmpiricalCovariance(store_precision=False, assume_centered=True)
    oracle = ConnectivityMeasure(
        covariance, kind="tangent", vectorize=True, standardize="zscore_sample"
    )
    step = TangentSpace(shrink=0)
    first = oracle.fit_transform(list(x[:16]))
    np.testing.assert_allclose(step.fit_transform(fc[:16]), first, atol=1e-5)
    later = oracle.transform(list(x[16:]))
    np.testing.assert_allclose(step.transform(fc[16:]), later, atol=1e-5)
    np.testing.assert_allclose(step.transform(x[16:]), later, atol=1e-5)
    assert step.get_feature_names_out()[:2].tolist() == [
        "tangent(1, 1)",
        "tangent(2, 1)",
    ]
    assert len(step.get_feature_names_out()) == first.shape[1]


def test_the_mean_is_of_the_subjects_of_fit_and_vanishes_there(subjects) -> None:
    fc, y, _ = subjects
    step = TangentSpace().fit(fc[:40])
    assert abs(step.transform(fc[:40]).mean(0)).max() < 1e-6
    alone = step.transform(fc[40:41])
    np.testing.assert_allclose(step.transform(fc[40:])[:1], alone, atol=1e-12)
    chain = make_pipeline(TangentSpace(), SVC(kernel="linear", C=100))
    assert chain.fit(fc, y).score(fc, y) > 0.7


def test_what_has_no_tangent_is_refused(subjects) -> None:
    few = series(volumes=8)  # fewer volumes than ROIs
    with pytest.raises(ValueError, match=r"X\[\d+\] is not positive definite"):
        TangentSpace(shrink=0).fit(few)
    TangentSpace().fit(few)
    with pytest.raises(ValueError, match="shrink=1"):
        TangentSpace(shrink=1).fit(few)
    with pytest.raises(ValueError, match="12"):
        TangentSpace().fit(few).transform(subjects[0])


# -- scikit-learn's checks, with the metadata that the steps need ------------------------------------
class AtOneSite(SiteHarmoniser):
    def fit(self, X, y=None):
        return super().fit(X, y, "one")

    def transform(self, X):
        return super().transform(X, "one")

    def fit_transform(self, X, y=None):
        return self.fit(X, y).transform(X)


class AtOneAge(ConfoundRemover):
    def fit(self, X, y=None):
        return super().fit(X, y, of_one_age(X))

    def transform(self, X):
        return super().transform(X, of_one_age(X))

    def fit_transform(self, X, y=None):
        return self.fit(X, y).transform(X)


def of_one_age(X):
    return {"age": np.full(np.shape(np.asarray(X))[:1], 30.0)}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        AtOneSite(keep_diagnosis=False),
        AtOneSite(how="demean", keep_diagnosis=False),
        AtOneAge(),
    ]
)
def test_scikit_learn_checks(estimator, check) -> None:
    check(estimator)


def test_the_logarithm_takes_one_thread(subjects, monkeypatch) -> None:
    used = []
    exact = graphs.log_matrix

    def counted(*args):
        used.append(torch.get_num_threads())
        return exact(*args)

    monkeypatch.setattr(graphs, "log_matrix", counted)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        MatrixLog().fit_transform(subjects[0])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert used == [1]


# -- confounds -------------------------------------------------------------------------------------
def test_confounds_are_removed_with_training_coefficients(world) -> None:
    x, _, _, people = world
    train, test = slice(0, 50), slice(50, 75)
    step = ConfoundRemover(["score"]).fit(x[train], covariates=people[train])
    d = people["score"].to_numpy()
    left = step.transform(x[train], covariates=people[train])
    assert (
        np.abs((d[train] - d[train].mean()) @ left).max() < 1e-9
    )  # nothing linear is left
    slope = np.polyfit(d[train], x[train], 1)[0]
    expected = x[test] - np.outer(d[test] - d[train].mean(), slope)
    np.testing.assert_allclose(
        step.transform(x[test], people[test]), expected, atol=1e-9
    )
    assert step.get_feature_names_out().tolist()[:2] == ["x0", "x1"]


def test_missing_confounds_are_told(world) -> None:
    x, _, _, people = world
    with pytest.raises(ValueError, match="nothing to remove"):
        ConfoundRemover().fit(x)
    with pytest.raises(ValueError, match="no covariate 'age'"):
        ConfoundRemover(["age"]).fit(x, covariates=people)
    gap = people.assign(score=people["score"].where(people.index != 4))
    with pytest.raises(ValueError, match="row 4 have no score"):
        ConfoundRemover(["score"]).fit(x, covariates=gap)
    step = ConfoundRemover().fit(x, covariates=people)
    with pytest.raises(ValueError, match="no covariate 'score'"):
        step.transform(x)


# -- sites -----------------------------------------------------------------------------------------
def test_combat_is_neurocombat(world, capsys) -> None:
    x, _, site, people = world
    table = people.assign(site=site)
    oracle = neuroCombat(x.T.copy(), table, "site", ["sex"], ["score"])["data"].T
    ours = SiteHarmoniser().fit_transform(x, site=site, covariates=people)
    np.testing.assert_allclose(ours, oracle, atol=1e-4)


def test_demeaning_moves_means_to_that_of_all(world) -> None:
    x, _, site, _ = world
    moved = SiteHarmoniser("demean").fit_transform(x, site=site)
    for name in ("A", "B", "C"):
        np.testing.assert_allclose(moved[site == name].mean(0), x.mean(0))


def test_nobodys_diagnosis_is_asked_for_and_no_other_subject_matters(world) -> None:
    x, y, site, _ = world
    step = SiteHarmoniser().fit(x, y, site=site)
    whole = step.transform(x, site=site)
    alone = np.concatenate([step.transform(x[[i]], site=site[[i]]) for i in range(5)])
    np.testing.assert_array_equal(alone, whole[:5])
    # a site's share of patients does not move it
    effect = 3.0 * y[:, None]
    shifted = SiteHarmoniser("demean").fit(x + effect, y, site=site)
    plain = SiteHarmoniser("demean").fit(x, y, site=site)
    np.testing.assert_allclose(
        shifted.effects_.gamma * shifted.effects_.sigma,
        plain.effects_.gamma * plain.effects_.sigma,
        atol=1e-9,
    )


def test_a_site_that_was_not_seen(world) -> None:
    x, y, site, _ = world
    seen = site != "C"
    new = x[~seen], site[~seen]
    with pytest.raises(
        ValueError, match=r"site 'C' was not among those learned \(A, B\)"
    ):
        SiteHarmoniser().fit(x[seen], y[seen], site=site[seen]).transform(
            new[0], site=new[1]
        )

    def made(unseen):
        step = SiteHarmoniser("demean", unseen=unseen).fit(
            x[seen], y[seen], site=site[seen]
        )
        return step.transform(new[0], site=new[1]), step

    found, step = made("estimate")
    np.testing.assert_allclose(found.mean(0), step.effects_.level)


@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({"how": "comba"}, {}, "Did you mean 'combat'"),
        ({"unseen": "drop"}, {}, "way with unseen sites"),
        ({}, {"site": None}, "needs the subjects' sites"),
        ({}, {"site": ["A"] * 74 + ["B"]}, "site 'B' has one subject"),
    ],
)
def test_what_cannot_be_harmonised(world, settings, given, message) -> None:
    x, y, site, _ = world
    with pytest.raises(ValueError, match=message):
        SiteHarmoniser(**settings).fit(x, y, **{"site": site, **given})


def test_a_site_with_one_class_alone_is_told(world) -> None:
    x, _, site, people = world
    confounded = (site == "A").astype(int)
    with pytest.raises(ValueError, match="cannot be separated"):
        SiteHarmoniser().fit(x, confounded, site=site)
    SiteHarmoniser(keep_diagnosis=False).fit(x, confounded, site=site)
    with pytest.raises(ValueError, match="cannot be separated"):
        SiteHarmoniser().fit(x, site=site, covariates=people.assign(sex=1))


def test_metadata_reaches_every_step(world) -> None:
    x, y, site, people = world
    with config_context(enable_metadata_routing=True):
        steps = make_pipeline(
            ConfoundRemover(["score"])
            .set_fit_request(covariates=True)
            .set_transform_request(covariates=True),
            SiteHarmoniser(unseen="estimate")
            .set_fit_request(site=True, covariates=False)
            .set_transform_request(site=True, covariates=False),
            LogisticRegression(),
        )
        given = {"site": site, "covariates": people, "groups": site}
        found = cross_validate(
            steps, x, y, cv=LeaveOneGroupOut(), params=given, error_score="raise"
        )
    assert len(found["test_score"]) == 3
