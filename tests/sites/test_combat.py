"""Site effects: against neuroCombat and by hand."""

import numpy as np
import pandas as pd
import pytest
from neuroCombat import neuroCombat

from fcforge.randomness import numpy_rng
from fcforge.sites.combat import site_effect
from fcforge.sites.harmonise import Level

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


def test_arriving_site_is_neurocombat_with_a_reference(monkeypatch, capsys):
    monkeypatch.setattr(
        np, "int", int, raising=False
    )  # neuroCombat's ref_batch needs numpy 1
    z, site, _ = world()
    covars = pd.DataFrame({"site": site})
    with np.errstate(
        all="ignore"
    ):  # it divides by the reference's own shift, which is 0
        oracle = neuroCombat(z.T.copy(), covars, "site", ref_batch="A")["data"].T
    np.testing.assert_array_equal(oracle[site == "A"], z[site == "A"])
    for name in ("B", "C"):
        move = Level.of(z[site == "A"]).move("combat", z[site == name])
        ours = move.scale * z[site == name] + move.shift
        np.testing.assert_allclose(ours, oracle[site == name], atol=1e-4)


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
