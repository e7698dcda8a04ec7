"""FC from rows of edges, in every order that toolboxes write."""

import numpy as np
import pytest
from small_cohorts import tiny

from fcforge.errors import DataError
from fcforge.sites import check_cohort
from fcforge.sites.folder import load_folder
from fcforge.sites.reading import find_scans
from fcforge.sites.vectors import edge_columns, triangle_of

NAMES = [f"R{i}" for i in range(6)]
ORDERS = {
    "rows": np.triu_indices(6, 1),
    "columns": np.tril_indices(6, -1),
    "rows with diagonal": np.triu_indices(6),
    "columns with diagonal": np.tril_indices(6),
}


@pytest.mark.parametrize("order", ORDERS)
def test_orders_are_told_apart_by_their_numbers(order):
    fc = tiny().fc
    rows, columns = ORDERS[order]
    found = triangle_of(fc[:, rows, columns])
    np.testing.assert_array_equal(found.matrices(fc[:, rows, columns]), fc)


def test_names_of_edges_say_which_is_which():
    fc = tiny().fc
    shuffled = np.random.default_rng(0).permutation(15)
    rows, columns = (ends[shuffled] for ends in ORDERS["rows"])
    names = [f"{NAMES[i]}~{NAMES[j]}" for i, j in zip(rows, columns, strict=True)]
    found = triangle_of(fc[:, rows, columns], names)
    order = [NAMES.index(name) for name in found.roi_names]
    back = found.matrices(fc[:, rows, columns])
    np.testing.assert_array_equal(back, fc[:, order][:, :, order])


def test_what_cannot_be_told_is_asked():
    weak = np.linspace(0, 0.1, 15)[None]  # sound in every order
    with pytest.raises(DataError, match="15 edges can be read in 2") as caught:
        triangle_of(weak)
    assert "kind='rows'" in caught.value.do
    assert triangle_of(weak, kind="columns").rows.tolist()[:3] == [1, 2, 2]
    with pytest.raises(DataError, match="14 edges are not"):
        triangle_of(np.zeros((2, 14)))
    with pytest.raises(DataError, match=r"up to \|r\| = 10, beyond 1.*fisher_z"):
        triangle_of(100 * weak)


def test_three_rois_are_the_same_either_way():
    assert triangle_of(np.full((1, 3), 0.2)).n_rois == 3


def test_columns_of_edges():
    assert edge_columns(["id", "fc_1", "fc_2", "fc_3", "q1"]) == [
        "fc_1",
        "fc_2",
        "fc_3",
    ]
    assert edge_columns(["id", "age"]) == []


def write_table(path, cohort, order, *, people: bool, names: bool = False) -> None:
    rows, columns = ORDERS[order]
    pairs = [f"{NAMES[i]}--{NAMES[j]}" for i, j in zip(rows, columns, strict=True)]
    header = pairs if names else [f"edge{k}" for k in range(len(rows))]
    header = ["id", *(["site", "dx", "age"] if people else []), *header]
    lines = [";".join(header)]
    for i, subject in enumerate(cohort.subject_id.tolist()):
        who = [cohort.site[i], "ASD" if cohort.y[i] else "HC", "12,5"]
        edges = [f"{v:.6f}".replace(".", ",") for v in cohort.fc[i][rows, columns]]
        lines.append(";".join([subject, *(who if people else []), *edges]))
    path.write_text("\n".join(lines))


@pytest.mark.parametrize("order", ["rows", "columns with diagonal"])
def test_a_table_with_everything_in_it(order, tmp_path):
    made = tiny()
    write_table(tmp_path / "fc.csv", made, order, people=True)
    back = load_folder(tmp_path / "fc.csv")
    assert check_cohort(back) == []
    np.testing.assert_allclose(back.fc, made.fc, atol=1e-6)
    np.testing.assert_array_equal(back.y, made.y)
    assert back.covariates["age"].tolist() == [12.5] * len(made)


def test_a_table_beside_the_participants(tmp_path):
    made = tiny()
    write_table(tmp_path / "fc.csv", made, "rows", people=False, names=True)
    lines = ["participant_id\tsite\tdiagnosis", "nobody\tA\tHC"]
    for i, subject in enumerate(made.subject_id.tolist()):
        lines.append(f"{subject}\t{made.site[i]}\t{made.y[i]}")
    (tmp_path / "participants.tsv").write_text("\n".join(lines))
    back = load_folder(tmp_path / "fc.csv")
    np.testing.assert_allclose(back.fc, made.fc, atol=1e-6)
    assert back.roi_names == tuple(NAMES)
    assert [f.subject for f in back.faults] == ["nobody"]


def test_one_file_each(tmp_path):
    made = tiny()
    lines = ["participant_id\tsite\tdiagnosis"]
    for i, subject in enumerate(made.subject_id.tolist()):
        edges = made.fc[i][ORDERS["columns"]]
        np.savetxt(tmp_path / f"{subject}.txt", edges if i % 2 else edges[None])
        lines.append(f"{subject}\t{made.site[i]}\t{made.y[i]}")
    (tmp_path / "participants.tsv").write_text("\n".join(lines))
    back = load_folder(tmp_path, kind="columns")  # six ROIs are few to tell by
    np.testing.assert_allclose(back.fc, made.fc, atol=1e-6)
    scans = find_scans(tmp_path, "columns", 6)
    assert len(scans) == len(made)
    assert all(scan.fc is not None for scan in scans)


def test_a_cell_that_is_no_number_is_named(tmp_path):
    made = tiny()
    write_table(tmp_path / "fc.csv", made, "rows", people=True)
    text = (tmp_path / "fc.csv").read_text()
    (tmp_path / "fc.csv").write_text(text.replace("12,5;0,", "12,5;zero", 1))
    with pytest.raises(DataError, match=r"line 2 holds 'zero"):
        load_folder(tmp_path / "fc.csv")
