"""Time series of other tools: every format, every damage named; FC: ROIs without signal, gaps."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.io import savemat

from fcforge.core.errors import DataError
from fcforge.data.matrices import to_fc
from fcforge.imaging.atlas import Atlas, names_only
from fcforge.imaging.extract import subject_fc
from fcforge.imaging.layouts import Source
from fcforge.imaging.options import FCRequest
from fcforge.imaging.series import match_atlas, parse_columns, pearson_fc, read_series

X = np.random.default_rng(0).normal(size=(12, 4))


def _write(path: Path, values: np.ndarray = X) -> Path:
    kind = path.suffix
    if kind == ".1D":
        header = "\t".join(f"#{2001 + i}" for i in range(values.shape[1]))
        lines = ["\t".join(repr(float(v)) for v in row) for row in values]
        path.write_text("\n".join([header, *lines]) + "\n")
    elif kind == ".mat":
        savemat(path, {"ROISignals": values})
    elif kind == ".npy":
        np.save(path, values)
    elif kind == ".npz":
        np.savez(path, ts=values)
    else:
        mark = {".tsv": "\t", ".csv": ",", ".txt": "  "}[kind]
        rows = [mark.join(repr(float(v)) for v in row) for row in values]
        if kind == ".tsv":
            rows = [mark.join(f"roi{i}" for i in range(values.shape[1])), *rows]
        path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(
    "kind", [".1D", ".tsv", ".csv", ".txt", ".mat", ".npy", ".npz"]
)
def test_every_format_gives_the_same_numbers(kind: str, tmp_path: Path):
    values, names = read_series(_write(tmp_path / f"s{kind}"))
    np.testing.assert_array_equal(values, X)
    expected = {
        ".1D": ("2001", "2002", "2003", "2004"),
        ".tsv": ("roi0", "roi1", "roi2", "roi3"),
    }
    assert names == expected.get(kind, ())


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    values=arrays(
        float,
        st.tuples(st.integers(3, 8), st.integers(2, 5)),
        elements=st.floats(-1e12, 1e12, allow_nan=False),
    ),
    kind=st.sampled_from([".1D", ".tsv", ".csv", ".txt", ".npy"]),
)
def test_round_trip_of_any_numbers(values: np.ndarray, kind: str, tmp_path: Path):
    values[0, 0] = (
        0.5  # a first row 0, 1, 2 ... is taken for the column numbers of pandas
    )
    np.testing.assert_array_equal(
        read_series(_write(tmp_path / f"s{kind}", values))[0], values
    )


def test_missing_values_are_nan_not_dropped(tmp_path: Path):
    path = tmp_path / "s.tsv"
    path.write_text("a\tb\tc\n1\tn/a\t3\n2\tn/a\t5\n4\tn/a\t1\n")
    values, _ = read_series(path)
    assert values.shape == (3, 3)
    assert np.isnan(values[:, 1]).all()


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("a.csv", "1,2\n3,4\n5\n", "line 3 has 1 values, the lines before it 2"),
        ("a.csv", "1,2\n3,x\n5,6\n", "line 2 holds 'x', which is not a number"),
        ("a.tsv", "", "empty"),
        ("a.mat", "no matlab", "cannot be read"),
        ("a.npy", "no numpy", "cannot be read"),
        ("a.pkl", "x", "unknown file type '.pkl'"),
    ],
)
def test_damage_is_named_with_its_file(
    name: str, text: str, match: str, tmp_path: Path
):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=match) as error:
        read_series(tmp_path / name)
    assert name in str(error.value)


def test_several_matrices_are_refused(tmp_path: Path):
    savemat(tmp_path / "two.mat", {"a": X, "b": X + 1})
    with pytest.raises(
        DataError, match=r"2 matrices, where one is expected. It has: a, b"
    ):
        read_series(tmp_path / "two.mat")


def test_pickled_numpy_is_refused(tmp_path: Path):
    np.save(tmp_path / "o.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="pickled objects"):
        read_series(tmp_path / "o.npy")


def test_columns_are_matched_by_code_and_a_missing_roi_is_a_nan_column(aal: Atlas):
    keep = [i for i in range(116) if i != 40][
        ::-1
    ]  # C-PAC may order and drop as it likes
    values = np.random.default_rng(1).normal(size=(10, 115))
    names = tuple(str(aal.codes[i]) for i in keep)
    got = match_atlas((values, names), aal)
    assert got.shape == (10, 116)
    assert np.isnan(got[:, 40]).all()
    np.testing.assert_array_equal(got[:, keep], values)


def test_an_roi_missing_in_some_volumes_fails_the_subject_by_name(tmp_path: Path):
    atlas = names_only("four", ("Hip", "Amy", "Ins", "Cun"))
    values = X.copy()
    values[:, 1] = np.nan
    path = _write(tmp_path / "s.npy", values)
    source, settings = (
        Source(path, "series", "series", {"sub": "01"}),
        FCRequest(tmp_path, tmp_path / "o", min_dof=5),
    )
    assert subject_fc(
        [source], atlas, dataclasses.replace(settings, max_empty=0.5)
    ).empty == (1,)
    values[4:6, 2] = np.nan
    _write(path, values)
    with pytest.raises(DataError, match=r"s.npy: ROI Ins: .* 2 of 12"):
        subject_fc([source], atlas, settings)


@pytest.mark.parametrize(
    ("n", "hint"), [(119, ""), (120, "AAL2"), (166, "AAL3"), (90, "")]
)
def test_another_number_of_columns_is_an_error(aal: Atlas, n: int, hint: str):
    with pytest.raises(DataError, match=f"{n} ROIs, but atlas AAL116 has 116") as error:
        match_atlas((np.zeros((10, n)), ()), aal)
    assert hint in str(error.value)


def test_columns_count_from_one():
    assert parse_columns("1-116") == slice(0, 116)
    assert parse_columns(None) == slice(None)
    with pytest.raises(DataError, match="FIRST-LAST"):
        parse_columns("116")


def test_pearson_against_numpy():
    x = np.random.default_rng(0).standard_normal((50, 7)) * 1e3 + 1e4
    np.testing.assert_allclose(pearson_fc(x), np.corrcoef(x.T), atol=1e-12)
    for scale in (1e-200, 1e200):  # squares of these are out of range
        np.testing.assert_allclose(pearson_fc(x * scale), pearson_fc(x), atol=1e-12)


@pytest.mark.parametrize("nothing", [7.3, 0.0, np.nan, np.inf])
def test_an_roi_without_signal_has_fc_zero(nothing):
    x = np.random.default_rng(0).standard_normal((50, 4))
    whole = pearson_fc(x)
    x[:, 1] = nothing
    for fc in (pearson_fc(x), to_fc(x)):
        np.testing.assert_array_equal(fc[1], [0, 1, 0, 0])
        np.testing.assert_allclose(fc[2:, 2:], whole[2:, 2:], atol=1e-6)


@pytest.mark.parametrize("gap", [np.nan, np.inf, -np.inf])
def test_an_roi_with_gaps_is_an_error_that_names_it(gap):
    x = np.random.default_rng(0).standard_normal((50, 6))
    x[3, 2] = gap
    said = r"^ROI 3: NaN or infinite in 1 of 50 volumes. Leave out censored"
    with pytest.raises(DataError, match=said):
        to_fc(x)
    x[4, [0, 1, 5]] = gap
    with pytest.raises(DataError, match=r"a, b, c and 1 more: .* 2 of 50"):
        pearson_fc(x, names=tuple("abcdef"))


def test_a_series_without_any_signal_is_an_error():
    x = np.full((50, 4), np.nan)
    x[:, 1] = np.arange(50)
    with pytest.raises(DataError, match="1 of 4 ROIs have a signal"):
        pearson_fc(x)
