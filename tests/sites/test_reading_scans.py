"""New scans: every place they are found in, and what is known about each."""

import numpy as np
import pytest

from fcforge.errors import DataError
from fcforge.privacy.mechanisms import read_template
from fcforge.sites.folder import load_folder
from fcforge.sites.reading import find_scans

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
        path, fc=np.stack([fc(0), fc(1)]), subject_id=["a", "b"], AGE_AT_SCAN=[10, 12],
        gender=["M", "f"], func_mean_fd=[0.1, -9999.0], scanner=["x", "y"],
        roi_names=[f"R{i}" for i in range(R)],
    )  # fmt: skip
    scans = found(path)
    assert dict(scans["a"].covariates) == {"age": 10.0, "sex": 1.0, "mean_fd": 0.1}
    assert scans["b"].covariates["sex"] == 2.0
    assert np.isnan(scans["b"].covariates["mean_fd"])
    assert scans["a"].roi_names == tuple(f"R{i}" for i in range(R))
    np.testing.assert_allclose(scans["b"].fc, fc(1), atol=1e-6)


def test_a_table_beside_the_files_gives_covariates(tmp_path):
    np.save(tmp_path / "s1.npy", fc(0))
    np.save(tmp_path / "sub-s10_fc.npy", fc(1))
    np.save(tmp_path / "other.npy", fc(2))
    table(
        tmp_path, ("participant_id", "Age", "Gender"), ("sub-s1", "9.5", "female"),
        ("s10", "n/a", "male"),
    )  # fmt: skip
    scans = found(tmp_path)
    assert dict(scans["s1.npy"].covariates) == {"age": 9.5, "sex": 2.0}
    assert dict(scans["sub-s10_fc.npy"].covariates) == {"sex": 1.0}
    assert dict(scans["other.npy"].covariates) == {}
    assert dict(found(tmp_path / "s1.npy")["s1.npy"].covariates) == {"age": 9.5, "sex": 2.0}


def test_names_of_columns_are_kept(tmp_path):
    head = ",".join(f"R{i}" for i in range(R))
    np.savetxt(tmp_path / "a.csv", fc(0), delimiter=",", header=head, comments="")
    assert found(tmp_path)["a.csv"].roi_names == tuple(f"R{i}" for i in range(R))


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.eye(4), "has 4 ROIs, the capsule 6"),
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
    assert "2 matrices but 1 subject ids" in found(tmp_path)["d.npz"].problem
    with pytest.raises(DataError, match="no such file"):
        found(tmp_path / "nothing.npy")


def test_a_dataset_that_would_fill_the_memory_is_named_by_every_reader(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, fc=np.zeros((100, 160, 160)), subject_id=np.arange(100))
    monkeypatch.setenv("FCFORGE_MAX_GB", "0.01")
    (scan,) = find_scans(path, "auto", 160)
    assert scan.fc is None
    assert "would take 20.5 MB" in scan.problem
    with pytest.raises(DataError, match="limit is 10 MB"):
        load_folder(path)
    with pytest.raises(DataError, match="limit is 10 MB"):
        read_template(str(path), ("fc",), 6)
