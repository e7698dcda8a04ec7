"""The world of disagreeing hospitals: what marks a patient, where, and what is noise."""

from collections import Counter

import numpy as np
import pytest

from fcforge.data.checks import check_cohort
from fcforge.data.cohort import Cohort
from fcforge.data.edges import upper_from_fc
from fcforge.data.simulated_systems import SystemsWorld, simulate_systems


@pytest.fixture(scope="module")
def world() -> SystemsWorld:
    return SystemsWorld(40, 4, 120, 0.15, 0.40, 0)


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return simulate_systems()


def group_means(cohort: Cohort, world: SystemsWorld) -> dict[str, np.ndarray]:
    """Mean Fisher z of every subject within each group of ROIs."""
    means = {}
    for name, rois in world.groups.items():
        r = upper_from_fc(cohort.fc[:, rois][:, :, rois])
        means[name] = np.arctanh(r.astype(np.float64)).mean(axis=1)
    return means


def test_sizes_names_and_valid_matrices(cohort):
    assert Counter(cohort.site.tolist()) == {f"Sim-{k}": 80 for k in range(1, 5)}
    assert cohort.fc.shape == (320, 40, 40)
    assert cohort.fc.dtype == np.float32
    assert check_cohort(cohort, n_rois=40) == []
    for site in cohort.site_names:
        assert cohort.y[cohort.site == site].mean() == 0.5
    assert cohort.subject_id[80] == "Sim-2-0001"


def test_groups_are_disjoint_and_name_the_rois(world):
    members = np.concatenate([*world.groups.values()])
    assert sorted(members.tolist()) == list(range(40))
    assert world.roi_names[:9:8] == ("Common_1", "Sim-1_1")
    assert len(set(world.roi_names)) == 40
    left_over = SystemsWorld(12, 4, 120, 0.15, 0.40, 0)
    assert left_over.roi_names[-2:] == ("Other_1", "Other_2")


def test_patients_differ_in_the_common_group_and_in_their_own(cohort, world):
    """Class means differ by 2 a and 2 b before the projection, which takes up to a third."""
    for group, z in group_means(cohort, world).items():
        for site in cohort.site_names:
            here = cohort.site == site
            patients, controls = here & (cohort.y == 1), here & (cohort.y == 0)
            gap = z[patients].mean() - z[controls].mean()
            low, high = {"Common": (0.15, 0.30), site: (0.48, 0.80)}.get(
                group,
                (-0.2, 0.2),  # standard error .07
            )
            assert low < gap < high


def test_everybody_varies_in_the_groups_of_other_hospitals(cohort, world):
    z = group_means(cohort, world)
    here = (cohort.site == "Sim-1") & (cohort.y == 0)
    assert z["Sim-1"][here].std() < 0.1
    for other in ("Sim-2", "Sim-3", "Sim-4"):
        assert z[other][here].std() > 0.2


def test_effects_scale_with_their_settings(world):
    without = simulate_systems(common_effect=0.0, site_effect=0.0)
    for z in group_means(without, world).values():
        gap = z[without.y == 1].mean() - z[without.y == 0].mean()
        assert abs(gap) < 0.05
    strong = group_means(simulate_systems(common_effect=0.4), world)["Common"]
    weak = group_means(simulate_systems(common_effect=0.2), world)["Common"]
    y = without.y
    gaps = [z[y == 1].mean() - z[y == 0].mean() for z in (strong, weak)]
    assert gaps[0] > 1.5 * gaps[1]


def test_a_site_does_not_depend_on_which_others_are_kept(cohort):
    third = simulate_systems(sites=["Sim-3"])
    expected = cohort.select_sites(["Sim-3"])
    np.testing.assert_array_equal(third.fc, expected.fc)
    np.testing.assert_array_equal(third.y, expected.y)


def test_equal_seeds_agree_and_others_differ(cohort):
    np.testing.assert_array_equal(simulate_systems().fc, cohort.fc)
    assert not np.array_equal(simulate_systems(seed=1).fc, cohort.fc)


def test_fewer_volumes_make_noisier_scans():
    spread = [
        upper_from_fc(simulate_systems(volumes=n, site_effect=0.0).fc)
        .std(axis=0)
        .mean()
        for n in (30, 480)
    ]
    assert spread[0] > 1.5 * spread[1]
