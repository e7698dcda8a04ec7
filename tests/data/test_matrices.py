"""FC from rows of edges, in every order that toolboxes write; from matrices and time series."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from small_cohorts import tiny

from fcforge.core.errors import DataError
from fcforge.data.checks import check_cohort
from fcforge.data.folder import load_folder
from fcforge.data.matrices import (
    looks_like_fc,
    looks_transposed,
    rows_as_fc,
    to_fc,
    undo_fisher_z,
)
from fcforge.imaging.matrix_files import read_matrix_file
from fcforge.imaging.series import pearson_fc

R = 12
NAMES = [f"R{i}" for i in range(R)]
ORDERS = {
    "rows": np.triu_indices(R, 1),
    "columns": np.tril_indices(R, -1),
    "rows with diagonal": np.triu_indices(R),
    "columns with diagonal": np.tril_indices(R),
}


def names_of(rows, columns):
    return [f"{NAMES[i]}~{NAMES[j]}" for i, j in zip(rows, columns, strict=True)]


@pytest.mark.parametrize("order", ORDERS)
def test_orders_are_told_apart_by_their_numbers(order):
    fc = tiny(R).fc
    made, names = rows_as_fc(fc[:, *ORDERS[order]])
    np.testing.assert_array_equal(made, fc)
    assert names == ()


@pytest.mark.parametrize("order", ORDERS)
def test_names_of_edges_say_which_is_which(order):
    fc = tiny(R).fc
    shuffled = np.random.default_rng(0).permutation(len(ORDERS[order][0]))
    ends = [end[shuffled] for end in ORDERS[order]]
    made, names = rows_as_fc(fc[:, *ends], names_of(*ends))
    places = [NAMES.index(name) for name in names]
    np.testing.assert_array_equal(made, fc[:, places][:, :, places])


def test_what_cannot_be_told_is_refused():
    weak = np.linspace(0, 0.1, 15)[None]  # correlations in either order
    with pytest.raises(DataError, match="15 edges make correlation matrices in 2 ways"):
        rows_as_fc(weak)
    with pytest.raises(DataError, match="in no ways"):
        rows_as_fc(np.array([[0.9, -0.9, 0.9]]))
    with pytest.raises(DataError, match="14 edges are not"):
        rows_as_fc(np.zeros((2, 14)))
    with pytest.raises(DataError, match=r"up to \|r\| = 10, beyond 1.*fisher_z"):
        rows_as_fc(100 * weak)
    for names in (["A~B", "A~C", "A~B"], ["A~B", "A~C", "edge_3"]):
        with pytest.raises(DataError, match="3 names of edges are not every pair"):
            rows_as_fc(np.zeros((1, 3)), names)


@pytest.mark.parametrize("named", [False, True])
def test_a_table(named, tmp_path):
    made = tiny(R)
    ends = ORDERS["columns"]
    edges = names_of(*ends) if named else [f"edge_{k}" for k in range(len(ends[0]))]
    lines = [";".join(["id", "site", "dx", "age", *edges])]
    for i, subject in enumerate(made.subject_id.tolist()):
        who = [subject, made.site[i], "ASD" if made.y[i] else "HC", "12,5"]
        cells = [f"{v:.6f}".replace(".", ",") for v in made.fc[i][ends]]
        lines.append(";".join([*who, *cells]))
    path = tmp_path / "fc.csv"
    path.write_text("\n".join(lines))
    back = load_folder(path)
    assert check_cohort(back) == []
    assert bool(back.roi_names) == named
    places = [NAMES.index(name) for name in back.roi_names or NAMES]
    np.testing.assert_allclose(back.fc, made.fc[:, places][:, :, places], atol=1e-6)
    np.testing.assert_array_equal(back.y, made.y)
    assert set(back.covariates) == {"age"}
    path.write_text(path.read_text().replace("12,5;0,", "12,5;zero", 1))
    with pytest.raises(DataError, match=r"line \d+ holds 'zero"):
        load_folder(path)


@pytest.mark.parametrize("kind", ["auto", "fisher_z"])
def test_one_file_each(kind, tmp_path):
    made = tiny(R)
    lines = ["participant_id\tsite\tdiagnosis"]
    for i, subject in enumerate(made.subject_id.tolist()):
        edges = made.fc[i][ORDERS["rows"]].astype(float)
        edges = np.arctanh(edges) if kind == "fisher_z" else edges
        np.savetxt(tmp_path / f"{subject}.txt", edges if i % 2 else edges[None])
        lines.append(f"{subject}\t{made.site[i]}\t{made.y[i]}")
    (tmp_path / "participants.tsv").write_text("\n".join(lines))
    back = load_folder(tmp_path, kind=kind)
    np.testing.assert_allclose(back.fc, made.fc, atol=1e-6)


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


def test_a_small_transposed_series_is_told():
    for n_volumes, n_rois in ((120, 20), (60, 20), (80, 12)):
        series = smooth(n_volumes, n_rois)
        assert looks_transposed(series) == ""
        assert "smoother along the rows" in looks_transposed(series.T)


def test_noise_of_correlated_rois_has_no_direction():
    rng = np.random.default_rng(0)
    for n_volumes, n_rois in ((60, 20), (120, 24), (200, 50)):
        for _ in range(100):
            shared = rng.normal(size=(n_volumes, 1))
            series = rng.normal(size=(n_volumes, n_rois)) + shared  # r = 0.5
            assert looks_transposed(series) == ""


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
        piece = series[:120, 30:50]
        if len(piece) == 120:
            assert looks_transposed(piece) == "", file
            assert looks_transposed(piece.T) != "", file


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


def test_correlations_are_no_fisher_z():
    fc = fc_of(60)
    with pytest.raises(DataError, match=r"holds correlations .*set its diagonal to 0"):
        to_fc(fc, "fisher_z")
    off_diagonal = 1 - np.eye(60)
    z = np.arctanh(fc * off_diagonal)
    np.testing.assert_allclose(to_fc(z, "fisher_z"), fc, atol=1e-6)
    # ones on the diagonal of Fisher z leave negative eigenvalues
    np.testing.assert_allclose(to_fc(z + np.eye(60), "fisher_z"), fc, atol=1e-6)
    for rows, cols in (np.tril_indices(60, -1), np.triu_indices(60)):
        edges = fc[None, rows, cols]
        with pytest.raises(DataError, match=r"no Fisher z.*apply np\.tanh first"):
            undo_fisher_z(edges)
    upper = np.triu_indices(60, 1)
    np.testing.assert_allclose(undo_fisher_z(z[None, *upper])[0], fc[upper])


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
