"""Codes of diagnoses that differ between sites: what is a conflict, and what is not."""

from pathlib import Path

import numpy as np
import pytest
from small_cohorts import write_npz

import fcforge
from fcforge.core.errors import DataError
from fcforge.data.checks import check_cohort
from fcforge.data.cohort import Cohort
from fcforge.data.folder import load_folder
from fcforge.data.label_codes import (
    classes_apart,
    coding_fault,
    isolated_site,
    stray_class,
    usual_codes,
)
from fcforge.data.simulated import simulate

ZERO, ONE = {0, 1}, {1, 2}


def coding_conflict(codes, listed_controls=None, n=10):
    """Message of the fault of sites that have n people of each code, with its severity."""
    people = {site: dict.fromkeys(of_site, n) for site, of_site in codes.items()}
    listed = listed_controls is not None
    fault = coding_fault(people, controls=listed_controls, listed=listed)
    return f"{fault.severity}: {fault.what}" if fault else ""


@pytest.mark.parametrize(
    "codes",
    [
        {"A": ZERO, "B": ONE},
        {"A": ZERO, "B": ONE, "C": ZERO},
        {"A": ZERO, "B": ONE, "C": {1}},  # C may be coded in either way
        {"A": ZERO, "B": {-1, 1}},
        {"A": ZERO, "B": {0, 2}},
        {"A": {"0", "1"}, "B": {"1", "2"}},
        {"A": {"0", "1"}, "B": {"1.0", "2.0"}},
        {"A": {"0", "1"}, "B": {"HC", "ASD"}},
        {"A": {"HC", "ASD"}, "B": {"TC", "ASD"}},
        {"A": {"control", "ASD"}, "B": {"Controls", "MDD"}},
        {"A": {"TC", "ASD"}, "B": {"typical", "ASD"}},
        {"A": {"TC", "ASD"}, "B": {"HV", "ASD"}},
        {"A": {"TC", "ASD"}, "B": {"TC", "autism"}},
        {"A": {"TC", "ASD"}, "B": {"NT", "autism"}},
        {"A": {"TC", "ASD"}, "B": {"TC", "Asperger"}},
        {"A": {"TC", "adhd-c"}, "B": {"TC", "ADHD-combined"}},
        {"A": {"TC", "ASD"}, "B": {"TC", "patient"}},
        {"A": {"HC", "patients"}, "B": {"HC", "case"}},
        {"A": ZERO, "B": {2, 3}},
        {"A": {"G0", "G1"}, "B": {"G1", "G2"}},
        {"A": {"G0", "G1"}, "B": {"G0", "G2"}},
        {"A": {"G0", "G1"}, "B": {"G2", "G3"}},
        {"A": {"group 1", "group 2"}, "B": {"group 0", "group 1"}},
        {"A": {"DX-0", "DX-1"}, "B": {"dx_1", "dx_2"}},
        {"A": {"TC", "ASD"}, "B": {"control", "autism"}},
        {"A": ZERO, "B": ONE, "C": {0, 1, 3}},  # C does not show what 2 means
    ],
)
def test_other_codes_are_a_conflict(codes):
    message = coding_conflict(codes)
    assert message.startswith("error: sites code the diagnosis differently: ")
    assert "(A" in message
    assert "(B" in message


@pytest.mark.parametrize(
    "codes",
    [
        {"A": ZERO, "B": ZERO},
        {"A": ZERO, "B": {1}},
        {"A": ZERO, "B": {0}, "C": {1}},
        {"A": {1, 2}, "B": {1, 2}},
        {"A": {0, 1, 2}, "B": ZERO, "C": ONE},
        {"A": {0, 1}, "B": {False, True}},
        {"A": {0, 1}, "B": {0.0, 1.0}},
        {"A": {"HC", "SZ"}, "B": {"HC", "BP"}},
        {"A": {"HC", "autism"}, "B": {"HC", "asperger"}},
        {"A": {"HC", "adhd-c"}, "B": {"HC", "adhd-i"}},
        {"A": {"HC", "ASD"}, "B": {"HC", "ADHD"}, "C": {"HC", "SZ"}},
        {"A": {"G0", "G1"}, "B": {"G0", "G1"}},
        {"A": {"G0", "G1"}, "B": {"G1"}},
        {"A": {"G0", "G1", "G2"}, "B": {"G0", "G1"}, "C": {"G1", "G2"}},
        {"A": {"HC", "G1"}, "B": {"HC", "G2"}},
        {"A": {"ASD-1", "ASD-2"}, "B": {"ASD-2", "ASD-3"}},  # subtypes
        {"A": {"HC", "ASD-1"}, "B": {"HC", "ASD-2"}},
        {"A": {"F20", "F31"}, "B": {"F31", "F32"}},  # ICD-10
        {"A": {"Ga", "Gb"}, "B": {"Gb", "Gc"}},
        {"A": {"G0", "G1"}, "B": {"K1", "K2"}},
        {"A": {0, 1, 2}, "B": ZERO, "C": ONE, "D": {0, 3, 4}},
        {"A": {"HC", "SZ"}, "B": {"SZ", "BP"}, "C": {"HC", "BP"}},
        {"A": ZERO, "B": {2}},
        {"A": ZERO},
        {},
    ],
)
def test_subsets_and_words_are_none(codes):
    assert coding_conflict(codes) == ""


def test_listed_numbers_need_the_controls_at_every_site():
    assert coding_conflict({"A": ZERO, "B": {0, 2}}, 0) == ""
    assert coding_conflict({"A": ZERO, "B": ONE}, 0)
    assert coding_conflict({"A": ZERO, "B": {0, 2}, "C": {1, 2}}, 0)


def test_listed_numbers_behind_a_word_are_as_listed_numbers():
    one, other = {"G0", "G1"}, {"G1", "G2"}
    assert coding_conflict({"A": one, "B": {"G0", "G2"}}, "G0") == ""
    assert coding_conflict({"A": one, "B": other}, "G0").startswith("error")
    assert coding_conflict({"A": one, "B": {"G2", "G3"}}, "G0").startswith("warning")


def test_listed_numbers_without_a_common_code_are_a_warning():
    """Class-incremental learning: 0 and 1, then 2 and 3."""
    assert coding_conflict({"A": ZERO, "B": {2, 3}}).startswith("error")
    assert coding_conflict({"A": ZERO, "B": {2, 3}}, 0).startswith("warning")
    assert coding_conflict({"A": ZERO, "B": {2, 3}, "C": ONE}, 0).startswith("error")


def test_listed_codes_of_a_few_people_are_a_warning():
    assert coding_conflict({"A": ZERO, "B": ONE}, n=3).startswith("error")
    assert coding_conflict({"A": ZERO, "B": ONE}, 0, n=3).startswith("warning")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_mistyped_cells_excuse_nobody(n):
    """One cell of 2 at a site of 0 and 1 showed that 2 is a third class."""
    people = {"A": {0: 40, 1: 35, 2: n}, "B": {0: 20, 1: 13}, "C": {1: 23, 2: 22}}
    fault = coding_fault(people)
    assert "0 and 1 (A, B); 1 and 2 (C)" in fault.what
    assert f"{n} pe" in fault.what
    assert "of site 'A' ha" in fault.what
    assert coding_fault({"A": people["A"], "C": people["C"]}).severity == "error"
    assert coding_fault({**people, "A": {0: 40, 1: 35, 2: 4}}) is None


def test_a_mistyped_cell_of_a_small_site_is_a_warning():
    """It cannot be told from a rare class."""
    people = {"A": {0: 7, 1: 8, 2: 1}, "B": {1: 9, 2: 9}}
    fault = coding_fault(people)
    assert fault.severity == "warning"
    assert "0 and 1 (A); 1 and 2 (B)" in fault.what
    assert coding_fault({**people, "A": {0: 7, 1: 8, 2: 4}}) is None


def test_sites_of_few_people_excuse_together():
    few = {0: 2, 1: 2, 2: 2}
    codes = {"C": {0: 5, 1: 5}, "D": {1: 5, 2: 5}}
    assert coding_fault({"A": few, **codes}).severity == "error"
    assert coding_fault({"A": few, "B": few, **codes}) is None


def test_usual_codes_and_stray_classes():
    assert usual_codes({0: 24, 1: 35, 2: 1}) == {0, 1}
    assert usual_codes({0: 2, 1: 5, 2: 5}) == {0, 1, 2}
    assert usual_codes({0: 30, 1: 1}) == {0, 1}
    people = {"A": {0: 24, 1: 35, 2: 1}, "B": {0: 20, 1: 20}}
    assert stray_class(people) == "1 person of site 'A' has the code 2"
    assert stray_class({**people, "C": {0: 9, 2: 9}}) == ""


def test_classes_that_are_never_at_one_site():
    people = {"A": {"Ga": 9, "Gb": 9}, "B": {"Gb": 9, "Gc": 9}}
    assert classes_apart(people) == [("Ga", "Gc")]
    assert classes_apart({**people, "C": {"Ga": 9, "Gc": 9}}) == []
    assert classes_apart({"A": {"HC": 9, "SZ": 9}, "B": {"BP": 9}}) == []


def test_the_message_by_hand():
    codes = {"A": ZERO, "B": ONE, "C": ZERO, "D": ZERO, "E": ZERO}
    assert coding_conflict(codes) == (
        "error: sites code the diagnosis differently: 0 and 1 (A, C, D and 1 more); 1 and 2 (B). "
        "Together they would be 3 classes."
    )


def test_a_site_with_words_of_its_own():
    assert isolated_site({"A": {"HC", "SZ"}, "B": {"sano", "enfermo"}}) == "B"
    assert isolated_site({"A": {"HC", "SZ"}, "B": {"HC", "BP"}}) == ""
    assert isolated_site({"A": {"HC", "SZ"}, "B": {"BP"}}) == ""
    assert isolated_site({"A": {"HC", "SZ"}}) == ""


# -- files -----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def world() -> Cohort:
    return simulate(n_rois=6, n_sites=2, scale=0.1, seed=0)


def coded(world: Cohort, one: tuple, other: tuple) -> np.ndarray:
    """Labels of the two sites, each as (controls, patients)."""
    first = world.site == world.site_names[0]
    codes = np.where(first, np.take(one, world.y), np.take(other, world.y))
    return codes.astype(str)


def table(folder: Path, world: Cohort, column: str, labels: np.ndarray) -> Path:
    """Write a folder with a table of people and a file of FC each."""
    lines = [f"participant_id\tsite\t{column}"]
    rows = zip(
        world.subject_id.tolist(), world.site.tolist(), labels.tolist(), strict=True
    )
    lines += ["\t".join(row) for row in rows]
    folder.mkdir()
    (folder / "participants.tsv").write_text("\n".join(lines) + "\n")
    for subject, fc in zip(world.subject_id.tolist(), world.fc, strict=True):
        np.save(folder / f"{subject}.npy", fc)
    return folder


@pytest.mark.parametrize("column", ["DX_GROUP", "group"])
def test_a_table_with_two_codings_is_refused(world, column, tmp_path):
    """In DX_GROUP 0 and 2 both meant controls."""
    labels = coded(world, (0, 1), (1, 2))
    folder = table(tmp_path / "data", world, column, labels)
    one, other = world.site_names
    words = rf"0 and 1 \({one}\); 1 and 2 \({other}\).*recode them.*--positive VALUE"
    with pytest.raises(DataError, match=words):
        load_folder(folder)
    for site in world.site_names:
        if column == "DX_GROUP":
            assert len(load_folder(folder, sites=[site]))
    merged = {"all": list(world.site_names)}
    with pytest.raises(DataError, match="sites code the diagnosis differently"):
        load_folder(folder, merge=merged, sites=["all"])


@pytest.mark.parametrize("n", [1, 2])
def test_a_mistyped_cell_of_dx_group_is_refused(world, n, tmp_path):
    """One 2 at a site of 0 and 1 was read as a control, and let 1 and 2 of another site pass."""
    labels = coded(world, (0, 1), (1, 2))
    labels[np.flatnonzero(world.site == world.site_names[0])[:n]] = "2"
    folder = table(tmp_path / "both", world, "DX_GROUP", labels)
    with pytest.raises(DataError, match=r"0 and 1 \(.*mistyped\?.*--positive VALUE"):
        load_folder(folder)
    labels = coded(world, (0, 1), (0, 1))
    labels[:n] = "2"
    folder = table(tmp_path / "one", world, "DX_GROUP", labels)
    words = rf"DX_GROUP holds 0 for .* and 2 for {n} rows? \({world.site[0]}\).*--positive VALUE"
    with pytest.raises(DataError, match=words):
        load_folder(folder)
    cohort = load_folder(folder, positive="1", negative="0,2")
    assert (cohort.y[:n] == 0).all()
    assert len(load_folder(folder, sites=[world.site_names[1]]))


def test_listed_classes_without_a_common_code_are_a_warning(world, tmp_path):
    path = write_npz(
        tmp_path / "a.npz", world, label=coded(world, ("0", "1"), ("2", "3"))
    )
    cohort = load_folder(path, classes=("0", "1", "2", "3"))
    (fault,) = cohort.faults
    assert fault.severity == "warning"
    assert "0 and 1 (" in fault.what


def test_named_codes_mean_what_the_user_says(world, tmp_path):
    folder = table(tmp_path / "data", world, "DX_GROUP", coded(world, (0, 1), (2, 1)))
    with pytest.raises(DataError, match="sites code the diagnosis differently"):
        load_folder(folder)
    cohort = load_folder(folder, positive="1", negative="0,2")
    assert np.array_equal(cohort.y, world.y)


def test_listed_classes_of_two_codings_are_refused(world, tmp_path):
    path = write_npz(
        tmp_path / "a.npz", world, label=coded(world, ("0", "1"), ("1", "2"))
    )
    with pytest.raises(DataError, match=r"sites code .*name them by words at every"):
        load_folder(path, classes=("0", "1", "2"))
    disorders = write_npz(
        tmp_path / "b.npz", world, label=coded(world, ("0", "1"), ("0", "2"))
    )
    assert load_folder(disorders, classes=("0", "1", "2")).target.outputs == 3
    words = write_npz(
        tmp_path / "c.npz", world, label=coded(world, ("HC", "SZ"), ("HC", "BP"))
    )
    assert load_folder(words, classes=("HC", "SZ", "BP")).target.outputs == 3


def test_words_and_numbers_of_known_meaning_may_be_mixed(world, tmp_path):
    path = write_npz(
        tmp_path / "a.npz", world, label=coded(world, ("0", "1"), ("HC", "patient"))
    )
    assert np.array_equal(load_folder(path).y, world.y)


def test_arrays_of_two_codings_are_refused(world):
    labels = coded(world, (0, 1), (1, 2)).astype(int)
    for dataset in ({}, {"classes": ["0", "1", "2"]}):
        with pytest.raises(DataError, match="sites code the diagnosis") as caught:
            fcforge.run(
                world.fc,
                labels,
                world.site,
                learners=["analytic/linear"],
                dataset=dataset,
            )
        assert "--" not in str(caught.value)


@pytest.mark.parametrize("name", ["abide1_aal116", "abide1_aal116_dparsf"])
def test_no_false_alarm_on_abide(shared_data, name):
    cohort = load_folder(shared_data / f"{name}.npz")
    codes: dict[str, set[int]] = {}
    for site, label in zip(cohort.site.tolist(), cohort.y.tolist(), strict=True):
        codes.setdefault(site, set()).add(label)
    assert coding_conflict(codes) == isolated_site(codes) == ""
    assert not any(
        fault.severity == "error" and not fault.subject
        for fault in check_cohort(cohort, to_split=False)
    )
