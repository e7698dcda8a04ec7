"""Datasets by name; what is wrong with one is said subject by subject; one scan under two ids."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from small_cohorts import small, tiny, write_npz

from fcforge.core.component import Component
from fcforge.core.errors import ConfigError, DataError
from fcforge.data.checks import check_cohort, require_valid, without_duplicates
from fcforge.data.cohort import Cohort
from fcforge.data.datasets import DATASETS, load_dataset
from fcforge.data.duplicates import find_duplicates
from fcforge.data.faults import Fault
from fcforge.data.folder import load_folder
from fcforge.data.simulated import simulate
from fcforge.data.splits import make_sites, split_site


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
    assert "ROI 3 without signal" in found.what
    require_valid(cohort)


def test_flat_rois_of_a_subject_are_one_warning():
    def change(m):
        m[:2] = m[:, :2] = 0
        m[[0, 1], [0, 1]] = 1

    found = only(check_cohort(with_fc(small(), 3, change)))
    assert found.subject == "s03"
    assert "ROIs 1, 2 without signal" in found.what


def test_asymmetric():
    def change(m):
        m[0, 1] += 0.01

    found = only(check_cohort(with_fc(small(), 0, change)))
    assert found.severity == "error"
    assert "not symmetric (largest difference 0.01)" in found.what


def test_beyond_one():
    def change(m):
        m[0, 1] = m[1, 0] = 1.2

    assert "beyond 1" in only(check_cohort(with_fc(small(), 0, change))).what

    def rounding(m):
        m[0, 1] = m[1, 0] = 1 + 5e-5

    assert check_cohort(with_fc(small(), 0, rounding)) == []


def test_diagonal_is_not_one():
    def change(m):
        m[3, 3] = 0

    assert (
        "diagonal is not 1 (0 at ROI 4)"
        in only(check_cohort(with_fc(small(), 0, change))).what
    )


def test_a_diagonal_of_zeros_may_be_of_fisher_z():
    def without(m):
        np.fill_diagonal(m, 1e-16)

    fault = only(check_cohort(with_fc(small(), 0, without)))
    assert fault.what == "the diagonal is 0, not 1."
    assert "--kind fisher_z" in fault.do

    for value, says in (
        (7.25, "is not 1 (7.25 at ROI 1)"),
        (np.inf, "holds NaN or infinity"),
    ):
        filled = with_fc(small(), 0, lambda m, value=value: np.fill_diagonal(m, value))
        fault = only(check_cohort(filled))
        assert fault.what == f"the diagonal {says}."
        assert "--kind fisher_z" in fault.do

    def beyond(m):
        without(m)
        m[0, 1] = m[1, 0] = 1.3

    assert "beyond 1" in only(check_cohort(with_fc(small(), 0, beyond))).what


def test_two_rois_are_not_flat():
    assert check_cohort(small(n_rois=2)) == []


def test_wrong_roi_count():
    assert "5 ROIs, 116 were expected" in only(check_cohort(small(), n_rois=116)).what


def test_one_class_site():
    cohort = small()
    label = np.where(cohort.site == "B", 0, cohort.y)
    found = only(check_cohort(replace(cohort, y=label)))
    assert (found.severity, found.site, found.subject) == ("error", "B", "")
    assert "has no patients (10 controls, 0 patients)" in found.what


def test_a_site_that_is_not_to_be_split_may_have_one_class():
    cohort = replace(small(), y=np.where(small().site == "A", 0, small().y))
    assert [f.site for f in check_cohort(cohort) if f.severity == "error"] == ["A"]
    (found,) = check_cohort(cohort, to_split=False)
    assert (found.severity, found.site) == ("warning", "A")
    require_valid(cohort, to_split=False)
    with pytest.raises(DataError, match="site 'A'"):
        require_valid(cohort)


def test_tiny_site():
    cohort = small()
    few = cohort.select(np.flatnonzero((cohort.site == "A") | (np.arange(20) < 12)))
    found = only(check_cohort(few))
    assert found.site == "B"
    assert "too small (3 controls, 3 patients" in found.what


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


@pytest.mark.parametrize("value", [2, -1])
def test_unknown_label(value):
    cohort = small(n=40)
    label = cohort.y.copy()
    label[5] = value
    found = only(check_cohort(replace(cohort, y=label)))
    assert found.subject == "s05"
    assert f"unknown label {value}" in found.what


def test_sites_that_differ_in_case_alone():
    cohort = small(n=40, sites=("NYU", "nyu"))
    found = only(check_cohort(cohort))
    assert found.severity == "error"
    assert "'NYU' and 'nyu'" in found.what
    assert "dataset.merge" in found.do
    assert not check_cohort(cohort.merge_sites({"NYU": ["nyu"]}))


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
    assert (
        str(check_cohort(cohort)[0])
        == "site 'A' subject 'y': is cut off. Make it again."
    )


def test_require_valid_says_the_same_complaint_once():
    cohort = small()
    fc = cohort.fc.copy()
    fc[:7, 0, 1] = np.nan
    with pytest.raises(DataError) as caught:
        require_valid(replace(cohort, fc=fc))
    text = str(caught.value)
    assert "'small' has 1 error" in text
    assert "7 subjects (s00, s01, s02, s03, s04 and 2 more)" in text


def test_require_valid_lists_the_first_errors():
    cohort = small()
    fc = cohort.fc.copy()
    fc[:7, 0, 1] += np.linspace(0.1, 0.2, 7)  # each differs in its own way
    with pytest.raises(DataError) as caught:
        require_valid(replace(cohort, fc=fc))
    text = str(caught.value)
    assert "'small' has 7 errors" in text
    assert text.count("\n  - ") == 5
    assert "and 2 more" in text


def with_twin(n_rois: int = 30, mix: float = 0.1) -> Cohort:
    """Two sites; the second subject's FC is nearly the first one's."""
    cohort = simulate(n_rois=n_rois, n_sites=2, scale=0.3)
    fc = cohort.fc.copy()
    fc[1] = (1 - mix) * fc[0] + mix * fc[1]
    return replace(cohort, fc=fc)


def splits(cohort: Cohort, allow: bool = False) -> list[bool]:
    """Over ten seeds: whether the first site can be split."""
    done = []
    for seed in range(10):
        try:
            split_site(
                replace(cohort, allow_duplicates=allow), cohort.site_names[0], seed
            )
            done.append(True)
        except DataError:
            done.append(False)
    return done


def test_a_pair_is_found_and_told():
    cohort = with_twin()
    ((one, other, r),) = cohort.duplicates
    assert (one, other) == tuple(cohort.subject_id[:2])
    assert 0.95 < r < 1
    (said,) = [f for f in check_cohort(cohort) if "looks like the scan" in f.what]
    assert (said.severity, said.subject) == ("warning", other)
    assert f"leave_out = ['{other}']" in said.do


@pytest.mark.parametrize("n_rois", [12, 116])
def test_copies_are_errors(n_rois):
    cohort = with_twin(n_rois, mix=0.0)
    (said,) = [f for f in check_cohort(cohort) if f.subject == cohort.subject_id[1]]
    assert (said.severity, "looks like the scan" in said.what) == ("error", True)
    assert f"'{cohort.subject_id[0]}' (edges correlate 1.000)" in said.what
    rounded = replace(cohort, fc=cohort.fc.astype(np.float16).astype(np.float32))
    rounded.fc[0] = cohort.fc[0]
    with pytest.raises(DataError, match="1 error"):
        require_valid(rounded)


def test_of_few_rois_only_exact_copies_are_found():
    assert with_twin(6, mix=0.001).duplicates == []
    cohort = with_twin(6, mix=0.0)
    ((one, other, _),) = cohort.duplicates
    assert (one, other) == tuple(cohort.subject_id[:2])
    assert not all(splits(cohort))
    with pytest.raises(DataError, match="1 error"):
        require_valid(cohort)


def test_refused_when_one_is_tested_and_the_other_trained_on():
    cohort = with_twin()
    done = splits(cohort)
    assert True in done  # both on one side
    with pytest.raises(
        DataError, match=r"look like one scan .*leave_out = \['Sim-NYU-0002'\]"
    ):
        split_site(cohort, cohort.site_names[0], done.index(False))
    assert all(splits(cohort, allow=True))


def test_refused_across_sites():
    cohort = with_twin()
    site = cohort.site.copy()
    site[1] = cohort.site_names[1]
    moved = replace(cohort, site=site)
    tested = {
        seed: [
            s.subject_ids["test"].count(i)
            for s in make_sites(replace(moved, allow_duplicates=True), seed).values()
            for i in moved.subject_id[:2]
        ]
        for seed in range(10)
    }
    apart = [seed for seed, counts in tested.items() if sum(counts) == 1]
    together = [seed for seed, counts in tested.items() if sum(counts) != 1]
    assert apart
    assert together
    with pytest.raises(DataError, match="one in training and one in test"):
        make_sites(moved, apart[0])
    assert make_sites(moved, together[0])
    assert make_sites(moved.select_sites([cohort.site_names[0]]), apart[0])


def test_settings_of_every_dataset():
    plain = {"n_rois": 6, "n_sites": 2, "scale": 0.2}
    whole = load_dataset(Component("simulated", plain))
    gone = whole.subject_id[:2].tolist()
    less = load_dataset(Component("simulated", {**plain, "leave_out": gone}))
    assert len(less) == len(whole) - 2
    assert not set(gone) & set(less.subject_id.tolist())
    assert less.content_sha256() != whole.content_sha256()
    allowed = load_dataset(Component("simulated", {**plain, "allow_duplicates": True}))
    assert allowed.allow_duplicates
    assert allowed.content_sha256() == whole.content_sha256()
    with pytest.raises(ConfigError, match="unknown subject to leave out 'nobody'"):
        load_dataset(Component("simulated", {**plain, "leave_out": ["nobody"]}))
    with pytest.raises(ConfigError, match="Did you mean 'allow_duplicates'"):
        load_dataset(Component("simulated", {**plain, "allow_duplicate": True}))
    with pytest.raises(ConfigError, match="is not true or false"):
        load_dataset(Component("simulated", {**plain, "allow_duplicates": "yes"}))


@pytest.mark.data
def test_the_three_pairs_of_abide(shared_data):
    cohort = load_folder(shared_data / "abide1_aal116_dparsf.npz")
    pairs = {frozenset(pair[:2]) for pair in cohort.duplicates}
    known = {("50279", "50286"), ("50578", "50602"), ("50805", "50808")}
    assert pairs == {frozenset(pair) for pair in known}
    less, gone = without_duplicates(cohort)
    assert gone == ["50286", "50602", "50808"]
    assert len(less) == len(cohort) - 3
    checked = load_folder(shared_data / "abide1_aal116.npz")
    assert {frozenset(p[:2]) for p in checked.duplicates} == {
        frozenset(("50578", "50602"))
    }
    np.testing.assert_allclose([p[2] for p in checked.duplicates], [0.939], atol=2e-3)


def test_a_copy_with_noise_is_found_and_strangers_are_not():
    made = simulate("realistic", n_rois=20, n_sites=2, scale=0.2)
    assert find_duplicates(made.fc, made.subject_id) == []
    fc = made.fc.copy()
    fc[7] = np.clip(
        fc[2] + np.random.default_rng(0).normal(0, 0.005, fc[2].shape), -1, 1
    )
    (pair,) = find_duplicates(fc, made.subject_id)
    assert (pair.first, pair.second) == (made.subject_id[2], made.subject_id[7])
    assert 0.98 < pair.correlation < 1


def test_across_by_scan_or_by_id():
    made = simulate("realistic", n_rois=20, n_sites=2, scale=0.2)
    a, b = made.select(np.arange(10)), made.select(np.arange(10, 20))
    assert find_duplicates(a.fc, a.subject_id, b.fc, b.subject_id) == []
    assert (
        len(
            find_duplicates(
                a.fc, a.subject_id, b.fc, np.array([a.subject_id[0], *b.subject_id[1:]])
            )
        )
        == 1
    )
    again = np.concatenate([a.fc[:1], b.fc[1:]])
    assert (
        find_duplicates(a.fc, a.subject_id, again, b.subject_id)[0].first
        == a.subject_id[0]
    )


def test_a_constant_scan_is_nobodys_twin():
    flat = np.stack([np.eye(5), np.eye(5)]).astype(np.float32)
    assert find_duplicates(flat, np.array(["a", "b"])) == []


def test_registry():
    assert {"simulated", "folder"} <= set(DATASETS)
    made = load_dataset(Component("simulated", {"n_rois": 8, "scale": 0.05}))
    assert made.n_rois == 8
    with pytest.raises(
        ConfigError, match=r"unknown dataset 'simulatd'. Did you mean 'simulated'"
    ):
        load_dataset(Component("simulatd"))
    with pytest.raises(ConfigError, match=r"'n_roi'. Did you mean 'n_rois'"):
        load_dataset(Component("simulated", {"n_roi": 8}))
    with pytest.raises(ConfigError, match=r"dataset 'folder' needs 'path'"):
        load_dataset(Component("folder"))


def test_listing_datasets_imports_neither_torch_nor_scipy_nor_pandas(tmp_path):
    path = write_npz(tmp_path / "d.npz", tiny())
    code = (
        "import sys; from fcforge.data.checks import check_cohort;from fcforge.data.datasets import DATASETS;"
        f"check_cohort(DATASETS['folder'].loader(path={str(path)!r}));"
        "print([m for m in ('torch', 'scipy', 'pandas', 'nilearn') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
