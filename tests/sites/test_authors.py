"""The authors' .pt and BrainIB's .mat: same numbers out, nothing executed."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from fcforge.errors import DataError
from fcforge.sites import check_cohort, load_dataset
from fcforge.sites.authors import load_authors
from fcforge.types import Component


def matrices(n: int, seed: int, diagonal: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        fc = np.corrcoef(rng.normal(size=(5, 30)))
        np.fill_diagonal(fc, diagonal)
        out.append(fc)
    return out


def labels(n: int) -> list[int]:
    return [i % 2 for i in range(n)]


def off_diagonal(x: np.ndarray) -> np.ndarray:
    return x[..., ~np.eye(5, dtype=bool)]


def as_list(kind: str):
    make = {"tensor": torch.from_numpy, "numpy": np.asarray}[kind]
    site = [matrices(10, seed) for seed in (0, 1)]
    return [
        {
            "roi_list": [make(m) for m in rois],
            "adj_list": [make((m >= 0.4).astype(float)) for m in rois],
            "labels": labels(10),
        }
        for rois in site
    ]


@pytest.mark.parametrize("kind", ["tensor", "numpy"])
def test_list_of_sites_with_tensors_or_numpy_arrays(kind: str, tmp_path: Path):
    torch.save(as_list(kind), tmp_path / "real_sites.pt")
    cohort = load_authors(tmp_path / "real_sites.pt", names=["NYU", "UM"])
    assert cohort.site_names == ("NYU", "UM")
    assert cohort.y.tolist() == labels(10) * 2
    np.testing.assert_allclose(cohort.fc[10:], np.stack(matrices(10, 1)), atol=1e-6)
    assert [f for f in check_cohort(cohort) if f.severity == "error"] == []


def test_dict_with_numbered_fields_and_zero_diagonal(tmp_path: Path):
    content = {}
    for n in (1, 2, 10):
        content[f"roi_list_{n}"] = torch.tensor(np.stack(matrices(8, n, diagonal=0.0)))
        content[f"adj_list_{n}"] = torch.zeros(8, 5, 5)
        content[f"labels_{n}"] = torch.tensor(labels(8))
    torch.save(content, tmp_path / "sites.pt")
    cohort = load_dataset(Component("authors", {"path": str(tmp_path / "sites.pt")}))
    assert cohort.site_names == ("site1", "site2", "site3")
    expected = np.stack(matrices(8, 10))
    np.testing.assert_allclose(
        off_diagonal(cohort.fc[16:]), off_diagonal(expected), atol=1e-6
    )
    assert np.diagonal(cohort.fc, axis1=1, axis2=2).min() == 1.0
    assert cohort.provenance["stored_diagonal"] == 0.0


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_a_file_that_would_run_code_is_refused_by_name_and_does_not_run(tmp_path: Path):
    trace = tmp_path / "was_here"
    torch.save([{"roi_list": [Bomb(trace)], "labels": [0]}], tmp_path / "evil.pt")
    with pytest.raises(DataError, match=r"it asks for \S*open"):
        load_authors(tmp_path / "evil.pt")
    assert not trace.exists()


def test_the_allowance_for_numpy_ends_with_the_call(tmp_path: Path):
    torch.save(as_list("numpy"), tmp_path / "a.pt")
    load_authors(tmp_path / "a.pt")
    import pickle

    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "a.pt", weights_only=True)


def test_brainib_mat_with_graph_struct(tmp_path: Path):
    fields = ["edge", "ROI", "node_tags", "adj", "neighbor"]
    structs = np.zeros((1, 12), dtype=[(name, object) for name in fields])
    for i, fc in enumerate(matrices(12, 3)):
        for name in fields:
            structs[name][0, i] = fc if name == "ROI" else np.zeros((1, 1))
    savemat(
        tmp_path / "md_AAL_0.4.mat", {"graph_struct": structs, "label": [labels(12)]}
    )
    cohort = load_authors(tmp_path / "md_AAL_0.4.mat", site=["A"] * 6 + ["B"] * 6)
    np.testing.assert_allclose(cohort.fc, np.stack(matrices(12, 3)), atol=1e-6)
    assert cohort.y.tolist() == labels(12)
    assert cohort.site_names == ("A", "B")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({"weights": torch.zeros(2)}, "no roi_list and labels"),
        ([{"roi_list": [torch.zeros(5, 4)], "labels": [0]}], "shapes"),
        ([{"roi_list": [torch.eye(5)], "labels": [3]}], "not 0 / 1"),
        ([{"roi_list": [torch.eye(5)], "labels": [0, 1]}], "1 matrices, 2 labels"),
    ],
)
def test_other_content_is_named(content, match: str, tmp_path: Path):
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(DataError, match=match):
        load_authors(tmp_path / "x.pt")


def test_a_truncated_pt_and_another_suffix(tmp_path: Path):
    torch.save(as_list("tensor"), tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:500])
    with pytest.raises(DataError, match="not a readable"):
        load_authors(tmp_path / "b.pt")
    (tmp_path / "c.txt").write_text("x")
    with pytest.raises(DataError, match="neither"):
        load_authors(tmp_path / "c.txt")


@pytest.mark.parametrize("kind", ["tensor", "numpy"])
def test_damaged_bytes_are_refused_or_harmless(kind: str, tmp_path: Path):
    torch.save(as_list(kind), tmp_path / "a.pt")
    raw = (tmp_path / "a.pt").read_bytes()
    whole = load_authors(tmp_path / "a.pt").fc
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        damaged = bytearray(raw)
        damaged[rng.integers(len(raw))] ^= int(rng.integers(1, 256))
        (tmp_path / "b.pt").write_bytes(bytes(damaged))
        try:
            np.testing.assert_array_equal(load_authors(tmp_path / "b.pt").fc, whole)
        except DataError:
            refused += 1
    assert refused > 20  # the rest hit padding between the parts


def test_a_pt_that_unpacks_beyond_the_budget_is_refused_before_it_does(
    tmp_path, monkeypatch
):
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(20_000_000))
    monkeypatch.setenv("FCFORGE_MAX_GB", "0.01")
    with pytest.raises(DataError, match=r"bomb.pt: .* 20 MB .* 10 MB"):
        load_authors(tmp_path / "bomb.pt")


def test_a_mat_without_brainibs_variables_says_what_it_has(tmp_path: Path):
    savemat(tmp_path / "x.mat", {"label": [0, 1]})
    with pytest.raises(DataError, match=r"not a BrainIB file \(it has: label\)"):
        load_authors(tmp_path / "x.mat")
