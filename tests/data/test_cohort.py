"""A cohort: sites merged and picked, its hash, upper triangles."""

from dataclasses import replace

import numpy as np
import pytest
from small_cohorts import small

from fcforge.core.errors import ConfigError, DataError
from fcforge.data.checks import check_cohort
from fcforge.data.cohort import Cohort
from fcforge.data.edges import fc_from_upper, upper_from_fc
from fcforge.data.faults import Fault


def test_merge_and_select_sites():
    cohort = small(n=40, sites=("UM_1", "NYU", "UM_2", "X"))
    merged = cohort.merge_sites({"UM": ["UM_1", "UM_2"]}).select_sites(["NYU", "UM"])
    assert merged.site_names == ("NYU", "UM")
    assert [(merged.site == s).sum() for s in merged.site_names] == [10, 20]
    age = dict(zip(cohort.subject_id, cohort.covariates["age"], strict=True))
    assert [age[s] for s in merged.subject_id] == merged.covariates["age"].tolist()


def test_unknown_sites_are_named():
    with pytest.raises(ConfigError, match=r"unknown site 'AA'.*Known: A, B"):
        small().select_sites(["AA"])
    with pytest.raises(ConfigError, match="unknown site to merge 'C'"):
        small().merge_sites({"X": ["A", "C"]})
    for names in ([], ["A", "A"]):
        with pytest.raises(ConfigError, match="Name each site once"):
            small().select_sites(names)
    with pytest.raises(ConfigError, match="names a site twice"):
        small().merge_sites({"X": ["A"], "Y": ["A"]})


def test_content_hash_ignores_row_order_and_sees_every_field():
    cohort = small()
    order = np.random.default_rng(1).permutation(20)
    assert cohort.select(order).content_sha256() == cohort.content_sha256()
    label = 1 - cohort.y
    site = np.roll(cohort.site, 1)
    changed = [replace(cohort, y=label), replace(cohort, site=site)]
    changed.append(replace(cohort, fc=cohort.fc + np.float32(1e-6)))
    hashes = {c.content_sha256() for c in [cohort, *changed]}
    assert len(hashes) == 4


def test_upper_triangle_by_hand():
    fc = fc_from_upper(np.array([[0.1, 0.2, 0.3]], dtype=np.float16))
    expected = [[1, 0.1, 0.2], [0.1, 1, 0.3], [0.2, 0.3, 1]]
    np.testing.assert_allclose(fc[0], expected, atol=1e-3)
    np.testing.assert_allclose(upper_from_fc(fc)[0], [0.1, 0.2, 0.3], atol=1e-3)


@pytest.mark.parametrize("n_rois", [2, 3, 90, 116, 200, 1000])
def test_roi_count_from_edges(n_rois):
    assert fc_from_upper(np.zeros((1, n_rois * (n_rois - 1) // 2))).shape == (
        1,
        n_rois,
        n_rois,
    )


@pytest.mark.parametrize("n_edges", [0, 2, 6671, 6669])
def test_edges_that_are_no_triangle(n_edges):
    with pytest.raises(DataError, match=f"{n_edges} edges"):
        fc_from_upper(np.zeros((1, n_edges)))


def test_a_covariate_becomes_the_target():
    """Ages 5, 35 and 65 between 5 and 65 are -1, 0 and 1; who has none is left out."""
    ages = np.array([5.0, 35.0, np.nan, 65.0])
    fc = np.repeat(np.eye(3, dtype=np.float32)[None], 4, 0)
    words = np.array(list("abcd"))
    people = Cohort("made", fc, np.zeros(4, int), words, words, (), {"age": ages})
    found = people.of_number("age", (5, 65))
    assert found.y.tolist() == [-1, 0, 1]
    assert found.target.restored(found.y).tolist() == [5, 35, 65]
    assert (found.target.kind, found.target.outputs) == ("number", 1)
    assert "1 subject left out (no age)" in found.faults[0].what
    assert "age" not in found.covariates  # nothing can be removed for it
    for name, limits in (("height", (0, 1)), ("age", (65, 5))):
        with pytest.raises(ConfigError, match=name):
            people.of_number(name, limits)
    outside = people.of_number("age", (5, 60))
    told = [str(f) for f in check_cohort(outside) if f.subject == "d"]
    assert any("age 65 is not in 5 to 60." in what for what in told)


def _number_faults(cohort):
    return [f for f in check_cohort(cohort) if f.what.startswith("age")]


def test_a_number_outside_its_limits_is_not_a_matter_of_groups():
    (fault,) = _number_faults(small().of_number("age", (0, 18)))
    assert (fault.subject, fault.what) == ("s19", "age 19 is not in 0 to 18.")
    assert "Widen limits" in fault.do
    assert "leave_out" in fault.do
    assert "positive" not in fault.do


@pytest.mark.parametrize("limits", [(0, np.inf), (-np.inf, 5), (np.nan, 5)])
def test_limits_are_finite(limits):
    with pytest.raises(
        ConfigError, match=r"limits.* of target 'age' are not two finite"
    ):
        small().of_number("age", limits)


def test_a_number_in_words_is_named():
    people = small(4)
    ages = np.array(["n/a", "k.A.", "12;5", "13"])
    words = r"covariate 'age' holds text \(k.A., 12;5\)"
    with pytest.raises(DataError, match=words):
        replace(people, covariates={"age": ages}).of_number("age", (5, 65))


def test_who_is_left_out_has_no_bad_value():
    """Neither a word for an age, nor what a loader found of somebody, is asked for any more."""
    ages = np.array(["n/a", "12", "12;5", "13"])
    people = replace(small(4), covariates={"age": ages})
    people = replace(people, faults=(Fault("error", "unknown", subject="s02"),))
    found = people.without(["s02"]).of_number("age", (5, 65))
    assert found.subject_id.tolist() == ["s01", "s03"]
    np.testing.assert_array_equal(found.target.restored(found.y), [12, 13])
    assert [fault.what for fault in found.faults] == ["1 subject left out (no age)."]


def test_one_number_for_everybody_is_an_error():
    same = replace(small(), covariates={"age": np.full(20, 12.0)})
    (fault,) = _number_faults(same.of_number("age", (5, 65)))
    assert fault.severity == "error"
    assert "age is the same for everybody (12)" in fault.what
    assert not _number_faults(small().of_number("age", (0, 19)))


@pytest.mark.parametrize(
    ("first", "second", "warned"),
    [
        ((0, 1), (1, 2), True),
        ((0, 0), (1, 2), True),
        ((1, 2), (1, 2), False),
        ((1, 1), (2, 2), False),
        ((1, 2), (1, 3), True),
        ((1, 2), (2, np.nan), False),
        (("m", "w"), ("1.0", "2.0"), True),
    ],
)
def test_sites_that_code_the_sex_in_other_ways_are_a_warning(first, second, warned):
    people = small()
    one = people.site == people.site_names[0]
    odd = np.where(one, one.cumsum(), (~one).cumsum()) % 2
    sex = np.where(one, np.array(first)[odd], np.array(second)[odd])
    faults = check_cohort(replace(people, covariates={"sex": sex}))
    about_sex = [fault for fault in faults if "'sex'" in fault.what]
    assert len(about_sex) == warned
    if warned:
        assert about_sex[0].severity == "warning"
        assert all(
            f"at site '{name}'" in about_sex[0].what for name in people.site_names
        )


def test_sites_that_no_reader_tells_apart_are_refused():
    people = small()
    one, other = people.site_names
    hidden = np.where(people.site == one, "NYU", "NYU\u200b")
    faults = check_cohort(replace(people, site=hidden))
    (about_names,) = [f for f in faults if "differ in case" in f.what]
    assert "'NYU' and 'NYU\\u200b'" in about_names.what
    assert about_names.severity == "error"
    padded = np.where(people.site == other, "01", "1")
    about_names = [
        f for f in check_cohort(replace(people, site=padded)) if "alike" in f.what
    ]
    assert [fault.severity for fault in about_names] == ["warning"]
    assert "'01' and '1' look alike" in about_names[0].what
