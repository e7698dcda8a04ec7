"""Site effects: against neuroCombat and by hand."""

import numpy as np
import pandas as pd
import pytest
from neuroCombat import neuroCombat

from fcforge.core.randomness import numpy_rng
from fcforge.data.combat import SiteEffects, site_effect

SIZES = {"A": 40, "B": 25, "C": 15}


def world(n_edges: int = 60, seed: int = 0):
    """Edges (n, E), site and class of three sites with their own shift and scale."""
    rng = numpy_rng(seed, "harmonise")
    base, effect = rng.normal(0.3, 0.2, n_edges), rng.normal(0, 0.1, n_edges)
    z, site, y = [], [], []
    for k, (name, n) in enumerate(SIZES.items()):
        label = (np.arange(n) % (k + 2) == 0).astype(int)
        shift, scale = rng.normal(0.1 * k, 0.1, n_edges), rng.uniform(0.7, 1.5, n_edges)
        noise = 0.2 * scale * rng.normal(size=(n, n_edges))
        z.append(base + shift + label[:, None] * effect + noise)
        site += [name] * n
        y.append(label)
    return np.concatenate(z), np.array(site), np.concatenate(y)


def test_sites_are_moved_as_neurocombat_moves_them(capsys):
    z, site, _ = world()
    covars = pd.DataFrame({"site": site})
    oracle = neuroCombat(z.T.copy(), covars, "site")["data"].T
    nothing = np.zeros((len(z), 0))
    effects = SiteEffects.fit(z, site, nothing, None, "combat")
    for name in SIZES:
        rows = site == name
        ours = effects.remove(z[rows], nothing[rows], name)
        np.testing.assert_allclose(ours, oracle[rows], atol=1e-4)


def test_demeaning_by_hand():
    z = np.array([[4.0, 4.0], [4.0, 6.0], [0.0, 1.0], [2.0, 1.0]])
    site = np.array(["A", "A", "B", "B"])
    nothing = np.zeros((4, 0))
    effects = SiteEffects.fit(z, site, nothing, None, "demean")
    moved = effects.remove(z[2:], nothing[2:], "B")
    np.testing.assert_allclose(moved - z[2:], [[1.5, 2], [1.5, 2]])


def test_a_share_of_patients_does_not_move_a_site():
    """Two sites that differ in nothing but their share of patients stay as they are."""
    control = np.array([[0.0, 1.0, 2.0], [0.2, 1.1, 2.3]])
    patient = control + np.array([1.0, 1.0, 0.5])
    z = np.concatenate([control, control, patient, control, patient, patient])
    y = np.repeat([0, 0, 1, 0, 1, 1], 2)
    site = np.repeat(["few", "many"], 6)
    nothing = np.zeros((12, 0))
    aware, blind = (
        SiteEffects.fit(z, site, nothing, known, "combat").remove(
            z[6:], nothing[6:], "many"
        )
        for known in (y, None)
    )
    assert np.abs(aware - z[6:]).mean() < 0.05
    assert np.abs(blind - z[6:]).mean() > 0.1


def test_flat_edges_survive():
    z = np.zeros((10, 3))
    z[:, 0] = np.arange(10.0)
    site = np.repeat(["A", "B"], 5)
    nothing = np.zeros((10, 0))
    effects = SiteEffects.fit(z, site, nothing, None, "combat")
    assert np.isfinite(effects.remove(z[:5], nothing[:5], "A")).all()


def test_site_effect_without_others_to_borrow_from():
    x = np.array([[1.0], [3.0], [5.0]])
    gamma, delta2 = site_effect(x)
    assert gamma == pytest.approx([3.0])
    assert delta2 == pytest.approx([4.0])


def test_site_effect_shrinks_towards_the_mean_edge():
    standard = numpy_rng(1, "shrink").normal(size=(6, 200))
    gamma, delta2 = site_effect(standard)
    assert gamma.std() < standard.mean(0).std()
    assert delta2.std() < standard.var(0, ddof=1).std()
