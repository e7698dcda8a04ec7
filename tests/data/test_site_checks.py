"""Sites that contradict the others: order of ROIs, hemispheres, diagnoses; few false alarms."""

from dataclasses import replace

import numpy as np
import pytest

from fcforge.core.errors import DataError
from fcforge.data.checks import check_cohort, data_warnings, not_positive, require_valid
from fcforge.data.cohort import Cohort
from fcforge.data.edges import fc_from_upper
from fcforge.data.faults import Fault
from fcforge.data.folder import load_folder
from fcforge.data.person_checks import comparison_faults
from fcforge.data.scan_checks import fisher_z, unlike_learned
from fcforge.data.simulated import simulate
from fcforge.data.site_checks import (
    CONSISTENT,
    _consistency,
    contrast,
    held_out_scores,
    scan_fault,
    site_faults,
)
from fcforge.data.splits import make_sites
from fcforge.estimator.inputs import layout_of
from fcforge.imaging.series import pearson_fc

PRESETS = ("easy", "realistic", "hard", "hard_shift", "systems")


@pytest.fixture(scope="module")
def world() -> Cohort:
    """Four sites with ROIs in pairs and a disorder that a linear classifier finds."""
    return simulate("easy", n_rois=24, seed=0)


def reordered(cohort: Cohort, site: str, order: np.ndarray) -> Cohort:
    fc = cohort.fc.copy()
    rows = np.flatnonzero(cohort.site == site)
    fc[rows] = fc[np.ix_(rows, order, order)]
    return replace(cohort, fc=fc)


def flipped(cohort: Cohort, site: str) -> Cohort:
    y = np.where(cohort.site == site, 1 - cohort.y, cohort.y)
    return replace(cohort, y=y)


def shuffled(n_rois: int, n_moved: int | None = None) -> np.ndarray:
    rng = np.random.default_rng(0)
    order = np.arange(n_rois)
    moved = rng.choice(n_rois, n_moved or n_rois, replace=False)
    order[moved] = rng.permutation(moved)
    return order


def only(faults: list[Fault]) -> Fault:
    assert len(faults) == 1, [str(fault) for fault in faults]
    return faults[0]


@pytest.mark.parametrize("preset", PRESETS)
def test_simulated_sites_raise_no_alarm(preset):
    for seed in range(3):
        cohort = simulate(preset, n_rois=24, seed=seed)
        assert list(site_faults(cohort)) == []


def test_another_order_of_rois_is_refused_by_site(world):
    site = world.site_names[2]
    wrong = reordered(world, site, shuffled(24))
    fault = only(list(site_faults(wrong)))
    assert (fault.severity, fault.site) == ("error", site)
    assert "does not resemble that of the other sites" in fault.what
    with pytest.raises(DataError, match=rf"site '{site}': its FC does not resemble"):
        require_valid(wrong)
    with pytest.raises(DataError, match="Check the atlas and the order of the ROIs"):
        make_sites(wrong, seed=0)


def test_an_unlike_site_can_be_allowed(world):
    wrong = reordered(world, world.site_names[0], shuffled(24))
    allowed = replace(wrong, allow_unlike_sites=True)
    require_valid(allowed)
    (line,) = data_warnings(allowed)
    assert line.startswith(f"WARNING: site '{world.site_names[0]}': its FC does not")


def test_two_sites_blame_each_other(world):
    pair = world.select_sites(world.site_names[:2])
    wrong = reordered(pair, pair.site_names[0], shuffled(24))
    faults = list(site_faults(wrong))
    assert [fault.site for fault in faults] == list(pair.site_names)
    assert "resemble that of the other site (" in faults[0].what


def test_of_three_unlike_sites_the_last_two_name_each_other(world):
    names = world.site_names[:3]
    wrong = world.select_sites(names)
    for seed, site in enumerate(names[:2]):
        order = np.random.default_rng(seed).permutation(24)
        wrong = reordered(wrong, site, order)
    texts = {fault.site: fault.what for fault in site_faults(wrong)}
    assert sorted(texts) == sorted(names)
    first = [site for site in names if "of the other sites (" in texts[site]]
    assert len(first) == 1
    one, two = (site for site in names if site not in first)
    assert f"resemble that of site '{two}' (" in texts[one]
    assert f"resemble that of site '{one}' (" in texts[two]


def test_swapped_diagnoses_are_a_warning(world):
    site = world.site_names[1]
    wrong = flipped(world, site)
    fault = only([f for f in check_cohort(wrong) if "look swapped" in f.what])
    assert (fault.severity, fault.site) == ("warning", site)
    assert fault.do == "Check which diagnosis means patient in the data of this site."
    require_valid(wrong)
    assert any("look swapped" in line for line in data_warnings(wrong))


def test_swapped_diagnoses_at_the_largest_of_the_papers_sites_are_found():
    """At the sizes of the paper's four sites, whose largest holds a third of all people."""
    world = simulate("realistic")
    for site in world.site_names:
        assert {f.site for f in site_faults(flipped(world, site))} == {site}


def test_a_number_with_its_sign_turned_is_a_warning(world):
    ages = 30 + 20 * world.y + np.random.default_rng(0).normal(size=len(world))
    site = world.site_names[0]
    turned = np.where(world.site == site, 80 - ages, ages)
    for values, expected in ((ages, []), (turned, [site])):
        cohort = replace(world, covariates={"age": values}).of_number("age", (0, 100))
        faults = [f for f in site_faults(cohort) if "look swapped" in f.what]
        assert [fault.site for fault in faults] == expected
    assert "'higher age' and 'lower age'" in faults[0].what


def test_two_of_three_classes_that_changed_places_are_a_warning():
    world = simulate("easy", n_rois=24, scale=2.0, disorders=2, d_scale=4.0)
    assert list(site_faults(world)) == []
    site = world.site_names[0]
    places = np.array([1, 0, 2])
    y = np.where(world.site == site, places[world.y], world.y)
    faults = list(site_faults(replace(world, y=y)))
    assert {fault.site for fault in faults} == {site}


def test_too_little_to_compare_raises_no_alarm(world):
    one = world.select_sites(world.site_names[:1])
    assert list(site_faults(reordered(one, one.site_names[0], shuffled(24)))) == []
    noise = np.random.default_rng(0).normal(size=(60, 24, 30))
    fc = np.stack([np.corrcoef(x) for x in noise]).astype(np.float32)
    site = np.array(["A", "B", "C"] * 20)
    ids = np.array([f"s{k}" for k in range(60)])
    random = Cohort("noise", fc, np.arange(60) // 3 % 2, site, ids)
    assert list(site_faults(random)) == []  # no pattern that sites could share


def test_one_site_is_compared_with_a_known_mean(world):
    known = fisher_z(world.fc).mean(0)
    mine = world.select_sites(world.site_names[:1]).fc
    assert scan_fault(known, mine, "A", "the sites before it", "warning") is None
    order = shuffled(24)
    wrong = mine[:, order][:, :, order]
    fault = scan_fault(known, wrong, "A", "the sites before it", "warning")
    assert fault is not None
    assert fault.severity == "warning"
    assert "that of the sites before it" in fault.what


def test_held_out_scores_are_those_of_ridge_trained_on_the_other_sites():
    """The formula for all sites at once equals one fit per site."""
    from sklearn.kernel_ridge import KernelRidge

    world = simulate("easy", n_rois=12, n_sites=3, scale=0.2)
    higher = world.y == 1
    scores = held_out_scores(world.fc, higher, world.site)
    x = fisher_z(world.fc)
    target = np.where(higher, 1.0, -1.0)
    for name in world.site_names:
        here = world.site == name
        x[here] -= x[here].mean(0)
        target[here] -= target[here].mean()
    penalty = 3 * np.trace(x @ x.T) / len(x)
    for name in world.site_names:
        here = world.site == name
        model = KernelRidge(alpha=penalty).fit(x[~here], target[~here])
        np.testing.assert_allclose(scores[here], model.predict(x[here]), atol=1e-4)


def test_contrast_by_hand():
    scores = np.array([0.0, 1.0, 2.0, 3.0])
    assert contrast(scores, np.array([0, 0, 1, 1], bool)).auroc == 1.0
    assert contrast(scores, np.array([1, 1, 0, 0], bool)).auroc == 0.0
    assert contrast(scores, np.array([1, 1, 0, 0], bool)).p < 0.2
    assert np.isnan(contrast(scores, np.ones(4, bool)).p)


# -- other faults that cost nothing to see -----------------------------------------------------------
def test_one_scan_with_two_diagnoses_is_named(world):
    rows = sorted([int(world.y.argmin()), int(world.y.argmax())])
    fc = world.fc.copy()
    fc[rows[1]] = fc[rows[0]]
    one, other = world.subject_id[rows]
    fault = next(f for f in check_cohort(replace(world, fc=fc)) if f.subject == other)
    assert fault.severity == "error"
    assert f"subject '{one}'" in fault.what
    assert "who has another diagnosis" in fault.what


@pytest.mark.parametrize(("kept", "lost"), [(1, "control"), (0, "patient")])
def test_a_table_without_one_group_is_refused(world, kept, lost):
    people = world.select(world.y == kept)
    for to_split in (True, False):
        faults = check_cohort(people, to_split=to_split)
        assert any(f.severity == "error" and lost in f.what for f in faults)


def test_words_in_place_of_ages_are_an_error(world):
    ages = np.array(["12"] * (len(world) - 1) + ["adult"])
    wrong = replace(world, covariates={"age": ages, "hand": ages})
    fault = only(check_cohort(wrong))
    assert fault.severity == "error"
    assert "covariate 'age' holds text (adult)" in fault.what


# -- ABIDE -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["abide1_aal116", "abide1_aal116_dparsf"])
def test_detection_and_false_alarms_on_abide(shared_data, name):
    cohort = load_folder(shared_data / f"{name}.npz")
    assert list(site_faults(cohort)) == []
    sides = np.arange(116) ^ 1  # AAL lists left, right, left, right, ...
    for order in (shuffled(116, 58), sides):  # half of the ROIs; left and right
        site = cohort.site_names[5]
        (fault,) = site_faults(reordered(cohort, site, order))
        assert fault.site == site
    large = [s for s in cohort.site_names if (cohort.site == s).sum() >= 100]
    for site in large:
        faults = list(site_faults(flipped(cohort, site)))
        assert [fault.site for fault in faults] == [site]
    means = {s: fisher_z(cohort.fc[cohort.site == s]) for s in cohort.site_names}
    assert min(map(_consistency, means.values())) > CONSISTENT + 0.2


def test_of_three_sites_the_wrong_one_is_named():
    world = simulate("easy", n_rois=24, n_sites=3, seed=0)
    for order, words in (
        (shuffled(24), "does not resemble"),
        (np.arange(24) ^ 1, "look swapped"),
    ):
        for site in world.site_names:
            fault = only(list(site_faults(reordered(world, site, order))))
            assert fault.site == site
            assert words in fault.what


def test_fisher_z_with_ones_on_the_diagonal_is_a_warning(world):
    ones = np.eye(24)
    rows = world.site == world.site_names[0]
    z = np.clip(np.arctanh(world.fc * (1 - ones)), -1, 1) + ones
    fc = np.where(rows[:, None, None], z, world.fc).astype(np.float32)
    wrong = replace(world, fc=fc)
    faults = [f for f in check_cohort(wrong) if "negative eigenvalues" in f.what]
    assert {f.site for f in faults} == {world.site_names[0]}
    (line,) = data_warnings(wrong)
    assert f"WARNING: {rows.sum()} subjects (" in line


def means_of_runs(fc: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return FC of two runs (n, R, R) averaged in Fisher z."""
    ones = np.eye(fc.shape[1])
    z = (np.arctanh(fc * (1 - ones)) + np.arctanh(second * (1 - ones))) / 2
    return (np.tanh(z) + ones).astype(np.float32)


def test_means_of_runs_in_fisher_z_are_no_warning():
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((12, 60))
    runs = [
        pearson_fc(
            rng.standard_normal((30, 12)) @ mixing
            + 1e-3 * rng.standard_normal((30, 60))
        )
        for _ in range(20)
    ]
    fc = np.stack(runs)
    mean = means_of_runs(fc[::2], fc[1::2])
    assert np.linalg.eigvalsh(mean)[:, 0].max() < -0.05  # no correlation matrices
    assert not_positive(mean) == []
    edges = mean[:, *np.tril_indices(60, -1)]
    assert layout_of(edges, "nilearn").order == "nilearn"
    for wrong in (np.where(fc > 0.4, fc, 0), (fc > 0.4) * 1.0, np.abs(fc)):
        assert not_positive(wrong) == list(range(20))


def test_eigenvalues_of_abide(shared_data):
    with np.load(shared_data / "abide1_aal116_halves.npz") as halves:
        first, second = (
            fc_from_upper(halves[name][:60].astype(float))
            for name in ("fc_first", "fc_second")
        )
    assert not_positive(means_of_runs(first, second)) == []
    assert not_positive(first) == []
    assert not_positive(np.where(first > 0.4, first, 0)) == list(range(60))


@pytest.mark.parametrize("name", ["abide1_aal116", "abide1_aal116_dparsf"])
def test_scans_of_an_unknown_abide_site_resemble_the_others(shared_data, name):
    cohort = load_folder(shared_data / f"{name}.npz")
    order = np.random.default_rng(0).permutation(cohort.n_rois)
    total = cohort.fc.sum(0, dtype=np.float64)
    for site in cohort.site_names:
        fc = cohort.fc[cohort.site == site]
        learned = (total - fc.sum(0, dtype=np.float64)) / (len(cohort) - len(fc))
        assert unlike_learned(learned, fc) == ""
        assert all(unlike_learned(learned, scan[None]) == "" for scan in fc[:10])
        assert "does not resemble" in unlike_learned(learned, fc[:, order][:, :, order])


def test_sites_are_compared_once_for_all_steps_of_a_run(world, monkeypatch):
    compared = []

    def counted_faults(cohort):
        compared.append(cohort)
        return comparison_faults(cohort)

    monkeypatch.setattr("fcforge.data.checks.comparison_faults", counted_faults)
    wrong = flipped(world, world.site_names[0])  # a new cohort
    require_valid(wrong)
    (line,) = data_warnings(wrong)
    assert "look swapped" in line
    for seed in (0, 1):
        make_sites(wrong, seed)
    assert len(compared) == 1
    # a cohort with other diagnoses is checked anew
    assert data_warnings(flipped(wrong, world.site_names[0])) == []
    assert len(compared) == 2
