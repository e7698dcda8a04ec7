"""One subject from a file that holds FC or a time series."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from fcforge.errors import DataError
from fcforge.imaging.matrix_files import read_matrix_file
from fcforge.imaging.series import pearson_fc
from fcforge.sites.reading import looks_like_fc, looks_transposed, to_fc


def fc_of(n_rois: int = 6, seed: int = 0) -> np.ndarray:
    return pearson_fc(np.random.default_rng(seed).standard_normal((30, n_rois)))


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


def smooth(n_volumes: int, n_rois: int, level: float = 0.0) -> np.ndarray:
    """Band-limited signals around levels of their own, (n_volumes, n_rois)."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_volumes + 4, 3)) @ rng.normal(size=(3, n_rois))
    x += rng.normal(size=(n_volumes + 4, n_rois))
    x = sum(x[k : k + n_volumes] for k in range(5))
    return x + level * rng.uniform(1, 2, size=n_rois)


@pytest.mark.parametrize(("level", "why"), [(0.0, "smoother along the rows"), (500.0, "own level")])
def test_a_transposed_series_is_told(level, why):
    series = smooth(150, 20, level)
    assert looks_transposed(series) == ""
    assert to_fc(series).shape == (20, 20)
    with pytest.raises(DataError, match=f"20 x 150 looks like a transposed time series.*{why}"):
        to_fc(series.T, where="s.csv")
    assert to_fc(series.T, "timeseries").shape == (150, 150)  # the user insists


@pytest.mark.parametrize("shape", [(150, 20), (20, 150), (20, 60), (300, 116)])
def test_noise_has_no_direction(shape):
    for seed in range(20):
        assert looks_transposed(np.random.default_rng(seed).normal(size=shape)) == ""


@pytest.mark.data
def test_real_series_have_a_direction(shared_data):
    files = sorted((shared_data / "abide_pcp_sample").rglob("*.1D"))
    files += sorted((shared_data / "halfpipe_sample").rglob("*schaefer400_timeseries.tsv"))
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
    cells = {"names": np.array(names, dtype=object), "names2": np.array(targets, dtype=object)}
    savemat(path, {"Z": z, **cells, "DOF": 120.0, "SE": np.ones(len(fc))}, do_compression=True)
    return path


@pytest.mark.parametrize("extra", [0, 2])
def test_conn_files_are_fisher_z_with_names(extra, tmp_path):
    fc = pearson_fc(np.random.default_rng(0).normal(size=(9, 6)))
    names = ["atlas.FP r (Frontal Pole Right)", "b", "c", "d", "e", "Vermis \N{MICRO SIGN}"]
    matrix, found = read_matrix_file(conn(tmp_path / "resultsROI.mat", fc, names, extra))
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
