"""Matrices out of files of every type; damage is one error."""

import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.io import savemat

from fcforge.core.errors import ConfigError, DataError, at
from fcforge.data.matrices import to_fc
from fcforge.imaging.matrix_files import (
    SUFFIXES,
    MemoryBudget,
    read_mat,
    read_matrix_file,
    read_npz,
    read_table,
)
from fcforge.imaging.series import pearson_fc

quick = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
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
    """Return the result of `read`, or None if it raised a DataError (that names the file)."""
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
    np.testing.assert_array_equal(
        read_matrix_file(write(tmp_path / f"m{suffix}", matrix))[0], matrix
    )


@pytest.mark.parametrize("suffix", ALL)
@quick
@given(data=st.data())
def test_truncation_is_a_data_error_or_harmless(suffix, data, tmp_path):
    """A file cut off anywhere gives the same FC or a DataError; no other exception, no wrong FC."""
    whole = write(tmp_path / f"whole{suffix}", fc_of()).read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(whole[:cut])

    def read() -> np.ndarray:
        with at(path):
            return to_fc(read_matrix_file(path)[0])

    fc = attempt(path, read)
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
    matrix = attempt(path, lambda: read_matrix_file(path)[0])
    assert matrix is None or matrix.ndim == 2


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".mat"])
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_flipped_bytes_never_crash(suffix, data, tmp_path):
    whole = bytearray(write(tmp_path / f"whole{suffix}", fc_of()).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(
            st.integers(0, 255)
        )
    path = tmp_path / f"flipped{suffix}"
    path.write_bytes(bytes(whole))
    matrix = attempt(path, lambda: read_matrix_file(path)[0])
    assert matrix is None or matrix.ndim == 2


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"nobody.csv: no such file"):
        read_matrix_file(tmp_path / "nobody.csv")


def test_pickles_are_refused(tmp_path):
    for name in ("bad.npy", "bad.npz"):
        buffer = io.BytesIO()
        thing = np.array([{"a": 1}], dtype=object)
        np.save(buffer, thing) if name.endswith("npy") else np.savez(buffer, fc=thing)
        (tmp_path / name).write_bytes(buffer.getvalue())
        with pytest.raises(DataError, match="pickled objects"):
            read_matrix_file(tmp_path / name)


def test_choice_among_arrays(tmp_path):
    a, b = np.ones((2, 3)), np.zeros((4, 4))
    path = tmp_path / "two.mat"
    savemat(path, {"alpha": a, "beta": b})
    with pytest.raises(
        DataError, match=r"2 matrices, where one is expected.*alpha, beta"
    ):
        read_matrix_file(path)
    np.testing.assert_array_equal(read_matrix_file(path, variable="beta")[0], b)
    with pytest.raises(DataError, match=r"no array 'gamma'.*alpha, beta"):
        read_matrix_file(path, variable="gamma")
    savemat(path, {"alpha": a, "ROISignals": b})
    np.testing.assert_array_equal(read_matrix_file(path)[0], b)


def test_matlab_73_says_how_to_save(tmp_path):
    path = tmp_path / "new.mat"
    head = b"MATLAB 7.3 MAT-file".ljust(124, b" ") + b"\x00\x02IM"
    path.write_bytes(head + b"\x00" * 400)
    with pytest.raises(DataError, match="-v7"):
        read_matrix_file(path)


def test_suffixes_are_known():
    assert {s.lower() for s in ALL} == set(SUFFIXES)


def bomb(path: Path, shape: tuple[int, ...], content: bytes = b"") -> Path:
    """A file whose header announces zeros of this shape, with `content` in their place."""
    header = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    if path.suffix == ".npy":
        path.write_bytes(header.getvalue() + content)
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("fc.npy", header.getvalue() + content)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_eleven_gigabytes_are_refused_by_the_header(suffix, tmp_path):
    path = bomb(tmp_path / f"b{suffix}", (100, 3708, 3708))
    tracemalloc.start()
    with pytest.raises(DataError, match=r"11 GB .* 4 GB .*FCFORGE_MAX_GB=11 "):
        read_matrix_file(path)
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()


def test_a_real_bomb_is_refused_before_it_unpacks_and_passes_when_allowed(
    tmp_path, monkeypatch
):
    zeros = np.zeros((2000, 2500))
    np.savez_compressed(tmp_path / "b.npz", fc=zeros)
    savemat(tmp_path / "b.mat", {"fc": zeros}, do_compression=True)
    for name in ("b.npz", "b.mat"):
        path = tmp_path / name
        assert path.stat().st_size < 60_000
        monkeypatch.setenv("FCFORGE_MAX_GB", "0.03")
        tracemalloc.start()
        with pytest.raises(
            DataError, match=rf"{name}: would take 40.* MB .*limit is 30 MB"
        ):
            read_matrix_file(path)
        assert tracemalloc.get_traced_memory()[1] < 2e6
        tracemalloc.stop()
        monkeypatch.setenv("FCFORGE_MAX_GB", "0.1")
        assert read_matrix_file(path)[0].shape == zeros.shape


def test_many_arrays_are_counted_together_and_negative_shapes_do_not_pay_back(tmp_path):
    path = tmp_path / "many.npz"
    for shapes in ([(150_000_000,)] * 4, [(600_000_000,), (-600_000_000,)]):
        with zipfile.ZipFile(path, "w") as archive:
            for i, shape in enumerate(shapes):
                archive.writestr(
                    f"{i}.npy", bomb(tmp_path / "x.npy", shape).read_bytes()
                )
        with pytest.raises(DataError, match="limit is 4 GB"):
            read_npz(path)


def test_a_member_that_is_no_array_is_named_damage(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("fc.npy", b"words")
    with pytest.raises(DataError, match=r"a.npz: cannot be read"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize("said", ["much", "nan"])
def test_a_limit_that_says_nothing_lets_nothing_through(said, tmp_path, monkeypatch):
    monkeypatch.setenv("FCFORGE_MAX_GB", said)
    np.savez(tmp_path / "a.npz", fc=np.eye(3))
    with pytest.raises((ConfigError, DataError), match=r"FCFORGE_MAX_GB|limit"):
        read_npz(tmp_path / "a.npz")


def test_words_in_bytes_are_words(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, label=np.array([b"HC", "Köln".encode(), b"\xff"]))
    assert read_npz(path)["label"].tolist() == [
        "HC",
        "Köln",
        "\N{REPLACEMENT CHARACTER}",
    ]


@pytest.mark.parametrize("between", ["\t", ";", ",", " ", "\x0b", "\u2003"])
def test_a_wide_table_takes_the_room_of_its_cells(between, tmp_path, monkeypatch):
    """100,000 cells of one letter are 200 kB on disk and some 10 MB when parsed."""
    wide = tmp_path / "wide.tsv"
    row = between.join(["1"] * 50_000)
    wide.write_text(f"{row}\n{row}\n", encoding="utf-8")
    monkeypatch.setenv("FCFORGE_MAX_GB", "0.005")
    for read in (read_table, read_matrix_file):
        with pytest.raises(DataError, match=r"wide.tsv: would take 11.* MB"):
            read(wide)


def test_the_budget_adds_up(tmp_path):
    budget = MemoryBudget("file.npz")
    budget.take(int(3e9))
    with pytest.raises(DataError, match=r"file.npz: .* 4.5 GB"):
        budget.take(int(1.5e9))


def test_cells_give_their_texts_and_structs_their_fields(tmp_path):
    structs = np.zeros((1, 2), dtype=[("ROI", object)])
    structs["ROI"][0] = [np.eye(2), np.ones((2, 2))]
    names = np.array([["left", "right"]], dtype=object)
    savemat(
        tmp_path / "s.mat", {"graph": structs, "names": names, "mixed": [["a", 1.0]]}
    )
    found = read_mat(tmp_path / "s.mat")
    assert found.keys() == {"names", "graph.ROI"}
    np.testing.assert_array_equal(found["graph.ROI"], [np.eye(2), np.ones((2, 2))])
    assert found["names"].tolist() == ["left", "right"]


def test_one_long_text_among_many_cells_takes_no_more_room_than_the_file(
    tmp_path, monkeypatch
):
    names = np.array([["x" * 5000, *["y"] * 3000]], dtype=object)
    savemat(tmp_path / "n.mat", {"names": names}, do_compression=True)
    monkeypatch.setenv("FCFORGE_MAX_GB", "0.01")
    assert read_mat(tmp_path / "n.mat")["names"].nbytes < 1e5
