"""Every kind of bad input gives its own finding; a good cohort gives none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fcforge.errors import ConfigError, DataError
from fcforge.sites import Cohort, Fault, check_cohort, require_valid
from fcforge.sites.cohort import fc_from_upper, n_rois_of_edges, upper_from_fc


def small(n: int = 20, n_rois: int = 5, sites: tuple[str, ...] = ("A", "B")) -> Cohort:
    rng = np.random.default_rng(0)
    series = rng.standard_normal((n, 40, n_rois))
    fc = np.stack([np.corrcoef(x.T) for x in series]).astype(np.float32)
    fc[:, np.arange(n_rois), np.arange(n_rois)] = 1
    return Cohort(
        name="small",
        fc=fc,
        y=np.arange(n) // len(sites) % 2,
        site=np.array([sites[i % len(sites)] for i in range(n)]),
        subject_id=np.array([f"s{i:02d}" for i in range(n)]),
        covariates={"age": np.arange(n, dtype=float)},
    )


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
def test_flat_roi_is_a_warning_unless_asked(constant):
    def change(m):
        m[2, :] = m[:, 2] = constant
        m[2, 2] = 1

    cohort = with_fc(small(), 3, change)
    found = only(check_cohort(cohort))
    assert (found.severity, found.subject) == ("warning", "s03")
    assert "1 ROI without signal (ROI 3)" in found.what
    require_valid(cohort)
    assert only(check_cohort(cohort, flat_roi="error")).severity == "error"


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
    assert check_cohort(few, min_per_site=6, min_per_class=3) == []


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
    with pytest.raises(ConfigError, match="merged into both"):
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
    assert cohort.stamped(path="x").provenance["content_sha256"] == cohort.content_sha256()


def test_upper_triangle_by_hand():
    fc = fc_from_upper(np.array([[0.1, 0.2, 0.3]], dtype=np.float16))
    expected = [[1, 0.1, 0.2], [0.1, 1, 0.3], [0.2, 0.3, 1]]
    np.testing.assert_allclose(fc[0], expected, atol=1e-3)
    np.testing.assert_allclose(upper_from_fc(fc)[0], [0.1, 0.2, 0.3], atol=1e-3)


@pytest.mark.parametrize("n_rois", [2, 3, 90, 116, 200, 1000])
def test_roi_count_from_edges(n_rois):
    assert n_rois_of_edges(n_rois * (n_rois - 1) // 2) == n_rois


@pytest.mark.parametrize("n_edges", [0, 2, 6671, 6669])
def test_edges_that_are_no_triangle(n_edges):
    with pytest.raises(DataError, match=f"{n_edges} edges"):
        n_rois_of_edges(n_edges)
