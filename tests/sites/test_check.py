"""What is wrong with a dataset is said subject by subject."""

from dataclasses import replace

import numpy as np
import pytest
from small_cohorts import small

from fcforge.errors import DataError
from fcforge.sites import Cohort, Fault, check_cohort, require_valid


def with_fc(cohort: Cohort, subject: int, change) -> Cohort:
    fc = cohort.fc.copy()
    change(fc[subject])
    return replace(cohort, fc=fc)


def only(findings: list[Fault]) -> Fault:
    assert len(findings) == 1, [str(f) for f in findings]
    return findings[0]


def test_good_cohort_has_no_findings():
    assert check_cohort(small(), n_rois=5) == []
    require_valid(small())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite(value):
    def change(m):
        m[1, 3] = m[3, 1] = value

    found = only(check_cohort(with_fc(small(), 4, change)))
    assert (found.severity, found.subject, found.site) == ("error", "s04", "A")
    assert "2 FC values are NaN or infinite (ROI 2, 4)" in found.what


@pytest.mark.parametrize("constant", [0.0, 0.25])
def test_flat_roi_is_a_warning(constant):
    def change(m):
        m[2, :] = m[:, 2] = constant
        m[2, 2] = 1

    cohort = with_fc(small(), 3, change)
    found = only(check_cohort(cohort))
    assert (found.severity, found.subject) == ("warning", "s03")
    assert "1 ROI without signal (ROI 3)" in found.what
    require_valid(cohort)


def test_asymmetric():
    def change(m):
        m[0, 1] += 0.01

    found = only(check_cohort(with_fc(small(), 0, change)))
    assert found.severity == "error"
    assert "not symmetric (largest difference 0.01)" in found.what


def test_beyond_one():
    def change(m):
        m[0, 1] = m[1, 0] = 1.2

    assert "|r| = 1.2" in only(check_cohort(with_fc(small(), 0, change))).what

    def rounding(m):
        m[0, 1] = m[1, 0] = 1 + 5e-5

    assert check_cohort(with_fc(small(), 0, rounding)) == []


def test_diagonal_is_not_one():
    def change(m):
        m[3, 3] = 0

    assert "diagonal is not 1 (0 at ROI 4)" in only(check_cohort(with_fc(small(), 0, change))).what


def test_two_rois_are_not_flat():
    assert check_cohort(small(n_rois=2)) == []


def test_wrong_roi_count():
    assert "5 ROIs, 116 were expected" in only(check_cohort(small(), n_rois=116)).what


def test_not_square():
    cohort = replace(small(), fc=np.zeros((20, 5, 4), dtype=np.float32))
    assert "shape (20, 5, 4)" in only(check_cohort(cohort)).what


def test_rows_do_not_match():
    cohort = small()
    assert "'site' has 19 rows" in only(check_cohort(replace(cohort, site=cohort.site[:-1]))).what
    short = replace(cohort, covariates={"age": np.zeros(3)})
    assert "'age' has 3 rows" in only(check_cohort(short)).what


def test_one_class_site():
    cohort = small()
    label = np.where(cohort.site == "B", 0, cohort.y)
    found = only(check_cohort(replace(cohort, y=label)))
    assert (found.severity, found.site, found.subject) == ("error", "B", "")
    assert "controls only (10 subjects)" in found.what


def test_tiny_site():
    cohort = small()
    few = cohort.select(np.flatnonzero((cohort.site == "A") | (np.arange(20) < 12)))
    found = only(check_cohort(few))
    assert found.site == "B"
    assert "too small (3 patients, 3 controls" in found.what


def test_site_without_name():
    cohort = small()
    cohort = replace(cohort, site=np.where(cohort.site == "B", "", cohort.site))
    assert "10 subjects have no site" in only(check_cohort(cohort)).what


def test_duplicate_subject():
    cohort = small()
    ids = cohort.subject_id.copy()
    ids[7] = "s03"
    found = only(check_cohort(replace(cohort, subject_id=ids)))
    assert (found.subject, found.severity) == ("s03", "error")
    assert "appears 2 times" in found.what


def test_duplicate_fc():
    cohort = small()
    fc = cohort.fc.copy()
    fc[9] = fc[2]
    found = only(check_cohort(replace(cohort, fc=fc)))
    assert found.subject == "s09"
    assert "exactly the FC of subject 's02'" in found.what


@pytest.mark.parametrize("value", [2, -1])
def test_unknown_label(value):
    cohort = small(n=40)
    label = cohort.y.copy()
    label[5] = value
    found = only(check_cohort(replace(cohort, y=label)))
    assert found.subject == "s05"
    assert f"unknown label {value}" in found.what


def test_empty():
    cohort = small().select(np.array([], dtype=int))
    assert "no subject" in only(check_cohort(cohort)).what


def test_findings_of_the_loader_are_reported_and_errors_come_first():
    cohort = replace(
        small(),
        faults=(
            Fault("warning", "odd", subject="x"),
            Fault("error", "is cut off.", "Make it again.", "y", "A"),
        ),
    )
    assert [f.severity for f in check_cohort(cohort)] == ["error", "warning"]
    assert str(check_cohort(cohort)[0]) == "site 'A' subject 'y': is cut off. Make it again."


def test_require_valid_lists_the_first_errors():
    cohort = small()
    fc = cohort.fc.copy()
    fc[:7, 0, 1] = np.nan
    with pytest.raises(DataError) as caught:
        require_valid(replace(cohort, fc=fc))
    text = str(caught.value)
    assert "'small' has 7 errors" in text
    assert text.count("NaN") == 5
    assert "and 2 more" in text
