"""People whose scan contradicts those of the others: permuted ROIs, swapped hemispheres."""

from dataclasses import replace

import numpy as np
import pytest

from fcforge.core.errors import DataError
from fcforge.data.arrays import in_words_of_arrays
from fcforge.data.checks import check_cohort, data_warnings, require_valid
from fcforge.data.cohort import Cohort
from fcforge.data.faults import Fault
from fcforge.data.folder import load_folder
from fcforge.data.person_checks import (
    FEWEST,
    SIDES_ROIS,
    Group,
    comparison_faults,
    person_faults,
)
from fcforge.data.scan_checks import fisher_z
from fcforge.data.simulated import simulate
from fcforge.estimator import ForgeClassifier
from fcforge.experiments.public_subjects import compare_public

N_ROIS = 24


@pytest.fixture(scope="module")
def world() -> Cohort:
    """Four sites with ROIs in pairs."""
    return simulate("easy", n_rois=N_ROIS, seed=0)


def shuffled(seed: int = 0, n_rois: int = N_ROIS) -> np.ndarray:
    return np.random.default_rng(seed).permutation(n_rois)


def swapped(n_rois: int = N_ROIS) -> np.ndarray:
    return np.arange(n_rois) ^ 1  # left, right, left, right, ...


def reordered(cohort: Cohort, rows: np.ndarray, order: np.ndarray) -> Cohort:
    fc = cohort.fc.copy()
    fc[rows] = fc[np.ix_(rows, order, order)]
    return replace(cohort, fc=fc)


def rows_of(cohort: Cohort, site: str) -> np.ndarray:
    return np.flatnonzero(cohort.site == site)


def subjects(faults: list[Fault]) -> set[str]:
    return {fault.subject for fault in faults}


@pytest.mark.parametrize(
    "preset", ["easy", "realistic", "hard", "hard_shift", "systems"]
)
def test_simulated_people_raise_no_alarm(preset):
    for seed in range(3):
        cohort = simulate(preset, n_rois=N_ROIS, seed=seed)
        assert list(person_faults(cohort)) == []


def test_one_permuted_scan_is_a_warning_with_site_and_correlation(world):
    site = world.site_names[1]
    rows = rows_of(world, site)
    wrong = reordered(world, rows[4:5], shuffled())
    subject = str(world.subject_id[rows[4]])
    (fault,) = check_cohort(wrong)
    assert (fault.severity, fault.subject, fault.site) == ("warning", subject, site)
    others = f"that of the {len(rows) - 1} other people of the site (correlation "
    assert f"its FC does not resemble {others}" in fault.what
    assert "order of the ROIs" in fault.do
    assert f"leave_out = ['{subject}'] in [dataset], or without a config" in fault.do
    assert f"--leave-out {subject}" in fault.do
    require_valid(wrong)
    (line,) = data_warnings(wrong)
    assert line == f"WARNING: {fault}"
    assert line.startswith(f"WARNING: site '{site}' subject '{subject}': its FC")


def test_most_permuted_scans_of_few_rois_are_found_and_nobody_else():
    """With 24 ROIs a random order correlates above the limit now and then; with 50 none does."""
    for n_rois, least in ((24, 0.8), (50, 1.0)):
        cohort = simulate("easy", n_rois=n_rois, n_sites=2, scale=0.3, seed=0)
        rows = range(0, len(cohort), 3)
        n_found = 0
        for row in rows:
            wrong = reordered(cohort, np.array([row]), shuffled(row, n_rois))
            found = subjects(list(person_faults(wrong)))
            assert found <= {str(cohort.subject_id[row])}
            n_found += len(found)
        assert n_found >= least * len(rows)


def test_swapped_hemispheres_of_one_scan_are_a_warning_from_90_rois_on():
    for n_rois, n_found in ((SIDES_ROIS, 1), (SIDES_ROIS - 2, 0)):
        cohort = simulate("easy", n_rois=n_rois, n_sites=2, scale=0.3, seed=0)
        assert list(person_faults(cohort)) == []
        faults = list(person_faults(reordered(cohort, np.array([3]), swapped(n_rois))))
        assert len(faults) == n_found
        for fault in faults:
            assert fault.subject == cohort.subject_id[3]
            assert "hemispheres look swapped beside the" in fault.what


def test_three_people_with_one_wrong_order_are_all_named(world):
    rows = rows_of(world, world.site_names[0])[[0, 5, 9]]
    faults = list(person_faults(reordered(world, rows, shuffled())))
    assert subjects(faults) == {*world.subject_id[rows].tolist()}


def test_a_third_of_a_site_with_one_wrong_order_is_named(world):
    rows = rows_of(world, world.site_names[0])
    rows = rows[: len(rows) // 3]
    faults = list(person_faults(reordered(world, rows, shuffled())))
    assert subjects(faults) == {*world.subject_id[rows].tolist()}


def test_at_a_small_site_everybody_is_the_comparison(world):
    site = world.site_names[3]
    rows = rows_of(world, site)
    few = [*rows[:FEWEST], *np.flatnonzero(world.site != site)]
    small = world.select(np.array(few))
    assert list(person_faults(small)) == []
    (fault,) = person_faults(reordered(small, np.array([2]), shuffled()))
    assert fault.subject == small.subject_id[2]
    assert f"that of the {len(small) - 1} other people (" in fault.what


def test_one_site_alone_is_checked_from_eleven_people_on(world):
    one = world.select(rows_of(world, world.site_names[0]))
    for n, found in ((FEWEST, 0), (FEWEST + 1, 1)):
        wrong = reordered(one.select(slice(n)), np.array([1]), shuffled())
        assert len(list(person_faults(wrong))) == found


def test_people_of_an_unlike_site_are_not_named_one_by_one(world):
    site = world.site_names[2]
    wrong = reordered(world, rows_of(world, site), shuffled())
    for allowed in (False, True):
        faults = comparison_faults(replace(wrong, allow_unlike_sites=allowed))
        assert [(fault.site, fault.subject) for fault in faults] == [(site, "")]


def test_one_wrong_person_of_an_unlike_site_is_named(world):
    site = world.site_names[2]
    rows = rows_of(world, site)
    wrong = reordered(world, rows, shuffled())
    wrong = reordered(wrong, rows[:1], shuffled(1))
    faults = comparison_faults(replace(wrong, allow_unlike_sites=True))
    assert [fault.subject for fault in faults] == ["", str(world.subject_id[rows[0]])]


def test_scans_without_a_common_pattern_raise_no_alarm():
    rng = np.random.default_rng(0)
    fc = np.stack([np.corrcoef(rng.normal(size=(N_ROIS, 30))) for _ in range(60)])
    site = np.array(["A", "B", "C"] * 20)
    ids = np.array([f"s{k}" for k in range(60)])
    noise = Cohort("noise", fc.astype(np.float32), np.arange(60) // 3 % 2, site, ids)
    assert list(person_faults(noise)) == []


def test_few_rois_and_nobody_are_not_compared(world):
    few = replace(world, fc=np.ascontiguousarray(world.fc[:, :19, :19]))
    assert list(person_faults(reordered(few, np.array([0]), shuffled(0, 19)))) == []
    assert list(person_faults(world.select(slice(0)))) == []


def test_known_people_stand_in_for_others(world):
    here = world.select(rows_of(world, world.site_names[0])[:3])
    others = fisher_z(world.fc[rows_of(world, world.site_names[1])])
    known = Group(others.sum(0), len(others))
    assert list(person_faults(here, known=known)) == []
    wrong = reordered(here, np.array([1]), shuffled())
    assert list(person_faults(wrong)) == []  # two others are too few
    (fault,) = person_faults(wrong, known=known)
    assert fault.subject == here.subject_id[1]


def test_an_error_does_not_hide_what_is_wrong_with_others(world):
    """NaN in one matrix, beside swapped diagnoses, a permuted scan and one scan twice."""
    flip, site = world.site_names[:2]
    rows = rows_of(world, site)
    wrong = reordered(world, rows[2:3], shuffled())
    wrong = replace(wrong, y=np.where(world.site == flip, 1 - world.y, world.y))
    wrong.fc[rows[0], 3, 4] = np.nan
    wrong.fc[rows[6]] = wrong.fc[rows[5]]
    faults = check_cohort(wrong)
    ids = world.subject_id
    found = {(fault.severity, fault.site, fault.subject) for fault in faults}
    assert found == {
        ("error", site, str(ids[rows[0]])),
        ("error", site, str(ids[rows[6]])),
        ("warning", site, str(ids[rows[2]])),
        ("warning", flip, ""),
    }


def test_nothing_but_nan_is_one_error_each(world):
    few = world.select(slice(12))
    faults = check_cohort(replace(few, fc=np.full_like(few.fc, np.nan)), to_split=False)
    assert {fault.severity for fault in faults if fault.subject} == {"error"}
    assert len(subjects([fault for fault in faults if fault.subject])) == 12


def test_a_row_without_site_does_not_hide_other_faults(world):
    missing = Fault("error", "no site in row 3 of the table.", "Fill it in.")
    wrong = reordered(replace(world, faults=(missing,)), np.array([4]), shuffled())
    found = [fault.subject for fault in check_cohort(wrong)]
    assert found == ["", str(world.subject_id[4])]


def test_a_permuted_scan_is_a_row_of_x_in_python(world):
    wrong = reordered(world, np.array([4]), shuffled())
    (line,) = data_warnings(wrong)
    text = in_words_of_arrays(line, world.subject_id)
    assert "X[4]: its FC does not resemble" in text
    assert text.endswith("leave the subject out of all arrays.")


def test_fit_warns_of_one_permuted_scan_and_partial_fit_too(world, recwarn):
    site = world.site_names[0]
    rows = rows_of(world, site)
    first = np.flatnonzero(world.site != site)
    model = ForgeClassifier("ridge")
    model.fit(world.fc[first], world.y[first], site=world.site[first])
    assert not [w for w in recwarn if "resemble" in str(w.message)]
    wrong = reordered(world, np.array([first[7], rows[5]]), shuffled())
    weight = np.ones(len(first))
    weight[0] = 0  # left out before the comparison: rows are those of X all the same
    with pytest.warns(UserWarning, match=r"X\[7\] of site .*not resemble") as warned:
        ForgeClassifier("ridge").fit(
            wrong.fc[first],
            world.y[first],
            site=world.site[first],
            sample_weight=weight,
        )
    mine = [w for w in warned if "resemble" in str(w.message)]
    assert len(mine) == 1
    assert mine[0].filename == __file__  # the caller's line
    assert "leave the subject out" in str(mine[0].message)
    few = rows[3:9]  # too few for a comparison within the site
    with pytest.warns(UserWarning, match=rf"X\[2\] of site '{site}': its FC does not"):
        model.partial_fit(wrong.fc[few], np.arange(6) % 2, site=site)


def test_a_permuted_public_subject_is_a_warning(world):
    public = world.select_sites(world.site_names[:2])
    tested = world.select_sites(world.site_names[2:])
    assert compare_public(public, tested) == ()
    wrong = reordered(public, np.array([3]), shuffled())
    (fault,) = compare_public(wrong, tested)
    assert (fault.severity, fault.subject) == ("warning", str(public.subject_id[3]))
    assert compare_public(public, reordered(tested, np.array([3]), shuffled())) == ()
    every = reordered(public, np.arange(len(public)), shuffled())
    with pytest.raises(DataError, match="contradict each other"):
        compare_public(every, tested)
    (fault,) = compare_public(replace(every, allow_unlike_sites=True), tested)
    assert fault.subject == ""


@pytest.mark.parametrize("name", ["abide1_aal116", "abide1_aal116_dparsf"])
def test_detection_and_false_alarms_on_abide(shared_data, name):
    cohort = load_folder(shared_data / f"{name}.npz")
    assert list(person_faults(cohort)) == []
    rows = np.random.default_rng(0).choice(len(cohort), 40, replace=False)
    fc = cohort.fc.copy()
    for row in rows:
        order = shuffled(int(row), 116)
        fc[row] = fc[row][order][:, order]
    faults = list(person_faults(replace(cohort, fc=fc)))
    assert subjects(faults) == {*cohort.subject_id[rows].tolist()}
    sides = list(person_faults(reordered(cohort, rows[:20], swapped(116))))
    assert subjects(sides) == {*cohort.subject_id[rows[:20]].tolist()}
