"""Diagnoses: words that say it, groups that are named, and more than two of them."""

import pytest

from fcforge.messages import DataError
from fcforge.sites.diagnoses import Groups, label_of


@pytest.mark.parametrize(
    ("value", "column", "label"),
    [
        *((value, "", 1) for value in ("1", "ASD", "mdd", "Patient", " SZ ", "BP")),
        *((value, "", 1) for value in ("PDD-NOS", "ADHD-C", "Schizoaffective")),
        *((value, "", 0) for value in ("0", "HC", "control", "TC", "TDC")),
        ("2", "DX_GROUP", 0),
    ],
)
def test_known_diagnoses(value, column, label):
    assert label_of(value, column) == label
    assert Groups.of([value], column=column).label(value) == label


def test_two_means_nothing_elsewhere():
    with pytest.raises(DataError, match=r"diagnosis '2'.*patients: 1, asd"):
        label_of("2", "group")


THREE = ["ASD", "ASD", "ADHD", "HC"]


def test_three_diagnoses_are_refused_by_name():
    with pytest.raises(DataError, match=r"ADHD \(1\), ASD \(2\), HC \(1\)") as caught:
        Groups.of(THREE)
    assert "--negative" in caught.value.do


def test_two_of_three_are_compared_and_the_third_is_left_out():
    groups = Groups.of(THREE, "asd", "HC")
    assert [groups.label(value) for value in THREE] == [1, 1, None, 0]
    together = Groups.of(THREE, ["ASD", "ADHD"])  # the only other one is the controls
    assert [together.label(value) for value in THREE] == [1, 1, 1, 0]
    assert Groups.of(THREE, "ASD,ADHD", "HC") == together


def test_one_disorder_in_two_words_is_one():
    groups = Groups.of(["ASD", "autism", "TD", "HC"])
    assert [groups.label(v) for v in ("autism", "TD")] == [1, 0]


@pytest.mark.parametrize(
    ("positive", "negative", "match"),
    [
        ("ASD", None, "could be several"),
        ("MDD", "HC", "nobody has the diagnosis 'mdd'"),
        ("ASD", "TD", "nobody has the diagnosis 'td'"),
    ],
)
def test_groups_that_cannot_be_meant(positive, negative, match):
    with pytest.raises(DataError, match=match):
        Groups.of(THREE, positive, negative)


def test_bipolar_people_are_a_third_diagnosis_and_relatives_are_unknown_by_name():
    with pytest.raises(DataError, match=r"BP \(1\), HC \(1\), SZP \(2\)"):
        Groups.of(["HC", "SZP", "BP", "SZP"])
    with pytest.raises(DataError, match="unknown diagnosis 'SZR'"):
        Groups.of(["HC", "SZP", "SZR"]).label("SZR")


@pytest.mark.parametrize("value", ["", " ", "n/a", "NaN", "-9999", "#N/A", "."])
def test_no_diagnosis(value):
    for groups in (Groups(), Groups((("b",), ("a",)))):
        with pytest.raises(DataError, match="has no diagnosis"):
            groups.label(value)


def test_three_groups_controls_first():
    groups = Groups.of(THREE, classes=("HC", "ASD", "ADHD"))
    assert [groups.label(value) for value in THREE] == [1, 1, 2, 0]
    for wrong in ({"classes": ("HC", "ASD")}, {"classes": THREE, "positive": "ASD"}):
        with pytest.raises(DataError, match="three groups or more"):
            Groups.of(THREE, **wrong)
    with pytest.raises(DataError, match="nobody has the diagnosis 'bp'"):
        Groups.of(THREE, classes=("HC", "ASD", "BP"))


def test_of_groups_that_may_be_absent_one_is_there():
    groups = ("HC", "SZ", "BP")
    assert Groups.of(["HC"], classes=groups, partial=True).label("HC") == 0
    with pytest.raises(DataError, match=r"'hc' or 'sz' or 'bp'; there are: 0 \(2\)"):
        Groups.of(["0", "0"], classes=groups, partial=True)


@pytest.mark.parametrize(
    "how",
    [
        {"classes": ("HC", "ASD,ADHD", "ADHD")},
        {"classes": ("HC", "ADHD", "adhd")},
        {"positive": "ASD,ADHD", "negative": "HC,ADHD"},
    ],
)
def test_a_diagnosis_is_in_one_group_only(how):
    with pytest.raises(DataError, match="'adhd' is named in 2 groups"):
        Groups.of(THREE, **how)
