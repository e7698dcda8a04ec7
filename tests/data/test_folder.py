"""A user's own files: .npz, folders, trouble with one subject; B-SNIP; new scans."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_cohorts import tiny, write_folder, write_npz, write_one

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError
from fcforge.data.checks import check_cohort, require_valid
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import load_dataset
from fcforge.data.edges import upper_from_fc
from fcforge.data.faults import grouped
from fcforge.data.folder import load_bsnip, load_folder
from fcforge.data.participants import CONTROLS, DISORDERS
from fcforge.data.scans import find_scans
from fcforge.data.simulated import simulate
from fcforge.data.splits import make_sites

MERGE = {"UM": ["UM_1", "UM_2"], "UCLA": ["UCLA_1", "UCLA_2"]}


def one_error(cohort: Cohort) -> str:
    errors = [f for f in check_cohort(cohort) if f.severity == "error"]
    assert len(errors) == 1, [str(e) for e in errors]
    with pytest.raises(DataError, match=r"has 1 error"):
        require_valid(cohort)
    return str(errors[0])


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(n_rois=st.integers(4, 12), half=st.booleans(), seed=st.integers(0, 99))
def test_npz_roundtrip(n_rois, half, seed, tmp_path):
    cohort = simulate(n_rois=n_rois, n_sites=2, scale=0.06, seed=seed)
    dtype = np.float16 if half else np.float32
    path = write_npz(
        tmp_path / "d.npz", cohort, fc_upper=upper_from_fc(cohort.fc).astype(dtype)
    )
    back = load_folder(path)
    np.testing.assert_allclose(back.fc, cohort.fc, atol=1e-3 if half else 0)
    for name in ("y", "site", "subject_id"):
        np.testing.assert_array_equal(getattr(back, name), getattr(cohort, name))
    assert back.fc.dtype == np.float32
    assert back.covariates == {}
    assert len(back.content_sha256()) == 64
    assert check_cohort(back) == []


def test_npz_with_full_matrices_words_and_covariates(tmp_path):
    cohort = tiny()
    n = len(cohort)
    path = write_npz(
        tmp_path / "d.npz",
        cohort,
        fc_upper=None,
        fc=cohort.fc,
        label=np.where(cohort.y == 1, "ASD", "TC"),
        subject_id=np.arange(n),
        func_mean_fd=np.linspace(0, 1, n),
        roi_ids=np.arange(6) + 2001,
        note=np.array("hello"),
    )
    back = load_folder(path)
    np.testing.assert_array_equal(back.fc, cohort.fc)
    np.testing.assert_array_equal(back.y, cohort.y)
    assert back.subject_id[3] == "3"
    assert back.roi_names[0] == "2001"
    assert list(back.covariates) == ["mean_fd"]


def test_npz_unknown_word(tmp_path):
    cohort = tiny()
    words = np.where(cohort.y == 1, "ASD", "TC").astype("U9")
    words[2] = "dyslexia"
    back = load_folder(write_npz(tmp_path / "d.npz", cohort, label=words))
    errors = [str(f) for f in check_cohort(back)]
    assert any(
        "unknown diagnosis 'dyslexia'" in e and "Known for patients" in e
        for e in errors
    )
    groups = {"positive": "ASD,Dyslexia", "negative": ["TC"]}
    fine = load_folder(tmp_path / "d.npz", **groups)
    assert check_cohort(fine) == []
    assert fine.y[2] == 1


def test_npz_unknown_number(tmp_path):
    cohort = tiny()
    path = write_npz(tmp_path / "d.npz", cohort, label=cohort.y + 1)
    faults = check_cohort(load_folder(path))
    assert any("unknown diagnosis '2'" in f.what for f in faults)
    back = load_folder(path, positive="2", negative="1")
    np.testing.assert_array_equal(back.y, cohort.y)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"label": None}, r"no column for the label \(columns: "),
        ({"fc_upper": None, "site": None}, r"array 'fc_upper' is missing"),
        ({"fc_upper": np.zeros((19, 14))}, r"14 edges are not the triangle"),
        ({"fc_upper": np.zeros(15)}, r"'fc_upper' has shape \(15,\)"),
        ({"fc_upper": np.array([["a"]])}, r"type <U1"),
        ({"site": np.array(["A"])}, r"'site' has shape \(1,\), but there are"),
        ({"label": np.array([{}] * 22, dtype=object)}, r"pickled objects"),
    ],
)
def test_bad_npz(change, match, tmp_path):
    with pytest.raises(DataError, match=match) as caught:
        load_folder(write_npz(tmp_path / "d.npz", tiny(), **change))
    assert "d.npz" in str(caught.value)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_truncated_npz_is_a_data_error(data, tmp_path):
    whole = write_npz(tmp_path / "whole.npz", tiny()).read_bytes()
    path = tmp_path / "cut.npz"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(DataError, match=r"cut.npz: (cannot be read|holds|array)"):
        load_folder(path)


def test_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        load_folder(tmp_path / "nobody")
    with pytest.raises(DataError, match=r"no participants.tsv in it"):
        load_folder(tmp_path)
    (tmp_path / "x.csv").write_text("id,age\n1,2\n")
    with pytest.raises(DataError, match=r"x.csv: has no columns of edges"):
        load_folder(tmp_path / "x.csv")


@pytest.mark.parametrize("table", ["participants.tsv", "participants.csv"])
def test_the_table_of_a_folder_is_answered_with_the_folder(table, tmp_path):
    write_folder(tmp_path / "d")
    path = (tmp_path / "d" / "participants.tsv").rename(tmp_path / "d" / table)
    with pytest.raises(DataError, match="is the table of people") as caught:
        load_folder(path)
    assert caught.value.do == f"Give the folder: {path.parent}"


def test_faults_of_a_matrix_name_its_file(tmp_path):
    made, _ = write_folder(tmp_path / "d", ".csv")
    ids = made.subject_id.tolist()
    spoilt = {}
    for subject, i, j, value in ((ids[1], 0, 0, np.nan), (ids[4], 2, 3, 0.9)):
        (path,) = (tmp_path / "d").glob(f"**/{subject}*.csv")
        matrix = np.loadtxt(path, delimiter=",")
        matrix[i, j] = value
        np.savetxt(path, matrix, delimiter=",")
        spoilt[subject] = path.relative_to(tmp_path / "d")
    faults = {
        fault.subject: fault for fault in check_cohort(load_folder(tmp_path / "d"))
    }
    assert set(faults) == set(spoilt)
    for subject, path in spoilt.items():
        assert f"subject '{subject}' ({path}): " in str(faults[subject])
    with pytest.raises(DataError, match="FC is not symmetric") as caught:
        require_valid(load_folder(tmp_path / "d"))
    assert all(f"({path})" in str(caught.value) for path in spoilt.values())
    equal = [*faults.values()][:1] * 3
    assert "3 subjects" in str(grouped(equal)[0])
    assert ".csv" not in str(grouped(equal)[0])


def test_faults_of_one_file_for_all_name_no_other(tmp_path):
    cohort = tiny()
    cohort.fc[2, 1, 3] = np.nan
    path = write_npz(tmp_path / "d.npz", cohort, fc=cohort.fc, fc_upper=None)
    (fault,) = check_cohort(load_folder(path))
    assert f"subject '{cohort.subject_id[2]}': 1 FC value is NaN" in str(fault)


@pytest.mark.parametrize("series", [False, True])
@pytest.mark.parametrize(
    "suffix", [".npy", ".npz", ".mat", ".csv", ".tsv", ".txt", ".1D"]
)
def test_folder_of_every_type(suffix, series, tmp_path):
    made, expected = write_folder(tmp_path / "d", suffix, series)
    back = load_folder(tmp_path / "d")
    assert check_cohort(back) == []
    assert back.subject_id.tolist() == made.subject_id.tolist()
    np.testing.assert_array_equal(back.y, made.y)
    np.testing.assert_array_equal(back.site, made.site)
    np.testing.assert_allclose(back.fc, np.stack(list(expected.values())), atol=1e-6)
    assert back.covariates["age"].dtype == float
    assert set(back.covariates["sex"].tolist()) == {1.0, 2.0}  # written M and F


@pytest.mark.parametrize("rows_per_id", [3, 1])
def test_sites_that_share_ids_are_told_to_put_the_site_before_the_id(
    tmp_path, rows_per_id
):
    """Ids of BIDS, counted from 1, in a folder per site."""
    fc = simulate("easy", n_rois=6, n_sites=1, seed=0).fc
    lines = ["participant_id\tsite\tdiagnosis"]
    for place, site in enumerate(("NYU", "UM", "USM")):
        for k in range(1, 9):
            file = tmp_path / site / f"sub-{k:02d}" / f"sub-{k:02d}_fc.tsv"
            file.parent.mkdir(parents=True)
            write_one(file, fc[8 * place + k])
            if rows_per_id == 3 or k % 3 == place:
                lines.append(f"sub-{k:02d}\t{site}\t{('TC', 'ASD')[k % 2]}")
    (tmp_path / "participants.tsv").write_text("\n".join(lines) + "\n")
    cohort = load_folder(tmp_path)
    (fault,) = grouped(cohort.faults)
    assert fault.count == 8 * rows_per_id
    assert fault.what == "3 sites share ids (NYU, UM, USM)."
    assert fault.do.startswith("Put the site before the id")
    assert "pattern" not in str(fault)


def test_sessions_of_a_person_are_no_sites(tmp_path):
    """Two sessions of everybody in folders of their own need a pattern."""
    fc = simulate("easy", n_rois=6, n_sites=1, seed=0).fc
    lines = ["participant_id\tsite\tdiagnosis"]
    for k in range(1, 5):
        lines.append(f"sub-{k:02d}\t{('NYU', 'UM')[k % 2]}\t{('TC', 'ASD')[k % 2]}")
        for session in ("ses-1", "ses-2"):
            file = tmp_path / "NYU" / f"sub-{k:02d}" / session / f"sub-{k:02d}_fc.tsv"
            file.parent.mkdir(parents=True)
            write_one(file, fc[k])
    (tmp_path / "participants.tsv").write_text("\n".join(lines) + "\n")
    assert "has 2 files" in str(load_folder(tmp_path).faults[0])


def test_one_bad_subject_is_one_finding(tmp_path):
    """Missing, cut, odd ROI count, NaN, no diagnosis, two files: named, and the rest loads."""
    root = tmp_path / "d"
    made, _ = write_folder(root)
    ids, n = made.subject_id.tolist(), len(made)
    assert n >= 17  # losing any one subject leaves both sites large enough
    victim = root / "func" / f"{ids[0]}_atlas.tsv"
    good = victim.read_text()

    victim.unlink()
    text = one_error(load_folder(root))
    assert f"subject '{ids[0]}'" in text
    assert "listed, but has no file" in text
    assert len(load_folder(root)) == n - 1

    victim.write_text(good[: len(good) // 2])
    assert "cut off" in one_error(load_folder(root))

    write_one(victim, np.corrcoef(np.random.default_rng(0).standard_normal((5, 40))))
    assert "5 ROIs, most subjects have 6" in one_error(load_folder(root))

    matrix = made.fc[0].copy()
    matrix[0, 1] = matrix[1, 0] = np.nan
    write_one(victim, matrix)
    assert "2 FC values are NaN" in one_error(load_folder(root))

    victim.write_text(good)
    twin = root / f"{ids[0]}.csv"
    twin.write_text("1,0\n0,1\n")
    told = one_error(load_folder(root))
    assert "has 2 files" in told
    assert "dataset.pattern=" in told
    assert check_cohort(load_folder(root, pattern="**/*_*.tsv")) == []
    twin.unlink()

    table = root / "participants.tsv"
    listed = table.read_text()
    first = listed.splitlines()[1]
    dx = first.split("\t")[2]
    for change, match in [
        (first.replace(f"\t{dx}\t", "\tDYSLEXIA\t"), "unknown diagnosis 'DYSLEXIA'"),
        (first.replace(f"\t{dx}\t", "\t\t"), "has no diagnosis"),
        (first.replace(made.site[0], "", 1), "no site in row 2"),
    ]:
        table.write_text(listed.replace(first, change))
        if (
            match == "no site in row 2"
        ):  # ids contain the site's name: write the row anew
            table.write_text(listed.replace(first, f"{ids[0]}\t\t{dx}\t1\tM"))
        assert match in one_error(load_folder(root))
    table.write_text(listed.replace(first, first.rsplit("\t", 2)[0]))
    with pytest.raises(DataError, match="row 2 has 3 values for 5 columns"):
        load_folder(root)


def test_duplicate_rows_and_ids_that_start_alike(tmp_path):
    root = tmp_path / "d"
    made, _ = write_folder(root)
    table = root / "participants.tsv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines, lines[1]]))
    assert any("appears 2 times" in f.what for f in check_cohort(load_folder(root)))
    short = made.subject_id[0][:-1]  # 'Sim-NYU-000' begins many names, and owns none
    table.write_text("\n".join([*lines, f"{short}\tSim-NYU\tHC\t1\tM"]))
    assert "listed, but has no file" in one_error(load_folder(root))


def test_file_column_and_bids_prefix(tmp_path):
    root = tmp_path / "d"
    made, _ = write_folder(root)
    table = root / "participants.tsv"
    lines = table.read_text().splitlines()
    for subject in made.subject_id.tolist():
        (root / "func" / f"{subject}_atlas.tsv").rename(
            root / "func" / f"sub-{subject}_fc.tsv"
        )
    assert check_cohort(load_folder(root)) == []
    rows = [f"{x}\tfunc/sub-{x.split(chr(9))[0]}_fc.tsv" for x in lines[1:]]
    table.write_text("\n".join([f"{lines[0]}\tfile", *rows]))
    assert check_cohort(load_folder(root)) == []


def test_wrong_settings(tmp_path):
    write_folder(tmp_path / "d")
    asked = {"path": str(tmp_path / "d"), "kind": "fcs"}
    with pytest.raises(ConfigError, match="kind = 'fcs' is unknown"):
        load_dataset(Component("folder", asked))
    with pytest.raises(ConfigError, match="unknown site 'NYU'"):
        load_folder(tmp_path / "d", sites=["NYU"])
    found = check_cohort(load_folder(tmp_path / "d"), n_rois=116)
    assert any("6 ROIs, 116 were expected" in f.what for f in found)


@pytest.mark.data
def test_real_abide(shared_data):
    cohort = load_folder(
        shared_data / "abide1_aal116.npz",
        sites=["NYU", "UM", "USM", "UCLA"],
        merge=MERGE,
    )
    counts = Counter(cohort.site.tolist())
    assert counts == {"NYU": 172, "UM": 120, "USM": 67, "UCLA": 85}
    assert cohort.site_names == ("NYU", "UM", "USM", "UCLA")
    patients = {s: int(cohort.y[cohort.site == s].sum()) for s in cohort.site_names}
    assert patients == {"NYU": 74, "UM": 47, "USM": 43, "UCLA": 48}
    findings = check_cohort(cohort, n_rois=116)
    assert [f.severity for f in findings] == ["warning"] * 5
    assert {f.site for f in findings} == {"NYU"}
    sites = make_sites(cohort, seed=0)
    assert [len(sites[k].test) for k in ("NYU", "UM", "USM", "UCLA")] == [
        51,
        36,
        20,
        25,
    ]


@pytest.mark.data
def test_real_abide_whole(shared_data):
    cohort = load_folder(shared_data / "abide1_aal116.npz")
    assert len(cohort) == 871
    flat = [f for f in check_cohort(cohort) if "without signal" in f.what]
    assert len({f.subject for f in flat}) == 54
    assert len(grouped(flat)) < 54  # one line for the same ROIs
    assert np.isclose(cohort.covariates["age"][0], 24.45)


@pytest.mark.data
def test_real_pcp_time_series(shared_data, tmp_path):
    """Real .1D files give the FC of the npz for the same subjects."""
    files = sorted((shared_data / "abide_pcp_sample").rglob("*.1D"))[:3]
    npz = load_folder(shared_data / "abide1_aal116.npz")
    place = {s: i for i, s in enumerate(npz.subject_id.tolist())}
    lines = ["file_id\tsite\tdx_group"]
    for file in files:
        (tmp_path / file.name).write_bytes(file.read_bytes())
        lines.append(f"{file.name.removesuffix('_rois_aal.1D')}\tA\t1")
    (tmp_path / "participants.tsv").write_text("\n".join(lines))
    back = load_folder(tmp_path)
    assert len(back) == 3
    for i, subject in enumerate(back.subject_id.tolist()):
        known = npz.fc[place[str(int(subject.rsplit("_", 1)[1]))]]
        np.testing.assert_allclose(back.fc[i], known, atol=1e-3)


def relmat(path: Path, fc: np.ndarray, names: list[str]) -> None:
    """FC as `fcforge fc` writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(["Node", *names])]
    lines += [
        "\t".join([n, *(f"{v:.9g}" for v in row)])
        for n, row in zip(names, fc, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")


def test_roi_names_of_relmat_files_travel(tmp_path):
    cohort, names = tiny(), ["Hip_L", "Hip_R", "Amy_L", "Amy_R", "Ins_L", "Ins_R"]
    rows = ["participant_id\tsite\tdiagnosis"]
    for i, fc in enumerate(cohort.fc):
        relmat(tmp_path / f"s{i:02d}_relmat.tsv", fc, names)
        rows.append(f"s{i:02d}\t{cohort.site[i]}\t{cohort.y[i]}")
    (tmp_path / "participants.tsv").write_text("\n".join(rows) + "\n")
    loaded = load_folder(tmp_path)
    assert loaded.roi_names == tuple(names)
    assert loaded.select_sites([loaded.site_names[0]]).roi_names == tuple(names)
    np.testing.assert_allclose(loaded.fc, cohort.fc, atol=1e-6)

    swapped = [1, 0, 2, 3, 4, 5]  # left and right turned round in one file
    relmat(tmp_path / "s03_relmat.tsv", cohort.fc[3], [names[k] for k in swapped])
    assert one_error(load_folder(tmp_path)).startswith(
        f"site '{cohort.site[3]}' subject 's03': ROI 1 is 'Hip_R', with most subjects 'Hip_L'."
    )
    (tmp_path / "s03_relmat.tsv").unlink()
    np.save(tmp_path / "s03.npy", cohort.fc[3])
    unnamed = load_folder(tmp_path)
    assert len(unnamed) == len(cohort)
    assert unnamed.roi_names == tuple(names)
    (said,) = [f for f in check_cohort(unnamed) if "without ROI names" in f.what]
    assert said.severity == "warning"


def test_covariates_of_another_file_are_joined_by_id(tmp_path):
    made = simulate("easy", n_rois=5, n_sites=1, scale=0.1)
    path = write_npz(tmp_path / "d.npz", made)
    order = np.arange(len(made))[::-1]
    np.savez(
        tmp_path / "more.npz",
        subject_id=made.subject_id[order][1:],
        mean_fd=order[1:] / 10.0,
        label=np.zeros(len(made) - 1),
        name=np.array(["x"] * (len(made) - 1)),
    )
    back = load_folder(path, covariates=tmp_path / "more.npz")
    assert np.isnan(back.covariates["mean_fd"][-1])  # not in the other file
    np.testing.assert_allclose(
        back.covariates["mean_fd"][:-1], np.arange(len(made) - 1) / 10
    )
    assert "label" not in back.covariates
    np.savez(tmp_path / "twice.npz", subject_id=[7, 7], mean_fd=[0.1, 0.2])
    with pytest.raises(DataError, match=r"twice.npz: names a subject twice"):
        load_folder(path, covariates=tmp_path / "twice.npz")
    np.savez(tmp_path / "none.npz", subject_id=["z"], mean_fd=[1.0])
    with pytest.raises(DataError, match="holds none of these subjects"):
        load_folder(path, covariates=tmp_path / "none.npz")


def test_covariates_of_a_table_are_joined_although_zeros_are_lost(tmp_path):
    made = simulate("easy", n_rois=5, n_sites=1, scale=0.1)
    numbers = np.array([f"{50000 + k}" for k in range(len(made))])
    made = replace(made, subject_id=numbers)
    path = write_npz(tmp_path / "d.npz", made)
    table = tmp_path / "phenotypes.csv"
    rows = [f"00{who},{k / 10},x" for k, who in enumerate(numbers[1:], 1)]
    table.write_text("\n".join(["SUB_ID,func_mean_fd,hand", *rows]))
    back = load_folder(path, covariates=table)
    assert np.isnan(back.covariates["mean_fd"][0])
    expected = np.arange(1, len(made)) / 10
    np.testing.assert_allclose(back.covariates["mean_fd"][1:], expected)
    assert "hand" not in back.covariates  # words are no covariate of another file
    table.write_text("SUB_ID,hand\n50001,x\n")
    with pytest.raises(DataError, match=r"phenotypes.csv: holds no covariate"):
        load_folder(path, covariates=table)
    table.write_text("SUB_ID,func_mean_fd\n50001,0.1\n50001,0.2\n")
    with pytest.raises(DataError, match="names a subject twice: 50001"):
        load_folder(path, covariates=table)


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;", ""])
def test_a_first_line_may_name_the_separator(tmp_path, first):
    made, _ = write_folder(tmp_path)
    table = tmp_path / "participants.tsv"
    rows = table.read_text().replace("\t", ";")
    table.write_text(f"{first}\n{rows}" if first else rows)
    back = load_folder(tmp_path)
    assert back.subject_id.tolist() == made.subject_id.tolist()
    assert back.y.tolist() == made.y.tolist()


def test_subjects_can_be_left_out_by_name(tmp_path):
    made = simulate("easy", n_rois=5, n_sites=1, scale=0.1)
    path = write_npz(tmp_path / "d.npz", made)
    gone = made.subject_id[2]
    left = load_dataset(Component("folder", {"path": str(path), "leave_out": [gone]}))
    assert gone not in left.subject_id
    with pytest.raises(ConfigError, match="unknown subject to leave out 'nobody'"):
        load_dataset(Component("folder", {"path": str(path), "leave_out": ["nobody"]}))


def test_a_number_needs_no_diagnosis(tmp_path):
    """Neither a column of diagnoses, nor one that says who is compared."""
    made = simulate("easy", n_rois=5, n_sites=1, scale=0.1)
    ages = np.linspace(10, 20, len(made)).round(1)
    path = write_npz(tmp_path / "d.npz", made, label=None, age=ages)
    asked = {"path": str(path), "target": "age", "limits": (5, 65)}
    found = load_dataset(Component("folder", asked))
    np.testing.assert_allclose(found.target.restored(found.y), ages)
    odd = write_npz(tmp_path / "o.npz", made, label=np.full(len(made), "?"), age=ages)
    assert load_dataset(Component("folder", {**asked, "path": str(odd)})).faults == ()
    for groups in ({"positive": "ASD"}, {"classes": ["HC", "ASD", "ADHD"]}):
        with pytest.raises(ConfigError, match="groups are of a diagnosis"):
            load_dataset(Component("folder", {**asked, **groups}))


# -- which class is the patients' ----------------------------------------------------------------
@pytest.mark.parametrize(
    ("labels", "positive", "classes"),
    [
        (["case", "control"], None, ("control", "case")),
        (["seizure", "none"], "seizure", ("none", "seizure")),
        ([1, 2], "1", ("2", "1")),
        ([1, 2], "2", ("1", "2")),
        ([0, 1], None, ("0", "1")),
        ([0.0, 1.0], None, ("0", "1")),
    ],
)
def test_the_positive_class_of_an_npz(labels, positive, classes, tmp_path):
    """The first of `labels` is the patients' but where they are numbered 0 and 1."""
    n = 6
    label = np.array([labels[i % 2] for i in range(n)])
    fc = np.tile(np.eye(3, dtype=np.float32), (n, 1, 1))
    np.savez(
        tmp_path / "x.npz", fc=fc, label=label, site=["A"] * n, subject_id=np.arange(n)
    )
    cohort = load_folder(tmp_path / "x.npz", positive=positive)
    assert cohort.target.classes == classes
    patients = [
        str(value) == classes[1] or value == 1.0 == labels[1]
        for value in label.tolist()
    ]
    assert cohort.y.tolist() == [int(p) for p in patients]


def test_the_positive_class_of_a_participants_table(tmp_path):
    rows = ["participant_id\tsite\tdiagnosis\tfile"]
    for i, group in enumerate(["dys", "ref", "dys", "ref"]):
        np.savetxt(tmp_path / f"s{i}.csv", np.eye(3), delimiter=",")
        rows.append(f"s{i}\tA\t{group}\ts{i}.csv")
    (tmp_path / "participants.tsv").write_text("\n".join(rows))
    assert "unknown diagnosis 'dys'" in str(load_folder(tmp_path).faults[0])
    cohort = load_folder(tmp_path, positive="dys")
    assert cohort.y.tolist() == [1, 0, 1, 0]
    assert cohort.target.classes == ("ref", "dys")
    with pytest.raises(DataError, match=r"several: dys \(2\), ref \(2\)"):
        load_folder(tmp_path, positive="ASD")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = ["participant_id\tsite\tdiagnosis\tage"]
    words = ["Normal Control", "Schizophrenia Proband", "NC", "SZP"]
    for k in range(20):
        site = ["Hartford", "Georgia"][k // 10]
        dx = "Bipolar Proband" if k == 9 else words[k % 4]
        lines.append(f"B{k:03d}\t{site}\t{dx}\t{20 + k}")
        series = np.random.default_rng(k).normal(size=(40, 6))
        np.savetxt(tmp_path / f"B{k:03d}.csv", series, delimiter=",")
    (tmp_path / "participants.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_words_become_labels_and_other_diagnoses_are_left_out_in_one_line(folder: Path):
    cohort = load_dataset(Component("bsnip", {"path": str(folder)}))
    assert len(cohort) == 19
    assert cohort.site_names == ("Hartford", "Georgia")
    assert cohort.y[:4].tolist() == [0, 1, 0, 1]
    assert [f.severity for f in cohort.faults] == ["warning"]
    assert "1 subject left out (Bipolar Proband: 1)" in cohort.faults[0].what
    assert [f for f in check_cohort(cohort) if f.severity == "error"] == []
    assert cohort.name == "bsnip"


def test_sites_are_words(folder: Path):
    assert load_bsnip(folder, sites=["Georgia"]).site_names == ("Georgia",)
    with pytest.raises(ConfigError, match="Did you mean 'Georgia'"):
        load_bsnip(folder, sites=["Georgi"])


def test_another_group_of_patients(folder: Path):
    cohort = load_folder(
        folder, positive=f"{DISORDERS['SZ']}, Bipolar Proband", negative=CONTROLS
    )
    assert len(cohort) == 20
    assert cohort.faults == ()


# -- new scans -------------------------------------------------------------------------------------
ROIS = 6


def fc_of_seed(seed: int) -> np.ndarray:
    return np.corrcoef(np.random.default_rng(seed).standard_normal((ROIS, 40)))


def found_in(where, kind="auto"):
    return {scan.subject: scan for scan in find_scans(where, kind, ROIS)}


def write_table(folder, *rows, name="participants.tsv"):
    (folder / name).write_text("\n".join("\t".join(r) for r in rows) + "\n")


def test_a_dataset_gives_ids_covariates_and_roi_names(tmp_path):
    path = tmp_path / "d.npz"
    np.savez(
        path,
        fc=np.stack([fc_of_seed(0), fc_of_seed(1)]),
        subject_id=["a", "b"],
        AGE_AT_SCAN=[10, 12],
        gender=["M", "f"],
        func_mean_fd=[0.1, -9999.0],
        scanner=["x", "y"],
        roi_names=[f"R{i}" for i in range(ROIS)],
    )
    scans = found_in(path)
    assert dict(scans["a"].covariates) == {"age": 10.0, "sex": 1.0, "mean_fd": 0.1}
    assert scans["b"].covariates["sex"] == 2.0
    assert "mean_fd" not in scans["b"].covariates
    assert scans["a"].roi_names == tuple(f"R{i}" for i in range(ROIS))
    np.testing.assert_allclose(scans["b"].fc, fc_of_seed(1), atol=1e-6)


def test_a_table_beside_the_files_gives_covariates(tmp_path):
    np.save(tmp_path / "s1.npy", fc_of_seed(0))
    np.save(tmp_path / "sub-s10_fc.npy", fc_of_seed(1))
    np.save(tmp_path / "other.npy", fc_of_seed(2))
    write_table(
        tmp_path,
        ("participant_id", "Age", "Gender"),
        ("sub-s1", "9.5", "female"),
        ("s10", "n/a", "male"),
    )
    scans = found_in(tmp_path)
    assert dict(scans["s1.npy"].covariates) == {"age": 9.5, "sex": 2.0}
    assert dict(scans["sub-s10_fc.npy"].covariates) == {"sex": 1.0}
    assert dict(scans["other.npy"].covariates) == {}
    assert dict(found_in(tmp_path / "s1.npy")["s1.npy"].covariates) == {
        "age": 9.5,
        "sex": 2.0,
    }


def test_names_of_columns_are_kept(tmp_path):
    head = ",".join(f"R{i}" for i in range(ROIS))
    np.savetxt(
        tmp_path / "a.csv", fc_of_seed(0), delimiter=",", header=head, comments=""
    )
    assert found_in(tmp_path)["a.csv"].roi_names == tuple(f"R{i}" for i in range(ROIS))


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.eye(4), "has 4 ROIs, the model 6"),
        (np.where(np.eye(ROIS) > 0, 1.0, np.nan), "NaN"),
        (4 * fc_of_seed(0) - 3 * np.eye(ROIS), "beyond 1"),
        (fc_of_seed(0) + np.diag([0.5] + [0.0] * (ROIS - 1)), "diagonal is not 1"),
    ],
)
def test_what_cannot_be_used_is_named_in_its_place(tmp_path, matrix, words):
    np.save(tmp_path / "a.npy", fc_of_seed(0))
    np.save(tmp_path / "b.npy", matrix)
    scans = found_in(tmp_path)
    assert scans["a.npy"].fc is not None
    assert scans["b.npy"].fc is None
    assert words in scans["b.npy"].problem


def test_a_dataset_with_other_counts_is_refused(tmp_path):
    np.savez(
        tmp_path / "d.npz",
        fc=np.stack([fc_of_seed(0), fc_of_seed(1)]),
        subject_id=["a"],
    )
    assert "'subject_id' has shape (1,)" in found_in(tmp_path)["d.npz"].problem
    with pytest.raises(DataError, match="no such file"):
        found_in(tmp_path / "nothing.npy")


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
