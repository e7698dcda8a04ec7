"""Every form of X: matrices, vectorised edges, time series; and what is refused."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fcforge.data.matrices import looks_transposed
from fcforge.estimator import ForgeClassifier, InputError
from fcforge.estimator.inputs import layout_of, numbers_as_fc, to_matrices


def fast(**given):
    """Return FORGE with the generator that fits fastest."""
    return ForgeClassifier(generator="corr_gauss", **given)


def test_every_form_of_x_gives_the_same_answer(subjects) -> None:
    fc, y, _ = subjects
    expected = fast().fit(fc, y).decision_function(fc)
    rows, cols = np.triu_indices(10, 1)
    upper = fast(edges="upper").fit(fc[:, rows, cols], y)
    assert np.array_equal(upper.decision_function(fc[:, rows, cols]), expected)
    with pytest.raises(ValueError, match="Set edges='upper'"):
        fast().fit(fc[:, rows, cols], y)
    rows, cols = np.tril_indices(10, -1)
    lower = fast().fit(fc[:, rows, cols], y)
    assert np.array_equal(lower.decision_function(fc[:, rows, cols]), expected)
    as_list = fast().fit(list(fc), y)
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
    assert np.array_equal(layout.fill(X), fc.astype(np.float32))


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
        rng.standard_normal((60 + i, 8)) @ (np.eye(8) + 0.4 * mix[c])
        for i, c in enumerate(y)
    ]
    measure = ConnectivityMeasure(
        kind="correlation",
        vectorize=vectorize,
        discard_diagonal=discard,
        standardize=False,
    )
    model = make_pipeline(measure, fast())
    assert model.fit(series[:30], y[:30]).score(series[30:], y[30:]) > 0.8
    assert model[-1].n_rois_ == 8
    # time series need no measure at all
    plain = fast().fit(series[:30], y[:30])
    assert plain.score(series[30:], y[30:]) > 0.8


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((20, 7)), "7 edges are not the triangle"),
        (np.full((20, 6), 1.7), "beyond a correlation"),
        (np.tile(np.eye(4), (20, 1, 1))[:, :, :3], "too short"),
        ([np.eye(30, 4), np.eye(30, 5)] * 10, "different numbers of ROIs"),
        ([np.ones((30, 4))] * 20, r"X\[0\]: only 0 of 4 ROIs have a signal"),
        (np.full((20, 4, 4), np.nan), r"NaN or infinity\. Leave"),
        (np.tile(np.diag([np.inf] * 4), (20, 1, 1)), "on its diagonal.*fisher_z"),
        (np.eye(20), r"FC matrix of one subject \(20 ROIs\). Give X\[None\]"),
        (np.zeros((20, 2, 2, 2)), "dim"),
    ],
)
def test_unusable_x_is_one_value_error(X, message) -> None:
    with pytest.raises(ValueError, match=message):
        fast().fit(X, np.arange(20) % 2)


def _measured(kind: str, vectorize: bool) -> np.ndarray:
    """Another connectivity measure than correlation, by nilearn."""
    from nilearn.connectome import ConnectivityMeasure

    rng = np.random.default_rng(0)
    mix = rng.standard_normal((8, 8)) + 2 * np.eye(8)
    series = [0.3 * rng.standard_normal((60, 8)) @ mix for _ in range(20)]
    measure = ConnectivityMeasure(kind=kind, vectorize=vectorize, standardize=False)
    return measure.fit_transform(series)


@pytest.mark.parametrize(
    ("kind", "vectorize"),
    [(k, v) for k in ("tangent", "precision", "covariance") for v in (True, False)],
)
def test_other_measures_are_not_taken_for_correlations(kind, vectorize) -> None:
    X, y = _measured(kind, vectorize), np.arange(20) % 2
    with pytest.raises(ValueError, match="Give Pearson correlations"):
        fast().fit(X, y)
    if vectorize:
        assert ForgeClassifier(features="any").fit(X, y).n_features_in_ == 36


def test_standardised_edges_are_told_by_their_mean(subjects) -> None:
    fc, y, _ = subjects
    edges = fc[:, *np.tril_indices(10, -1)]
    small = (edges - edges.mean(axis=0)) / 100  # would make positive definite matrices
    with pytest.raises(ValueError, match="mean of X over people is zero"):
        fast().fit(small, y)
    assert fast().fit(edges, y).n_rois_ == 10


def test_correlations_rounded_to_half_precision_pass(subjects) -> None:
    fc, y, _ = subjects
    assert fast().fit(fc.astype(np.float16), y).n_rois_ == 10


def test_a_transposed_series_is_told() -> None:
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.standard_normal((20, 150, 20)), axis=1)
    with pytest.raises(ValueError, match=r"X\[0\].*transposed"):
        fast().fit(x.transpose(0, 2, 1), np.arange(20) % 2)
    small = x[:, :100, :15].transpose(0, 2, 1)  # 15 volumes x 100 ROIs, as it seems
    with pytest.raises(ValueError, match=r"X\[0\].*transposed"):
        to_matrices(small, "auto")
    one = [series.T if i == 7 else series for i, series in enumerate(x)]
    with pytest.raises(ValueError, match=r"X\[7\].*transposed"):
        to_matrices(one, "auto")


def test_one_subject_of_many_may_look_transposed_by_chance() -> None:
    rng = np.random.default_rng(0)
    series = rng.standard_normal((20, 60, 60))
    series[3] = np.cumsum(series[3], axis=1)  # smooth over ROIs
    assert looks_transposed(series[3]) != ""
    assert to_matrices(list(series), "auto").shape == (20, 60, 60)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((0, 1), 0.1, r"X\[66\].*not symmetric"),
        ((3, 3), 0.5, r"X\[66\].*the diagonal is not 1 \(0.5 at ROI 4\)"),
        ((0, 1), np.nan, "NaN"),
        ((0, 1), np.inf, "infinity"),
    ],
)
def test_one_odd_matrix_among_many_is_named(subjects, place, value, message) -> None:
    fc = subjects[0].copy()
    fc[(66, *place)] = value
    with pytest.raises(InputError, match=message):
        to_matrices(fc, "auto")


def test_flat_rois_in_a_list_of_series_are_reported() -> None:
    rng = np.random.default_rng(0)
    series = [rng.normal(size=(60, 6)) for _ in range(3)]
    series[1][:, [2, 4]] = 7.0
    with pytest.warns(UserWarning, match=r"without signal in X\[1\] \(ROI 3, 5\)"):
        fc = to_matrices(series, "auto")
    assert fc[1, 2].tolist() == [0, 0, 1, 0, 0, 0]
    to_matrices([series[0], series[2]], "timeseries")  # no warning


@pytest.mark.parametrize("diagonal", [0.0, 9.0, np.inf, np.nan])
def test_fisher_z_is_read_whatever_is_on_its_diagonal(subjects, diagonal) -> None:
    fc, y, _ = subjects
    z = np.arctanh(fc - np.eye(10)) + 0.0
    z[:, np.arange(10), np.arange(10)] = diagonal
    plain = ForgeClassifier("ridge").fit(fc, y)
    model = ForgeClassifier("ridge", kind="fisher_z").fit(z, y)
    np.testing.assert_allclose(
        model.decision_function(z), plain.decision_function(fc), atol=1e-4
    )
    with pytest.raises(InputError, match="kind='fisher_z'"):
        ForgeClassifier("ridge").fit(z, y)


def test_kind_holds_for_rows_of_edges(subjects) -> None:
    fc, y, _ = subjects
    edges = fc[:, *np.tril_indices(10, -1)].astype(float)
    plain = ForgeClassifier("ridge").fit(edges, y)
    model = ForgeClassifier("ridge", kind="fisher_z").fit(np.arctanh(edges), y)
    np.testing.assert_allclose(
        model.decision_function(np.arctanh(edges)),
        plain.decision_function(edges),
        atol=1e-4,
    )
    with pytest.raises(InputError, match="one series per subject"):
        ForgeClassifier("ridge", kind="timeseries").fit(edges, y)
    with pytest.raises(InputError, match=r"X\[0\]: holds correlations"):
        ForgeClassifier("ridge", kind="fisher_z").fit(fc, y)


@pytest.mark.parametrize("name", ["features", "kind", "edges"])
def test_a_parameter_about_x_is_one_of_its_choices(subjects, name) -> None:
    fc, y, _ = subjects
    with pytest.raises(InputError, match=f"unknown {name} 'zz'"):
        ForgeClassifier("ridge", **{name: "zz"}).fit(fc, y)


@pytest.mark.parametrize("as_frame", [False, True])
def test_a_row_with_a_missing_value_is_named(subjects, as_frame) -> None:
    fc, y, _ = subjects
    rows = fc[:, *np.tril_indices(10, -1)].copy()
    rows[7, 3] = np.nan
    X = pd.DataFrame(rows) if as_frame else rows
    for features in ("fc", "any"):
        with pytest.raises(InputError, match=r"X\[7\] contains NaN"):
            ForgeClassifier("ridge", features=features).fit(X, y)


def test_threads_are_a_whole_number(subjects) -> None:
    fc, y, _ = subjects
    with pytest.raises(InputError, match="n_jobs='two' is not a whole number"):
        ForgeClassifier("ridge", n_jobs="two").fit(fc, y)


def test_columns_that_would_be_cut_are_a_warning() -> None:
    """An IQ of 100 and one of 120 are the same number to the model."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.standard_normal((60, 3))
    X[:, 1] = 100 + 15 * X[:, 1] + 20 * y
    ridge = ForgeClassifier(features="any")
    with pytest.warns(
        UserWarning, match=r"columns of X \(1\) .* beyond 24\.8 .*Standard"
    ):
        ridge.fit(X, y)
    with pytest.warns(UserWarning, match=r"columns of X \(0, 2\)"):
        ridge.predict(X[:, [1, 0, 1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled = make_pipeline(StandardScaler(), ForgeClassifier(features="any"))
        assert scaled.fit(X, y).score(X, y) > 0.6


def test_a_fit_that_fails_leaves_the_columns_of_the_fitted_model() -> None:
    """Else the model would take the columns in their new order, and answer."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = pd.DataFrame(rng.standard_normal((40, 3)) + y[:, None], columns=["a", "b", "c"])
    ridge = ForgeClassifier(features="any").fit(X, y)
    before = ridge.predict_proba(X)
    for other in (X[["c", "b", "a"]], X[["a", "b"]], X.to_numpy()):
        with pytest.raises(InputError, match="site has shape"):
            ridge.fit(other, y, site=["one"])
        assert ridge.feature_names_in_.tolist() == ["a", "b", "c"]
        assert ridge.n_features_in_ == 3
    assert np.array_equal(ridge.predict_proba(X), before)
    with pytest.raises(ValueError, match="feature names"):
        ridge.predict(X[["c", "b", "a"]])
