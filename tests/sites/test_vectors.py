"""FC from rows of edges, in every order that toolboxes write."""

import numpy as np
import pytest
from small_cohorts import tiny

from fcforge.messages import DataError
from fcforge.sites import check_cohort
from fcforge.sites.folder import load_folder
from fcforge.sites.vectors import rows_as_fc

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
