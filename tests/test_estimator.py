"""The scikit-learn face: its own checks, every form of X, pipelines, capsules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from fcforge.capsule import open_capsule
from fcforge.errors import CapsuleError
from fcforge.estimator import ForgeClassifier
from fcforge.matrices import edges_as_fc, layout_of, numbers_as_fc
from fcforge.sites.simulated import simulate

# scikit-learn's checks fit on clouds of 2 to 20 arbitrary columns. An FC classifier refuses them:
# their number is not R (R - 1) / 2, or their values are no correlations. With features="any" the
# same code accepts them, and then every check applies and passes.
WHY = "its X is no FC (column count or |r| > 1); passes with features='any'"
NOT_FC = {
    "check_classifier_data_not_an_array": WHY,
    "check_classifier_not_supporting_multiclass": WHY,
    "check_classifiers_classes": WHY,
    "check_classifiers_train": WHY,
    "check_decision_proba_consistency": WHY,
    "check_dict_unchanged": WHY,
    "check_dont_overwrite_parameters": WHY,
    "check_estimators_dtypes": WHY,
    "check_estimators_fit_returns_self": WHY,
    "check_estimators_overwrite_params": WHY,
    "check_estimators_partial_fit_n_features": WHY,
    "check_estimators_pickle": WHY,
    "check_f_contiguous_array_estimator": WHY,
    "check_fit2d_1feature": WHY,
    "check_fit2d_1sample": WHY,
    "check_fit2d_predict1d": WHY,
    "check_fit_check_is_fitted": WHY,
    "check_fit_idempotent": WHY,
    "check_methods_sample_order_invariance": WHY,
    "check_methods_subset_invariance": WHY,
    "check_n_features_in": WHY,
    "check_n_features_in_after_fitting": WHY,
    "check_pipeline_consistency": WHY,
    "check_positive_only_tag_during_fit": WHY,
    "check_readonly_memmap_input": WHY,
}

ANY = [
    ForgeClassifier(features="any"),
    ForgeClassifier("finetune", "linear", epochs=30, lr=1e-2, features="any"),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ANY)
def test_scikit_learn_checks(estimator, check) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_what_does_not_apply_to_fc_is_listed() -> None:
    """Each listed check fails, for the reason given; each other one passes."""
    results = check_estimator(
        ForgeClassifier(), on_fail=None, on_skip=None, expected_failed_checks=NOT_FC
    )
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(NOT_FC)
    assert not [r["check_name"] for r in results if r["status"] == "failed"]
    for result in results:
        if result["status"] == "xfail":
            text = f"{result['exception']!r} {result['exception'].__context__!r}"
            assert any(w in text for w in ("not the edges", "beyond a corr", "InputError"))


@pytest.fixture(scope="module")
def subjects():
    cohort = simulate(n_rois=10, scale=0.4, n_sites=2, preset="easy")
    return cohort.fc, cohort.y, cohort.site


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


def test_every_form_of_x_gives_the_same_answer(subjects) -> None:
    fc, y, _ = subjects
    expected = ForgeClassifier().fit(fc, y).decision_function(fc)
    rows, cols = np.triu_indices(10, 1)
    upper = ForgeClassifier(edges="upper").fit(fc[:, rows, cols], y)
    assert np.array_equal(upper.decision_function(fc[:, rows, cols]), expected)
    with pytest.raises(ValueError, match="Set edges='upper'"):
        ForgeClassifier().fit(fc[:, rows, cols], y)
    rows, cols = np.tril_indices(10, -1)
    lower = ForgeClassifier().fit(fc[:, rows, cols], y)
    assert np.array_equal(lower.decision_function(fc[:, rows, cols]), expected)
    as_list = ForgeClassifier().fit(list(fc), y)
    assert np.array_equal(as_list.decision_function(list(fc)), expected)


@pytest.mark.parametrize("order", ["nilearn", "upper"])
@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("one", [1.0, np.sqrt(0.5)])
def test_layout(order, diagonal, one, subjects) -> None:
    fc = subjects[0].astype(np.float64)
    made = fc.copy()
    made[:, range(10), range(10)] = one
    make = np.triu_indices if order == "upper" else np.tril_indices
    k = (0 if diagonal else 1) * (1 if order == "upper" else -1)
    X = made[(slice(None), *make(10, k))]
    layout = layout_of(X, order)
    assert (layout.n_rois, layout.diagonal) == (10, diagonal)
    assert np.array_equal(edges_as_fc(X, layout), fc.astype(np.float32))


def test_any_numbers_are_seen_as_they_are() -> None:
    from fcforge.models.edge import edge_features

    X = np.array([[0.0, -3.5, 2.25, 20.0]])
    seen = edge_features(torch.from_numpy(numbers_as_fc(X)))[0]
    assert seen.shape == (6,)
    assert np.allclose(seen[:4], X[0], rtol=1e-3)
    assert np.array_equal(seen[4:], [0, 0])


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize("discard", [True, False])
def test_pipeline_with_nilearn(vectorize, discard) -> None:
    from nilearn.connectome import ConnectivityMeasure

    rng = np.random.default_rng(0)
    mix = [rng.standard_normal((8, 8)) for _ in range(2)]
    y = np.arange(40) % 2
    series = [
        rng.standard_normal((60 + i, 8)) @ (np.eye(8) + 0.4 * mix[c]) for i, c in enumerate(y)
    ]
    measure = ConnectivityMeasure(
        kind="correlation", vectorize=vectorize, discard_diagonal=discard, standardize=False
    )
    model = make_pipeline(measure, ForgeClassifier())
    assert model.fit(series[:30], y[:30]).score(series[30:], y[30:]) > 0.8
    assert model[-1].n_rois_ == 8
    # time series need no measure at all
    plain = ForgeClassifier().fit(series[:30], y[:30])
    assert plain.score(series[30:], y[30:]) > 0.8


def test_site_by_site_and_its_capsule(subjects, tmp_path) -> None:
    (a, fa, ya), (b, fb, yb) = split(subjects)
    model = ForgeClassifier("finetune", "linear", epochs=3, held_out=8, seed=4)
    model.partial_fit(fa, ya, site=a).partial_fit(fb, yb, site=b)
    assert model.sites_ == (a, b)
    model.to_capsule(tmp_path / "x.capsule")
    again = ForgeClassifier.from_capsule(tmp_path / "x.capsule")
    assert np.array_equal(again.decision_function(fb), model.decision_function(fb))
    assert again.get_params()["seed"] == 4
    assert again.classes_.tolist() == [0, 1]
    # handed over between the two sites: bitwise the same network
    ForgeClassifier("finetune", "linear", epochs=3, held_out=8, seed=4).partial_fit(
        fa, ya, site=a
    ).to_capsule(tmp_path / "a.capsule")
    other = ForgeClassifier.from_capsule(tmp_path / "a.capsule").partial_fit(fb, yb, site=b)
    for key, value in model.capsule_.lane.params.items():
        assert torch.equal(value, other.capsule_.lane.params[key])
    with pytest.raises(ValueError, match="learned already"):
        model.partial_fit(fa, ya, site=a)
    fresh = model.fit(fa, ya)
    assert fresh.sites_ == ("site-1",)


def test_words_as_classes_travel(subjects, tmp_path) -> None:
    fc, y, _ = subjects
    words = np.where(y == 1, "ASD", "TD")
    model = ForgeClassifier().fit(fc, words)
    model.to_capsule(tmp_path / "x.capsule")
    again = ForgeClassifier.from_capsule(tmp_path / "x.capsule")
    assert np.array_equal(again.predict(fc), model.predict(fc))
    assert open_capsule(tmp_path / "x.capsule").settings.classes == ("ASD", "TD")


def test_bitwise_the_capsule_of_the_command_line(subjects, tmp_path) -> None:
    """The estimator on a site's learning part is what `fcforge learn` (and so the run) makes."""
    from fcforge.capsule import learn, settings_for
    from fcforge.sites import split_site
    from fcforge.types import Component, LearnerSpec, Training

    cohort = simulate(n_rois=10, scale=0.4, n_sites=2, preset="easy")
    name = cohort.site_names[0]
    learner = LearnerSpec(Component("finetune"), Component("gcn", {"hidden": 16}))
    settings = settings_for(learner, 10, training=Training(epochs=2), held_out=0, calibrate="none")
    capsule = learn(None, name, cohort, tmp_path / "a.capsule", settings=settings)
    part = split_site(cohort, name, 0).learning(with_val=True)
    model = ForgeClassifier("finetune", "gcn", epochs=2, model_params={"hidden": 16})
    model.partial_fit(part.fc.numpy(), part.y.numpy(), site=name)
    for key, value in capsule.lane.params.items():
        assert torch.equal(value, model.capsule_.lane.params[key]), key


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


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((20, 7)), "not the edges"),
        (np.full((20, 6), 1.7), "beyond a correlation"),
        (np.tile(np.eye(4), (20, 1, 1))[:, :, :3], "too short"),
        ([np.eye(30, 4), np.eye(30, 5)] * 10, "different numbers of ROIs"),
        ([np.ones((30, 4))] * 20, r"X\[0\]: 0 of 4 ROIs have a signal"),
        (np.full((20, 4, 4), np.nan), "NaN"),
        (np.zeros((20, 2, 2, 2)), "dim"),
    ],
)
def test_unusable_x_is_one_value_error(X, message) -> None:
    with pytest.raises(ValueError, match=message):
        ForgeClassifier().fit(X, np.arange(20) % 2)


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


def test_real_subjects_need_the_flag(subjects, tmp_path) -> None:
    fc, y, _ = subjects
    model = ForgeClassifier("cumulative", "linear", epochs=1).fit(fc, y)
    with pytest.raises(CapsuleError, match="real subjects"):
        model.to_capsule(tmp_path / "x.capsule")
    assert not list(tmp_path.iterdir())
    model.to_capsule(tmp_path / "x.capsule", allow_real_subjects=True)
    assert open_capsule(tmp_path / "x.capsule").entries[-1]["flags"] == ["allow_real_subjects"]
