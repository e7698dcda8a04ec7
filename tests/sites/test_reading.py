"""One subject from a file that holds FC or a time series; new scans, wherever they lie."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from fcforge.imaging.matrix_files import read_matrix_file
from fcforge.imaging.series import pearson_fc
from fcforge.messages import DataError
from fcforge.sites.folder import load_folder
from fcforge.sites.reading import find_scans, looks_like_fc, looks_transposed, to_fc


def fc_of(n_rois: int = 6, seed: int = 0) -> np.ndarray:
    return pearson_fc(np.random.default_rng(seed).standard_normal((30, n_rois)))


def test_fc_or_time_series():
    series = np.random.default_rng(0).standard_normal((6, 6))  # as many volumes as ROIs
    assert not looks_like_fc(series)
    np.testing.assert_array_equal(to_fc(series), pearson_fc(series).astype(np.float32))
    fc = fc_of()
    np.testing.assert_array_equal(to_fc(fc), fc.astype(np.float32))
    np.testing.assert_array_equal(
        to_fc(fc - np.eye(6)), (fc - np.eye(6)).astype(np.float32)
    )
    again = pearson_fc(fc).astype(np.float32)
    np.testing.assert_array_equal(to_fc(fc, kind="timeseries"), again)
    with pytest.raises(DataError, match="10 x 6, not square"):
        to_fc(np.zeros((10, 6)), kind="fc")
    with pytest.raises(DataError, match="first 4 rows of an FC matrix of 6"):
        to_fc(fc[:4])
    with pytest.raises(DataError, match="too short"):
        to_fc(np.zeros((3, 6)))


def smooth(n_volumes: int, n_rois: int, level: float = 0.0) -> np.ndarray:
    """Band-limited signals around levels of their own, (n_volumes, n_rois)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_volumes + 4, 3)) @ rng.normal(size=(3, n_rois))
    x += rng.normal(size=(n_volumes + 4, n_rois))
    x = sum(x[k : k + n_volumes] for k in range(5))
    return x + level * rng.uniform(1, 2, size=n_rois)


@pytest.mark.parametrize(
    ("level", "why"), [(0.0, "smoother along the rows"), (500.0, "own level")]
)
def test_a_transposed_series_is_told(level, why):
    series = smooth(150, 20, level)
    assert looks_transposed(series) == ""
    assert to_fc(series).shape == (20, 20)
    with pytest.raises(
        DataError, match=f"20 x 150 looks like a transposed time series.*{why}"
    ):
        to_fc(series.T)
    assert to_fc(series.T, "timeseries").shape == (150, 150)  # the user insists


@pytest.mark.parametrize("shape", [(150, 20), (20, 150), (20, 60), (300, 116)])
def test_noise_has_no_direction(shape):
    for seed in range(20):
        assert looks_transposed(np.random.default_rng(seed).normal(size=shape)) == ""


@pytest.mark.data
def test_real_series_have_a_direction(shared_data):
    files = sorted((shared_data / "abide_pcp_sample").rglob("*.1D"))
    files += sorted(
        (shared_data / "halfpipe_sample").rglob("*schaefer400_timeseries.tsv")
    )
    assert len(files) == 30
    for file in files:
        series = read_matrix_file(file)[0]
        assert looks_transposed(series) == "", file
        series = series[:, np.isfinite(series).all(axis=0)]
        assert looks_transposed(series.T) != "", file


def conn(path: Path, fc: np.ndarray, names: list[str], extra: int = 0) -> Path:
    """A file as CONN's ``resultsROI_Subject001_Condition001.mat``."""
    z = np.arctanh(np.where(np.eye(len(fc), dtype=bool), np.nan, fc))
    z = np.hstack([z, np.full((len(fc), extra), 0.1)])
    targets = [*names, *(f"networks.{k}" for k in range(extra))]
    cells = {
        "names": np.array(names, dtype=object),
        "names2": np.array(targets, dtype=object),
    }
    savemat(
        path,
        {"Z": z, **cells, "DOF": 120.0, "SE": np.ones(len(fc))},
        do_compression=True,
    )
    return path


@pytest.mark.parametrize("extra", [0, 2])
def test_conn_files_are_fisher_z_with_names(extra, tmp_path):
    fc = pearson_fc(np.random.default_rng(0).normal(size=(9, 6)))
    names = [
        "atlas.FP r (Frontal Pole Right)",
        "b",
        "c",
        "d",
        "e",
        "Vermis \N{MICRO SIGN}",
    ]
    matrix, found = read_matrix_file(
        conn(tmp_path / "resultsROI.mat", fc, names, extra)
    )
    assert found[:6] == tuple(names)
    np.testing.assert_allclose(to_fc(matrix), fc, atol=1e-6)
    np.testing.assert_allclose(to_fc(matrix, "fisher_z"), fc, atol=1e-6)


def test_a_missing_diagonal_alone_does_not_say_which():
    fc = 0.5 * np.ones((4, 4))
    np.fill_diagonal(fc, np.nan)
    with pytest.raises(DataError, match="correlations or Fisher z"):
        to_fc(fc)
    assert to_fc(fc, "fisher_z")[0, 1] == pytest.approx(np.tanh(0.5))
    np.fill_diagonal(fc, np.inf)  # artanh of 1
    assert to_fc(fc)[0, 1] == pytest.approx(np.tanh(0.5))
    with pytest.raises(DataError, match="6 x 4 is not square"):
        to_fc(np.ones((6, 4)), "fisher_z")


R = 6


def fc(seed: int) -> np.ndarray:
    return np.corrcoef(np.random.default_rng(seed).standard_normal((R, 40)))


def found(where, kind="auto"):
    return {scan.subject: scan for scan in find_scans(where, kind, R)}


def table(folder, *rows, name="participants.tsv"):
    (folder / name).write_text("\n".join("\t".join(r) for r in rows) + "\n")


def test_a_dataset_gives_ids_covariates_and_roi_names(tmp_path):
    path = tmp_path / "d.npz"
    np.savez(
        path,
        fc=np.stack([fc(0), fc(1)]),
        subject_id=["a", "b"],
        AGE_AT_SCAN=[10, 12],
        gender=["M", "f"],
        func_mean_fd=[0.1, -9999.0],
        scanner=["x", "y"],
        roi_names=[f"R{i}" for i in range(R)],
    )
    scans = found(path)
    assert dict(scans["a"].covariates) == {"age": 10.0, "sex": 1.0, "mean_fd": 0.1}
    assert scans["b"].covariates["sex"] == 2.0
    assert "mean_fd" not in scans["b"].covariates
    assert scans["a"].roi_names == tuple(f"R{i}" for i in range(R))
    np.testing.assert_allclose(scans["b"].fc, fc(1), atol=1e-6)


def test_a_table_beside_the_files_gives_covariates(tmp_path):
    np.save(tmp_path / "s1.npy", fc(0))
    np.save(tmp_path / "sub-s10_fc.npy", fc(1))
    np.save(tmp_path / "other.npy", fc(2))
    table(
        tmp_path,
        ("participant_id", "Age", "Gender"),
        ("sub-s1", "9.5", "female"),
        ("s10", "n/a", "male"),
    )
    scans = found(tmp_path)
    assert dict(scans["s1.npy"].covariates) == {"age": 9.5, "sex": 2.0}
    assert dict(scans["sub-s10_fc.npy"].covariates) == {"sex": 1.0}
    assert dict(scans["other.npy"].covariates) == {}
    assert dict(found(tmp_path / "s1.npy")["s1.npy"].covariates) == {
        "age": 9.5,
        "sex": 2.0,
    }


def test_names_of_columns_are_kept(tmp_path):
    head = ",".join(f"R{i}" for i in range(R))
    np.savetxt(tmp_path / "a.csv", fc(0), delimiter=",", header=head, comments="")
    assert found(tmp_path)["a.csv"].roi_names == tuple(f"R{i}" for i in range(R))


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.eye(4), "has 4 ROIs, the model 6"),
        (np.where(np.eye(R) > 0, 1.0, np.nan), "NaN"),
        (4 * fc(0) - 3 * np.eye(R), "beyond 1"),
        (fc(0) + np.diag([0.5] + [0.0] * (R - 1)), "diagonal is not 1"),
    ],
)
def test_what_cannot_be_used_is_named_in_its_place(tmp_path, matrix, words):
    np.save(tmp_path / "a.npy", fc(0))
    np.save(tmp_path / "b.npy", matrix)
    scans = found(tmp_path)
    assert scans["a.npy"].fc is not None
    assert scans["b.npy"].fc is None
    assert words in scans["b.npy"].problem


def test_a_dataset_with_other_counts_is_refused(tmp_path):
    np.savez(tmp_path / "d.npz", fc=np.stack([fc(0), fc(1)]), subject_id=["a"])
    assert "'subject_id' has shape (1,)" in found(tmp_path)["d.npz"].problem
    with pytest.raises(DataError, match="no such file"):
        found(tmp_path / "nothing.npy")


def test_a_dataset_that_would_fill_the_memory_is_named_by_every_reader(
    tmp_path, monkeypatch
):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, fc=np.zeros((100, 160, 160)), subject_id=np.arange(100))
    monkeypatch.setenv("FCFORGE_MAX_GB", "0.01")
    (scan,) = find_scans(path, "auto", 160)
    assert scan.fc is None
    assert "would take 20.5 MB" in scan.problem
    with pytest.raises(DataError, match="limit is 10 MB"):
        load_folder(path)


def test_people_of_an_npz_are_fc_whatever_was_asked_for(tmp_path):
    np.savez(tmp_path / "d.npz", fc=np.eye(4)[None].repeat(2, 0))
    assert [scan.problem for scan in find_scans(tmp_path / "d.npz", "fc", 4)] == [
        ""
    ] * 2
    (scan,) = find_scans(tmp_path / "d.npz", "timeseries", 4)
    assert "'timeseries' (--kind)" in scan.problem
