"""One subject's matrix from every file type; damaged bytes give a DataError, never another."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.io import savemat

from fcforge.errors import DataError
from fcforge.imaging.connectivity import pearson_fc
from fcforge.imaging.matrix_files import SUFFIXES, read_matrix_file
from fcforge.sites.reading import looks_like_fc, read_matrix, to_fc

quick = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
numbers = st.floats(-1e6, 1e6, allow_subnormal=False)
matrices = st.tuples(st.integers(2, 6), st.integers(2, 6)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=numbers)
)


def write(path: Path, matrix: np.ndarray) -> Path:
    suffix = path.suffix
    if suffix == ".npy":
        np.save(path, matrix)
    elif suffix == ".npz":
        np.savez_compressed(path, fc=matrix)
    elif suffix == ".mat":
        savemat(path, {"ROISignals": matrix})
    else:
        delimiter = {".csv": ",", ".tsv": "\t", ".txt": " ", ".1D": "\t"}[suffix]
        np.savetxt(path, matrix, delimiter=delimiter, fmt="%.17g")
    return path


def fc_of(n_rois: int = 6, seed: int = 0) -> np.ndarray:
    return pearson_fc(np.random.default_rng(seed).standard_normal((30, n_rois)))


def attempt(path: Path, read: Callable[[], np.ndarray]) -> np.ndarray | None:
    """What `read` gives, or None when it raised a DataError (that names the file)."""
    try:
        return read()
    except DataError as error:
        named = path.name in str(error)
    assert named
    return None


ALL = [".npy", ".npz", ".mat", ".csv", ".tsv", ".txt", ".1D"]


@pytest.mark.parametrize("suffix", ALL)
@quick
@given(matrix=matrices)
def test_roundtrip(suffix, matrix, tmp_path):
    # A first row 0, 1, 2 ... is taken for the column numbers that pandas writes.
    matrix[0, 0] = 0.5
    np.testing.assert_array_equal(read_matrix(write(tmp_path / f"m{suffix}", matrix)), matrix)


@pytest.mark.parametrize("suffix", ALL)
@quick
@given(data=st.data())
def test_truncation_is_a_data_error_or_harmless(suffix, data, tmp_path):
    """Whatever is cut off: the same FC, or a DataError; no other exception, no wrong FC."""
    whole = write(tmp_path / f"whole{suffix}", fc_of()).read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(whole[:cut])
    fc = attempt(path, lambda: to_fc(read_matrix(path), where=str(path)))
    # A cell cut empty is NaN, which `check_cohort` reports.
    if fc is not None and np.isfinite(fc).all():
        np.testing.assert_allclose(fc, fc_of(), atol=1e-6)


@pytest.mark.parametrize("suffix", ALL)
@quick
@given(noise=st.binary(min_size=0, max_size=300))
@example(noise=b"x,.4e312")  # infinity among column names
@example(noise=b",\n\x00")  # a header without names above a row name without numbers
def test_random_bytes_never_crash(suffix, noise, tmp_path):
    path = tmp_path / f"noise{suffix}"
    path.write_bytes(noise)
    matrix = attempt(path, lambda: read_matrix(path))
    assert matrix is None or matrix.ndim == 2


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mat"])
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_flipped_bytes_never_crash(suffix, data, tmp_path):
    whole = bytearray(write(tmp_path / f"whole{suffix}", fc_of()).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / f"flipped{suffix}"
    path.write_bytes(bytes(whole))
    matrix = attempt(path, lambda: read_matrix(path))
    assert matrix is None or matrix.ndim == 2


BY_HAND = np.array([[0.5, 1.5, 2.5], [3.0, 4.0, 5.0]])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("afni.1D", "#2001\t#2002\t#2003\n0.5\t1.5\t2.5\n3\t4\t5\n"),
        ("trailing.1D", "# c\n0.5\t1.5\t2.5\t\n3\t4\t5\t\n"),
        ("spaces.txt", "  0.5   1.5 2.5\n\n 3 4 5 \n"),
        ("matlab.txt", "% by MATLAB\n0.5,1.5,2.5\n3,4,5"),
        ("header.csv", "Precentral_L,Precentral_R,Insula_L\n0.5,1.5,2.5\n3,4,5\n"),
        ("quoted.csv", '"a","b","c"\n0.5,1.5,2.5\n3,4,5\n'),
        ("pandas.csv", ",0,1,2\n0,0.5,1.5,2.5\n1,3,4,5\n"),
        ("codes.csv", ",2001,2002,2003\n0,0.5,1.5,2.5\n1,3,4,5\n"),
        ("noindex.csv", "0,1,2\n0.5,1.5,2.5\n3,4,5\n"),
        ("named.tsv", "Node\ta\tb\tc\nx\t0.5\t1.5\t2.5\ny\t3\t4\t5\n"),
        ("semicolon.csv", "0.5;1.5;2.5\n3;4;5\n"),
        ("bom.csv", "\ufeff0.5,1.5,2.5\r\n3,4,5\r\n"),
    ],
)
def test_text_as_toolboxes_write_it(name, text, tmp_path):
    path = tmp_path / name
    path.write_bytes(text.encode())
    values, names = read_matrix_file(path)
    np.testing.assert_array_equal(values, BY_HAND)
    assert names == {
        "afni.1D": ("2001", "2002", "2003"),
        "header.csv": ("Precentral_L", "Precentral_R", "Insula_L"),
        "quoted.csv": ("a", "b", "c"),
        "codes.csv": ("2001", "2002", "2003"),
        "named.tsv": ("a", "b", "c"),
    }.get(name, ())


def test_missing_values_become_nan(tmp_path):
    path = tmp_path / "m.tsv"
    path.write_text("a\tb\tc\n1\tn/a\t3\n4\tNaN\t\n")
    np.testing.assert_array_equal(read_matrix(path), [[1, np.nan, 3], [4, np.nan, np.nan]])


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("ragged.csv", b"1,2,3\n4,5\n", "line 2 has 2 values, the lines before it 3"),
        ("word.csv", b"1,2\n3,x\n", "line 2 holds 'x'"),
        ("empty.csv", b"", "is empty"),
        ("comment.1D", b"# nothing\n", "is empty"),
        ("binary.csv", b"\xff\xfe\x00\x01", "cannot be read"),
        ("noise.npz", b"\x93\x01\x02\x03", r"cannot be read \(it is no .npz archive\)"),
        ("words.txt", b"hello\nworld\n", "not a matrix"),
        ("scan.nii", b"x", "unknown file type '.nii'.*Known: .1d, .csv"),
    ],
)
def test_bad_text(name, content, match, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=match) as caught:
        read_matrix(tmp_path / name)
    assert name in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"nobody.csv: no such file"):
        read_matrix(tmp_path / "nobody.csv")


def test_pickles_are_refused(tmp_path):
    for name in ("bad.npy", "bad.npz"):
        buffer = io.BytesIO()
        thing = np.array([{"a": 1}], dtype=object)
        np.save(buffer, thing) if name.endswith("npy") else np.savez(buffer, fc=thing)
        (tmp_path / name).write_bytes(buffer.getvalue())
        with pytest.raises(DataError, match="pickled objects"):
            read_matrix(tmp_path / name)


def test_choice_among_arrays(tmp_path):
    a, b = np.ones((2, 3)), np.zeros((4, 4))
    path = tmp_path / "two.mat"
    savemat(path, {"alpha": a, "beta": b})
    with pytest.raises(DataError, match=r"2 matrices, not one.*alpha, beta"):
        read_matrix(path)
    np.testing.assert_array_equal(read_matrix(path, variable="beta"), b)
    with pytest.raises(DataError, match=r"no array 'gamma'.*alpha, beta"):
        read_matrix(path, variable="gamma")
    savemat(path, {"alpha": a, "ROISignals": b})
    np.testing.assert_array_equal(read_matrix(path), b)


def test_matlab_73_says_how_to_save(tmp_path):
    path = tmp_path / "new.mat"
    head = b"MATLAB 7.3 MAT-file".ljust(124, b" ") + b"\x00\x02IM"
    path.write_bytes(head + b"\x00" * 400)
    with pytest.raises(DataError, match="-v7"):
        read_matrix(path)


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
    said = r"s1.csv: ROI 3: NaN or infinite in 1 of 50 volumes. Leave out censored"
    with pytest.raises(DataError, match=said):
        to_fc(x, where="s1.csv")
    x[4, [0, 1, 5]] = gap
    with pytest.raises(DataError, match=r"^a, b, c and 1 more: NaN or infinite in 2 of 50"):
        pearson_fc(x, names=tuple("abcdef"))


def test_a_series_without_any_signal_is_an_error():
    x = np.full((50, 4), np.nan)
    x[:, 1] = np.arange(50)
    with pytest.raises(DataError, match="s1: 1 of 4 ROIs have a signal"):
        pearson_fc(x, where="s1")


def test_fc_or_time_series():
    series = np.random.default_rng(0).standard_normal((6, 6))  # as many volumes as ROIs
    assert not looks_like_fc(series)
    np.testing.assert_array_equal(to_fc(series), pearson_fc(series).astype(np.float32))
    fc = fc_of()
    np.testing.assert_array_equal(to_fc(fc), fc.astype(np.float32))
    np.testing.assert_array_equal(to_fc(fc - np.eye(6)), (fc - np.eye(6)).astype(np.float32))
    again = pearson_fc(fc).astype(np.float32)
    np.testing.assert_array_equal(to_fc(fc, kind="timeseries"), again)
    with pytest.raises(DataError, match="10 x 6, not square"):
        to_fc(np.zeros((10, 6)), kind="fc")
    with pytest.raises(DataError, match="first 4 rows of an FC matrix of 6"):
        to_fc(fc[:4])
    with pytest.raises(DataError, match="too short"):
        to_fc(np.zeros((3, 6)))


def test_suffixes_are_known():
    assert {s.lower() for s in ALL} == set(SUFFIXES)
