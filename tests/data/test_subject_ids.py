"""Ids of one person in two spellings: which are equal, which are a warning, which are chance."""

from dataclasses import replace

import numpy as np
import pytest

from fcforge.core.errors import DataError
from fcforge.data.checks import check_cohort, data_warnings, require_valid
from fcforge.data.cohort import Cohort
from fcforge.data.duplicates import find_duplicates
from fcforge.data.faults import Fault
from fcforge.data.folder import load_folder
from fcforge.data.simulated import simulate
from fcforge.data.subject_ids import (
    bare_id,
    id_faults,
    person_keys,
    plain_id,
    shared_long_numbers,
)


@pytest.fixture(scope="module")
def world() -> Cohort:
    """Four simulated sites, whose ids differ in more than spelling."""
    return simulate("easy", n_rois=24, seed=0)


def renamed(cohort: Cohort, **new: str) -> Cohort:
    """Name the first person of site 1, the second of site 1 or the first of site 2 anew."""
    first, second = np.flatnonzero(cohort.site == cohort.site_names[0])[:2]
    third = np.flatnonzero(cohort.site == cohort.site_names[1])[0]
    ids = cohort.subject_id.astype(object)
    for name, row in (("first", first), ("second", second), ("third", third)):
        ids[row] = new.get(name, ids[row])
    return replace(cohort, subject_id=np.array(ids.tolist()))


def numbered(cohort: Cohort, widths: tuple[int, ...], seed: int = 0) -> Cohort:
    """Number the people of every site from 1 in random order, with leading zeros."""
    rng = np.random.default_rng(seed)
    ids = np.empty(len(cohort), dtype=object)
    for name, width in zip(cohort.site_names, widths, strict=True):
        rows = rng.permutation(np.flatnonzero(cohort.site == name))
        for k, row in enumerate(rows.tolist(), 1):
            ids[row] = f"{k:0{width}d}"
    return replace(cohort, subject_id=np.array(ids.tolist()))


def errors(cohort: Cohort) -> list[Fault]:
    return [fault for fault in check_cohort(cohort) if fault.severity == "error"]


@pytest.mark.parametrize(
    "other",
    ["sub-01 ", " sub-01", "\tsub-01", "sub-01\u00a0", "\ufeffsub-01", "sub-01\u200b"],
)
@pytest.mark.parametrize("place", ["second", "third"])
def test_blanks_at_the_ends_make_no_other_id(world, other, place):
    wrong = renamed(world, first="sub-01", **{place: other})
    (fault,) = errors(wrong)
    assert fault.what.startswith("subject id appears 2 times, with other blanks ('sub-")
    assert repr(other) in fault.what
    assert list(id_faults(wrong)) == []
    with pytest.raises(DataError, match="appears 2 times, with other blanks"):
        require_valid(wrong)


def test_equal_ids_are_reported_as_ever(world):
    (fault,) = errors(renamed(world, first="a", second="a"))
    assert fault.what == "subject id appears 2 times."


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sub-01", "SUB-01"),
        ("sub-01", "01"),
        ("sub-01", "sub-1"),
        ("0050286", "50286"),
        ("NYU_007", "nyu_7"),
        ("s  1", "s 1"),
        ("ｓ1", "s1"),
        ("sub-\u200b01", "sub-01"),
        ("001", "01"),
        ("0", "00"),
    ],
)
def test_other_spellings_at_one_site_are_a_warning(world, one, other):
    wrong = renamed(world, first=one, second=other)
    (fault,) = id_faults(wrong)
    assert (fault.severity, fault.site) == ("warning", world.site_names[0])
    assert repr(one) in fault.what
    assert repr(other) in fault.what
    assert f"leave_out = [{other!r}]" in fault.do
    assert errors(wrong) == []
    (line,) = data_warnings(wrong)
    assert line == f"WARNING: {fault}"


RESPELT = [
    ("S-50279", "S50279"),
    ("S_50279", "S 50279"),
    ("50279", "subj50279"),
    ("50279", "subject_50279"),
    ("sub-0050279", "Pitt_0050279"),
    ("50279", "UM_1_0050279"),
    ("50279_ses-1", "50279_ses-2"),
    ("sub-50279_ses-01", "Pitt_0050279_run-2"),
]


@pytest.mark.parametrize(("one", "other"), RESPELT)
@pytest.mark.parametrize("place", ["second", "third"])
def test_one_long_number_is_a_warning(world, one, other, place):
    wrong = renamed(world, first=one, **{place: other})
    (fault,) = id_faults(wrong)
    assert fault.severity == "warning"
    assert f"look like one person's in two spellings: {one!r} and {other!r}" in str(
        fault
    )


def test_sessions_of_a_short_id_are_one_person_at_one_site(world):
    (fault,) = id_faults(renamed(world, first="sub-01_ses-1", second="sub-01_ses-2"))
    assert "'sub-01_ses-1' and 'sub-01_ses-2'" in fault.what
    assert not [*id_faults(renamed(world, first="01_ses-1", third="01_ses-2"))]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "10"),
        ("sub-01", "sub-10"),
        ("NYU_1", "UM_1"),
        ("1-11", "11-1"),
        ("s1.05", "s1.5x"),
        ("100", "1"),
        ("a", "á"),
        ("HC10001", "SZ10001"),
        ("NCT01234567_001", "NCT01234567_002"),
        ("01_20190101", "02_20190101"),
        ("sub-01_20190101", "sub-10_20190101"),
        ("UM_1_50272", "UM_2_50272"),
        ("sub-50279", "sub-50280"),
    ],
)
def test_other_ids_are_no_warning(world, one, other):
    assert list(id_faults(renamed(world, first=one, second=other))) == []


def test_many_pairs_of_one_site_are_one_warning(world):
    rows = np.flatnonzero(world.site == world.site_names[0])[:20]
    ids = world.subject_id.astype(object)
    ids[rows] = [*(f"{k:02d}" for k in range(10)), *(f"{k}" for k in range(10))]
    (fault,) = id_faults(replace(world, subject_id=np.array(ids.tolist())))
    assert "'00' and '0', '01' and '1', '02' and '2' and 7 more." in fault.what


# -- two sites -------------------------------------------------------------------------------------
def test_long_numbers_at_two_sites_are_a_warning(world):
    (fault,) = id_faults(renamed(world, first="0050286", third="50286"))
    one, other = world.site_names[:2]
    assert f"(sites '{one}' and '{other}')" in fault.what
    assert fault.site == ""


@pytest.mark.parametrize("widths", [(1, 2, 3, 4), (2, 1, 2, 1), (3, 1, 1, 1)])
def test_hospitals_may_count_their_people_from_one(world, widths):
    """In two sites of the same width ids are equal, hence the site in front."""
    for seed in range(5):
        people = numbered(world, widths, seed)
        assert list(id_faults(people)) == []


def test_a_site_that_is_there_twice_is_found_by_its_scans(world):
    """Other scans of the same people, so that no two are duplicates."""
    one, other = world.site_names[:2]
    n = min((world.site == one).sum(), (world.site == other).sum())
    rows = np.concatenate([np.flatnonzero(world.site == s)[:n] for s in (one, other)])
    both = world.select(rows)
    fc = both.fc.copy()
    fc[n:] = 0.6 * fc[:n] + 0.4 * fc[n:]
    ids = np.array([*(f"{k:03d}" for k in range(n)), *(f"{k}" for k in range(n))])
    twice = replace(both, fc=fc, subject_id=ids)
    assert len(find_duplicates(fc[:n], ids[:n], fc[n:], ids[n:])) == 0
    (fault,) = id_faults(twice)
    assert "and their scans are alike: '000' and '0', '001' and '1'" in fault.what
    assert f"(sites '{one}' and '{other}')" in fault.what
    others = replace(twice, subject_id=np.array([*ids[:n], *np.roll(ids[n:], 7)]))
    assert list(id_faults(others)) == []


def test_scans_that_are_not_finite_are_not_compared(world):
    people = numbered(world, (1, 2, 3, 4))
    fc = people.fc.copy()
    fc[0, 0, 1] = np.nan
    assert list(id_faults(replace(people, fc=fc))) == []


def test_five_digits_count_in_one_number(world):
    """Year and number: 20 people at each of two hospitals."""
    ids = world.subject_id.astype(object)
    for site, prefix in zip(world.site_names, ("", "sub-"), strict=False):
        rows = np.flatnonzero(world.site == site)[:20]
        ids[rows] = [f"{prefix}2019-{k:02d}" for k in range(1, 21)]
    assert list(id_faults(replace(world, subject_id=np.array(ids.tolist())))) == []


@pytest.mark.parametrize("spelling", ["0050003", "SUB-50003", "sub-0050003", "Pitt_0050003"])  # fmt: skip
def test_a_long_number_of_two_tables_is_found(spelling):
    assert shared_long_numbers(["50002", "50003"], ["x", spelling]) == [(1, 1)]
    assert shared_long_numbers([spelling], ["50003"]) == [(0, 0)]


@pytest.mark.parametrize(
    ("ids", "others"),
    [
        (["sub-01", "00003"], ["1", "3"]),
        (["01_20190101"], ["20190101_07"]),
        (["HC10001", "SZ10001"], ["AN10001"]),
        (["NCT01234567_1", "NCT01234567_2"], ["NCT01234567_7"]),
    ],
)
def test_other_people_of_two_tables_share_nothing(ids, others):
    assert shared_long_numbers(ids, others) == []
    assert shared_long_numbers(others, ids) == []


def test_letters_count_where_one_table_has_a_number_twice():
    people = ["HC10001", "SZ10001"]
    assert shared_long_numbers(people, ["hc-010001"]) == [(0, 0)]
    assert shared_long_numbers(["sz10001"], people) == [(0, 1)]


def test_letters_may_be_missing_or_abbreviated():
    (keys,) = person_keys(["50279", "Pitt_50279", "Pittsburgh 50279", "subj50279"])
    assert keys == ["50279"] * 4


def test_by_hand():
    assert bare_id("  ") == plain_id("  ") == ""
    assert plain_id("sub-0") == "0"
    assert plain_id("sub-") == "sub-"
    assert plain_id("subject01") == plain_id("Subject1")
    assert plain_id("１２") == "12"


# -- ABIDE -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["abide1_aal116", "abide1_aal116_dparsf"])
def test_no_false_alarm_on_abide(shared_data, name):
    cohort = load_folder(shared_data / f"{name}.npz")
    assert list(id_faults(cohort)) == []
    n_sites = len(cohort.site_names)
    for seed in range(3):  # every site counts from 1, with or without zeros
        widths = tuple(np.random.default_rng(seed).choice([1, 2, 3, 4], n_sites))
        assert list(id_faults(numbered(cohort, widths, seed))) == []


def test_a_site_of_abide_by_two_preprocessings_is_found(shared_data):
    """The same people under two names of a site, without leading zeros in one of them."""
    one, other = (
        load_folder(shared_data / f"abide1_aal116{x}.npz") for x in ("", "_dparsf")
    )
    both = sorted({*one.subject_id.tolist()} & {*other.subject_id.tolist()})
    one, other = (
        people.select(np.isin(people.subject_id, both) & (people.site == "NYU"))
        for people in (one, other)
    )
    ids = one.subject_id.tolist()
    short = {subject: k for k, subject in enumerate(ids)}  # as if counted from 0
    twice = replace(
        one,
        fc=np.concatenate([one.fc, other.fc]),
        y=np.concatenate([one.y, other.y]),
        site=np.array(["NYU"] * len(one) + ["New York"] * len(other)),
        subject_id=np.array(
            [f"{short[s]:04d}" for s in ids]
            + [f"{short[s]}" for s in other.subject_id.tolist()]
        ),
        covariates={},
    )
    (fault,) = id_faults(twice)
    assert "their scans are alike" in fault.what


@pytest.mark.parametrize(
    "code",
    [
        "c3f50003ab9f12d4",
        "SUB-C3F50003AB9F12D4",
        "3f2504e0-4f89-11d3-9a0c-0305e8250003",
        "9" * 5 + "a" * 27,
    ],
)
def test_a_hash_has_no_persons_number(code):
    assert shared_long_numbers([code], ["50003", "99999", "9", "12"]) == []
    assert person_keys([code]) == person_keys([code.upper()])
    assert person_keys(["sub-00000000000050003", "0000000000050003"]) == [["50003"] * 2]
