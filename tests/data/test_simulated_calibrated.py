"""The calibrated world: deterministic, valid matrices, any size, close to what ABIDE measures."""

import time
from collections import Counter

import numpy as np
import pytest

from fcforge.core.errors import ConfigError
from fcforge.data.checks import MIN_PER_CLASS, check_cohort
from fcforge.data.cohort import Cohort
from fcforge.data.edges import upper_from_fc
from fcforge.data.simulated import simulate
from fcforge.data.simulated_calibrated import (
    PRESETS,
    atlas_of,
    layouts,
    made_up_atlas,
    mirror_images,
    places_of,
    recipe_of,
)
from fcforge.imaging.atlas import aal116


@pytest.fixture(scope="module")
def realistic() -> Cohort:
    return simulate("realistic", seed=1)


def fisher_z(cohort: Cohort) -> np.ndarray:
    return np.arctanh(
        np.clip(upper_from_fc(cohort.fc).astype(np.float64), -0.999, 0.999)
    )


def test_full_layout_in_seconds(realistic):
    start = time.perf_counter()
    again = simulate("realistic", seed=1)
    assert time.perf_counter() - start < 20  # measured 1-3 s on one busy core
    assert Counter(again.site.tolist()) == {
        "Sim-NYU": 184,
        "Sim-UCLA": 99,
        "Sim-UM": 145,
        "Sim-USM": 101,
    }
    np.testing.assert_array_equal(again.fc, realistic.fc)
    assert check_cohort(again, n_rois=116) == []


def test_calibration_against_abide(realistic):
    """Loose bounds around reference/neuroimaging.md section 6.1 (ranges over seeds are wide)."""
    edges, z, site, y = (
        upper_from_fc(realistic.fc),
        fisher_z(realistic),
        realistic.site,
        realistic.y,
    )
    assert 0.19 < edges.mean() < 0.27
    density = (edges >= 0.4).mean(axis=1)
    assert 0.15 < density.mean() < 0.26
    assert 0.10 < density.std() < 0.19
    assert 0.11 < z.mean(axis=0).std() < 0.17
    assert 0.09 < (edges < 0).mean() < 0.17
    within = [z[site == s].std(axis=0).mean() for s in realistic.site_names]
    assert 0.14 < np.mean(within) < 0.22
    pooled = np.sqrt((z[y == 1].var(axis=0) + z[y == 0].var(axis=0)) / 2)
    d = np.abs(z[y == 1].mean(axis=0) - z[y == 0].mean(axis=0)) / pooled
    assert 0.05 < np.median(d) < 0.17
    assert 0.12 < np.quantile(d, 0.9) < 0.30
    means = np.stack([z[site == s].mean(axis=0) for s in realistic.site_names])
    counts = np.array([(site == s).sum() for s in realistic.site_names])
    between = (counts[:, None] * (means - z.mean(axis=0)) ** 2).sum(axis=0)
    share = between / ((z - z.mean(axis=0)) ** 2).sum(axis=0)
    assert 0.025 < share.mean() < 0.07


def _holdout(z: np.ndarray, target: np.ndarray, alpha: float) -> float:
    """Accuracy of dual ridge on the odd rows after fitting the even ones."""
    train, test = np.arange(0, len(z), 2), np.arange(1, len(z), 2)
    mean, sd = z[train].mean(axis=0), z[train].std(axis=0)
    a, b = (z[train] - mean) / sd, (z[test] - mean) / sd
    classes = np.unique(target)
    onehot = (target[train][:, None] == classes) - (
        target[train][:, None] == classes
    ).mean(axis=0)
    weights = np.linalg.solve(a @ a.T + alpha * np.eye(len(a)), onehot)
    return float((classes[(b @ a.T @ weights).argmax(axis=1)] == target[test]).mean())


def test_sites_are_recognisable_and_diagnosis_is_learnable_but_hard(realistic):
    z = fisher_z(realistic)
    assert _holdout(z, realistic.site, 1e3) > 0.9  # real .973
    assert (
        0.58 < _holdout(z, realistic.y, 1e4) < 0.82
    )  # real .717 with more training data


def test_without_disorder_and_motion_difference_labels_mean_nothing():
    cohort = simulate(layout="mdd", d_scale=0.0, n_rois=40, scale=0.5, seed=2)
    assert 0.4 < _holdout(fisher_z(cohort), cohort.y, 1e3) < 0.6


def test_patients_move_more(realistic):
    fd, y = realistic.covariates["mean_fd"], realistic.y
    for name in realistic.site_names:
        here = realistic.site == name
        assert fd[here & (y == 1)].mean() > fd[here & (y == 0)].mean()
    assert (fd > 0).all()


@pytest.mark.parametrize("n_rois", [4, 5, 17, 64, 116, 150])
def test_any_roi_count_gives_correlation_matrices(n_rois):
    cohort = simulate("hard_shift", n_rois=n_rois, scale=0.06, seed=3)
    assert cohort.fc.shape[1:] == (n_rois, n_rois)
    assert cohort.fc.dtype == np.float32
    assert len(cohort.roi_names) == len(set(cohort.roi_names)) == n_rois
    np.testing.assert_array_equal(cohort.fc, cohort.fc.transpose(0, 2, 1))
    assert (np.diagonal(cohort.fc, axis1=1, axis2=2) == 1).all()
    assert np.abs(cohort.fc).max() <= 1
    assert np.linalg.eigvalsh(cohort.fc.astype(np.float64)).min() > -1e-4
    assert check_cohort(cohort, n_rois=n_rois) == []


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_differ(preset):
    one = simulate(preset, n_rois=20, scale=0.1, seed=0)
    assert all(
        not np.array_equal(one.fc, simulate(other, n_rois=20, scale=0.1, seed=0).fc)
        for other in PRESETS
        if other != preset
    )


def test_hard_shift_moves_sites_further_apart():
    def spread(preset: str) -> float:
        cohort = simulate(preset, n_rois=60, scale=0.4, seed=0)
        z = fisher_z(cohort)
        means = [z[cohort.site == s].mean(axis=0) for s in cohort.site_names]
        return float(np.std(means, axis=0).mean())

    assert spread("hard_shift") > 1.4 * spread("hard")


@pytest.mark.parametrize(
    ("layout", "sizes"),
    [
        ("mdd", {"S1": 146, "S9": 96, "S14": 93, "S20": 470, "S21": 144}),
        (
            "bsnip",
            {
                "Hartford": 297,
                "Chicago": 239,
                "Dallas": 197,
                "Georgia": 152,
                "Baltimore": 120,
            },
        ),
    ],
)
def test_layouts(layout, sizes):
    cohort = simulate(layout=layout, n_rois=8)
    assert Counter(cohort.site.tolist()) == {f"Sim-{k}": v for k, v in sizes.items()}
    if layout == "bsnip":
        assert abs(cohort.y.mean() - 0.44) < 0.005


def test_other_sites_do_not_change_a_site():
    two = simulate(n_rois=12, n_sites=2, scale=0.2, seed=5)
    seven = simulate(n_rois=12, n_sites=7, scale=0.2, seed=5)
    assert len(set(seven.site_names)) == 7
    np.testing.assert_array_equal(two.fc, seven.select_sites(two.site_names).fc)
    picked = simulate(n_rois=12, scale=0.2, seed=5, sites=["Sim-USM", "Sim-NYU"])
    assert picked.site_names == ("Sim-USM", "Sim-NYU")


def test_seeds_differ_and_scale_keeps_both_classes():
    assert not np.array_equal(
        simulate(n_rois=8, scale=0.1, seed=0).fc,
        simulate(n_rois=8, scale=0.1, seed=1).fc,
    )
    tiny = simulate(n_rois=8, scale=0.001)
    assert len(tiny) == 4 * 8
    assert check_cohort(tiny) == []


def test_aal_table():
    atlas = aal116()
    assert atlas.n_rois == 116
    assert (atlas.codes[0], atlas.codes[-1]) == (2001, 9170)
    assert list(atlas.codes) == sorted(atlas.codes)
    assert len(set(atlas.systems)) == 9
    left, right = (
        atlas.roi_names.index("Precuneus_L"),
        atlas.roi_names.index("Precuneus_R"),
    )
    assert mirror_images(atlas.roi_names)[left] == right
    assert mirror_images(atlas.roi_names)[right] == left
    assert (mirror_images(atlas.roi_names) == np.arange(116)).sum() == 8  # the vermis
    sided = mirror_images(atlas.roi_names) != np.arange(116)
    signs = np.where([n.endswith("_L") for n in atlas.roi_names], -1, 1)
    assert (np.sign(atlas.xyz[sided, 0]) == signs[sided]).all()


@pytest.mark.parametrize("n_rois", [4, 7, 90, 400])
def test_made_up_atlas_is_a_mirror_image(n_rois):
    atlas = made_up_atlas(n_rois)
    np.testing.assert_array_equal(
        mirror_images(atlas.roi_names)[mirror_images(atlas.roi_names)],
        np.arange(n_rois),
    )
    np.testing.assert_allclose(
        atlas.xyz[mirror_images(atlas.roi_names)], atlas.xyz * [-1, 1, 1]
    )
    assert [atlas.systems[t] for t in mirror_images(atlas.roi_names)] == list(
        atlas.systems
    )
    assert len(set(atlas.systems)) == max(1, min(9, n_rois // 6))
    assert len({tuple(p) for p in atlas.xyz.round(6).tolist()}) == n_rois


def test_simulated_names_are_not_real_ones():
    assert all(
        p.name.startswith("Sim-") for layout in layouts().values() for p in layout
    )


def test_layouts_have_the_papers_counts():
    counts = {
        name: [(p.patients, p.controls) for p in places]
        for name, places in layouts().items()
    }
    assert counts["abide"] == [(79, 105), (54, 45), (68, 77), (58, 43)]
    assert sum(a for a, _ in counts["mdd"]) == 506
    assert sum(a + b for a, b in counts["bsnip"]) == 1005
    assert [p.name for p in layouts()["mdd"]] == [
        "Sim-S1",
        "Sim-S9",
        "Sim-S14",
        "Sim-S20",
        "Sim-S21",
    ]
    assert layouts()["abide"][1].fd_patients == 0.236


def test_sites_are_cut_continued_and_scaled():
    assert [p.name for p in places_of("abide", 2, 1.0)] == ["Sim-NYU", "Sim-UCLA"]
    more = places_of("abide", 6, 1.0)
    assert [p.name for p in more[4:]] == ["Sim-Extra01", "Sim-Extra02"]
    assert more[4].patients == more[0].patients
    small = places_of("abide", None, 0.001)
    assert {(p.patients, p.controls) for p in small} == {(MIN_PER_CLASS, MIN_PER_CLASS)}
    assert places_of("abide", 1, 0.5)[0].patients == 40  # 39.5, to the even


def test_numbers_stand_in_place_of_the_presets_own():
    assert recipe_of("hard", None, None) == PRESETS["hard"]
    changed = recipe_of("hard", 0.0, 1.0)
    assert (changed.d_scale, changed.rho) == (0.0, 1.0)
    assert changed.site_block == PRESETS["hard"].site_block


def test_unknown_names_are_told_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'abide'"):
        places_of("abide1", None, 1.0)
    with pytest.raises(ConfigError, match="Did you mean 'realistic'"):
        recipe_of("realstic", None, None)


@pytest.mark.parametrize("n", [20, 61, 200])
def test_rois_fill_a_head_and_lie_apart(n):
    xyz = made_up_atlas(n).xyz
    assert ((xyz / [65, 85, 60]) ** 2).sum(1).max() <= 1 + 1e-9
    assert np.abs(xyz).max(0)[1] > 40
    distance = np.linalg.norm(xyz[:, None] - xyz[None], axis=-1) + np.eye(n) * 1e3
    assert distance.min() > 0.1  # no two in one place


def test_systems_are_as_many_as_the_rois_allow():
    counts = [len(set(made_up_atlas(n).systems)) for n in (4, 12, 30, 200)]
    assert counts == [1, 2, 5, 9]


def test_116_rois_of_the_simulator_are_aals():
    assert atlas_of(116) is aal116()
    assert atlas_of(115).name == "MadeUp115"
    names = aal116().roi_names
    other = mirror_images(names)
    assert names[other[0]] == "Precentral_R"
    assert [names[k] for k in np.flatnonzero(other == np.arange(116))] == [
        name for name in names if name.startswith("Vermis")
    ]
