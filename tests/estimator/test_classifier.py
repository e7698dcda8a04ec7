"""Learning, predicting, settings, searches, and scikit-learn's own checks of an estimator.

What cannot pass is in one table of the docs.
"""

import csv
from pathlib import Path

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import LeaveOneGroupOut, cross_val_score, cross_validate
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from fcforge.core.errors import ConfigError
from fcforge.estimator import (
    ForgeClassifier,
    ForgeRegressor,
    InputError,
    MatrixLog,
    TangentSpace,
)


def split(subjects):
    fc, y, site = subjects
    names = list(dict.fromkeys(site.tolist()))
    return [(name, fc[site == name], y[site == name]) for name in names]


def test_learns_something_and_knows_its_classes(subjects) -> None:
    fc, y, _ = subjects
    words = np.where(y == 1, "patient", "control")
    model = ForgeClassifier("ridge").fit(fc, words)
    assert model.classes_.tolist() == ["control", "patient"]
    assert model.score(fc, words) > 0.75
    p = model.predict_proba(fc)
    assert np.allclose(p.sum(1), 1)
    assert np.array_equal(model.predict(fc) == "patient", p[:, 1] > 0.5)
    assert np.allclose(
        np.log(p[:, 1] / p[:, 0]), model.decision_function(fc), atol=1e-6
    )
    other = ForgeClassifier("ridge").fit(
        fc, np.where(y == 1, -3, 12)
    )  # sorted: -3 is the first class
    assert other.classes_.tolist() == [-3, 12]
    assert np.allclose(other.predict_proba(fc)[:, 0], p[:, 1], atol=1e-4)
    assert cross_val_score(ForgeClassifier("ridge"), fc, y, cv=3).mean() > 0.55


def test_sites_of_an_array_are_learned_one_after_another(subjects) -> None:
    fc, y, site = subjects
    settings = {"method": "finetune", "model": "linear", "epochs": 2}
    (a, fa, ya), (b, fb, yb) = split(subjects)
    mixed = np.random.default_rng(0).permutation(len(y))
    mixed = np.concatenate(
        [mixed[site[mixed] == a][:1], mixed[mixed != mixed[site[mixed] == a][0]]]
    )
    at_once = ForgeClassifier(**settings).fit(fc[mixed], y[mixed], site=site[mixed])
    assert at_once.sites_ == (a, b)
    rows = [mixed[site[mixed] == name] for name in (a, b)]
    one_by_one = ForgeClassifier(**settings)
    for name, mine in zip((a, b), rows, strict=True):
        one_by_one.partial_fit(fc[mine], y[mine], site=name)
    assert np.array_equal(
        at_once.decision_function(fc), one_by_one.decision_function(fc)
    )
    assert ForgeClassifier("ridge").fit(fa, ya).partial_fit(fb, yb, site=5).sites_ == (
        "site-1",
        "5",
    )
    before, others = at_once.decision_function(fc), fc[:, ::-1, ::-1].copy()
    others[-1] = fc[0]
    with pytest.raises(ValueError, match="exactly the FC of a subject of site"):
        at_once.partial_fit(others, y, site=np.where(site == a, "new", b))
    assert np.array_equal(at_once.decision_function(fc), before)  # nothing half learned


def test_leave_one_site_out_is_one_line(subjects) -> None:
    fc, y, site = subjects
    found = cross_validate(
        ForgeClassifier("ridge"),
        fc,
        y,
        groups=site,
        cv=LeaveOneGroupOut(),
        params={"site": site},
        return_estimator=True,
    )
    assert [e.sites_ for e in found["estimator"]] == [
        tuple(s for s in dict.fromkeys(site.tolist()) if s != out)
        for out in np.unique(site)
    ]
    with config_context(enable_metadata_routing=True):
        routed = cross_validate(
            ForgeClassifier("ridge").set_fit_request(site=True),
            fc,
            y,
            cv=LeaveOneGroupOut(),
            params={"site": site, "groups": site},
        )
    assert routed["test_score"].tolist() == found["test_score"].tolist()


def test_clone_keeps_settings_and_nothing_learned(subjects) -> None:
    fc, y, _ = subjects
    model = ForgeClassifier("analytic", method_params={"penalty": 3.0}, seed=9).fit(
        fc, y
    )
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "model_")


def test_replay_with_a_generator_and_calibration(subjects) -> None:
    sizes = {"memory": 8, "candidates": 8, "dev": 4, "replay": 4}
    model = ForgeClassifier(
        "forge",
        "linear",
        "corr_gauss",
        epochs=2,
        method_params=sizes,
        calibrate="inner_val",
    )
    for name, fc, y in split(subjects):
        model.partial_fit(fc, y, site=name)
    assert len(model.model_.remembered) > 0
    assert model.model_.temperature != 1.0


def test_unusable_settings(subjects) -> None:
    fc, y, _ = subjects
    with pytest.raises(ValueError, match="Did you mean 'analytic'"):
        ForgeClassifier("analytics").fit(fc, y)
    with pytest.raises(ValueError, match="unknown setting 'epoch'"):
        ForgeClassifier(training={"epoch": 3}).fit(fc, y)
    with pytest.raises(ValueError, match="needs FC"):
        ForgeClassifier("finetune", "gcn", features="any").fit(fc[:, 0], y)
    with pytest.raises(ValueError, match="neither of"):
        ForgeClassifier("ridge").fit(fc, y).partial_fit(fc, np.where(y == 1, 6, 0))
    with pytest.raises(ValueError, match="expecting 10"):
        ForgeClassifier("ridge").fit(fc, y).partial_fit(fc[:, :9, :9], y)


# scikit-learn's checks fit on clouds of 2 to 30 arbitrary columns, which an FC classifier refuses.
# With features="any" the same code accepts them, and then the checks apply.
TABLE = Path(__file__).parents[2] / "docs" / "estimator_checks.csv"
ROWS = list(csv.DictReader(TABLE.read_text().splitlines()))
# features are of single precision, and this check compares to 1e-7; or batches are drawn
TO_THE_LAST_DIGIT = {
    "check_sample_weight_equivalence_on_dense_data": "single precision"
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:columns of X .* beyond:UserWarning")
@parametrize_with_checks(
    [
        ForgeClassifier(features="any"),
        ForgeClassifier(features="any", class_weight="balanced"),
        ForgeClassifier("finetune", "linear", epochs=30, lr=1e-2, features="any"),
    ],
    expected_failed_checks=lambda estimator: TO_THE_LAST_DIGIT,
)
def test_scikit_learn_checks(estimator, check) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings(
    "ignore:.*has exactly the FC:UserWarning"
)  # fit, then partial_fit
@pytest.mark.parametrize(
    "estimator",
    [ForgeClassifier("ridge"), ForgeRegressor(), MatrixLog(), TangentSpace()],
    ids=lambda e: type(e).__name__,
)
def test_what_does_not_apply_to_fc_is_listed(estimator) -> None:
    """Each listed check fails, because X is not FC; each other one passes."""
    name = type(estimator).__name__
    listed = {
        row["check"]: row["why it cannot pass"]
        for row in ROWS
        if row["estimators"] == "all" or name in row["estimators"].split(", ")
    }
    results = check_estimator(
        estimator, on_fail=None, on_skip=None, expected_failed_checks=listed
    )
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(listed)
    assert not [r["check_name"] for r in results if r["status"] == "failed"]
    for result in results:
        if result["status"] == "xfail":
            text = f"{result['exception']!r} {result['exception'].__context__!r}"
            assert any(
                w in text
                for w in ("not the triangle", "beyond a corr", "any other order")
            )


# -- more than two classes -------------------------------------------------------------------------
def three(n=90, seed=0):
    rng = np.random.default_rng(seed)
    label = np.arange(n) % 3
    X = rng.normal(size=(n, 6)) + 2 * np.eye(6)[label]
    return X, np.array(["HC", "SZ", "BP"])[label], np.repeat(["a", "b"], n // 2)


def test_three_diagnoses_in_turn() -> None:
    X, y, site = three()
    model = ForgeClassifier(features="any").fit(X, y, site)
    p = model.predict_proba(X)
    assert model.classes_.tolist() == ["BP", "HC", "SZ"]
    assert p.shape == (90, 3)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (model.predict(X) == y).mean() > 0.7
    np.testing.assert_array_equal(model.classes_[p.argmax(1)], model.predict(X))
    np.testing.assert_allclose(np.log(p), model.decision_function(X))
    later = ForgeClassifier(features="any")
    for name in ("b", "a"):  # a site may lack a class that is named
        rows = (site == name) & (y != "BP" if name == "b" else True)
        later.partial_fit(X[rows], y[rows], classes=["HC", "SZ", "BP"], site=name)
    assert (later.predict(X) == y).mean() > 0.6


def test_what_speaks_of_patients_is_refused_by_name() -> None:
    X, y, _ = three()
    model = ForgeClassifier(features="any").fit(X, y)
    with pytest.raises(InputError, match="target='MDD' is none of"):
        model.explain(X, target="MDD")
    for params, match in (
        ({"positive": "SZ"}, "positive= is for two classes"),
        ({"calibrate": "inner_val"}, "calibrate='inner_val' is for two classes"),
    ):
        with pytest.raises(InputError, match=match):
            ForgeClassifier(features="any", **params).fit(X, y)


def three_scans():
    X, y, site = three()
    base = np.eye(5) + 0.2 * (1 - np.eye(5))
    fc = np.repeat(base[None], len(X), 0)
    for k in range(3):
        fc[:, k, k + 1] = fc[:, k + 1, k] = np.tanh(X[:, k] / 4)
    return fc, y, site


def test_people_of_three_diagnoses_are_remembered_and_travel(tmp_path) -> None:
    fc, y, site = three_scans()
    settings = {"method_params": {"memory": 12}, "epochs": 40, "lr": 0.02}
    model = ForgeClassifier("er", "linear", **settings).fit(fc, y, site)
    assert set(model.model_.remembered.y.tolist()) == {0, 1, 2}
    model.save(tmp_path / "x.exchange", allow_real_subjects=True)
    back = ForgeClassifier.load(tmp_path / "x.exchange")
    assert back.classes_.tolist() == ["BP", "HC", "SZ"]
    np.testing.assert_allclose(back.predict_proba(fc), model.predict_proba(fc))
    assert (back.predict(fc) == y).mean() > 0.6
    with pytest.raises(InputError, match="which of the classes to explain"):
        back.explain(fc[:2])
    why = back.explain(fc[:2], target="SZ")
    assert why.positive == "SZ"
    assert np.abs(why.gap).max() < 1e-6
    log_p = back.predict_log_proba(fc[:2])
    others = np.logaddexp(log_p[:, 0], log_p[:, 1])
    np.testing.assert_allclose(why.score, log_p[:, 2] - others, atol=1e-5)
    with pytest.raises(ConfigError, match=r"Use ForgeClassifier\.load"):
        ForgeRegressor.load(tmp_path / "x.exchange")
